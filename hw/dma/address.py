"""Bursts of a descriptor: rows and beats become AXI4 addresses and lengths."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.bus.axi4 import BOUNDARY_BYTES, Axi4Signature
from npulse.hw.dma.descriptor import TransferDescriptor


class BurstRequest(data.StructLayout):
    """INCR burst: byte address of the first beat, and beats minus one (AxLEN)."""

    def __init__(self) -> None:
        super().__init__({"addr": 32, "len": 8})


class BurstGenerator(wiring.Component):
    """Cut the rows of descriptors into bursts that end at multiples of the longest burst.

    A block of ``max_burst_beats`` beats is a power of two and at most 4 KiB, so that a burst
    inside an aligned block never crosses 4 KiB (IHI 0022E, A3.4.1), and only the first burst of
    a row needs its address: all others start at a block. No adder is wider than 32 bits.

    Timing
    ------
    First burst three cycles after the descriptor is taken, then a burst a cycle while
    ``burst.ready``, without a gap between rows or between descriptors. ``desc.ready`` depends
    combinationally on ``burst.ready``.

    Parameters
    ----------
    data_width : int
        Bits in a beat.
    max_burst_beats : int
        Beats in the longest burst: a power of two, at most 256 and at most 4 KiB.
    """

    #: Cycles from the transfer of a descriptor to its first burst.
    latency = 3

    desc: stream.Interface  #: Blocks to cut (`TransferDescriptor`).
    burst: stream.Interface  #: Bursts in order (`BurstRequest`), registered.
    busy: Signal  #: A burst is offered or still to come.

    def __init__(self, *, data_width: int, max_burst_beats: int) -> None:
        self.beat_bytes = Axi4Signature(data_width=data_width).beat_bytes
        bound = min(256, BOUNDARY_BYTES // self.beat_bytes)
        if not 2 <= max_burst_beats <= bound or max_burst_beats & (max_burst_beats - 1):
            raise ValueError(
                f"max_burst_beats must be a power of two of 2 to {bound} beats "
                f"({BOUNDARY_BYTES} bytes, 256 beats), not {max_burst_beats!r}"
            )
        self.max_burst_beats = max_burst_beats
        super().__init__(
            {
                "desc": In(stream.Signature(TransferDescriptor())),
                "burst": Out(stream.Signature(BurstRequest())),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        desc, burst = self.desc.p, self.burst
        shift = self.beat_bytes.bit_length() - 1
        low_bits = self.max_burst_beats.bit_length() - 1

        # Rows: address in beats of the next row of the descriptor in hand.
        row_valid, row_ready = Signal(), Signal()
        row_addr, stride = Signal(32 - shift), Signal(32 - shift)
        beats, rows = Signal.like(desc.beats), Signal.like(desc.rows)
        m.d.comb += self.desc.ready.eq(~row_valid | (row_ready & (rows == 1)))
        with m.If(self.desc.ready):
            m.d.sync += [
                row_valid.eq(self.desc.valid),
                row_addr.eq(desc.addr[shift:]),
                stride.eq(desc.stride[shift:]),
                beats.eq(desc.beats),
                rows.eq(desc.rows),
            ]
        with m.Elif(row_ready):
            m.d.sync += [row_addr.eq(row_addr + stride), rows.eq(rows - 1)]

        # Blocks: the burst in hand starts `first` beats into block `block`; its row still
        # touches `blocks` further blocks and ends with beat `tail` of the last one.
        block_valid, block_ready = Signal(), Signal()
        block, first = Signal(32 - shift - low_bits), Signal(low_bits)
        blocks, tail = Signal(len(beats) + 1 - low_bits), Signal(low_bits)
        is_last, end = Signal(), Signal(low_bits)
        m.d.comb += [
            is_last.eq(blocks == 0),
            end.eq(Mux(is_last, tail, self.max_burst_beats - 1)),
            row_ready.eq(~block_valid | (block_ready & is_last)),
        ]
        with m.If(row_ready):
            span = Signal(len(beats) + 1)
            m.d.comb += span.eq(beats + row_addr[:low_bits] - 1)
            m.d.sync += [
                block_valid.eq(row_valid),
                Cat(first, block).eq(row_addr),
                Cat(tail, blocks).eq(span),
            ]
        with m.Elif(block_ready):
            m.d.sync += [first.eq(0), block.eq(block + 1), blocks.eq(blocks - 1)]

        m.d.comb += block_ready.eq(~burst.valid | burst.ready)
        with m.If(block_ready):
            m.d.sync += [
                burst.valid.eq(block_valid),
                burst.p.addr.eq(Cat(Const(0, shift), first, block)),
                burst.p.len.eq(end - first),
            ]
        m.d.comb += self.busy.eq(row_valid | block_valid | burst.valid)
        return m
