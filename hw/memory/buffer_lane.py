"""One byte lane of the unified buffer: a bank whose commands flow to the next lane.

Commands enter lane 0 and move one lane a cycle, so operands leave the lanes already skewed for the
array, results enter them in step with it, and no triangle of delay registers is needed. Bytes of
DRAM travel beside the commands in *packets* of one beat: a packet turns by one byte at each lane,
so the byte that a lane takes or gives is always byte 0.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.common.struct import struct
from npulse.hw.memory.sram import Sram

__all__ = ["BufferLane", "BufferRead", "BufferWrite", "Packet"]


class BufferRead(data.StructLayout):
    """Read command: for the array (`en`), for a DRAM beat (`collect`), or neither."""

    def __init__(self, *, depth: int, beats: int) -> None:
        super().__init__(
            {
                "en": 1,
                "swap": 1,  # the row is the first of its tile
                "pad": 1,  # give `fill` instead of the word
                "fill": signed(8),
                "collect": 1,
                "beat": range(max(2, beats)),  # which lanes the beat takes
                "addr": range(depth),
            }
        )


class BufferWrite(data.StructLayout):
    """Write command: from the vector lanes (`result`), from a DRAM beat (`store`), or neither."""

    def __init__(self, *, depth: int, beats: int) -> None:
        super().__init__(
            {"result": 1, "store": 1, "beat": range(max(2, beats)), "addr": range(depth)}
        )


class Packet(data.StructLayout):
    """One beat of the host port on its way through the lanes."""

    def __init__(self, *, beat_bytes: int) -> None:
        super().__init__({"valid": 1, "octets": data.ArrayLayout(unsigned(8), beat_bytes)})


def turned(octets: data.View, by: int) -> list[Signal]:
    """Octets of a packet after `by` lanes: octet k is octet ``k + by``, modulo their number."""
    count = len(octets.as_value()) // 8
    return [octets[(k + by) % count] for k in range(count)]


class BufferLane(wiring.Component):
    """Bank of `depth` bytes with flowing commands and packets.

    Parameters
    ----------
    depth : int
        Bytes.
    beats : int
        Beats of the host port in one row of the buffer.
    beat_bytes : int
        Bytes of a beat.
    latency : int
        Cycles of the bank from address to data, s below.

    Timing
    ------
    For a read command in cycle *t*: ``swap[t+s]``, ``act[t+s+1]`` (zero if not ``en``), and the
    byte goes into the packet that is on ``fetch_i`` in cycle *t + s* if this lane belongs to the
    beat. A write command in cycle *t* takes ``result[t]`` or octet 0 of ``store_i[t]``; a read
    command from *t + 2* on sees it. Commands and packets leave one cycle after they entered.
    """

    read_i: data.View
    read_o: data.View
    write_i: data.View
    write_o: data.View
    store_i: data.View  #: Octets on their way from DRAM, beside `write_i`.
    store_o: data.View
    fetch_i: data.View  #: Octets on their way to DRAM, `latency` cycles behind `read_i`.
    fetch_o: data.View
    beat: Signal  #: Beat to which this lane belongs, a constant.
    result: Signal  #: Result of this lane's column.
    act: Signal  #: Activation to this lane's array row.
    swap: Signal  #: The next activation is the first of its tile.

    def __init__(self, *, depth: int, beats: int, beat_bytes: int, latency: int) -> None:
        self.depth = depth
        self.latency = latency
        read = BufferRead(depth=depth, beats=beats)
        write = BufferWrite(depth=depth, beats=beats)
        packet = Packet(beat_bytes=beat_bytes)
        super().__init__(
            {
                "read_i": In(read),
                "read_o": Out(read),
                "write_i": In(write),
                "write_o": Out(write),
                "store_i": In(packet),
                "store_o": Out(packet),
                "fetch_i": In(packet),
                "fetch_o": Out(packet),
                "beat": In(range(max(2, beats))),
                "result": In(signed(8)),
                "act": Out(signed(8)),
                "swap": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bank = bank = Sram(depth=self.depth, shape=8, latency=self.latency)
        m.d.sync += [self.read_o.eq(self.read_i), self.write_o.eq(self.write_i)]
        self._write(m, bank)
        self._read(m, bank)
        return m

    def _write(self, m: Module, bank: Sram) -> None:
        hit = self.write_i.store & (self.write_i.beat == self.beat)
        # The bank sees the command one cycle late, so `write_o` is its address register.
        en, octet = Signal(), Signal(8, reset_less=True)
        m.d.comb += [bank.w_addr.eq(self.write_o.addr), bank.w_data.eq(octet), bank.w_en.eq(en)]
        m.d.sync += [
            en.eq(self.write_i.result | hit),
            octet.eq(Mux(self.write_i.store, self.store_i.octets[0], self.result)),
            self.store_o.eq(Cat(self.store_i.valid, *turned(self.store_i.octets, 1))),
        ]

    def _read(self, m: Module, bank: Sram) -> None:
        m.d.comb += bank.r_addr.eq(self.read_i.addr)
        command, hit = self.read_i, self.read_i.collect & (self.read_i.beat == self.beat)
        for stage in range(self.latency):
            later = struct(self.read_i.shape(), name=f"command_{stage}")
            later_hit = Signal(name=f"hit_{stage}")
            m.d.sync += [later.eq(command), later_hit.eq(hit)]
            command, hit = later, later_hit
        m.d.comb += self.swap.eq(command.en & command.swap)
        word = Mux(command.pad, command.fill, bank.r_data.as_signed())
        octets = [Mux(hit, bank.r_data, self.fetch_i.octets[0]), *turned(self.fetch_i.octets, 1)]
        m.d.sync += [
            self.act.eq(Mux(command.en, word, 0)),
            # Octet 0 was this lane's; after the turn it is the last.
            self.fetch_o.eq(Cat(self.fetch_i.valid, *octets[1:-1], octets[0])),
        ]
