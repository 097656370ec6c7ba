"""Convolutions and matrix products against plain loops, real numbers and each other."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.spec.numerics import RequantScheme, quantize_multiplier
from npulse.sim.golden import conv
from npulse.sim.golden.conv import conv2d, depthwise_conv2d
from npulse.sim.golden.geometry import output_size, same_padding
from npulse.sim.golden.matmul import exact_product, fully_connected, matmul
from npulse.sim.golden.requant import requantize

pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
sides = st.tuples(st.integers(0, 2), st.integers(0, 2))
bytes_dtype = st.sampled_from([np.int8, np.uint8])


def random_bytes(rng, shape, dtype) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def wrapped(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def loops(x, w, bias, stride, dilation, padding, input_zero, weight_zero, groups) -> np.ndarray:
    """The definition, in Python integers; positions outside of the image are left out."""
    outputs, rows, columns, depth = w.shape
    size = output_size(x.shape[1:3], (rows, columns), stride, dilation, padding)
    acc = np.empty((x.shape[0], *size, outputs), np.int32)
    for n, i, j, o in itertools.product(*map(range, acc.shape)):
        first = o // (outputs // groups) * depth
        total = int(bias[o])
        for r, c, k in itertools.product(range(rows), range(columns), range(depth)):
            y = i * stride[0] + r * dilation[0] - padding[0][0]
            z = j * stride[1] + c * dilation[1] - padding[1][0]
            if 0 <= y < x.shape[1] and 0 <= z < x.shape[2]:
                total += (int(x[n, y, z, first + k]) - input_zero) * (
                    int(w[o, r, c, k]) - weight_zero
                )
        acc[n, i, j, o] = wrapped(total)
    return acc


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1), pairs, pairs, pairs, st.tuples(sides, sides), pairs, bytes_dtype,
    st.integers(1, 3),
)  # fmt: skip
def test_conv2d_equals_the_loops(seed, kernel, stride, dilation, padding, ends, dtype, groups):
    rng = np.random.default_rng(seed)
    x = random_bytes(rng, (2, 6 + ends[0], 5 + ends[1], 2 * groups), dtype)
    w = random_bytes(rng, (3 * groups, *kernel, 2), np.int8)
    bias = rng.integers(-(1 << 31), 1 << 31, 3 * groups).astype(np.int32)
    zero, weight_zero = int(random_bytes(rng, (), dtype)), int(rng.integers(-128, 128))
    got = conv2d(
        x, w, bias, stride=stride, dilation=dilation, padding=padding, input_zero_point=zero,
        weight_zero_point=weight_zero, groups=groups,
    )  # fmt: skip
    assert got.dtype == np.int32
    expected = loops(x, w, bias, stride, dilation, padding, zero, weight_zero, groups)
    assert np.array_equal(got, expected)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), pairs, pairs, pairs, st.tuples(sides, sides), st.integers(1, 3))
def test_depthwise_is_a_convolution_of_one_group_a_channel(
    seed, kernel, stride, dilation, padding, multiplier
) -> None:
    rng = np.random.default_rng(seed)
    x = random_bytes(rng, (2, 7, 8, 4), np.int8)
    w = random_bytes(rng, (1, *kernel, 4 * multiplier), np.int8)
    bias = rng.integers(-(1 << 31), 1 << 31, 4 * multiplier).astype(np.int32)
    arguments = dict(stride=stride, dilation=dilation, padding=padding, input_zero_point=-17)
    grouped = conv2d(x, w.transpose(3, 1, 2, 0), bias, groups=4, **arguments)
    assert np.array_equal(depthwise_conv2d(x, w, bias, **arguments), grouped)


def test_conv2d_worked_by_hand() -> None:
    x = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.int8)[None, :, :, None]
    w = np.array([[1, 0], [0, -1]], np.int8)[None, :, :, None]
    acc = conv2d(x, w, np.array([100], np.int32))
    assert acc[0, :, :, 0].tolist() == [[96, 96], [96, 96]]  # x[i, j] - x[i + 1, j + 1] + 100


def test_sums_and_bias_wrap_modulo_two_to_the_32() -> None:
    x = np.full((1, 140_000), -128, np.int8)
    total = 140_000 * 128 * 128
    assert total > 1 << 31
    assert fully_connected(x, x)[0, 0] == wrapped(total)
    largest = np.array([2**31 - 1], np.int32)
    one = np.ones((1, 1), np.int8)
    assert fully_connected(one, one, largest)[0, 0] == -(2**31)
    image = one.reshape(1, 1, 1, 1)
    assert depthwise_conv2d(image, image, largest)[0, 0, 0, 0] == -(2**31)


def test_blocks_of_images_do_not_change_the_result(monkeypatch) -> None:
    rng = np.random.default_rng(5)
    x, w = random_bytes(rng, (5, 6, 6, 3), np.int8), random_bytes(rng, (4, 3, 3, 3), np.int8)
    whole = conv2d(x, w)
    monkeypatch.setattr(conv, "BLOCK_ELEMENTS", 2 * 4 * 4 * 27)
    assert np.array_equal(conv2d(x, w), whole)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), pairs, st.integers(1, 9), st.integers(-128, 127))
def test_matmul_and_fully_connected_equal_integers(seed, shape, depth, zero) -> None:
    rng = np.random.default_rng(seed)
    a = random_bytes(rng, (2, shape[0], depth), np.int8)
    b = random_bytes(rng, (depth, shape[1]), np.uint8)
    expected = (a.astype(object) - zero) @ (b.astype(object) - 7)
    assert np.array_equal(matmul(a, b, a_zero_point=zero, b_zero_point=7), expected)
    rows = fully_connected(
        a[0], np.ascontiguousarray(b.T), input_zero_point=zero, weight_zero_point=7
    )
    assert np.array_equal(rows, expected[0])


def test_products_are_exact_where_float32_is_not() -> None:
    # 255 * 255 * 300 is above 2**24, so a float32 sum would lose its last bits.
    a = np.full((1, 300), 255, np.int16)
    b = np.full((300, 1), 255, np.int16)
    b[0] = 254
    assert exact_product(a, b)[0, 0] == 255 * 255 * 300 - 255


def test_requantised_convolution_is_near_the_real_one() -> None:
    """One rounding of at most 0.5, and the first rounding shrunk by the right shift."""
    rng = np.random.default_rng(6)
    x, w = random_bytes(rng, (2, 9, 9, 8), np.int8), random_bytes(rng, (5, 3, 3, 8), np.int8)
    x_scale, w_scale, y_scale = 0.02, rng.uniform(0.001, 0.01, 5), 0.1
    padding = same_padding((9, 9), (3, 3), (1, 1))
    acc = conv2d(x, w, padding=padding, input_zero_point=11)
    real = x_scale * w_scale / y_scale
    table = np.array([quantize_multiplier(value) for value in real])
    y = requantize(
        acc, table[:, 0], table[:, 1], zero_point=-3, act_min=-128, act_max=127,
        scheme=RequantScheme.TFLITE_Q31_DOUBLE,
    )  # fmt: skip
    padded = np.pad(x.astype(float) - 11, ((0, 0), *padding, (0, 0))) * x_scale
    taps = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    exact = np.einsum("nijchw,ohwc->nijo", taps, w * w_scale[:, None, None, None])
    expected = (exact / y_scale - 3).clip(-128, 127)
    tolerance = 0.5 + 0.5 * 2.0 ** table[:, 1].max() + 1e-6
    assert np.abs(y - expected).max() <= tolerance
    assert ((y > -128) & (y < 127)).mean() > 0.5


def test_same_padding_gives_ceil_of_image_over_stride() -> None:
    sizes = itertools.product(range(1, 12), range(1, 5), range(1, 4), range(1, 3))
    for image, kernel, stride, dilation in sizes:
        arguments = (image, 7), (kernel, 1), (stride, 2), (dilation, 1)
        padding = same_padding(*arguments)
        assert output_size(*arguments, padding) == (-(-image // stride), 4)
        assert padding[0][1] - padding[0][0] in (0, 1)


def x8(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int8)


X, W = x8(1, 5, 5, 4), x8(6, 3, 3, 4)
MESSAGES = [
    (lambda: conv2d(X.astype(np.float32), W), TypeError,
     "x must be an array of int8 or uint8, not float32"),
    (lambda: conv2d(X.tolist(), W), TypeError, "x must be an array of int8 or uint8, not list"),
    (lambda: conv2d(X, W.astype(np.int16)), TypeError,
     "w must be an array of int8 or uint8, not int16"),
    (lambda: conv2d(X[0], W), ValueError, "x must have 4 axes (N, H, W, C), not shape (5, 5, 4)"),
    (lambda: conv2d(X, W[0]), ValueError, "w must have 4 axes (O, KH, KW, I), not shape (3, 3, 4)"),
    (lambda: conv2d(X, W, input_zero_point=128), ValueError,
     "input_zero_point must be from -128 to 127, not 128"),
    (lambda: conv2d(X, W, weight_zero_point=-129), ValueError,
     "weight_zero_point must be from -128 to 127, not -129"),
    (lambda: conv2d(X, W, stride=(0, 1)), ValueError,
     "stride must be two numbers of at least 1, not (0, 1)"),
    (lambda: conv2d(X, W, dilation=(1, 0)), ValueError,
     "dilation must be two numbers of at least 1, not (1, 0)"),
    (lambda: conv2d(X, W, padding=((0, -1), (0, 0))), ValueError,
     "padding must be ((top, bottom), (left, right)) of at least 0, not ((0, -1), (0, 0))"),
    (lambda: conv2d(X, W, dilation=(3, 3)), ValueError,
     "window must be at most the padded image (5, 5), not (7, 7)"),
    (lambda: conv2d(X, W, groups=3), ValueError,
     "groups must divide the 4 input and 6 output channels, not 3"),
    (lambda: conv2d(X, W, groups=2), ValueError,
     "w must have C / groups = 2 input channels, not 4"),
    (lambda: conv2d(X, W, np.zeros(5, np.int32)), ValueError,
     "bias must have shape (6,), not (5,)"),
    (lambda: conv2d(X, W, np.zeros(6)), TypeError, "bias must be an array of int32, not float64"),
    (lambda: depthwise_conv2d(X, W), ValueError,
     "w must have shape (1, KH, KW, multiple of C = 4), not (6, 3, 3, 4)"),
    (lambda: fully_connected(x8(2, 3), x8(4, 5)), ValueError,
     "w must have K = 3 columns as x has, not 5"),
    (lambda: fully_connected(x8(3), x8(4, 3)), ValueError,
     "x must have 2 axes (M, K), not shape (3,)"),
    (lambda: fully_connected(x8(2, 3), x8(4)), ValueError,
     "w must have 2 axes (N, K), not shape (4,)"),
    (lambda: matmul(x8(2, 3), x8(4, 5)), ValueError,
     "a and b must be (..., M, K) and (..., K, N), not (2, 3) and (4, 5)"),
    (lambda: matmul(x8(2, 3), x8(3, 5), b_zero_point=300), ValueError,
     "b_zero_point must be from -128 to 127, not 300"),
    (lambda: exact_product(np.array([[1 << 30]]), np.array([[1 << 30]])), ValueError,
     f"K * max|a| * max|b| must be at most 2**53 to be exact, not {1 << 60}"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), MESSAGES)
def test_bad_arguments_are_named(call, error, message) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()
