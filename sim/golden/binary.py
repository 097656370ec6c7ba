"""Operators on two int8 tensors with scales of their own: subtract, multiply, PReLU, extrema.

Shapes broadcast as in numpy. Ref: TensorFlow Lite ``kernels/sub.cc``,
``kernels/internal/reference/integer_ops/mul.h``, ``kernels/internal/reference/prelu.h`` and
``kernels/internal/reference/maximum_minimum.h``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.numerics import INT8, RequantScheme, quantize_multiplier
from npulse.sim.golden.check import require_dtype
from npulse.sim.golden.elementwise import ADD_LEFT_SHIFT, AddParameters
from npulse.sim.golden.requant import requantize, scale_q31

Array = NDArray[Any]

_SCHEME = RequantScheme.TFLITE_Q31_DOUBLE


def _centred(name: str, values: Array, zero_point: int) -> NDArray[np.int32]:
    require_dtype(name, values, np.int8)
    INT8.check(f"{name}_zero_point", zero_point)
    return values.astype(np.int32) - zero_point


def sub(
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
    """Subtract ``b`` from ``a`` as TFLite SUB does: `add` with the second term negated."""
    wide_a = _centred("a", a, a_zero_point) << ADD_LEFT_SHIFT
    wide_b = _centred("b", b, b_zero_point) << ADD_LEFT_SHIFT
    total = scale_q31(wide_a, parameters.a_multiplier, parameters.a_shift, _SCHEME) - scale_q31(
        wide_b, parameters.b_multiplier, parameters.b_shift, _SCHEME
    )
    return _requantized(
        total.astype(np.int32),
        parameters.multiplier,
        parameters.shift,
        zero_point,
        act_min,
        act_max,
    )


def _requantized(
    acc: NDArray[np.int32], multiplier: int, shift: int, zero_point: int, low: int, high: int
) -> NDArray[np.int8]:
    return requantize(
        acc[..., None],
        multiplier,
        shift,
        zero_point=zero_point,
        act_min=low,
        act_max=high,
        scheme=_SCHEME,
    )[..., 0]


def mul_scale(a_scale: float, b_scale: float, scale: float) -> float:
    """Factor from the product of two tensors to the output, formed in float32 as TFLite does."""
    return float(np.float32(a_scale) * np.float32(b_scale) / np.float32(scale))


def mul(
    a: Array,
    b: Array,
    multiplier: int,
    shift: int,
    *,
    a_zero_point: int,
    b_zero_point: int,
    zero_point: int,
    act_min: int = INT8.min,
    act_max: int = INT8.max,
) -> NDArray[np.int8]:
    """Multiply int8 arrays; ``multiplier, shift`` are `quantize_multiplier` of `mul_scale`."""
    product = _centred("a", a, a_zero_point) * _centred("b", b, b_zero_point)
    return _requantized(product, multiplier, shift, zero_point, act_min, act_max)


def prelu(
    x: Array,
    alpha: Array,
    *,
    x_scale: float,
    alpha_scale: float,
    scale: float,
    x_zero_point: int,
    alpha_zero_point: int,
    zero_point: int,
) -> NDArray[np.int8]:
    """Keep ``x`` above real zero and multiply it by ``alpha`` below, at the output's scale."""
    wide, slope = _centred("x", x, x_zero_point), _centred("alpha", alpha, alpha_zero_point)
    ends = INT8.min, INT8.max
    keep = quantize_multiplier(float(np.float32(x_scale) / np.float32(scale)))
    scaled = quantize_multiplier(mul_scale(x_scale, alpha_scale, scale))
    above = _requantized(wide, *keep, zero_point, *ends)
    below = _requantized(wide * slope, *scaled, zero_point, *ends)
    return np.where(wide >= 0, above, below)


def minimum(a: Array, b: Array) -> Array:
    """Take the smaller code of two tensors of one scale and zero point."""
    return _same_kind(a, b, np.minimum)


def maximum(a: Array, b: Array) -> Array:
    """Take the larger code of two tensors of one scale and zero point."""
    return _same_kind(a, b, np.maximum)


def _same_kind(a: Array, b: Array, choose: np.ufunc) -> Array:
    require_dtype("a", a, np.int8, np.uint8)
    require_dtype("b", b, a.dtype.type)
    return choose(a, b)
