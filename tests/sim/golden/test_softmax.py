"""Fixed-point softmax against LiteRT and real numbers."""

import re

import numpy as np
import pytest

from npulse.hw.spec.numerics import rounding_divide_by_pot
from npulse.sim.golden.softmax import (
    EXP_MINUS_EIGHTH,
    EXP_POWERS,
    ONE_THIRD,
    RECIPROCAL_OFFSET,
    RECIPROCAL_SLOPE,
    SoftmaxParameters,
    divide_by_pot,
    softmax,
)


def random_rows(rows: int, channels: int) -> np.ndarray:
    return np.random.default_rng(10).integers(-128, 128, (rows, channels)).astype(np.int8)


@pytest.mark.parametrize("beta", (1.0, 0.7))
@pytest.mark.parametrize("scale", (0.0039, 0.0371, 0.1, 0.5, 1.0))
@pytest.mark.parametrize("channels", (1, 2, 11, 500))
def test_softmax_equals_litert(litert, scale, beta, channels) -> None:
    x = random_rows(200, channels)
    options = litert.schema.SoftmaxOptionsT()
    options.beta = beta
    tensors = [
        litert.tensor(x.shape, "INT8", scale, -7),
        litert.tensor(x.shape, "INT8", 1 / 256, -128),
    ]
    expected = litert.run("SOFTMAX", tensors, [x], options=options)
    parameters = SoftmaxParameters.from_scale(float(np.float32(scale)), float(np.float32(beta)))
    assert np.array_equal(softmax(x, parameters), expected)


@pytest.mark.parametrize("scale", (0.0371, 0.1, 0.5))
def test_softmax_is_near_the_real_one(scale) -> None:
    x = random_rows(500, 7)
    power = np.exp((x.astype(float) - x.max(axis=1, keepdims=True)) * scale)
    exact = 256 * power / power.sum(axis=1, keepdims=True) - 128
    got = softmax(x, SoftmaxParameters.from_scale(scale))
    # Half a unit of the last rounding; the rest is far below a hundredth of one.
    assert np.abs(got - exact.clip(-128, 127)).max() <= 0.51


def test_constants_are_their_real_values_rounded() -> None:
    q31, q29 = 2.0**31, 2.0**29
    assert [round(np.exp(-(2.0**k)) * q31) for k in range(-2, 5)] == list(EXP_POWERS)
    assert round(np.exp(-1 / 8) * q31) == EXP_MINUS_EIGHTH
    assert round(q31 / 3) == ONE_THIRD
    assert (round(48 / 17 * q29), round(-32 / 17 * q29)) == (RECIPROCAL_OFFSET, RECIPROCAL_SLOPE)


@pytest.mark.parametrize("exponent", (1, 2, 12, 31))
def test_division_equals_that_of_the_specification(exponent) -> None:
    half = 1 << (exponent - 1)
    values = [k * half + step for k in range(-9, 10) for step in (-1, 0, 1)]
    values = [value for value in values if abs(value) < 1 << 31]
    expected = [rounding_divide_by_pot(value, exponent) for value in values]
    assert divide_by_pot(np.array(values), exponent).tolist() == expected


def test_equal_inputs_share_one_and_a_far_smaller_one_gets_nothing() -> None:
    parameters = SoftmaxParameters.from_scale(0.5)
    x = np.array([[5, 5, 5, 5], [127, -128, -128, -128]], np.int8)
    assert softmax(x, parameters).tolist() == [[-64] * 4, [127, -128, -128, -128]]


def test_a_row_of_the_most_channels_does_not_overflow() -> None:
    x = np.zeros((1, 4095), np.int8)
    assert np.unique(softmax(x, SoftmaxParameters.from_scale(1.0))).tolist() == [-128]
    x[0, 0] = 20
    assert softmax(x, SoftmaxParameters.from_scale(1.0))[0, 0] == 127


MESSAGES = [
    (lambda: softmax(np.zeros((1, 4096), np.int8), SoftmaxParameters.from_scale(1.0)), ValueError,
     "x must have 1 to 4095 channels in its last axis, not (1, 4096)"),
    (lambda: softmax(np.zeros((1, 4), np.uint8), SoftmaxParameters.from_scale(1.0)), TypeError,
     "x must be an array of int8, not uint8"),
    (lambda: SoftmaxParameters.from_scale(2.0**-26), ValueError,
     f"scale * beta must be above 2**-26, not {2.0**-26}"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), MESSAGES)
def test_bad_arguments_are_named(call, error, message) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()
