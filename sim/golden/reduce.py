"""Mean of int8 tensors over any axes, as TFLite's reference kernel computes it.

The mean is one requantisation of the sum: the factor ``input_scale / output_scale`` is written as a
Q31 multiplier, and 1 / count is folded into it by an integer division. Ref: TensorFlow Lite
``kernels/reduce.cc`` and ``kernels/internal/reference/reduce.h``, QuantizedMeanOrSum.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.numerics import INT8, SHIFT_MIN, RequantScheme, quantize_multiplier
from npulse.sim.golden.check import require_dtype
from npulse.sim.golden.requant import requantize

Array = NDArray[Any]


def mean_multiplier(real: float, count: int) -> tuple[int, int]:
    """Multiplier and shift for ``real / count``, of ``count`` summed elements.

    The multiplier is at most that of ``real`` shifted to fill 31 bits again, so it fits Q31.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    multiplier, shift = quantize_multiplier(real)
    places = min(count.bit_length() - 1, 32, shift - SHIFT_MIN)
    return (multiplier << places) // count, shift - places


def mean(
    x: Array,
    axes: Sequence[int],
    real: float,
    *,
    input_zero_point: int,
    zero_point: int,
    act_min: int = INT8.min,
    act_max: int = INT8.max,
) -> NDArray[np.int8]:
    """Average over ``axes``, which stay with extent 1; ``real`` is input scale / output scale."""
    require_dtype("x", x, np.int8)
    INT8.check("input_zero_point", input_zero_point)
    if not axes or min(axes) < 0 or max(axes) >= x.ndim or len(set(axes)) != len(axes):
        raise ValueError(f"axes must be different ones of the {x.ndim} axes, not {list(axes)}")
    count = math.prod(x.shape[axis] for axis in axes)
    multiplier, shift = mean_multiplier(real, count)
    sums = (x.astype(np.int32) - input_zero_point).sum(
        axis=tuple(axes), keepdims=True, dtype=np.int32
    )
    return requantize(
        sums[..., None],
        multiplier,
        shift,
        zero_point=zero_point,
        act_min=act_min,
        act_max=act_max,
        scheme=RequantScheme.TFLITE_Q31_DOUBLE,
    )[..., 0]
