"""Logistic and tanh of int16 in fixed point, by gemmlowp's exponential and reciprocal.

``Qi.f`` is a signed 16-bit number with ``i`` integer and ``f = 15 - i`` fraction bits. All
intermediate values are int16; products are SaturatingRoundingDoublingHighMul of int16.

Ref: gemmlowp ``fixedpoint/fixedpoint.h`` (logistic, tanh, exp_on_negative_values,
one_over_one_plus_x_for_x_in_0_1), whose 32-bit constants are rounded to 16 bits
(RescaleConstantInitializer); used by TensorFlow Lite ``kernels/internal/reference/
portable_tensor_utils.cc`` (PortableApplySigmoid, PortableApplyTanh).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.numerics import INT16
from npulse.sim.golden.check import require_dtype
from npulse.sim.golden.softmax import (
    EXP_MINUS_EIGHTH,
    EXP_POWERS,
    ONE_THIRD,
    RECIPROCAL_OFFSET,
    RECIPROCAL_SLOPE,
    divide_by_pot,
)

Array = NDArray[Any]
Wide = NDArray[np.int64]

#: Integer bits of a tanh input that gemmlowp has code for.
TANH_BITS_MAX = 6
_LOGISTIC_BITS = 3


def _short(constant: int) -> int:
    """Round a 32-bit fixed-point constant to 16 bits."""
    return min((constant + (1 << 15)) >> 16, INT16.max)


def _product(a: Wide, b: Wide | int) -> Wide:
    return ((a * b + (1 << 14)) >> 15).clip(INT16.min, INT16.max)


def _saturate(x: Wide) -> Wide:
    return x.clip(INT16.min, INT16.max)


def _negate(x: Wide) -> Wide:
    """Negate in 16 bits: the smallest value stays what it is."""
    return np.where(x == INT16.min, x, -x)


def logistic16(x: Array) -> NDArray[np.int16]:
    """Compute ``1 / (1 + exp(-x))`` of int16 in Q3.12, as Q0.15."""
    require_dtype("x", x, np.int16)
    wide = x.astype(np.int64)
    size = np.where(wide > 0, wide, _negate(wide))
    positive = _reciprocal(_exp_of_negative(_negate(size), _LOGISTIC_BITS)) >> 1
    positive = _saturate(positive << 2)
    result = np.where(wide > 0, positive, INT16.max - positive)
    return np.where(wide == 0, 1 << 14, result).astype(np.int16)


def tanh16(x: Array, integer_bits: int) -> NDArray[np.int16]:
    """Compute tanh of int16 with ``integer_bits`` integer bits, 0 to 6, as Q0.15."""
    require_dtype("x", x, np.int16)
    if not 0 <= integer_bits <= TANH_BITS_MAX:
        raise ValueError(f"integer_bits must be from 0 to {TANH_BITS_MAX}, not {integer_bits}")
    wide = x.astype(np.int64)
    negative = np.where(wide < 0, wide, -wide)
    power = _exp_of_negative(negative, integer_bits + 1)
    size = _saturate((_reciprocal(power) - (1 << 13)) << 2)
    return np.where(wide == 0, 0, np.where(wide < 0, _negate(size), size)).astype(np.int16)


def _exp_of_negative(x: Wide, integer_bits: int) -> Wide:
    """Return exp(x) in Q0.15 for ``x <= 0`` with ``integer_bits`` integer bits."""
    fraction_bits = 15 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    part = (x & (quarter - 1)) - quarter
    rest = part - x
    result = _exp_near_eighth(_saturate(part << integer_bits))
    for exponent, factor in zip(range(-2, 5), EXP_POWERS, strict=True):
        if integer_bits > exponent:
            selected = rest & (1 << (fraction_bits + exponent)) != 0
            result = np.where(selected, _product(result, _short(factor)), result)
    if integer_bits > 5:
        result = np.where(x < -(32 << fraction_bits), 0, result)
    return np.where(x == 0, INT16.max, result)


def _exp_near_eighth(x: Wide) -> Wide:
    """Return exp(x) for ``x`` in [-1/4, 0), both in Q0.15, by four terms about -1/8."""
    constant = _short(EXP_MINUS_EIGHTH)
    t = x + (1 << 12)
    t2 = _product(t, t)
    t3 = _product(t2, t)
    t4 = _product(t2, t2)
    tail = divide_by_pot(_product(divide_by_pot(t4, 2) + t3, _short(ONE_THIRD)) + t2, 1)
    return _saturate(constant + _product(t + tail, constant))


def _reciprocal(x: Wide) -> Wide:
    """Return 2 / (1 + x) in Q2.13 for ``x`` in [0, 1) in Q0.15, by three Newton-Raphson steps."""
    half_denominator = (x + INT16.max + 1) >> 1
    estimate = _short(RECIPROCAL_OFFSET) + _product(half_denominator, _short(RECIPROCAL_SLOPE))
    for _ in range(3):
        error = (1 << 13) - _product(half_denominator, estimate)
        estimate = estimate + _saturate(_product(estimate, error) << 2)
    return estimate
