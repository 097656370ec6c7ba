"""Transposed integer convolution over NHWC images, with an int32 accumulator that wraps.

Each input pixel adds its product with the kernel to the output window that starts at ``stride``
times its position, less the padding; what falls outside the output is dropped. Ref: TensorFlow Lite
``kernels/internal/reference/integer_ops/transpose_conv.h``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.sim.golden.check import require_axes, require_bias, require_bytes
from npulse.sim.golden.geometry import Pair, require_positive
from npulse.sim.golden.matmul import accumulate, centre, exact_product

Array = NDArray[Any]


def transpose_conv2d(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    size: Pair,
    stride: Pair = (1, 1),
    before: Pair = (0, 0),
    input_zero_point: int = 0,
) -> NDArray[np.int32]:
    """Spread images by a bank of kernels.

    Parameters
    ----------
    x : (N, H, W, C) int8 or uint8
    w : (O, KH, KW, C) int8
        Zero point 0.
    bias : (O,) int32 or None
    size
        Rows and columns of the output.
    before
        Rows and columns cut off at the top and left.

    Returns
    -------
    (N, *size, O) int32
    """
    require_bytes("x", x, "input_zero_point", input_zero_point)
    require_axes("x", x, "N, H, W, C")
    require_axes("w", w, "O, KH, KW, I")
    require_positive("stride", stride)
    if w.shape[3] != x.shape[3]:
        raise ValueError(f"w must have C = {x.shape[3]} input channels, not {w.shape[3]}")
    require_bias(bias, w.shape[0])
    batch, height, width, channels = x.shape
    outputs, kernel_h, kernel_w, _ = w.shape
    rows = centre(x, input_zero_point).reshape(-1, channels)
    kernels = centre(w, 0).transpose(3, 1, 2, 0).reshape(channels, -1)
    products = exact_product(rows, kernels).reshape(
        batch, height, width, kernel_h, kernel_w, outputs
    )
    # The whole spread image, from which the output is cut.
    extent_h = max((height - 1) * stride[0] + kernel_h, before[0] + size[0])
    extent_w = max((width - 1) * stride[1] + kernel_w, before[1] + size[1])
    sums = np.zeros((batch, extent_h, extent_w, outputs), np.int64)
    for row in range(kernel_h):
        for column in range(kernel_w):
            at_rows = slice(row, row + (height - 1) * stride[0] + 1, stride[0])
            at_columns = slice(column, column + (width - 1) * stride[1] + 1, stride[1])
            sums[:, at_rows, at_columns] += products[:, :, :, row, column]
    top, left = before
    return accumulate(sums[:, top : top + size[0], left : left + size[1]], bias)
