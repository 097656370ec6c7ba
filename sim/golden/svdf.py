"""Integer SVDF layer of TFLite: a filter over features, then one over time, of rank 1 or more.

Ref: TensorFlow Lite ``kernels/internal/reference/svdf.h``, EvalIntegerSVDF, and ``kernels/svdf.cc``
(the two effective scales, multiplied in float32).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.numerics import INT8, INT16, RequantScheme
from npulse.sim.golden.check import require_dtype, wrap_int32
from npulse.sim.golden.matmul import fully_connected
from npulse.sim.golden.requant import requantize, scale_q31

Array = NDArray[Any]

_SCHEME = RequantScheme.TFLITE_Q31_DOUBLE


@dataclass(frozen=True, kw_only=True)
class SvdfParameters:
    """Multipliers and shifts of both requantisations, zero points and rank."""

    state_multiplier: int  #: of input scale * feature weight scale / state scale
    state_shift: int
    multiplier: int  #: of state scale * time weight scale / output scale
    shift: int
    input_zero_point: int
    state_zero_point: int  #: 0 for an int16 state
    zero_point: int
    rank: int


def svdf(
    x: Array,
    features: Array,
    time: Array,
    bias: Array | None,
    state: Array,
    parameters: SvdfParameters,
) -> tuple[NDArray[np.int8], Array]:
    """Run one step.

    Parameters
    ----------
    x : (N, I) int8
    features : (F, I) int8
        F filters, ``rank`` for each of the F / rank outputs.
    time : (F, T) int8 or int16
    bias : (F / rank,) int32 or None
    state : (N, F * T) of the dtype of ``time``

    Returns
    -------
    output (N, F / rank) int8, new state as ``state``
    """
    require_dtype("time", time, np.int8, np.int16)
    require_dtype("state", state, time.dtype.type)
    p = parameters
    filters, steps = time.shape
    if p.rank < 1 or filters % p.rank:
        raise ValueError(f"rank must divide the {filters} filters, not {p.rank}")
    acc = fully_connected(x, features, input_zero_point=p.input_zero_point)
    fresh = scale_q31(acc, p.state_multiplier, p.state_shift, _SCHEME) + p.state_zero_point
    fmt = INT8 if time.dtype == np.int8 else INT16
    memory = state.reshape(-1, filters, steps)
    newest = fresh.clip(fmt.min, fmt.max).astype(state.dtype)[..., None]
    memory = np.concatenate([memory[:, :, 1:], newest], axis=2)
    centred = memory.astype(np.int64) - p.state_zero_point
    products = (centred * time.astype(np.int64)).sum(axis=2)
    sums = products.reshape(len(products), -1, p.rank).sum(axis=2)
    total = wrap_int32(sums if bias is None else sums + bias)
    output = requantize(
        total,
        p.multiplier,
        p.shift,
        zero_point=p.zero_point,
        act_min=INT8.min,
        act_max=INT8.max,
        scheme=_SCHEME,
    )
    return output, memory.reshape(state.shape)
