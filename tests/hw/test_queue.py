"""The short queue against a list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npulse.hw.common.queue import Queue
from npulse.sim.rtl.bench import check_stable, run, stream_get, stream_put


@given(
    st.sampled_from([1, 2, 4, 8]),
    st.lists(st.tuples(st.integers(0, 255), st.integers(0, 2), st.integers(0, 2)), max_size=20),
)
def test_gives_words_in_order_under_back_pressure(depth, steps):
    dut = Queue(8, depth=depth)

    async def produce(ctx):
        for word, wait, _ in steps:
            for _ in range(wait):
                await ctx.tick()
            await stream_put(ctx, dut.i, word)

    async def consume(ctx):
        for word, _, wait in steps:
            for _ in range(wait):
                await ctx.tick()
            assert await stream_get(ctx, dut.o) == word
        assert not ctx.get(dut.o.valid) and ctx.get(dut.filled) == 0

    run(dut, produce, consume, monitors=[check_stable(dut.o)], limit=300)


def test_takes_as_many_words_as_it_is_deep_and_counts_them():
    dut = Queue(8, depth=4)

    async def bench(ctx):
        ctx.set(dut.i.valid, 1)
        for word in range(4):
            assert ctx.get(dut.i.ready) and ctx.get(dut.filled) == word
            ctx.set(dut.i.payload, word)
            await ctx.tick()
        assert not ctx.get(dut.i.ready) and ctx.get(dut.filled) == 4
        ctx.set(dut.i.valid, 0)
        ctx.set(dut.o.ready, 1)
        for word in range(4):
            assert ctx.get(dut.o.payload) == word
            await ctx.tick()
        assert not ctx.get(dut.o.valid)

    run(dut, bench)


@pytest.mark.parametrize("depth", [0, 3])
def test_refuses_a_depth_that_is_no_power_of_two(depth):
    message = f"^depth must be a power of two of at least 1 word, not {depth}$"
    with pytest.raises(ValueError, match=message):
        Queue(8, depth=depth)
