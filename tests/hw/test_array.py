"""The weight-stationary array against numpy, with tiles as close as the timing allows."""

import numpy as np
import pytest
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.arith.mul import Multiplier
from npulse.hw.array.pe import Pe, psum_width
from npulse.hw.array.weight_stationary import weight_stationary_array


def stream(rows, cols, latency, tiles, gap=0):
    """Stream (A, B) tiles back to back, each max(M, rows) + gap cycles; return all C = A @ B."""
    grid = weight_stationary_array(rows=rows, cols=cols, multiplier_latency=latency)
    starts, first = [], rows + 1
    for acts, _ in tiles:
        starts.append(first)
        first += max(len(acts), rows) + gap
    west, swap, north, load, south = {}, set(), {}, set(), {}
    for index, ((acts, weights), start) in enumerate(zip(tiles, starts, strict=True)):
        enters = 0 if index == 0 else starts[index - 1] - 1
        for k in range(rows):
            swap.add((start + k - 1, k))
            for n in range(cols):
                north[enters + k + n, n] = weights[k, n]
                load.add((enters + n, n))
            for m in range(len(acts)):
                west[start + m + k, k] = acts[m, k]
        for m in range(len(acts)):
            for n in range(cols):
                south[start + m + n + rows + latency, n] = (index, m)
    sums = [np.zeros((len(acts), cols), int) for acts, _ in tiles]

    async def bench(ctx):
        for cycle in range(max(cycle for cycle, _ in south) + 1):
            for k in range(rows):
                ctx.set(grid.act_i[k], int(west.get((cycle, k), 77)))
                ctx.set(grid.swap_i[k], (cycle, k) in swap)
            for n in range(cols):
                ctx.set(grid.weight_i[n], int(north.get((cycle, n), -99)))
                ctx.set(grid.load_i[n], (cycle, n) in load)
                if (cycle, n) in south:
                    index, m = south[cycle, n]
                    sums[index][m, n] = ctx.get(grid.psum_o[n])
            await ctx.tick()

    sim = Simulator(grid)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return sums


def random_tiles(rng, rows, cols, lengths):
    return [
        (rng.integers(-128, 128, (m, rows)), rng.integers(-128, 128, (rows, cols))) for m in lengths
    ]


def test_two_tiles_follow_each_other_without_a_gap():
    tiles = random_tiles(np.random.default_rng(0), 3, 2, [4, 5])
    for (acts, weights), sums in zip(tiles, stream(3, 2, 0, tiles), strict=True):
        np.testing.assert_array_equal(sums, acts @ weights)


@settings(max_examples=25)
@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(0, 3),
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.integers(0, 2),
    st.integers(0, 2**31),
)
def test_equals_numpy_for_any_shape_and_spacing(rows, cols, latency, lengths, gap, seed):
    tiles = random_tiles(np.random.default_rng(seed), rows, cols, lengths)
    for (acts, weights), sums in zip(tiles, stream(rows, cols, latency, tiles, gap), strict=True):
        np.testing.assert_array_equal(sums, acts @ weights)


@pytest.mark.parametrize("rows", [1, 2, 3, 16])
def test_partial_sum_holds_the_largest_sum(rows):
    extreme = rows * 128 * 128
    width = psum_width(rows)
    assert -(1 << (width - 1)) <= -extreme and extreme < 1 << (width - 1)


def test_holds_the_active_weight_until_a_swap():
    dut = Pe(psum_width=16)

    async def bench(ctx):
        ctx.set(dut.weight_i, -3)
        ctx.set(dut.load_i, 1)
        await ctx.tick()
        ctx.set(dut.load_i, 0)
        ctx.set(dut.weight_i, 9)
        ctx.set(dut.act_i, 5)
        await ctx.tick()
        assert ctx.get(dut.psum_o) == 0
        ctx.set(dut.swap_i, 1)
        await ctx.tick()
        assert ctx.get(dut.psum_o) == 0
        await ctx.tick()
        assert ctx.get(dut.psum_o) == -15

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()


@pytest.mark.parametrize(
    "values, message",
    [
        (dict(a_width=0, b_width=8, latency=0), "widths must be at least 1 bit, not 0 and 8"),
        (dict(a_width=8, b_width=8, latency=-1), "latency must be at least 0 cycles, not -1"),
    ],
)
def test_multiplier_refuses(values, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Multiplier(**values)
