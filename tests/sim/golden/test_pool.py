"""Pooling against plain loops, LiteRT and its own messages."""

import itertools
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.sim.golden.geometry import output_size, same_padding
from npulse.sim.golden.pool import average_pool2d, max_pool2d


def half_away(value: Fraction) -> int:
    magnitude = int(abs(value) + Fraction(1, 2))
    return magnitude if value >= 0 else -magnitude


def loops(x, window, stride, padding, reduce) -> np.ndarray:
    size = output_size(x.shape[1:3], window, stride, (1, 1), padding)
    out = np.empty((x.shape[0], *size, x.shape[3]), np.int64)
    for n, i, j, c in itertools.product(*map(range, out.shape)):
        y, z = i * stride[0] - padding[0][0], j * stride[1] - padding[1][0]
        rows = slice(max(y, 0), max(y + window[0], 0))
        columns = slice(max(z, 0), max(z + window[1], 0))
        out[n, i, j, c] = reduce([int(value) for value in x[n, rows, columns, c].ravel()])
    return out


def mean(values: list[int]) -> int:
    return half_away(Fraction(sum(values), len(values)))


@settings(max_examples=60)
@given(st.data(), st.integers(0, 2**32 - 1), st.sampled_from([np.int8, np.uint8]))
def test_pools_equal_the_loops(data, seed, dtype) -> None:
    window = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    stride = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    padding = tuple(
        data.draw(st.tuples(st.integers(0, side - 1), st.integers(0, side - 1))) for side in window
    )
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    x = rng.integers(info.min, info.max + 1, (2, 5, 6, 3)).astype(dtype)
    for pool, reduce in ((max_pool2d, max), (average_pool2d, mean)):
        got = pool(x, window, stride=stride, padding=padding)
        assert got.dtype == dtype
        assert np.array_equal(got, loops(x, window, stride, padding, reduce))


def test_padding_never_wins_and_is_not_counted() -> None:
    x = np.full((1, 2, 2, 1), -100, np.int8)
    arguments = dict(stride=(1, 1), padding=((1, 1), (1, 1)))
    assert np.unique(max_pool2d(x, (2, 2), **arguments)).tolist() == [-100]
    assert np.unique(average_pool2d(x, (2, 2), **arguments)).tolist() == [-100]


def test_averages_round_ties_away_from_zero_and_are_clamped() -> None:
    x = np.array([[1, 2], [-1, -2], [100, 101]], np.int8)[None, :, :, None]
    got = average_pool2d(x, (1, 2), stride=(1, 2), act_min=-128, act_max=90)
    assert got[0, :, 0, 0].tolist() == [2, -2, 90]
    assert max_pool2d(x, (3, 1), stride=(1, 1), act_max=50)[0, 0, :, 0].tolist() == [50, 50]


@pytest.mark.parametrize(
    ("op", "pool"), [("MAX_POOL_2D", max_pool2d), ("AVERAGE_POOL_2D", average_pool2d)]
)
def test_pools_equal_litert(litert, op, pool) -> None:
    x = np.random.default_rng(7).integers(-128, 128, (2, 9, 11, 5)).astype(np.int8)
    window, stride = (3, 4), (2, 3)
    options = litert.schema.Pool2DOptionsT()
    options.padding = litert.schema.Padding.SAME
    options.filterHeight, options.filterWidth = window
    options.strideH, options.strideW = stride
    tensors = [
        litert.tensor(x.shape, "INT8", 0.1, 3),
        litert.tensor((2, 5, 4, 5), "INT8", 0.1, 3),
    ]
    expected = litert.run(op, tensors, [x], options=options)
    padding = same_padding((9, 11), window, stride)
    assert np.array_equal(pool(x, window, stride=stride, padding=padding), expected)


X = np.zeros((1, 4, 4, 1), np.int8)
ONE = dict(stride=(1, 1))
MESSAGES = [
    (lambda: max_pool2d(X.astype(np.int32), (2, 2), **ONE), TypeError,
     "x must be an array of int8 or uint8, not int32"),
    (lambda: max_pool2d(X[0], (2, 2), **ONE), ValueError,
     "x must have 4 axes (N, H, W, C), not shape (4, 4, 1)"),
    (lambda: max_pool2d(X, (0, 2), **ONE), ValueError,
     "window must be two numbers of at least 1, not (0, 2)"),
    (lambda: average_pool2d(X, (2, 2), stride=(1, 0)), ValueError,
     "stride must be two numbers of at least 1, not (1, 0)"),
    (lambda: average_pool2d(X, (2, 2), padding=((2, 0), (0, 0)), **ONE), ValueError,
     "padding must be less than the window (2, 2), not ((2, 0), (0, 0))"),
    (lambda: average_pool2d(X, (5, 5), **ONE), ValueError,
     "window must be at most the padded image (4, 4), not (5, 5)"),
    (lambda: average_pool2d(X, (2, 2), act_min=9, act_max=8, **ONE), ValueError,
     "act_min must be at most act_max = 8, not 9"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), MESSAGES)
def test_bad_arguments_are_named(call, error, message) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()
