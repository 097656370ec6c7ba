"""Operators on single elements: clamp, activation ranges, quantise, dequantise, rescale, add.

Ref: TensorFlow Lite ``kernels/internal/reference/quantize.h`` and ``dequantize.h``
(AffineQuantize, Dequantize), ``reference/integer_ops/add.h``, ``kernels/add.cc`` (the constants of
ADD) and ``kernels/kernel_util.cc`` (CalculateActivationRangeQuantized); ONNX QuantizeLinear and
DequantizeLinear.
"""

import enum
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.numerics import (
    INT8,
    IntFormat,
    RequantScheme,
    Rounding,
    quantize_multiplier,
)
from npulse.sim.golden.check import BYTE_FORMATS, require_bytes, require_dtype, require_window
from npulse.sim.golden.requant import OUTPUT_DTYPES, requantize, scale_q31

Array = NDArray[Any]


class Activation(enum.Enum):
    """Activation that a clamp can do; the value is its range of real numbers."""

    NONE = (-math.inf, math.inf)
    RELU = (0.0, math.inf)
    RELU6 = (0.0, 6.0)
    RELU_N1_TO_1 = (-1.0, 1.0)


def activation_range(
    activation: Activation, scale: float, zero_point: int, out: IntFormat = INT8
) -> tuple[int, int]:
    """Turn a fused activation into ``act_min, act_max`` as TFLite does.

    ``scale`` (float32) and ``zero_point`` are those of the output. The real bound is divided by the
    scale in float32 and rounded half away from zero.
    """
    _require_scale(np.asarray(scale, np.float32))
    out.check("zero_point", zero_point)

    def bound(real: float, end: int) -> int:
        if math.isinf(real):
            return end
        return out.saturate(zero_point + round_half_away(np.float32(real) / np.float32(scale)))

    low, high = activation.value
    return bound(low, out.min), bound(high, out.max)


def round_half_away(value: np.floating) -> int:
    """Round a finite number to the nearest integer, ties away from zero."""
    exact = float(value)
    return int(math.copysign(math.floor(abs(exact) + 0.5), exact))


def clamp(x: Array, act_min: int, act_max: int) -> Array:
    """Clamp int8 or uint8 ``x`` of any shape to ``act_min .. act_max``."""
    require_dtype("x", x, np.int8, np.uint8)
    require_window(BYTE_FORMATS[x.dtype], act_min, act_max)
    return x.clip(act_min, act_max)


def relu(x: Array, zero_point: int) -> Array:
    """Replace what is below real zero by it, for an output with the scale of the input."""
    fmt = require_bytes("x", x, "zero_point", zero_point)
    return clamp(x, zero_point, fmt.max)


def quantize(
    x: Array, scale: Array | float, zero_point: int, rounding: Rounding, out: IntFormat = INT8
) -> Array:
    """Compute ``saturate(round(x / scale) + zero_point)`` with the quotient in float32.

    Parameters
    ----------
    x : (..., C) float32
        Infinities saturate; NaN has no integer and is refused.
    scale : scalar or (C,) float32
        Positive and finite.
    zero_point
        Within ``out``.
    rounding
        HALF_EVEN for ONNX QuantizeLinear, HALF_AWAY for TFLite QUANTIZE, where a quotient beyond
        int32 is undefined; here it saturates.

    Returns
    -------
    (..., C) of the dtype of ``out``
    """
    require_dtype("x", x, np.float32)
    out.check("zero_point", zero_point)
    factor = np.asarray(scale, np.float32)
    _require_scale(factor)
    if np.isnan(x).any():
        raise ValueError("x must hold no NaN")
    with np.errstate(over="ignore"):  # an infinite quotient saturates below
        quotient = x / factor
    if rounding is Rounding.HALF_EVEN:
        whole = np.rint(quotient)
    else:
        # trunc(q + 0.5) would be wrong for the float32 just below 0.5; the fraction is exact.
        whole = np.trunc(quotient)
        with np.errstate(invalid="ignore"):  # inf - inf: infinities are whole already
            whole = np.where(np.abs(quotient - whole) >= 0.5, whole + np.sign(quotient), whole)
    limited = whole.clip(np.float32(out.min - zero_point), np.float32(out.max - zero_point))
    return (limited.astype(np.int32) + zero_point).astype(OUTPUT_DTYPES[out])


def dequantize(x: Array, scale: Array | float, zero_point: int) -> NDArray[np.float32]:
    """Compute ``(x - zero_point) * scale`` in float32 for int8 or uint8 ``x (..., C)``."""
    require_bytes("x", x, "zero_point", zero_point)
    factor = np.asarray(scale, np.float32)
    _require_scale(factor)
    return (x.astype(np.int32) - zero_point).astype(np.float32) * factor


def _require_scale(scale: NDArray[np.float32]) -> None:
    bad = scale[~(np.isfinite(scale) & (scale > 0))]
    if bad.size:
        raise ValueError(f"scale must be positive and finite, not {float(bad.flat[0])}")


def rescale(
    x: Array,
    multiplier: int,
    shift: int,
    *,
    input_zero_point: int,
    zero_point: int,
    out: IntFormat = INT8,
) -> Array:
    """Move bytes to another scale and zero point: TFLite QUANTIZE from int8 to int8.

    ``multiplier, shift`` are `quantize_multiplier` of ``input_scale / output_scale``; the rounding
    is TFLITE_Q31_DOUBLE.
    """
    require_bytes("x", x, "input_zero_point", input_zero_point)
    return requantize(
        x.astype(np.int32) - input_zero_point,
        multiplier,
        shift,
        zero_point=zero_point,
        act_min=out.min,
        act_max=out.max,
        scheme=RequantScheme.TFLITE_Q31_DOUBLE,
        out=out,
    )


#: Bits that ADD gains before it scales its operands (TFLite ``kernels/add.cc``).
ADD_LEFT_SHIFT = 20


@dataclass(frozen=True, kw_only=True)
class AddParameters:
    """Multipliers and shifts of `add`: both operands to a common scale, the sum to the output's."""

    a_multiplier: int
    a_shift: int
    b_multiplier: int
    b_shift: int
    multiplier: int
    shift: int

    @classmethod
    def from_scales(cls, a_scale: float, b_scale: float, scale: float) -> "AddParameters":
        """Derive the parameters from the scales of ``a``, ``b`` and the output, in double."""
        for value in (a_scale, b_scale, scale):
            _require_scale(np.asarray(value, np.float32))
        common = 2.0 * max(a_scale, b_scale)
        a_multiplier, a_shift = quantize_multiplier(a_scale / common)
        b_multiplier, b_shift = quantize_multiplier(b_scale / common)
        multiplier, shift = quantize_multiplier(common / ((1 << ADD_LEFT_SHIFT) * scale))
        return cls(
            a_multiplier=a_multiplier,
            a_shift=a_shift,
            b_multiplier=b_multiplier,
            b_shift=b_shift,
            multiplier=multiplier,
            shift=shift,
        )


def add(
    a: Array,
    b: Array,
    parameters: AddParameters,
    *,
    a_zero_point: int,
    b_zero_point: int,
    zero_point: int,
    act_min: int = INT8.min,
    act_max: int = INT8.max,
) -> NDArray[np.int8]:
    """Add int8 arrays of different scales as TFLite ADD does; shapes broadcast.

    Both operands gain 20 bits, are scaled to twice the larger scale, added, and scaled to the
    output, each time with TFLITE_Q31_DOUBLE.
    """
    require_dtype("a", a, np.int8)
    require_dtype("b", b, np.int8)
    INT8.check("a_zero_point", a_zero_point)
    INT8.check("b_zero_point", b_zero_point)
    scheme = RequantScheme.TFLITE_Q31_DOUBLE
    wide_a = (a.astype(np.int32) - a_zero_point) << ADD_LEFT_SHIFT
    wide_b = (b.astype(np.int32) - b_zero_point) << ADD_LEFT_SHIFT
    total = scale_q31(wide_a, parameters.a_multiplier, parameters.a_shift, scheme) + scale_q31(
        wide_b, parameters.b_multiplier, parameters.b_shift, scheme
    )
    return requantize(
        total.astype(np.int32),
        parameters.multiplier,
        parameters.shift,
        zero_point=zero_point,
        act_min=act_min,
        act_max=act_max,
        scheme=scheme,
    )
