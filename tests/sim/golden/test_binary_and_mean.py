"""Golden operators on two tensors and mean against plain numpy in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from npulse.hw.spec.numerics import quantize_multiplier
from npulse.sim.golden.binary import maximum, minimum, mul, mul_scale, prelu, sub
from npulse.sim.golden.elementwise import AddParameters
from npulse.sim.golden.reduce import mean, mean_multiplier

SCALES = st.floats(2**-10, 0.5, width=32)
CODES = st.integers(-128, 127)
#: Two roundings err by half a step and, before a shift by 1, by a quarter.
DOUBLE_ROUNDING = 0.751
A = arrays(np.int8, (3, 1, 4))
B = arrays(np.int8, (2, 4))


def quantised(values: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    return (values / scale + zero_point).clip(-128, 127)


@given(A, B, SCALES, SCALES, SCALES, CODES, CODES, CODES)
def test_sub_and_mul_are_within_a_step_of_mathematics(a, b, sa, sb, sy, za, zb, zy) -> None:
    x, y = (a.astype(int) - za) * sa, (b.astype(int) - zb) * sb
    points = dict(a_zero_point=za, b_zero_point=zb, zero_point=zy)
    difference = sub(a, b, AddParameters.from_scales(sa, sb, sy), **points)
    assert difference.shape == (3, 2, 4)
    assert np.abs(difference - quantised(x - y, sy, zy)).max() <= DOUBLE_ROUNDING
    product = mul(a, b, *quantize_multiplier(mul_scale(sa, sb, sy)), **points)
    assert np.abs(product - quantised(x * y, sy, zy)).max() <= DOUBLE_ROUNDING


@given(A, B, SCALES, SCALES, SCALES, CODES, CODES, CODES)
def test_prelu_is_within_a_step_of_mathematics(a, b, sa, sb, sy, za, zb, zy) -> None:
    x, slope = (a.astype(int) - za) * sa, (b.astype(int) - zb) * sb
    found = prelu(
        a,
        b,
        x_scale=sa,
        alpha_scale=sb,
        scale=sy,
        x_zero_point=za,
        alpha_zero_point=zb,
        zero_point=zy,
    )
    assert (
        np.abs(found - quantised(np.where(x >= 0, x, x * slope), sy, zy)).max() <= DOUBLE_ROUNDING
    )


@given(arrays(np.int8, (2, 5, 3, 4)), SCALES, st.floats(0.3, 3), CODES, CODES)
def test_mean_is_within_a_step_of_mathematics(x, scale, ratio, zx, zy) -> None:
    for axes in ((1, 2), (3,), (0, 1, 2, 3)):
        found = mean(x, axes, ratio, input_zero_point=zx, zero_point=zy)
        exact = ((x.astype(int) - zx).mean(axis=axes, keepdims=True)) * scale
        assert found.shape == exact.shape
        assert np.abs(found - quantised(exact, scale / ratio, zy)).max() <= DOUBLE_ROUNDING


def test_extrema_keep_signed_and_unsigned_order() -> None:
    a, b = np.array([-1, 5], np.int8), np.array([1, -5], np.int8)
    assert maximum(a, b).tolist() == [1, 5]
    assert minimum(a.view(np.uint8), b.view(np.uint8)).tolist() == [1, 5]


def test_mean_multiplier_fits_31_bits_for_any_count() -> None:
    for count in (1, 2, 3, 49, 1 << 20):
        for real in (1e-9, 0.3, 1.0, 1000.0):
            multiplier, shift = mean_multiplier(real, count)
            assert 0 <= multiplier < 1 << 31
            assert -31 <= shift <= 30


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: mean_multiplier(1.0, 0), "count must be at least 1, not 0"),
        (
            lambda: mean(np.zeros((2, 2), np.int8), (2,), 1.0, input_zero_point=0, zero_point=0),
            "axes must be different ones of the 2 axes, not [2]",
        ),
        (
            lambda: maximum(np.zeros(1, np.int8), np.zeros(1, np.uint8)),
            "b must be an array of int8, not uint8",
        ),
    ],
)
def test_message_names_the_rule(act, message: str) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        act()
    assert str(caught.value) == message
