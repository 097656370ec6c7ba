"""The nested walk against the loop nest that it stands for."""

from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.common.walk import Level, walk

LEVEL = st.tuples(st.integers(1, 3), st.dictionaries(st.sampled_from("ab"), st.integers(-9, 9)))


def points(levels, starts):
    """Coordinates of all points, innermost level fastest."""

    def visit(index, at):
        if index < 0:
            yield dict(at)
            return
        count, moves = levels[index]
        for iteration in range(count):
            inside = {name: at[name] + iteration * moves.get(name, 0) for name in at}
            yield from visit(index - 1, inside)

    return list(visit(len(levels) - 1, starts))


@settings(max_examples=40)
@given(st.lists(LEVEL, min_size=1, max_size=4), st.integers(0, 255), st.lists(st.booleans()))
def test_visits_every_point_in_order(levels, origin, stalls):
    moved = {name for _, moves in levels for name in moves}
    starts = {name: origin for name in sorted(moved)}
    m = Module()
    load, step = Signal(), Signal()
    registers = {name: Signal(10, name=name) for name in starts}
    lasts = walk(
        m,
        load=load,
        step=step,
        start={name: (registers[name], Signal(10, init=origin)) for name in starts},
        levels=[
            Level(f"l{index}", Signal(3, init=count), moves)
            for index, (count, moves) in enumerate(levels)
        ],
    )
    expected = points(levels, starts)

    async def bench(ctx):
        for _ in range(2):  # the second round starts from wherever the first one ended
            ctx.set(load, 1)
            await ctx.tick()
            ctx.set(load, 0)
            for index, point in enumerate(expected):
                for stall in stalls[:3]:
                    ctx.set(step, 0)
                    if stall:
                        await ctx.tick()
                assert {n: ctx.get(r) for n, r in registers.items()} == {
                    n: v % 1024 for n, v in point.items()
                }
                assert ctx.get(lasts[-1]) == (index == len(expected) - 1)
                ctx.set(step, 1)
                await ctx.tick()
            ctx.set(step, 0)

    sim = Simulator(m)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
