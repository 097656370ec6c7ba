"""Averages as convolutions with ones: which factor divides by a count as the kernels do.

A mean has its own multiplier, which the requantiser takes as it is. An average pool divides the
sum of the codes by their count, to nearest with ties away from zero. The requantiser rounds a
product so too (TFLITE_Q31_AWAY), and a multiplier just above 1 / count keeps ties ties::

    sum * multiplier / 2**(31 - shift) = sum / count + error,   0 <= error < 1 / (2 count)

Ref: TensorFlow Lite ``kernels/internal/reference/integer_ops/pooling.h``, AveragePool.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from npulse.hw.spec.numerics import RequantScheme
from npulse.sim.golden.reduce import mean_multiplier
from npulse.sim.golden.requant import scale_q31
from npulse.sw.ir.graph import AveragePool2dOp, MeanOp
from npulse.sw.ir.graph_rules import need_quant
from npulse.sw.ir.types import ints, type_of

__all__ = ["Average", "average_factor", "average_of"]

Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Average:
    """What an average over windows is as a convolution with ones."""

    kernel: Pair
    strides: Pair
    factor: Pair | None  #: Multiplier and shift; None where none is exact.
    scheme: RequantScheme
    input_zero_point: int  #: Subtracted from each code before it is summed.
    zero_point: int


@lru_cache(maxsize=256)
def average_factor(count: int) -> Pair | None:
    """Multiplier and shift that divide every sum of `count` int8 codes exactly as a pool does.

    Every possible sum is tried; None if one comes out differently.
    """
    shift = -((count - 1).bit_length() - 1) if count > 1 else 1
    multiplier = -(-(1 << (31 - shift)) // count)
    if multiplier >= 1 << 31:  # 1 / count is a power of two
        multiplier, shift = multiplier >> 1, shift + 1
    sums = np.arange(-128 * count, 127 * count + 1, dtype=np.int32)
    due = np.sign(sums) * ((np.abs(sums) + count // 2) // count)
    made = scale_q31(sums, multiplier, shift, RequantScheme.TFLITE_Q31_AWAY)
    return (multiplier, shift) if bool((made == due).all()) else None


def average_of(op: AveragePool2dOp | MeanOp) -> Average:
    """Convolution that an average is; its axes, borders and sizes are for the rules to check."""
    if isinstance(op, MeanOp):
        return _mean(op)
    kernel_y, kernel_x = ints(op.kernel)
    out, strides = type_of(op.result).get_shape()[1:3], ints(op.strides)
    return Average(
        kernel=(kernel_y, kernel_x),
        # A single window never moves, whatever its stride says.
        strides=(strides[0] if out[0] > 1 else 1, strides[1] if out[1] > 1 else 1),
        factor=average_factor(kernel_y * kernel_x),
        scheme=RequantScheme.TFLITE_Q31_AWAY,
        input_zero_point=0,
        zero_point=0,
    )


def _mean(op: MeanOp) -> Average:
    shape, axes = type_of(op.input).get_shape(), ints(op.axes)
    return Average(
        kernel=(shape[1] if 1 in axes else 1, shape[2] if 2 in axes else 1),
        strides=(1, 1),
        factor=mean_multiplier(op.effective_scale, op.count),
        scheme=op.requant_scheme,
        input_zero_point=need_quant(op, "input", op.input.type).zero_point,
        zero_point=need_quant(op, "result", op.result.type).zero_point,
    )
