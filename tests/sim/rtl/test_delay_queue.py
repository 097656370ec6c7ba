"""The delay queue: exact stay, exact capacity, order."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.sim.rtl.bench import check_stable, run, stream_get, stream_put
from npulse.sim.rtl.delay_queue import DelayQueue


@pytest.mark.parametrize("delay", [1, 2, 7])
def test_shows_an_entry_after_exactly_the_delay(delay: int) -> None:
    dut = DelayQueue(width=8, entries=4, delay_cycles=delay)
    valid = []

    async def bench(ctx: Any) -> None:
        await stream_put(ctx, dut.put, 0x5A)
        for _ in range(delay + 1):
            valid.append(ctx.get(dut.get.valid))
            await ctx.tick()
        assert ctx.get(dut.get.payload) == 0x5A

    run(dut, bench)
    assert valid == [0] * (delay - 1) + [1, 1]


@pytest.mark.parametrize(("entries", "depth"), [(1, 2), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8)])
def test_holds_a_power_of_two_of_entries_and_refuses_more(entries: int, depth: int) -> None:
    dut = DelayQueue(width=8, entries=entries, delay_cycles=3)
    assert dut.depth == depth

    async def bench(ctx: Any) -> None:
        for round_ in range(3):
            for index in range(depth):
                assert ctx.get(dut.put.ready)
                await stream_put(ctx, dut.put, round_ * 16 + index)
            assert not ctx.get(dut.put.ready)
            for index in range(depth):
                assert await stream_get(ctx, dut.get) == round_ * 16 + index
            assert not ctx.get(dut.get.valid)

    run(dut, bench, limit=300)


@settings(max_examples=30)
@given(
    waits=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30),
    entries=st.integers(1, 6),
    delay=st.integers(1, 5),
)
def test_keeps_order_under_back_pressure(
    waits: list[tuple[int, int]], entries: int, delay: int
) -> None:
    dut = DelayQueue(width=8, entries=entries, delay_cycles=delay)

    async def produce(ctx: Any) -> None:
        for value, (wait, _) in enumerate(waits):
            for _ in range(wait):
                await ctx.tick()
            await stream_put(ctx, dut.put, value)

    async def consume(ctx: Any) -> None:
        for value, (_, wait) in enumerate(waits):
            for _ in range(wait):
                await ctx.tick()
            assert await stream_get(ctx, dut.get) == value
        for _ in range(delay + 1):
            assert not ctx.get(dut.get.valid), "more entries than put"
            await ctx.tick()

    run(dut, produce, consume, monitors=[check_stable(dut.get)], limit=500)
