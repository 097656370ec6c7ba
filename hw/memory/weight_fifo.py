"""The weight FIFO: tiles between DRAM and the array, one byte lane a column."""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.grid import Broadcast, Flow, Grid, PerCell
from npulse.hw.memory.sram import Sram

__all__ = ["BeatWrite", "TileLane", "TileRead", "weight_lanes"]


class TileRead(data.StructLayout):
    """Read command: `load` marks the first row of a tile, `last` its last row."""

    def __init__(self, *, depth: int) -> None:
        super().__init__({"load": 1, "last": 1, "addr": range(depth)})


class BeatWrite(data.StructLayout):
    """Write command for the lanes of one beat of the weight port."""

    def __init__(self, *, depth: int, beats: int) -> None:
        super().__init__({"en": 1, "beat": range(max(2, beats)), "addr": range(depth)})


class TileLane(wiring.Component):
    """Bank of `depth` bytes that sends a column of weights south, a row a cycle.

    Timing
    ------
    With s = `latency`: for a read command in cycle *t*, ``weight[t+s]``, and ``load[t+s]`` if it is
    the first row; the command leaves one cycle after it entered. A beat in cycle *t* is written if
    it is this lane's; a read command from *t + 1* on sees it.
    """

    read_i: data.View
    read_o: data.View
    write: data.View  #: The same beat for all lanes.
    octet: Signal  #: This lane's part of the beat.
    beat: Signal  #: Beat to which this lane belongs, a constant.
    weight: Signal
    load: Signal

    def __init__(self, *, depth: int, beats: int, latency: int) -> None:
        self.depth = depth
        self.latency = latency
        read = TileRead(depth=depth)
        super().__init__(
            {
                "read_i": In(read),
                "read_o": Out(read),
                "write": In(BeatWrite(depth=depth, beats=beats)),
                "octet": In(8),
                "beat": In(range(max(2, beats))),
                "weight": Out(signed(8)),
                "load": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bank = bank = Sram(depth=self.depth, shape=8, latency=self.latency)
        m.d.comb += [
            bank.r_addr.eq(self.read_i.addr),
            bank.w_addr.eq(self.write.addr),
            bank.w_data.eq(self.octet),
            bank.w_en.eq(self.write.en & (self.write.beat == self.beat)),
            self.weight.eq(bank.r_data),
        ]
        m.d.sync += self.read_o.eq(self.read_i)
        load = self.read_i.load
        for stage in range(self.latency):
            later = Signal(name=f"load_{stage}")
            m.d.sync += later.eq(load)
            load = later
        m.d.comb += self.load.eq(load)
        return m


def weight_lanes(*, cols: int, depth: int, beats: int, latency: int) -> Grid:
    """Grid of one `TileLane` a column; the read wave gives the columns their skew."""
    return Grid(
        lambda: TileLane(depth=depth, beats=beats, latency=latency),
        (cols,),
        {
            "read": Flow(),
            "write": Broadcast(),
            "octet": PerCell(),
            "beat": PerCell(),
            "weight": PerCell(),
            "load": PerCell(),
        },
    )
