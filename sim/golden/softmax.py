"""TFLite's int8 softmax in fixed point, by gemmlowp's exponential and reciprocal.

``Qi.f`` is a signed 32-bit number with ``i`` integer and ``f = 31 - i`` fraction bits. Products are
gemmlowp's SaturatingRoundingDoublingHighMul; no operand here can make it saturate.

Ref: TensorFlow Lite ``kernels/internal/reference/softmax.h``; ``kernels/internal/common.h``
(GetReciprocal) and ``kernels/internal/quantization_util.cc`` (PreprocessSoftmaxScaling,
CalculateInputRadius); gemmlowp ``fixedpoint/fixedpoint.h`` (exp_on_negative_values,
one_over_one_plus_x_for_x_in_0_1), from which the constants are.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.numerics import INT8, INT16, INT32, IntFormat, quantize_multiplier
from npulse.sim.golden.check import require_dtype
from npulse.sim.golden.requant import OUTPUT_DTYPES

Array = NDArray[Any]
Wide = NDArray[np.int64]

DIFFERENCE_INTEGER_BITS = 5  #: Scaled differences are Q5.26.
SUM_INTEGER_BITS = 12  #: The sum of exponentials is Q12.19, so 4,095 terms of 1 fit.
MAX_ROW = (1 << SUM_INTEGER_BITS) - 1

OUTPUT_SCALE = 1 / 256  #: Scale of the output, which TFLite fixes.
OUTPUT_ZERO_POINT = -128

EXP_MINUS_EIGHTH = 1895147668  # exp(-1/8), Q0.31
ONE_THIRD = 715827883  # Q0.31
#: exp(-2**k) in Q0.31 for k from -2 to 4.
EXP_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
RECIPROCAL_OFFSET = 1515870810  # 48/17, Q2.29
RECIPROCAL_SLOPE = -1010580540  # -32/17, Q2.29


@dataclass(frozen=True)
class SoftmaxParameters:
    """Scaling of the differences to the row's maximum."""

    multiplier: int  #: Q31
    left_shift: int  #: 0 .. 30
    diff_min: int  #: Smaller differences give an exponential of 0.

    @classmethod
    def from_scale(cls, scale: float, beta: float = 1.0) -> "SoftmaxParameters":
        """Derive the parameters from the input's scale and the factor ``beta`` of the exponent."""
        fraction_bits = 31 - DIFFERENCE_INTEGER_BITS
        real = min(scale * beta * (1 << fraction_bits), float(INT32.max))
        if not real > 1:
            raise ValueError(f"scale * beta must be above 2**-{fraction_bits}, not {scale * beta}")
        multiplier, left_shift = quantize_multiplier(real)
        radius = ((1 << DIFFERENCE_INTEGER_BITS) - 1) << fraction_bits >> left_shift
        return cls(multiplier, left_shift, -radius)


def softmax(x: Array, parameters: SoftmaxParameters, out: IntFormat = INT8) -> Array:
    """Compute the softmax of each row.

    Parameters
    ----------
    x : (..., C) int8
        At most 4,095 channels; the zero point does not matter. LiteRT 2.3.0 BUILTIN_REF aborts on a
        row whose exponentials sum to 512 or more, since gemmlowp refuses shifts above 31; here the
        same formula gives -128, which is what such small shares round to.
    out
        INT8 or INT16.

    Returns
    -------
    (..., C) of the dtype of ``out``: of scale 1/256 and zero point -128, or 1/65536 and -32768
    """
    require_dtype("x", x, np.int8)
    if out not in (INT8, INT16):
        raise ValueError(f"out must be int8 or int16, not {out.name}")
    if x.ndim == 0 or not 1 <= x.shape[-1] <= MAX_ROW:
        raise ValueError(f"x must have 1 to {MAX_ROW} channels in its last axis, not {x.shape}")
    wide = x.astype(np.int64)
    differences = wide - wide.max(axis=-1, keepdims=True)
    counts = differences >= parameters.diff_min
    shifted = np.where(counts, differences, 0) << parameters.left_shift
    exponentials = _exp_of_negative(_product(shifted, parameters.multiplier))

    terms = np.where(counts, divide_by_pot(exponentials, SUM_INTEGER_BITS), 0)
    reciprocal, bits_over_unit = _reciprocal(terms.sum(axis=-1, keepdims=True))
    shift = bits_over_unit + 31 - out.width
    scaled = divide_by_pot(_product(reciprocal, exponentials), shift) + out.min
    shares = np.where(counts, scaled.clip(out.min, out.max), out.min)
    return shares.astype(OUTPUT_DTYPES[out])


def _product(a: Wide, b: Wide | int) -> Wide:
    return (a * b + (1 << 30)) >> 31


def divide_by_pot(x: Wide, exponent: Wide | int) -> Wide:
    """Divide by ``2**exponent``, at least 1, to nearest with ties away from zero."""
    half = np.left_shift(np.int64(1), np.asarray(exponent, np.int64) - 1)
    return (x + half - (x < 0)) >> exponent


def _shift_saturating(x: Wide, places: int) -> Wide:
    return (x << places).clip(INT32.min, INT32.max)


def _exp_of_negative(x: Wide) -> Wide:
    """Return exp(x) in Q0.31 for ``x <= 0`` in Q5.26.

    ``x`` is a part in [-1/4, 0), for which there is a Taylor series about -1/8, minus a multiple of
    1/4, whose bits each select one factor.
    """
    quarter = 1 << (31 - DIFFERENCE_INTEGER_BITS - 2)
    part = (x & (quarter - 1)) - quarter
    rest = part - x
    result = _exp_near_eighth(part << DIFFERENCE_INTEGER_BITS)
    for position, factor in enumerate(EXP_POWERS):
        selected = rest & (quarter << position) != 0
        result = np.where(selected, _product(result, factor), result)
    return np.where(x == 0, INT32.max, result)


def _exp_near_eighth(x: Wide) -> Wide:
    """Return exp(x) for ``x`` in [-1/4, 0), both in Q0.31, by four terms about -1/8."""
    t = x + (1 << 28)
    t2 = _product(t, t)
    t3 = _product(t2, t)
    t4 = _product(t2, t2)
    tail = _product(divide_by_pot(t4, 2) + t3, ONE_THIRD) + t2
    return EXP_MINUS_EIGHTH + _product(t + divide_by_pot(tail, 1), EXP_MINUS_EIGHTH)


def _reciprocal(total: Wide) -> tuple[Wide, Wide]:
    """Return 1/m in Q0.31 and e, where ``total`` (Q12.19, at least 1/2**19) is ``m * 2**e``."""
    leading_zeros = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    mantissa = (total << leading_zeros) - (1 << 31)
    return _one_over_one_plus(mantissa), SUM_INTEGER_BITS - leading_zeros


def _one_over_one_plus(x: Wide) -> Wide:
    """Return 1 / (1 + x) in Q0.31 for ``x`` in [0, 1) in Q0.31, by three Newton-Raphson steps."""
    half_denominator = (x + INT32.max + 1) >> 1
    estimate = RECIPROCAL_OFFSET + _product(half_denominator, RECIPROCAL_SLOPE)  # Q2.29
    for _ in range(3):
        error = (1 << 29) - _product(half_denominator, estimate)
        estimate = estimate + _shift_saturating(_product(estimate, error), 2)
    return _shift_saturating(estimate, 1)
