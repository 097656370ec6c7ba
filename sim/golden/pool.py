"""Pooling over NHWC images of bytes, as TFLite's integer kernels compute it.

Input and output share scale and zero point. Padding is left out of a window: it never wins a
maximum and is not counted in an average. Ref: TensorFlow Lite
``kernels/internal/reference/integer_ops/pooling.h``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.sim.golden.check import BYTE_FORMATS, require_axes, require_dtype, require_window
from npulse.sim.golden.geometry import (
    NO_PADDING,
    Padding,
    Pair,
    output_size,
    pad_image,
    require_padding,
    require_positive,
    windows,
)

Array = NDArray[Any]


def max_pool2d(
    x: Array,
    window: Pair,
    *,
    stride: Pair,
    padding: Padding = NO_PADDING,
    act_min: int | None = None,
    act_max: int | None = None,
) -> Array:
    """Take the largest value of each window, then clamp.

    Parameters
    ----------
    x : (N, H, W, C) int8 or uint8
    window, stride
        (rows, columns), at least 1.
    padding
        ((top, bottom), (left, right)), each less than the window.
    act_min, act_max
        Clamp; the ends of the dtype by default.

    Returns
    -------
    (N, OH, OW, C) of the dtype of ``x``
    """
    low, high = _check(x, window, stride, padding, act_min, act_max)
    padded = pad_image(x, padding, BYTE_FORMATS[x.dtype].min)
    return windows(padded, window, stride, (1, 1)).max(axis=(3, 4)).clip(low, high)


def average_pool2d(
    x: Array,
    window: Pair,
    *,
    stride: Pair,
    padding: Padding = NO_PADDING,
    act_min: int | None = None,
    act_max: int | None = None,
) -> Array:
    """Average each window to nearest with ties away from zero, then clamp.

    Arguments and result are those of `max_pool2d`. The divisor is the number of elements of the
    window that lie in the image.
    """
    low, high = _check(x, window, stride, padding, act_min, act_max)
    wide = pad_image(x.astype(np.int32), padding, 0)
    sums = windows(wide, window, stride, (1, 1)).sum(axis=(3, 4), dtype=np.int32)
    inside = pad_image(np.ones((1, *x.shape[1:3], 1), np.int32), padding, 0)
    counts = windows(inside, window, stride, (1, 1)).sum(axis=(3, 4), dtype=np.int32)
    magnitude = (np.abs(sums) + counts // 2) // counts
    return (np.sign(sums) * magnitude).clip(low, high).astype(x.dtype)


def _check(
    x: Array,
    window: Pair,
    stride: Pair,
    padding: Padding,
    act_min: int | None,
    act_max: int | None,
) -> tuple[int, int]:
    """Check the arguments and return the bounds of the clamp."""
    require_dtype("x", x, np.int8, np.uint8)
    require_axes("x", x, "N, H, W, C")
    require_positive("window", window)
    require_positive("stride", stride)
    require_padding(padding)
    if max(padding[0]) >= window[0] or max(padding[1]) >= window[1]:
        raise ValueError(f"padding must be less than the window {window}, not {padding}")
    output_size(x.shape[1:3], window, stride, (1, 1), padding)
    fmt = BYTE_FORMATS[x.dtype]
    low = fmt.min if act_min is None else act_min
    high = fmt.max if act_max is None else act_max
    require_window(fmt, low, high)
    return low, high
