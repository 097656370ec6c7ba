"""The unified buffer: byte lanes in groups, one wave of commands a port.

A square array has one group, and each wave runs through all lanes in order. With more rows than
columns a row of the buffer takes the results of several passes: the read wave chains through the
groups (the skew of the array's rows) while the write wave enters all groups at once (the skew of
its columns). With more columns than rows it is the other way round. Every wave of a port, DRAM
beats included, takes the same way, so waves that enter in different cycles never meet in a lane.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.grid import Flow, Grid, PerCell
from npulse.hw.memory.buffer_lane import BufferLane, BufferRead, BufferWrite, Packet, turned
from npulse.hw.spec.tpu_v1 import TpuV1Config

__all__ = ["UnifiedBuffer"]

ROLES = {
    "read": Flow(),
    "write": Flow(),
    "store": Flow(),
    "fetch": Flow(),
    "beat": PerCell(),
    "result": PerCell(),
    "act": PerCell(),
    "swap": PerCell(),
}


class UnifiedBuffer(wiring.Component):
    """Lanes between the host port, the array's west edge and the vector lanes.

    Timing
    ------
    With s = ``memory.sram_latency``: a read command in cycle *t* with ``en`` puts the row's
    activation k on ``act[k]`` in cycle ``t + s + 1 + k`` and its swap on ``swap[k]`` one cycle
    before. With ``collect`` its beat is on ``fetch`` in cycle ``t + s + hops``, where `hops` is
    the number of lanes that the read wave passes. A write command in cycle *t* takes column k of
    ``result`` in cycle ``t + k``, or the beat on ``store`` in cycle *t*. One command a port each
    cycle. `write_hops` cycles after a write command a read command sees all of it.
    """

    read: data.View  #: `BufferRead`.
    read_group: Signal  #: Group that feeds the array, with more columns than rows.
    write: data.View  #: `BufferWrite`.
    write_group: Signal  #: Group that takes the results, with more rows than columns.
    store: data.View  #: Beat of octets for `write`, octet k for lane ``beat * bytes + k``.
    fetch: data.View  #: Beat of octets of an earlier `read` with ``collect``.
    result: data.View  #: Results of the columns, (cols,) int8.
    act: data.View  #: Activations to the rows of the array, (rows,) int8.
    swap: data.View  #: (rows,) bits.

    def __init__(self, config: TpuV1Config) -> None:
        self.config = config
        depth, beats = config.memory.unified_buffer_rows, config.host_row_beats
        octets = data.ArrayLayout(unsigned(8), config.bus.host_bytes)
        packet = Packet(beat_bytes=config.bus.host_bytes)
        super().__init__(
            {
                "read": In(BufferRead(depth=depth, beats=beats)),
                "read_group": In(range(max(2, config.read_groups))),
                "write": In(BufferWrite(depth=depth, beats=beats)),
                "write_group": In(range(max(2, config.write_groups))),
                "store": In(octets),
                "fetch": Out(packet),
                "result": In(data.ArrayLayout(signed(8), config.array.cols)),
                "act": Out(data.ArrayLayout(signed(8), config.array.rows)),
                "swap": Out(data.ArrayLayout(1, config.array.rows)),
            }
        )

    @property
    def write_hops(self) -> int:
        """Cycles from a write command to the first read command that sees all of it."""
        config = self.config
        return 2 + config.group_lanes * config.read_groups

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        groups = [self._group(m, index) for index in range(config.lane_groups)]
        self._read_waves(m, groups)
        self._write_waves(m, groups)
        self._operands(m, groups)
        self._packets(m, groups)
        return m

    def _group(self, m: Module, index: int) -> Grid:
        """Group of lanes, each told the beat to which it belongs."""
        config = self.config
        group = Grid(
            lambda: BufferLane(
                depth=config.memory.unified_buffer_rows,
                beats=config.host_row_beats,
                beat_bytes=config.bus.host_bytes,
                latency=config.memory.sram_latency,
            ),
            (config.group_lanes,),
            ROLES,
        )
        m.submodules[f"group_{index}"] = group
        first = index * config.group_lanes
        for lane in range(config.group_lanes):
            m.d.comb += group.beat[lane].eq((first + lane) // config.bus.host_bytes)
        return group

    def _read_waves(self, m: Module, groups: list[Grid]) -> None:
        """Commands and beats to DRAM: through all groups in order, or into all at once."""
        latency = self.config.memory.sram_latency
        collect = self.read.collect
        for stage in range(latency):
            later = Signal(name=f"collect_{stage}")
            m.d.sync += later.eq(collect)
            collect = later
        parallel = self.config.read_groups > 1
        for index, group in enumerate(groups):
            if index and not parallel:
                m.d.comb += group.read_i.eq(groups[index - 1].read_o)
                m.d.comb += group.fetch_i.eq(groups[index - 1].fetch_o)
                continue
            m.d.comb += [group.read_i.eq(self.read), group.fetch_i.valid.eq(collect)]
            if parallel:
                m.d.comb += group.read_i.en.eq(self.read.en & (self.read_group == index))

    def _write_waves(self, m: Module, groups: list[Grid]) -> None:
        """Commands and beats from DRAM, likewise; lane f finds its octet at 0 after f turns."""
        parallel = self.config.write_groups > 1
        for index, group in enumerate(groups):
            if index and not parallel:
                m.d.comb += group.write_i.eq(groups[index - 1].write_o)
                m.d.comb += group.store_i.eq(groups[index - 1].store_o)
                continue
            ahead = index * self.config.group_lanes
            m.d.comb += [
                group.write_i.eq(self.write),
                group.store_i.eq(Cat(self.write.store, *turned(self.store, ahead))),
            ]
            if parallel:
                mine = self.write.result & (self.write_group == index)
                m.d.comb += group.write_i.result.eq(mine)

    def _operands(self, m: Module, groups: list[Grid]) -> None:
        """Join lanes to rows and columns; whole edges where there is one group."""
        config = self.config
        width = config.group_lanes
        for index, group in enumerate(groups):
            first = index * width if config.read_groups > 1 else 0
            for lane in range(width):
                if first + lane < config.array.cols:
                    m.d.comb += group.result[lane].eq(self.result[first + lane])
        for row in range(min(config.array.rows, config.lanes)):
            sources = groups if config.read_groups > 1 else [groups[row // width]]
            lane = row % width
            m.d.comb += self.act[row].eq(reduce(or_, (_bits(g.act[lane]) for g in sources)))
            m.d.comb += self.swap[row].eq(reduce(or_, (_bits(g.swap[lane]) for g in sources)))

    def _packets(self, m: Module, groups: list[Grid]) -> None:
        """Turn leaving beats back, and join the parts that parallel groups filled in."""
        config = self.config
        parallel = config.read_groups > 1
        parts = []
        for index, group in enumerate(groups if parallel else groups[-1:]):
            hops = (index + 1) * config.group_lanes if parallel else config.lanes
            parts.append(Cat(*turned(group.fetch_o.octets, -hops)))
        m.d.comb += [
            self.fetch.valid.eq(groups[-1].fetch_o.valid),
            self.fetch.octets.eq(reduce(or_, parts)),
        ]


def _bits(value: Value) -> Value:
    return value.as_unsigned()
