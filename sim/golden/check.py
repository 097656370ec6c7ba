"""Checks of arguments that all golden operators share: one sentence with name, rule, value."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.numerics import INT8, INT32, UINT8, IntFormat

Array = NDArray[Any]

#: Formats of operands of a matrix unit by numpy dtype.
BYTE_FORMATS = {np.dtype(np.int8): INT8, np.dtype(np.uint8): UINT8}


def require_dtype(name: str, array: Array, *dtypes: type) -> None:
    """Raise `TypeError` unless ``array`` is an array of one of ``dtypes``."""
    allowed = " or ".join(np.dtype(dtype).name for dtype in dtypes)
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{name} must be an array of {allowed}, not {type(array).__name__}")
    if array.dtype not in [np.dtype(dtype) for dtype in dtypes]:
        raise TypeError(f"{name} must be an array of {allowed}, not {array.dtype.name}")


def require_axes(name: str, array: Array, axes: str) -> None:
    """Raise `ValueError` unless ``array`` has as many axes as ``axes`` names, as in ``"M, K"``."""
    count = len(axes.split(","))
    if array.ndim != count:
        raise ValueError(f"{name} must have {count} axes ({axes}), not shape {array.shape}")


def require_bytes(name: str, array: Array, zero_point_name: str, zero_point: int) -> IntFormat:
    """Check an int8 or uint8 operand and its zero point, and return the operand's format."""
    require_dtype(name, array, np.int8, np.uint8)
    fmt = BYTE_FORMATS[array.dtype]
    fmt.check(zero_point_name, zero_point)
    return fmt


def require_bias(bias: Array | None, channels: int) -> None:
    """Check that ``bias`` is absent or int32 of shape ``(channels,)``."""
    if bias is None:
        return
    require_dtype("bias", bias, np.int32)
    if bias.shape != (channels,):
        raise ValueError(f"bias must have shape ({channels},), not {bias.shape}")


def require_window(fmt: IntFormat, act_min: int, act_max: int) -> None:
    """Check that ``act_min .. act_max`` is a non-empty range inside the output format."""
    fmt.check("act_min", act_min)
    fmt.check("act_max", act_max)
    if act_min > act_max:
        raise ValueError(f"act_min must be at most act_max = {act_max}, not {act_min}")


def wrap_int32(values: Array) -> NDArray[np.int32]:
    """Keep the low 32 bits of int64 ``values``, as the accumulator does."""
    return (values & np.int64(INT32.max * 2 + 1)).astype(np.uint32).view(np.int32)
