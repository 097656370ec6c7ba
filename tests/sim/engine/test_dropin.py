"""The drop-in engine: every kind of trigger, process and testbench behaves as on pysim."""

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from amaranth.hdl import (
    Assert,
    Cat,
    ClockDomain,
    DriverConflict,
    Elaboratable,
    Format,
    Module,
    Print,
    Signal,
    signed,
)
from amaranth.lib import data, enum
from amaranth.lib.memory import Memory
from amaranth.sim import Simulator as AmaranthSimulator

from npulse.sim.engine.dropin import CompiledEngine
from npulse.sim.simulator import Simulator

BOTH = ("pysim", "compiled")


class State(enum.Enum, shape=2):
    IDLE = 0
    BUSY = 1
    DONE = 2


class Dut(Elaboratable):
    """A counter, an alias, a structure, an enumeration, a memory."""

    def __init__(self) -> None:
        self.en = Signal(init=1)
        self.count = Signal(8)
        self.twice = Signal(9)
        self.pair = Signal(data.StructLayout({"a": 4, "b": signed(4)}))
        self.state = Signal(State)
        self.words = Memory(shape=signed(8), depth=8, init=[1, -2, 3])
        self.read = self.words.read_port()
        self.look = self.words.read_port(domain="comb")
        self.write = self.words.write_port()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = self.words
        with m.If(self.en):
            m.d.sync += self.count.eq(self.count + 1)
        with m.If(self.count == 3):
            m.d.sync += self.state.eq(State.BUSY)
        m.d.comb += [
            self.twice.eq(self.count << 1),
            self.pair.a.eq(self.count),
            self.pair.b.eq(-self.count),
            self.read.addr.eq(self.count),
        ]
        return m


def run(engine: str, make: Callable[[Simulator, Any, list[Any]], None]) -> list[Any]:
    """Set up one simulation with `make`, run it, and return what it logged."""
    dut, log = Dut(), []
    simulator = Simulator(dut, engine=engine)
    make(simulator, dut, log)
    simulator.run()
    return log


def same(make: Callable[[Simulator, Any, list[Any]], None]) -> list[Any]:
    """What `make` logs, if both engines log the same."""
    expected = run("pysim", make)
    assert run("compiled", make) == expected
    assert expected
    return expected


def test_ticks_sample_before_the_edge_and_read_after_it() -> None:
    def make(simulator: Simulator, dut: Dut, log: list[Any]) -> None:
        async def bench(ctx: Any) -> None:
            for _ in range(5):
                log.append(await ctx.tick().sample(dut.count, dut.twice, dut.pair, dut.state))
                log.append((ctx.get(dut.count), ctx.get(dut.twice + 1), ctx.get(dut.pair).b))

        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)

    log = same(make)
    assert log[2][2:4] == (1, 2) and log[3] == (2, 5, -2)


def test_repeat_until_and_sampling_loops() -> None:
    def make(simulator: Simulator, dut: Dut, log: list[Any]) -> None:
        async def bench(ctx: Any) -> None:
            log.append(await ctx.tick().sample(dut.count).repeat(3))
            log.append(await ctx.tick().sample(dut.twice).until(dut.count == 6))
            ctx.set(dut.en, 0)
            await ctx.tick().repeat(2)
            log.append(ctx.get(dut.count))

        async def loop(ctx: Any) -> None:
            async for edge, reset, count in ctx.tick().sample(dut.count):
                log.append((edge, reset, count))

        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.add_testbench(loop, background=True)

    same(make)


def test_changes_edges_and_delays_of_logic_wake_testbenches() -> None:
    def make(simulator: Simulator, dut: Dut, log: list[Any]) -> None:
        async def bench(ctx: Any) -> None:
            log.append(await ctx.changed(dut.twice))
            log.append(await ctx.posedge(dut.count[1]))
            log.append(await ctx.negedge(dut.count[0]))
            log.append(await ctx.delay(2.5e-6))
            log.append(await ctx.changed(dut.count).delay(1e-9))
            log.append(ctx.get(dut.count))

        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)

    same(make)


def test_a_process_replaces_logic() -> None:
    def make(simulator: Simulator, dut: Dut, log: list[Any]) -> None:
        result = Signal(9)

        async def adder(ctx: Any) -> None:
            async for twice, en in ctx.changed(dut.twice, dut.en):
                ctx.set(result, twice + en)

        async def register(ctx: Any) -> None:
            async for _, _, twice in ctx.tick().sample(dut.twice):
                ctx.set(dut.write.data, twice & 127)

        async def bench(ctx: Any) -> None:
            for _ in range(4):
                await ctx.tick()
                log.append((ctx.get(result), ctx.get(dut.write.data)))

        simulator.add_clock(1e-6)
        simulator.add_process(adder)
        simulator.add_process(register)
        simulator.add_testbench(bench)

    same(make)


def test_memories_are_read_and_written_by_rows() -> None:
    def make(simulator: Simulator, dut: Dut, log: list[Any]) -> None:
        async def bench(ctx: Any) -> None:
            rows = dut.words.data
            log.append([ctx.get(rows[n]) for n in range(8)])
            ctx.set(rows[5], -100)
            ctx.set(rows[1][4:8], 3)
            ctx.set(dut.look.addr, 5)
            log.append((ctx.get(dut.look.data), ctx.get(rows[1])))
            ctx.set(dut.write.addr, 5)
            ctx.set(dut.write.data, 7)
            ctx.set(dut.write.en, 1)
            await ctx.tick()
            log.append((ctx.get(dut.look.data), ctx.get(dut.read.data), ctx.get(rows[5])))

        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)

    assert same(make)[1] == (-100, 0x3E)


def test_parts_of_inputs_and_registers_can_be_set() -> None:
    def make(simulator: Simulator, dut: Dut, log: list[Any]) -> None:
        async def bench(ctx: Any) -> None:
            ctx.set(dut.count[4:6], 3)
            log.append(ctx.get(dut.twice))
            ctx.set(Cat(dut.en, dut.write.en), 0b10)
            await ctx.tick()
            log.append((ctx.get(dut.count), ctx.get(dut.words.data[0])))

        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)

    assert same(make)[0] == 0x60


def test_driven_signals_cannot_be_set() -> None:
    for engine in BOTH:
        with pytest.raises(DriverConflict):

            def make(simulator: Simulator, dut: Dut, log: list[Any]) -> None:
                async def bench(ctx: Any) -> None:
                    ctx.set(dut.twice, 1)

                simulator.add_testbench(bench)

            run(engine, make)


def test_reset_starts_everything_again() -> None:
    for engine in BOTH:
        dut, log = Dut(), []
        simulator = Simulator(dut, engine=engine)
        simulator.add_clock(1e-6)

        async def bench(ctx: Any, dut: Dut = dut, log: list[Any] = log) -> None:
            ctx.set(dut.write.data, 55)
            ctx.set(dut.write.en, 1)
            await ctx.tick().repeat(3)
            log.append((ctx.get(dut.count), ctx.get(dut.words.data[0]), ctx.get(dut.read.data)))

        simulator.add_testbench(bench)
        simulator.run()
        simulator.reset()
        simulator.run()
        assert log == [(3, 55, 3)] * 2, engine


class Clocks(Elaboratable):
    """A divided clock, a domain on falling edges, one with asynchronous reset."""

    def __init__(self) -> None:
        self.half = ClockDomain("half")
        self.fall = ClockDomain("fall", clk_edge="neg")
        self.hard = ClockDomain("hard", async_reset=True)
        self.counts = {name: Signal(8, name=name) for name in ("sync", "half", "fall", "hard")}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains += [self.half, self.fall, self.hard]
        for name, count in self.counts.items():
            m.d[name] += count.eq(count + 1)
        m.d.sync += self.half.clk.eq(~self.half.clk)
        return m


def test_derived_falling_and_asynchronous_domains() -> None:
    logs = []
    for engine in BOTH:
        dut, log = Clocks(), []
        simulator = Simulator(dut, engine=engine)
        simulator.add_clock(1e-6)
        simulator.add_clock(3e-6, domain="fall")
        simulator.add_clock(2e-6, domain="hard", phase=0.2e-6)

        async def bench(ctx: Any, dut: Clocks = dut, log: list[Any] = log) -> None:
            for step in range(12):
                await ctx.delay(0.7e-6)
                ctx.set(dut.hard.rst, step in (4, 5))
                log.append(tuple(ctx.get(count) for count in dut.counts.values()))

        simulator.add_testbench(bench)
        simulator.run()
        logs.append(log)
    assert logs[0] == logs[1]
    assert logs[0][-1][1] > 2, "the divided clock ticks"


@pytest.mark.parametrize("domain", ["sync", "comb"])
def test_assertions_and_prints(domain: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for engine in BOTH:
        m, count = Module(), Signal(8)
        m.d.sync += count.eq(count + 1)
        m.d[domain] += Print(Format("count {:>3}", count))
        m.d[domain] += Assert(count < 4, Format("too {}", count))
        simulator = Simulator(m, engine=engine)
        simulator.add_clock(1e-6)

        async def bench(ctx: Any) -> None:
            for _ in range(9):  # `repeat` would complain at the end of an aborted run
                await ctx.tick()

        simulator.add_testbench(bench)
        with pytest.raises(AssertionError, match=r"^Assertion violated: too 4$"):
            simulator.run()
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert "count   3\n" in texts[0]


def test_waves_hold_the_same_changes() -> None:
    waves = []
    for engine in BOTH:
        dut, file, save = Dut(), io.StringIO(), io.StringIO()
        file.name, save.name = "wave.vcd", "wave.gtkw"
        file.close = save.close = lambda: None
        simulator = Simulator(dut, engine=engine)
        simulator.add_clock(1e-6)
        extra = Signal(4, name="extra")

        async def bench(ctx: Any, dut: Dut = dut, extra: Signal = extra) -> None:
            for step in range(6):
                await ctx.tick()
                ctx.set(extra, step)
                ctx.set(dut.write.en, step & 1)
                ctx.set(dut.write.data, step)

        simulator.add_testbench(bench)
        with simulator.write_vcd(file, save, traces=[dut.count, extra]):
            simulator.run()
        waves.append(_waves(file.getvalue()))
        assert "count" in save.getvalue() and "extra" in save.getvalue()
    assert waves[0] == waves[1]
    assert len(waves[0]) > 20


def _waves(text: str) -> set[tuple[str, str, str]]:
    """Changes as (time, variable, value), whatever the order and the identifiers."""
    names, time, changes = {}, "0", set()
    for line in text.splitlines():
        if found := re.match(r"\$var \w+ \d+ (\S+) (.*) \$end", line):
            names[found[1]] = found[2]
        elif line.startswith("#"):
            time = line[1:]
        elif found := re.match(r"(?:[bs](\S+) |([01xz]))(\S+)$", line):
            changes.add((time, names[found[3]], found[1] or found[2]))
    return changes


def test_works_as_an_engine_class_of_amaranth() -> None:
    dut, seen = Dut(), []
    simulator = AmaranthSimulator(dut, engine=CompiledEngine)
    simulator.add_clock(1e-6)

    async def bench(ctx: Any) -> None:
        await ctx.tick().repeat(4)
        seen.append(ctx.get(dut.count))

    simulator.add_testbench(bench)
    simulator.run()
    assert seen == [4]


def test_fast_forward_skips_cycles_but_not_time() -> None:
    dut, log = Dut(), []
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)

    async def bench(ctx: Any) -> None:
        for _ in range(2):
            await ctx.tick()
            log.append((ctx.get(dut.count), ctx.get(dut.twice)))

    simulator.add_testbench(bench)
    while not log:
        simulator.advance()
    before = simulator._engine.now
    assert simulator.fast_forward(100) == 100
    assert simulator._engine.now - before == 100 * 10**9, "femtoseconds"
    assert simulator.fast_forward(10_000, until=dut.twice) == 0, "it is not zero already"
    simulator.run()
    assert log == [(1, 2), (102, 204)]


def test_fast_forward_stops_at_a_condition_and_at_a_failed_assertion() -> None:
    m, count, late = Module(), Signal(16), Signal()
    m.d.sync += [count.eq(count + 1), Assert(count != 5_000, "far")]
    m.d.comb += late.eq(count >= 1_234)
    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.advance()
    assert simulator.fast_forward(100_000, until=late) == 1_234
    with pytest.raises(AssertionError, match=r"^Assertion violated: far$"):
        simulator.fast_forward(100_000)


def test_fast_forward_is_refused_where_cycles_are_not_everything() -> None:
    message = (
        r"^fast_forward must have one clock, one edge of it and no waves, "
        r"not 2 clocks, 4 edges and 0 waves$"
    )
    simulator = Simulator(Clocks())
    simulator.add_clock(1e-6)
    simulator.add_clock(1e-6, domain="fall")
    with pytest.raises(ValueError, match=message):
        simulator.fast_forward(1)
    with pytest.raises(
        ValueError, match=r"^engine must be 'compiled' to fast_forward, not 'pysim'$"
    ):
        Simulator(Dut(), engine="pysim").fast_forward(1)


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(ValueError, match=r"^engine must be one of compiled, pysim, not 'fast'$"):
        Simulator(Dut(), engine="fast")
