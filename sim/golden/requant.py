"""Requantisation of int32 accumulators to bytes, bit for bit as `npulse.hw.spec.numerics` defines.

Ref for ONNX_F32_RNE: ONNX operators QLinearConv and QLinearMatMul; ONNX Runtime computes
``rint(float32(acc) * scale)`` with a float32 ``scale = x_scale * w_scale / y_scale``
(``core/mlas/lib/quantize.cpp``, MlasRequantizeOutput), where ``rint`` rounds half to even.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.numerics import (
    INT8,
    INT16,
    INT32,
    MULTIPLIER_MAX,
    SHIFT_MAX,
    SHIFT_MIN,
    UINT8,
    IntFormat,
    RequantScheme,
    check_q31,
    quantize_multiplier,
)
from npulse.sim.golden.check import require_dtype, require_window, wrap_int32

Array = NDArray[Any]

#: numpy dtype of each output format.
OUTPUT_DTYPES = {INT8: np.int8, UINT8: np.uint8, INT16: np.int16}


def quantize_multipliers(real: Array | float) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Apply `quantize_multiplier` to each element; two int32 arrays of the shape of ``real``."""
    reals = np.asarray(real, np.float64)
    pairs = [quantize_multiplier(float(value)) for value in reals.ravel()]
    table = np.array(pairs, np.int32).reshape(-1, 2)
    return table[:, 0].reshape(reals.shape), table[:, 1].reshape(reals.shape)


def _per_channel(name: str, values: Array | int, channels: int, low: int, high: int) -> Array:
    """Return ``values`` as int64 that broadcasts over the last axis, checked element by element."""
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"{name} must be integer, not {array.dtype.name}")
    if array.shape not in ((), (channels,)):
        raise ValueError(f"{name} must be a scalar or have shape ({channels},), not {array.shape}")
    outside = array[(array < low) | (array > high)]
    if outside.size:
        raise ValueError(f"{name} must be from {low} to {high}, not {outside.flat[0]}")
    return array.astype(np.int64)


def _check_output(acc: Array, out: IntFormat, zero_point: int, act_min: int, act_max: int) -> None:
    require_dtype("acc", acc, np.int32)
    if acc.ndim == 0:
        raise ValueError("acc must have at least one axis, the channels, not shape ()")
    if out not in OUTPUT_DTYPES:
        raise ValueError(f"out must be int8, uint8 or int16, not {out.name}")
    out.check("zero_point", zero_point)
    require_window(out, act_min, act_max)


def scale_q31(
    acc: Array, multiplier: Array | int, shift: Array | int, scheme: RequantScheme
) -> NDArray[np.int64]:
    """Scale accumulators by ``multiplier * 2**(shift - 31)``, before zero point and clamp.

    Parameters
    ----------
    acc : (..., C) int32
    multiplier, shift : scalar or (C,) integers
        Q31 multiplier 0 .. 2**31 - 1 and shift -31 .. 30, positive to the left.
    scheme
        One of `npulse.hw.spec.numerics.Q31_SCHEMES`.

    Returns
    -------
    (..., C) int64, each value in the range of int32
    """
    check_q31(scheme)
    require_dtype("acc", acc, np.int32)
    channels = acc.shape[-1] if acc.ndim else 1
    factors = _per_channel("multiplier", multiplier, channels, 0, MULTIPLIER_MAX)
    shifts = _per_channel("shift", shift, channels, SHIFT_MIN, SHIFT_MAX)
    double = scheme is RequantScheme.TFLITE_Q31_DOUBLE

    wide = acc.astype(np.int64) << np.maximum(shifts, 0)
    left = wrap_int32(wide).astype(np.int64) if double else wide.clip(INT32.min, INT32.max)
    right = np.maximum(-shifts, 0)
    half = np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0)
    product_round = np.where(double | (right == 0), 1 << 30, 0)
    down = left < 0 if scheme is RequantScheme.TFLITE_Q31_AWAY else 0
    high = (left * factors + product_round - down) >> 31
    less = (high < 0) & (right > 0) if double else 0
    return (high + half - less) >> right


def requantize(
    acc: Array,
    multiplier: Array | int,
    shift: Array | int,
    *,
    zero_point: int,
    act_min: int,
    act_max: int,
    scheme: RequantScheme,
    out: IntFormat = INT8,
) -> Array:
    """Scale accumulators with a Q31 multiplier, add the zero point and clamp.

    Parameters
    ----------
    acc : (..., C) int32
        Accumulator with the bias already added (wrapping).
    multiplier, shift : scalar or (C,) integers
        From `npulse.hw.spec.numerics.quantize_multiplier`; one a channel or one for all.
    zero_point, act_min, act_max
        Within ``out``; an activation function is a narrower ``act_min .. act_max``.
    scheme
        One of `npulse.hw.spec.numerics.Q31_SCHEMES`.
    out
        INT8, UINT8 or INT16.

    Returns
    -------
    (..., C) of the dtype of ``out``
    """
    _check_output(acc, out, zero_point, act_min, act_max)
    real = scale_q31(acc, multiplier, shift, scheme)
    return (real + zero_point).clip(act_min, act_max).astype(OUTPUT_DTYPES[out])


def requantize_f32(
    acc: Array,
    scale: Array | float,
    *,
    zero_point: int,
    act_min: int,
    act_max: int,
    out: IntFormat = INT8,
) -> Array:
    """Requantise by ONNX_F32_RNE: float32 product, round half to even, zero point, clamp.

    Parameters
    ----------
    acc : (..., C) int32
        Converted to float32 with rounding to nearest even, so above 2**24 it loses bits.
    scale : scalar or (C,) float32
        ``x_scale * w_scale / y_scale``, positive and finite.

    Returns
    -------
    (..., C) of the dtype of ``out``
    """
    _check_output(acc, out, zero_point, act_min, act_max)
    factor = np.asarray(scale, np.float32)
    if factor.shape not in ((), (acc.shape[-1],)):
        raise ValueError(
            f"scale must be a scalar or have shape ({acc.shape[-1]},), not {factor.shape}"
        )
    if not (np.isfinite(factor) & (factor > 0)).all():
        raise ValueError("scale must be positive and finite in every channel")
    with np.errstate(over="ignore"):  # an infinite product is clamped like a large one
        real = np.rint(acc.astype(np.float32) * factor)
    low, high = np.float32(act_min - zero_point), np.float32(act_max - zero_point)
    return (real.clip(low, high).astype(np.int64) + zero_point).astype(OUTPUT_DTYPES[out])
