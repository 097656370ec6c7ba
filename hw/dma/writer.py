"""Mover from a stream of beats to AXI4 memory."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.bus.axi4 import Axi4Interface, Axi4Signature, Burst, Response
from npulse.hw.dma.address import BurstGenerator
from npulse.hw.dma.descriptor import TransferDescriptor


class WriteMaster(wiring.Component):
    """Write a stream of beats to the blocks of descriptors, in order.

    Address and data of a burst go out independently: neither ``bus.awvalid`` nor
    ``bus.wvalid`` waits for the ready of the other channel, so a memory may take them in any
    order (IHI 0022E, A3.3.1). An address is offered up to one burst ahead of its data, also
    while the data are still to come. Every byte of a beat is written.

    Timing
    ------
    ``bus.awvalid`` rises 3 cycles after a descriptor is taken, ``bus.wvalid`` 1 cycle after
    ``data`` is taken. Throughput is a beat and a burst a cycle, also across rows and
    descriptors, if ``outstanding`` bursts cover the response latency of the memory.
    ``data.ready`` depends combinationally on ``bus.wready``; ``desc.ready`` on ``bus.awready``,
    ``bus.wready`` and ``data.valid``; no bus output on any input.

    Parameters
    ----------
    data_width : int
        Bits in a beat.
    max_burst_beats : int
        Beats in the longest burst, see `npulse.hw.dma.address.BurstGenerator`.
    outstanding : int
        Bursts offered and not yet answered, at most; at least 1.
    """

    desc: stream.Interface  #: Blocks to write (`TransferDescriptor`).
    data: stream.Interface  #: Beats to write; taken only for a descriptor in hand.
    bus: Axi4Interface  #: Write channels of the memory.
    idle: Signal  #: Every beat of every descriptor taken is written and answered.
    error: Signal  #: A response was not OKAY since the last ``clear``.
    clear: Signal  #: Lower ``error``; an error of the same cycle wins.

    def __init__(self, *, data_width: int, max_burst_beats: int = 16, outstanding: int = 4) -> None:
        if outstanding < 1:
            raise ValueError(f"outstanding must be at least 1 burst, not {outstanding!r}")
        self.outstanding = outstanding
        self.bursts = BurstGenerator(data_width=data_width, max_burst_beats=max_burst_beats)
        self.bus_signature = Axi4Signature(data_width=data_width, read=False)
        super().__init__(
            {
                "desc": In(stream.Signature(TransferDescriptor())),
                "data": In(stream.Signature(data_width)),
                "bus": Out(self.bus_signature),
                "idle": Out(1),
                "error": Out(1),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bursts = bursts = self.bursts
        wiring.connect(m, wiring.flipped(self.desc), bursts.desc)
        bus, burst = self.bus, bursts.burst

        # Fork of the burst in hand: to channel AW and to the beat counter of channel W.
        in_flight = Signal(range(self.outstanding + 1))
        may_issue, addr_done, beats_done = Signal(), Signal(), Signal()
        addr_taken, beats_ready, beats_taken, issue = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            may_issue.eq(burst.valid & (in_flight != self.outstanding)),
            bus.awvalid.eq(may_issue & ~addr_done),
            bus.awaddr.eq(burst.p.addr),
            bus.awlen.eq(burst.p.len),
            bus.awsize.eq(self.bus_signature.size),
            bus.awburst.eq(Burst.INCR),
            addr_taken.eq(addr_done | bus.awready),
            beats_taken.eq(beats_done | beats_ready),
            issue.eq(may_issue & addr_taken & beats_taken),
            burst.ready.eq(issue),
            bus.bready.eq(1),
        ]
        with m.If(may_issue):
            m.d.sync += [
                addr_done.eq(addr_taken & ~beats_taken),
                beats_done.eq(beats_taken & ~addr_taken),
            ]
        m.d.sync += in_flight.eq(in_flight + issue - bus.bvalid)

        # Beats of the burst that channel W is in, after the one in hand.
        active, left = Signal(), Signal.like(burst.p.len)
        w_ready, is_last = Signal(), Signal()
        m.d.comb += [
            w_ready.eq(~bus.wvalid | bus.wready),
            is_last.eq(left == 0),
            self.data.ready.eq(active & w_ready),
            beats_ready.eq(~active | (w_ready & self.data.valid & is_last)),
            bus.wstrb.eq(~0),
        ]
        with m.If(beats_ready):
            m.d.sync += [active.eq(may_issue & ~beats_done), left.eq(burst.p.len)]
        with m.Elif(w_ready & self.data.valid):
            m.d.sync += left.eq(left - 1)
        with m.If(w_ready):
            m.d.sync += [
                bus.wvalid.eq(active & self.data.valid),
                bus.wdata.eq(self.data.p),
                bus.wlast.eq(is_last),
            ]

        with m.If(bus.bvalid & (bus.bresp != Response.OKAY)):
            m.d.sync += self.error.eq(1)
        with m.Elif(self.clear):
            m.d.sync += self.error.eq(0)
        m.d.comb += self.idle.eq(~(bursts.busy | (in_flight != 0)))
        return m
