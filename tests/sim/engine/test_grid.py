"""A Grid compiled to loops equals the same cells as submodules in pysim, cycle by cycle."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from amaranth.hdl import Cat, Module, Mux, Print, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from npulse.hw.grid import Broadcast, Edge, Flow, Grid, PerCell, Role
from npulse.sim.engine.build import build
from npulse.sim.engine.bulk import Compiled
from npulse.sim.simulator import Simulator


class Mixer(wiring.Component):
    """Uses every role: two flows, three broadcasts, per-cell ports, an edge output."""

    x_i: Signal
    x_o: Signal
    y_i: Signal
    y_o: Signal
    enable: Signal
    row: Signal
    column: Signal
    own: Signal
    total: Signal
    parity: Signal

    def __init__(self) -> None:
        super().__init__(
            {
                "x_i": In(signed(5)),
                "x_o": Out(signed(5)),
                "y_i": In(33),
                "y_o": Out(33),
                "enable": In(1),
                "row": In(7),
                "column": In(signed(9)),
                "own": In(4),
                "total": Out(18),
                "parity": Out(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = Signal(18, init=77)
        with m.If(self.enable):
            m.d.sync += self.x_o.eq(self.x_i + self.own)
        m.d.sync += self.y_o.eq(self.y_i + self.x_o * self.row)
        m.d.sync += count.eq(Mux(self.x_i < 0, count + self.column, count ^ self.own))
        m.d.comb += self.total.eq(count)
        m.d.comb += self.parity.eq(Cat(count.xor(), self.x_o.all()))
        return m


MIXER: dict[str, Role] = {
    "enable": Broadcast(),
    "own": PerCell(),
    "total": PerCell(),
}


def mixer(shape: tuple[int, ...]) -> Grid:
    last = len(shape) - 1
    roles: dict[str, Role] = {
        **MIXER,
        "x": Flow(axis=last),
        "y": Flow(axis=0),
        "row": Broadcast(axes=(last,)),
        "column": Broadcast(axes=(0,) if last else None),
        "parity": Edge(axis=last),
    }
    return Grid(Mixer, shape, roles)


def mixer_edge_first(shape: tuple[int, ...]) -> Grid:
    grid = mixer(shape)
    return Grid(Mixer, shape, {**grid.roles, "parity": Edge(axis=0), "total": Edge(axis=0)})


class Lane(wiring.Component):
    """A lane of memory whose commands flow; `transparent` and `grain` vary the ports."""

    write_i: Signal
    write_o: Signal
    addr_i: Signal
    addr_o: Signal
    data: Signal
    common: Signal
    word: Signal
    other: Signal
    looked: Signal

    def __init__(self, width: int, depth: int, transparent: bool, grain: int | None) -> None:
        self.width, self.depth = width, depth
        self.transparent, self.grain = transparent, grain
        self.enables = 1 if grain is None else width // grain
        super().__init__(
            {
                "write_i": In(self.enables),
                "write_o": Out(self.enables),
                "addr_i": In(4),
                "addr_o": Out(4),
                "data": In(width),
                "common": In(4),
                "word": Out(width),
                "other": Out(width),
                "looked": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        init = [(37 * n + 1) % (1 << self.width) for n in range(self.depth)]
        m.submodules.words = words = Memory(shape=self.width, depth=self.depth, init=init)
        write = words.write_port(granularity=self.grain)
        read = words.read_port(transparent_for=[write] if self.transparent else [])
        uniform = words.read_port()
        look = words.read_port(domain="comb")
        m.d.sync += [self.write_o.eq(self.write_i), self.addr_o.eq(self.addr_i)]
        m.d.comb += [
            write.addr.eq(self.addr_i),
            write.data.eq(self.data),
            write.en.eq(self.write_i),
            read.addr.eq(self.addr_o),
            read.en.eq(self.common[0] | self.addr_i[1]),
            uniform.addr.eq(self.common),
            look.addr.eq(self.addr_o),
            self.word.eq(read.data),
            self.other.eq(uniform.data),
            self.looked.eq(look.data),
        ]
        return m


LANE: dict[str, Role] = {
    "write": Flow(axis=0),
    "addr": Flow(axis=0),
    "data": PerCell(),
    "common": Broadcast(),
    "word": PerCell(),
    "other": PerCell(),
    "looked": PerCell(),
}


def lanes(
    columns: int,
    width: int = 8,
    depth: int = 16,
    transparent: bool = False,
    grain: int | None = None,
) -> Grid:
    return Grid(lambda: Lane(width, depth, transparent, grain), (columns,), LANE)


def lanes_in_rows(rows: int, columns: int) -> Grid:
    roles = {**LANE, "addr": Flow(axis=1)}
    return Grid(lambda: Lane(12, 5, True, 4), (rows, columns), roles)


def trace(dut: Any, engine: str, cycles: int, seed: int = 1) -> list[tuple[int, ...]]:
    """Outputs in each cycle under random inputs, the same for both engines."""
    rng = random.Random(seed)
    members = dut.signature.members.items()
    ports = {name: Value.cast(getattr(dut, name)) for name, _ in members}
    inputs = [ports[name] for name, member in members if member.flow == In]
    outputs = [ports[name] for name, member in members if member.flow == Out]
    seen = []
    simulator = Simulator(dut, engine=engine)
    simulator.add_clock(1e-6)

    async def bench(ctx: Any) -> None:
        for _ in range(cycles):
            for signal in inputs:
                ctx.set(signal, rng.getrandbits(len(signal)))
            await ctx.tick()
            seen.append(tuple(ctx.get(signal) for signal in outputs))

    simulator.add_testbench(bench)
    simulator.run()
    return seen


CASES: dict[str, Callable[[], Grid]] = {
    "one cell": lambda: mixer((1, 1)),
    "one row": lambda: mixer((1, 9)),
    "one column": lambda: mixer((6, 1)),
    "matrix": lambda: mixer((4, 5)),
    "longer than a vector": lambda: mixer((2, 37)),
    "line": lambda: mixer((7,)),
    "cube": lambda: mixer((2, 3, 4)),
    "four axes": lambda: mixer((2, 2, 2, 3)),
    "edge along the rows": lambda: mixer_edge_first((3, 4)),
    "edge of a cube": lambda: mixer_edge_first((2, 3, 2)),
    "bytes": lambda: lanes(5),
    "odd depth": lambda: lanes(4, width=13, depth=11),
    "one row deep": lambda: lanes(3, width=1, depth=1),
    "wide words": lambda: lanes(3, width=72, depth=7, grain=8),
    "transparent": lambda: lanes(5, transparent=True),
    "transparent, masked, odd depth": lambda: lanes(6, 12, 9, True, 4),
    "rows of memories": lambda: lanes_in_rows(3, 5),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_its_cells_in_pysim(case: str) -> None:
    cycles = 60
    expected = trace(CASES[case](), "pysim", cycles)
    assert trace(CASES[case](), "compiled", cycles) == expected
    assert len(set(expected)) > cycles // 2, "the stimulus moves nothing"


def test_really_runs_as_a_loop() -> None:
    for case, make in CASES.items():
        built = build(make())
        assert built.program.grids.plans, case
        assert built.report.notes == []


class Joined(wiring.Component):
    """Lanes feed a matrix by both edges, whose sums return to the lanes through another row."""

    data: Signal
    common: Signal
    command: Signal
    result: Signal

    def __init__(self) -> None:
        super().__init__(
            {"data": In(32), "common": In(4), "command": In(5), "result": Out(4 * 33 + 4 * 8)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.lanes = source = lanes(4)
        m.submodules.matrix = matrix = mixer((4, 4))
        m.submodules.back = back = lanes(4)
        cast = Value.cast
        words = cast(source.word)
        y = cast(matrix.y_o)
        m.d.comb += [
            cast(source.data).eq(cast(back.word)),  # a circle of grids
            source.write_i.eq(self.command[0]),
            source.addr_i.eq(self.command[1:]),
            source.common.eq(self.common),
            matrix.enable.eq(self.command[1]),
            cast(matrix.x_i).eq(Cat(words.word_select(n, 8)[:5] for n in range(4))),
            cast(matrix.row).eq(Cat(words.word_select(n, 8)[1:8] for n in range(4))),
            cast(matrix.y_i).eq(Cat(Cat(words.word_select(n, 8), words[:25]) for n in range(4))),
            cast(matrix.own).eq(self.data),
            cast(back.data).eq(words),
            back.common.eq(source.common),
            back.write_i.eq(source.write_o),
            back.addr_i.eq(source.addr_o),
            self.result.eq(Cat(y, back.other)),
        ]
        return m


def test_joined_grids_equal_their_cells() -> None:
    expected = trace(Joined(), "pysim", 80)
    assert trace(Joined(), "compiled", 80) == expected
    assert len({row[0] for row in expected}) > 40


def test_whole_vectors_are_not_packed_by_scalar_logic() -> None:
    grids = build(Joined()).program.grids
    lanes_only = [plan for plan in grids.plans.values() if "data" in plan.info.inputs]
    assert len(lanes_only) == 2
    assert not any("data" in plan.staged for plan in lanes_only)
    assert len(grids.copies) <= 3, "only one side of the circle needs copies"


def test_memory_of_a_grid_is_a_view_that_the_hardware_reads() -> None:
    grid = lanes(4)
    compiled = Compiled(grid)
    words = compiled.memory("words")
    assert words.shape == (16, 4)
    words[3] = [9, 8, 7, 6]
    compiled.set(grid.common, 3)
    compiled.step()
    assert [compiled.get(Value.cast(grid.other)) >> 8 * n & 255 for n in range(4)] == [9, 8, 7, 6]


class Talker(wiring.Component):
    x_i: Signal
    x_o: Signal

    def __init__(self, *, prints: bool, registered: bool) -> None:
        self.prints, self.registered = prints, registered
        super().__init__({"x_i": In(4), "x_o": Out(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.x_o.eq(self.x_i)
        if self.prints:
            m.d.sync += Print("x ", self.x_i)
        return m


def test_cells_that_cannot_be_looped_are_built_one_by_one_and_reported() -> None:
    grid = Grid(lambda: Talker(prints=True, registered=True), (3,), {"x": Flow(axis=0)})
    report = build(grid).report
    assert len(report.notes) == 1
    assert report.notes[0].startswith(
        "grid of (3,) cells is built cell by cell: cell Talker must not have a print ("
    )


class LateOutput(wiring.Component):
    own: Signal
    out: Signal

    def __init__(self) -> None:
        super().__init__({"own": In(4), "out": Out(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.out.eq(~self.own)
        return m


def test_an_output_that_depends_on_an_input_is_not_looped() -> None:
    grid = Grid(LateOutput, (3,), {"own": PerCell(), "out": PerCell()})
    assert build(grid).report.notes == [
        "grid of (3,) cells is built cell by cell: output out of cell LateOutput must depend on "
        "state alone, not on an input of the same cycle"
    ]
