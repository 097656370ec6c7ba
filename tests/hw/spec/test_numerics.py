"""The requantiser contract: its hardware formula against the definitions, and its edges."""

import itertools
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npulse.hw.spec.numerics import (
    INT4,
    INT8,
    INT16,
    INT32,
    INT_FORMATS,
    Q31_SCHEMES,
    UINT8,
    IntFormat,
    RequantScheme,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    requantize_scalar,
    rounding_constants,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)

DOUBLE = RequantScheme.TFLITE_Q31_DOUBLE
SINGLE = RequantScheme.TFLITE_Q31_SINGLE
AWAY = RequantScheme.TFLITE_Q31_AWAY

#: Ends, neighbours of powers of two, and ties of the accumulator.
EDGES = sorted(
    {sign * (1 << bit) + step for bit in (0, 1, 8, 15, 16, 29, 30) for sign in (-1, 1)
     for step in (-1, 0, 1)}
    | {INT32.min, INT32.min + 1, INT32.max, INT32.max - 1}
)  # fmt: skip
MULTIPLIERS = (0, 1, 2, 3, (1 << 30) - 1, 1 << 30, (1 << 30) + 1, 3 << 29, (1 << 31) - 1)
SHIFTS = range(-31, 31)

int32s = st.integers(INT32.min, INT32.max)
multipliers = st.integers(0, (1 << 31) - 1)
shifts = st.integers(-31, 30)
schemes = st.sampled_from(Q31_SCHEMES)


def hardware(x: int, multiplier: int, shift: int, scheme: RequantScheme) -> int:
    """The data path of the module docstring, with the widths that it claims."""
    c = rounding_constants(shift, scheme)
    wide = x << c.left_shift
    assert -(1 << 61) <= wide < 1 << 61
    left = INT32.wrap(wide) if scheme is DOUBLE else INT32.saturate(wide)
    product = left * multiplier
    assert -(1 << 62) <= product < 1 << 62
    high = (product + c.product_round - (c.ties_away if left < 0 else 0)) >> 31
    assert INT32.min <= high <= INT32.max
    total = high + (c.round_negative if high < 0 else c.round_positive)
    assert -(1 << 32) <= total < 1 << 32
    return total >> c.right_shift


@pytest.mark.parametrize("scheme", Q31_SCHEMES)
def test_hardware_formula_equals_the_definition_at_every_edge(scheme) -> None:
    for x, multiplier, shift in itertools.product(EDGES, MULTIPLIERS, SHIFTS):
        expected = multiply_by_quantized_multiplier(x, multiplier, shift, scheme)
        assert hardware(x, multiplier, shift, scheme) == expected, (x, multiplier, shift)


@given(int32s, multipliers, shifts, schemes)
def test_hardware_formula_equals_the_definition(x, multiplier, shift, scheme) -> None:
    expected = multiply_by_quantized_multiplier(x, multiplier, shift, scheme)
    assert hardware(x, multiplier, shift, scheme) == expected


@given(int32s, multipliers, shifts, schemes, st.integers(-128, 127))
def test_ten_bits_before_the_zero_point_are_enough(x, multiplier, shift, scheme, zero) -> None:
    real = hardware(x, multiplier, shift, scheme)
    narrow = IntFormat("narrow", 10, True).saturate(real)
    assert INT8.saturate(narrow + zero) == INT8.saturate(real + zero)


@given(int32s, multipliers, shifts)
def test_left_shift_overflows_iff_its_top_bits_differ(x, multiplier, shift) -> None:
    left = max(shift, 0)
    top = (x & 0xFFFF_FFFF) >> (31 - left)
    differ = top not in (0, (1 << (left + 1)) - 1)
    assert differ == (INT32.saturate(x << left) != x << left)


@given(int32s, st.integers(1 << 30, (1 << 31) - 1), shifts)
def test_single_is_the_formula_of_tflite_after_saturation(x, multiplier, shift) -> None:
    total_shift = 31 - shift
    exact = INT32.saturate((x * multiplier + (1 << (total_shift - 1))) >> total_shift)
    for zero in (-128, 0, 127):
        out = requantize_scalar(
            x, multiplier, shift, zero_point=zero, act_min=-128, act_max=127, scheme=SINGLE
        )
        assert out == INT8.saturate(exact + zero)


@given(st.integers(-(1 << 24), 1 << 24), multipliers, st.integers(-31, 6), schemes)
def test_every_scheme_is_within_its_error_of_the_product(x, multiplier, shift, scheme) -> None:
    exact = Fraction(x * multiplier, 1 << 31) * Fraction(2) ** shift
    got = multiply_by_quantized_multiplier(x, multiplier, shift, scheme)
    # The first rounding errs by half a unit before the right shift.
    extra = Fraction(1, 2) / (1 << -shift) if scheme is DOUBLE and shift < 0 else 0
    assert abs(got - exact) <= Fraction(1, 2) + extra


def test_schemes_differ_as_worked_by_hand() -> None:
    half, three_halves = (1 << 30, 0), (3 << 29, 1)
    assert multiply_by_quantized_multiplier(-3, *three_halves, SINGLE) == -4  # -4.5 goes up
    assert multiply_by_quantized_multiplier(-3, *three_halves, AWAY) == -5
    assert multiply_by_quantized_multiplier(-1, *half, DOUBLE) == 0
    assert multiply_by_quantized_multiplier(-1, *half, AWAY) == -1
    # 5 * 0.5 * 0.5 = 1.25 becomes 2.5 -> 3, then 1.5 -> 2 when it is rounded twice.
    assert multiply_by_quantized_multiplier(5, 1 << 30, -1, DOUBLE) == 2
    assert multiply_by_quantized_multiplier(5, 1 << 30, -1, SINGLE) == 1


def test_overflow_of_the_left_shift_wraps_in_double_and_saturates_in_single() -> None:
    x = (1 << 30) + 3
    assert multiply_by_quantized_multiplier(x, 1 << 30, 2, DOUBLE) == 6  # 2**32 + 12 wraps to 12
    assert multiply_by_quantized_multiplier(x, 1 << 30, 2, SINGLE) == 1 << 30
    assert multiply_by_quantized_multiplier(-x, 1 << 30, 2, AWAY) == -(1 << 30)


def test_bias_wraps_and_the_zero_point_does_not() -> None:
    window = dict(zero_point=127, act_min=-128, act_max=127, scheme=DOUBLE)
    near_one = ((1 << 31) - 1, 0)
    assert requantize_scalar(INT32.max, *near_one, bias=1, **window) == -128
    assert requantize_scalar(INT32.max, *near_one, **window) == 127


def test_high_mul_and_divide_have_the_edges_of_gemmlowp() -> None:
    assert saturating_rounding_doubling_high_mul(INT32.min, INT32.min) == INT32.max
    assert saturating_rounding_doubling_high_mul(1, 1 << 30) == 1
    assert saturating_rounding_doubling_high_mul(-1, 1 << 30) == 0
    assert [rounding_divide_by_pot(x, 1) for x in (-3, -2, -1, 0, 1, 3)] == [-2, -1, -1, 0, 1, 2]
    assert rounding_divide_by_pot(INT32.min, 31) == -1
    assert rounding_divide_by_pot(INT32.max, 31) == 1


@given(st.floats(2.0**-32, 1e9))
def test_quantized_multiplier_is_the_nearest_of_31_bits(real) -> None:
    multiplier, shift = quantize_multiplier(real)
    assert 1 << 30 <= multiplier < 1 << 31
    scaled = Fraction(real) * Fraction(2) ** (31 - shift)
    assert abs(scaled - multiplier) <= Fraction(1, 2)


def test_quantize_multiplier_at_its_edges() -> None:
    assert quantize_multiplier(0.0) == (0, 0)
    assert quantize_multiplier(1.0) == (1 << 30, 1)
    assert quantize_multiplier(0.75) == (3 << 29, 0)
    assert quantize_multiplier(1 - 2.0**-40) == (1 << 30, 1)  # rounds up to a power of two
    assert quantize_multiplier(2.0**-32) == (1 << 30, -31)
    assert quantize_multiplier(2.0**-32 * 0.999) == (0, 0)
    assert quantize_multiplier((2**31 - 1) / 2) == ((1 << 31) - 1, 30)


def test_formats_have_the_ranges_of_their_names() -> None:
    ranges = {name: (fmt.min, fmt.max) for name, fmt in INT_FORMATS.items()}
    assert ranges == {
        "int4": (-8, 7),
        "int8": (-128, 127),
        "uint8": (0, 255),
        "int16": (-32768, 32767),
        "int32": (-(2**31), 2**31 - 1),
    }


@given(st.integers(-(1 << 40), 1 << 40), st.sampled_from([INT4, INT8, UINT8, INT16, INT32]))
def test_wrap_keeps_the_low_bits_and_saturate_the_order(value, fmt) -> None:
    assert fmt.min <= fmt.wrap(value) <= fmt.max
    assert (fmt.wrap(value) - value) % (1 << fmt.width) == 0
    assert fmt.saturate(value) == sorted((fmt.min, value, fmt.max))[1]


LIMIT = (2**31 - 1) / 2
WINDOW = dict(zero_point=0, act_min=-128, act_max=127, scheme=DOUBLE)
MESSAGES = [
    (lambda: quantize_multiplier(-0.5), f"real must be from 0 to {LIMIT}, not -0.5"),
    (lambda: quantize_multiplier(float("nan")), f"real must be from 0 to {LIMIT}, not nan"),
    (lambda: quantize_multiplier(2.0**30), f"real must be from 0 to {LIMIT}, not {2.0**30}"),
    (lambda: rounding_constants(31, DOUBLE), "shift must be from -31 to 30, not 31"),
    (lambda: rounding_constants(-32, SINGLE), "shift must be from -31 to 30, not -32"),
    (
        lambda: rounding_constants(0, RequantScheme.ONNX_F32_RNE),
        "scheme must be one of TFLITE_Q31_DOUBLE, TFLITE_Q31_SINGLE, TFLITE_Q31_AWAY, "
        "not ONNX_F32_RNE",
    ),
    (
        lambda: multiply_by_quantized_multiplier(1 << 31, 0, 0, DOUBLE),
        "x must be from -2147483648 to 2147483647, not 2147483648",
    ),
    (
        lambda: multiply_by_quantized_multiplier(0, -1, 0, DOUBLE),
        "multiplier must be from 0 to 2147483647, not -1",
    ),
    (
        lambda: multiply_by_quantized_multiplier(0, 0, 31, DOUBLE),
        "shift must be from -31 to 30, not 31",
    ),
    (
        lambda: requantize_scalar(1 << 31, 0, 0, **WINDOW),
        "acc must be from -2147483648 to 2147483647, not 2147483648",
    ),
    (
        lambda: requantize_scalar(0, 0, 0, bias=1 << 31, **WINDOW),
        "bias must be from -2147483648 to 2147483647, not 2147483648",
    ),
    (
        lambda: requantize_scalar(0, 0, 0, **{**WINDOW, "act_min": 128}),
        "act_min must be at most act_max = 127, not 128",
    ),
    (lambda: IntFormat("wide", 65, True), "width must be from 1 to 64 bits, not 65"),
]


@pytest.mark.parametrize(("call", "message"), MESSAGES)
def test_bad_arguments_are_named(call, message) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()
