"""Where pysim departs from the netlist that Verilog is made of, the engine follows the netlist.

Each test also shows that pysim still differs: when one fails for that, Amaranth has changed, and
the random designs need no longer avoid the construct.
"""

from typing import Any

import pytest
from amaranth.hdl import ClockDomain, Module, Signal, signed
from amaranth.lib.memory import Memory
from amaranth.sim import Simulator

from npulse.sim.engine.bulk import Compiled
from npulse.sim.engine.cache import ObjectCache

NO_CACHE = ObjectCache(None)


def in_pysim(design: Any, steps: Any) -> list[int]:
    """What `steps`, a coroutine function of the context and a log, logs."""
    log: list[int] = []
    simulator = Simulator(design)

    async def bench(ctx: Any) -> None:
        await steps(ctx, log)

    simulator.add_testbench(bench)
    simulator.run()
    return log


@pytest.mark.parametrize("case", ["inverted", "unsigned", "signed"])
def test_part_of_an_expression_ends_with_its_own_width(case: str) -> None:
    m, offset, out = Module(), Signal(3), Signal(4)
    source = Signal(signed(4) if case == "unsigned" else 4)
    value, stored, want = {
        "inverted": (~source, 0, 0b0011),  # pysim reads ones past the end
        "unsigned": (source.as_unsigned(), -1, 0b0011),  # pysim extends the sign
        "signed": (source.as_signed(), 15, 0b1111),  # pysim extends with zeros
    }[case]
    m.d.comb += out.eq(value.bit_select(offset, 4))
    compiled = Compiled(m, cache=NO_CACHE)
    compiled.set(source, stored)
    compiled.set(offset, 2)
    assert compiled.get(out) == want

    async def steps(ctx: Any, log: list[int]) -> None:
        ctx.set(source, stored)
        ctx.set(offset, 2)
        log.append(ctx.get(out))

    assert in_pysim(m, steps) != [want]


def test_a_disabled_read_port_holds_under_reset() -> None:
    m = Module()
    m.domains.sync = domain = ClockDomain()
    m.submodules.words = words = Memory(shape=8, depth=2, init=[77, 88])
    read = words.read_port()
    m.d.sync += Signal().eq(1)  # else nothing in the design reads the reset
    compiled = Compiled(m, cache=NO_CACHE)
    compiled.step()
    compiled.set(read.en, 0)
    compiled.set(domain.rst, 1)
    compiled.step()
    assert compiled.get(read.data) == 77

    async def steps(ctx: Any, log: list[int]) -> None:
        for enable, reset in ((1, 0), (0, 1)):
            ctx.set(read.en, enable)
            ctx.set(domain.rst, reset)
            ctx.set(domain.clk, 1)
            ctx.set(domain.clk, 0)
        log.append(ctx.get(read.data))

    assert in_pysim(m, steps) == [0]


def test_an_asynchronous_reset_is_no_clock_for_registers_without_reset() -> None:
    m, count = Module(), Signal(8, reset_less=True)
    m.domains.sync = domain = ClockDomain(async_reset=True)
    m.d.sync += count.eq(count + 1)
    compiled = Compiled(m, cache=NO_CACHE)
    compiled.set(domain.rst, 1)
    assert compiled.get(count) == 0

    async def steps(ctx: Any, log: list[int]) -> None:
        ctx.set(domain.rst, 1)
        log.append(ctx.get(count))

    assert in_pysim(m, steps) == [1]


def test_a_loop_through_the_conditions_of_one_switch_is_refused() -> None:
    m, request, grant = Module(), Signal(2), Signal(2)
    with m.If(request[0]):
        m.d.comb += grant[0].eq(1)
    with m.Elif(request[1] & ~grant[0]):
        m.d.comb += grant[1].eq(1)
    with pytest.raises(Exception, match=r"^Combinational cycle detected, path:\n"):
        Compiled(m, cache=NO_CACHE)

    async def steps(ctx: Any, log: list[int]) -> None:
        ctx.set(request, 2)
        log.append(ctx.get(grant))

    assert in_pysim(m, steps) == [2]


def test_two_writes_past_the_end_bypass_like_pysim_and_leave_no_trace() -> None:
    m = Module()
    m.submodules.words = words = Memory(shape=8, depth=3, init=[])
    write = words.write_port()
    read = words.read_port(transparent_for=[write])
    compiled = Compiled(m, cache=NO_CACHE)
    compiled.set(write.addr, 3)
    compiled.set(read.addr, 3)
    compiled.set(write.en, 1)
    compiled.set(write.data, 99)
    compiled.step()
    assert compiled.get(read.data) == 99
    compiled.set(write.en, 0)
    compiled.step()
    assert compiled.get(read.data) == 0
