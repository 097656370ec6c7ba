"""`Compiled`: values, time, several clocks, checks, snapshots, refusals."""

import os
import re
import signal
import threading
from typing import Any

import pytest
from amaranth.hdl import (
    Assert,
    ClockDomain,
    ClockSignal,
    Cover,
    DomainRenamer,
    Elaboratable,
    Format,
    Instance,
    Module,
    Print,
    Signal,
    signed,
)
from amaranth.hdl._ast import AnyConst
from amaranth.lib import data
from amaranth.lib.memory import Memory

from npulse.sim.engine.bulk import Compiled
from npulse.sim.engine.cache import ObjectCache
from npulse.sim.engine.netlist import Unsupported

NO_CACHE = ObjectCache(None)


class Counter(Elaboratable):
    def __init__(self, width: int = 16) -> None:
        self.step = Signal(8, init=1)
        self.value = Signal(width, init=3)
        self.full = Signal()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.value.eq(self.value + self.step)
        m.d.comb += self.full.eq(self.value >= 100)
        return m


def compiled(design: Any, **options: Any) -> Compiled:
    return Compiled(design, cache=NO_CACHE, **options)


def test_counts_cycles_and_holds_inputs() -> None:
    counter = Counter()
    machine = compiled(counter)
    machine.set(counter.step, 5)
    machine.step(10)
    assert (machine.get(counter.value), machine.cycle) == (53, 10)
    assert machine.get("value") == 53


def test_reset_input_returns_registers_to_their_initial_value() -> None:
    counter = Counter()
    machine = compiled(counter)
    machine.step(4)
    machine.set("rst", 1)
    machine.step()
    assert machine.get(counter.value) == 3


def test_runs_until_a_combinational_signal_is_true() -> None:
    counter = Counter()
    machine = compiled(counter)
    assert machine.run_until(counter.full, 1_000) == 97
    assert machine.get(counter.value) == 100
    assert machine.run_until("full", 1_000) == 0, "it is true already"


def test_says_when_the_condition_does_not_come() -> None:
    machine = compiled(Counter())
    with pytest.raises(TimeoutError, match=r"^'full' must become true within 96 cycles$"):
        machine.run_until("full", 96)
    assert machine.cycle == 96


def test_views_and_expressions_are_read_as_their_shapes() -> None:
    layout = data.StructLayout({"low": signed(4), "high": 4})
    m, pair, out = Module(), Signal(layout), Signal(9)
    m.d.comb += out.eq(pair.low + pair.high)
    machine = compiled(m)
    machine.set(pair, {"low": -2, "high": 9})
    assert machine.get(pair).low == -2
    assert machine.get(pair.high) == 9
    assert machine.get(out) == 7
    assert machine.get(out + 1) == 8


def test_reset_returns_to_power_on() -> None:
    counter = Counter()
    machine = compiled(counter)
    machine.set(counter.step, 9)
    machine.step(7)
    machine.reset()
    assert (machine.cycle, machine.get(counter.value), machine.get(counter.step)) == (0, 3, 1)


def test_a_snapshot_brings_back_registers_memories_inputs_and_time() -> None:
    m, value = Module(), Signal(8)
    m.submodules.words = words = Memory(shape=8, depth=4, init=[])
    write = words.write_port()
    m.d.sync += value.eq(value + 7)
    m.d.comb += [write.addr.eq(value), write.data.eq(value), write.en.eq(1)]
    machine = compiled(m)
    machine.step(3)
    saved = machine.snapshot()
    before = (machine.cycle, machine.get(value), machine.memory("words").tolist())
    machine.step(50)
    after = (machine.cycle, machine.get(value), machine.memory("words").tolist())
    machine.restore(saved)
    assert (machine.cycle, machine.get(value), machine.memory("words").tolist()) == before
    machine.step(50)
    assert (machine.cycle, machine.get(value), machine.memory("words").tolist()) == after


def test_a_snapshot_of_another_design_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^snapshot must be of the same design$"):
        compiled(Counter()).restore(compiled(Counter(3000)).snapshot())


def test_progress_is_reported_and_nothing_is_skipped() -> None:
    machine = compiled(Counter())
    seen: list[int] = []
    machine.step(1_050, progress=seen.append, every=100)
    assert seen == list(range(100, 1_001, 100))
    assert machine.cycle == 1_050


def test_a_long_run_can_be_interrupted() -> None:
    machine = compiled(Counter())
    # A process in the background inherits an ignored SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            machine.step(10**13)
    finally:
        signal.signal(signal.SIGINT, before)
    stopped = machine.cycle
    assert 0 < stopped < 10**13
    machine.step(5)
    assert machine.cycle == stopped + 5


# Several clocks


class TwoClocks(Elaboratable):
    def __init__(self, edge: str = "pos") -> None:
        self.fast, self.slow = Signal(16), Signal(16)
        self.edge = edge

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.slow = ClockDomain(clk_edge=self.edge)
        m.d.sync += self.fast.eq(self.fast + 1)
        m.d.slow += self.slow.eq(self.fast)
        return m


def test_clocks_tick_by_their_periods() -> None:
    design = TwoClocks()
    machine = compiled(design, clocks={"clk": 2, "slow_clk": 6})
    machine.step(9)
    assert machine.get(design.fast) == 9
    assert machine.get(design.slow) == 6, "at edges 0, 3 and 6 it takes the value before"


def test_a_falling_edge_comes_half_a_period_later() -> None:
    design = TwoClocks(edge="neg")
    machine = compiled(design)
    machine.step(3)
    assert (machine.get(design.fast), machine.get(design.slow)) == (3, 3)


def test_clock_arguments_are_checked() -> None:
    with pytest.raises(
        ValueError, match=r"^clocks must name clocks of the design \['clk', 'slow_clk'\], not 'x'$"
    ):
        compiled(TwoClocks(), clocks={"x": 1})
    with pytest.raises(ValueError, match=r"^period of 'clk' must be positive, not 0$"):
        compiled(TwoClocks(), clocks={"clk": 0})
    with pytest.raises(ValueError, match=r"^clocks must repeat within 1000000 edges, not \d+$"):
        compiled(TwoClocks(), clocks={"clk": 1.000003, "slow_clk": 1.000001})


def test_an_asynchronous_reset_acts_without_a_clock() -> None:
    m, value = Module(), Signal(8, init=9)
    m.domains.sync = ClockDomain(async_reset=True)
    m.d.sync += value.eq(value + 1)
    machine = compiled(m)
    machine.step(3)
    machine.set("rst", 1)
    assert machine.get(value) == 9
    machine.set("rst", 0)
    machine.step()
    assert machine.get(value) == 10


# Checks


def test_a_clocked_assertion_stops_the_run_with_its_message() -> None:
    m, value = Module(), Signal(8)
    m.d.sync += value.eq(value + 1)
    m.d.sync += Assert(value < 5, Format("value is {:02x}", value))
    machine = compiled(m)
    machine.step(5)
    with pytest.raises(AssertionError, match=r"^Assertion violated: value is 05$"):
        machine.step(1_000)
    assert machine.cycle == 6


def test_an_assertion_without_message_and_a_combinational_one() -> None:
    for domain in ("sync", "comb"):
        m, value = Module(), Signal(8)
        m.d.sync += value.eq(value + 1)
        m.d[domain] += Assert(value != 3)
        with pytest.raises(AssertionError, match=r"^Assertion violated$"):
            compiled(m).step(1_000)


def test_prints_and_covers_write_what_pysim_writes(capsys: pytest.CaptureFixture[str]) -> None:
    m, value = Module(), Signal(signed(4))
    m.d.sync += value.eq(value - 1)
    with m.If(value[0]):
        m.d.sync += Print("v", value, sep="=")
        m.d.sync += Cover(value == -3, Format("{:+d}", value))
    compiled(m).step(5)
    text = capsys.readouterr().out
    assert text.startswith("v=-1\nv=-3\n")
    assert re.search(r"^Coverage hit at .*test_bulk\.py:\d+: -3$", text, re.M)


# Refusals


def test_what_is_not_simulated_is_refused_by_name() -> None:
    m, out = Module(), Signal(4)
    m.d.comb += out.eq(AnyConst(4))
    with pytest.raises(
        Unsupported, match=r"^the engine does not simulate AnyValue cells \(.*:\d+\)$"
    ):
        compiled(m)
    m = Module()
    m.submodules.box = Instance("pll", o_locked=Signal())
    with pytest.raises(
        Unsupported,
        match=r"^the engine does not simulate instances, here 'pll' named 'box' \(.*:\d+\)$",
    ):
        compiled(m)


def test_a_clock_made_by_the_design_is_refused() -> None:
    m, half, value = Module(), Signal(), Signal(4)
    m.domains.half = domain = ClockDomain()
    m.d.sync += half.eq(~half)
    m.d.comb += domain.clk.eq(half)
    m.d.half += value.eq(value + 1)
    with pytest.raises(
        Unsupported,
        match=r"^clock 'half_clk' must come from outside the design in bulk mode, "
        r"not from its logic; simulate it with the drop-in engine$",
    ):
        compiled(m)


def test_a_clock_read_as_data_is_refused() -> None:
    m, value = Module(), Signal(4)
    m.d.sync += value.eq(ClockSignal())
    with pytest.raises(
        Unsupported,
        match=r"^clock 'clk' must not be read as data in bulk mode; "
        r"simulate it with the drop-in engine$",
    ):
        compiled(m)


def test_a_combinational_loop_is_refused_with_its_path() -> None:
    m, a = Module(), Signal(4)
    m.d.comb += a.eq(a + 1)
    with pytest.raises(
        Exception, match=r"^Combinational cycle detected, path:\n.*operator \+ bit 0"
    ):
        compiled(m)


def test_combinational_signals_cannot_be_set() -> None:
    counter = Counter()
    message = r"^signal 'full' must be an input or a register, not combinational$"
    with pytest.raises(ValueError, match=message):
        compiled(counter).set(counter.full, 1)
    m, source, alias = Module(), Signal(), Signal()
    m.d.comb += alias.eq(source)
    with pytest.raises(ValueError, match=message.replace("full", "alias")):
        compiled(m).set(alias, 1)


def test_unknown_signals_and_negative_cycles_are_refused() -> None:
    machine = compiled(Counter())
    with pytest.raises(KeyError) as error:
        machine.get("valve")
    assert error.value.args == ("signal must be the name of a signal of the design, not 'valve'",)
    with pytest.raises(KeyError) as error:
        machine.get(Signal(name="stranger"))
    assert error.value.args == ("signal 'stranger' is not in the design",)
    with pytest.raises(ValueError, match=r"^cycles must be at least 0, not -1$"):
        machine.step(-1)


def test_renamed_domains_keep_their_clock() -> None:
    m, counter = Module(), Counter()
    m.submodules.counter = DomainRenamer("pix")(counter)
    machine = compiled(m)
    machine.step(2)
    assert machine.get(counter.value) == 5
