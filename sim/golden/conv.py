"""Integer convolutions over NHWC images with an int32 accumulator that wraps.

Padding holds the input zero point, so it adds nothing to a sum. Ref: TensorFlow Lite
``kernels/internal/reference/integer_ops/conv.h`` and ``depthwise_conv.h``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.sim.golden.check import require_axes, require_bias, require_bytes, wrap_int32
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
from npulse.sim.golden.matmul import accumulate, centre, exact_product

Array = NDArray[Any]

#: Elements of one block of unfolded windows: 64 MiB as float64.
BLOCK_ELEMENTS = 1 << 23


def conv2d(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    stride: Pair = (1, 1),
    dilation: Pair = (1, 1),
    padding: Padding = NO_PADDING,
    input_zero_point: int = 0,
    weight_zero_point: int = 0,
    groups: int = 1,
) -> NDArray[np.int32]:
    """Convolve images with a bank of kernels.

    Parameters
    ----------
    x : (N, H, W, C) int8 or uint8
    w : (O, KH, KW, C // groups) int8 or uint8
        OHWI. Output ``o`` reads the input channels of group ``o // (O // groups)``.
    bias : (O,) int32 or None
    stride, dilation
        (rows, columns), at least 1.
    padding
        ((top, bottom), (left, right)); `npulse.sim.golden.geometry.same_padding` gives TFLite's.
    input_zero_point, weight_zero_point
        Of ``x`` and ``w``; TFLite int8 weights have zero point 0.

    Returns
    -------
    (N, OH, OW, O) int32
        Accumulator modulo 2**32, for `npulse.sim.golden.requant.requantize`.
    """
    _check_operands(x, w, input_zero_point, weight_zero_point, stride, dilation, padding)
    _check_groups(x.shape[3], w.shape, groups)
    require_bias(bias, w.shape[0])
    kernel = (w.shape[1], w.shape[2])
    rows, columns = output_size(x.shape[1:3], kernel, stride, dilation, padding)

    padded = centre(pad_image(x, padding, input_zero_point), input_zero_point)
    flat = centre(w, weight_zero_point).reshape(groups, w.shape[0] // groups, -1)
    weights = flat.transpose(0, 2, 1)  # (G, K, O / G)
    sums = np.empty((x.shape[0], rows, columns, w.shape[0]), np.int64)
    images = max(1, BLOCK_ELEMENTS // max(1, rows * columns * kernel[0] * kernel[1] * x.shape[3]))
    for first in range(0, x.shape[0], images):
        taps = windows(padded[first : first + images], kernel, stride, dilation)
        sums[first : first + images] = _grouped_product(taps, weights)
    return accumulate(sums, bias)


def _grouped_product(taps: Array, weights: Array) -> NDArray[np.int64]:
    """Multiply windows ``(N, OH, OW, KH, KW, C)`` by ``(G, K, O / G)`` to ``(N, OH, OW, O)``."""
    groups, depth, outputs = weights.shape
    positions = taps.shape[:3]
    split = taps.reshape(*taps.shape[:5], groups, -1)
    unfolded = np.moveaxis(split, 5, 0).reshape(groups, -1, depth)
    product = exact_product(unfolded, weights)
    return product.transpose(1, 0, 2).reshape(*positions, groups * outputs)


def depthwise_conv2d(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    stride: Pair = (1, 1),
    dilation: Pair = (1, 1),
    padding: Padding = NO_PADDING,
    input_zero_point: int = 0,
    weight_zero_point: int = 0,
) -> NDArray[np.int32]:
    """Convolve each channel with kernels of its own.

    Parameters
    ----------
    x : (N, H, W, C) int8 or uint8
    w : (1, KH, KW, C * D) int8 or uint8
        TFLite's layout. Output ``c * D + d`` reads input channel ``c``; D is the depth multiplier.
    bias : (C * D,) int32 or None

    Returns
    -------
    (N, OH, OW, C * D) int32, modulo 2**32
    """
    _check_operands(x, w, input_zero_point, weight_zero_point, stride, dilation, padding)
    outputs = w.shape[3]
    if w.shape[0] != 1 or outputs % x.shape[3]:
        raise ValueError(
            f"w must have shape (1, KH, KW, multiple of C = {x.shape[3]}), not {w.shape}"
        )
    require_bias(bias, outputs)
    kernel = (w.shape[1], w.shape[2])
    rows, columns = output_size(x.shape[1:3], kernel, stride, dilation, padding)

    padded = centre(pad_image(x, padding, input_zero_point), input_zero_point).astype(np.int32)
    weights = centre(w, weight_zero_point)[0].astype(np.int32)
    repeated = np.repeat(padded, outputs // x.shape[3], axis=3)
    taps = windows(repeated, kernel, stride, dilation)
    # A product has at most 17 bits, and int32 sums wrap in numpy as they do in the accumulator.
    acc = np.zeros((x.shape[0], rows, columns, outputs), np.int32)
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            acc += taps[:, :, :, row, column] * weights[row, column]
    return acc if bias is None else wrap_int32(acc.astype(np.int64) + bias)


def _check_operands(
    x: Array,
    w: Array,
    input_zero_point: int,
    weight_zero_point: int,
    stride: Pair,
    dilation: Pair,
    padding: Padding,
) -> None:
    require_bytes("x", x, "input_zero_point", input_zero_point)
    require_bytes("w", w, "weight_zero_point", weight_zero_point)
    require_axes("x", x, "N, H, W, C")
    require_axes("w", w, "O, KH, KW, I")
    require_positive("stride", stride)
    require_positive("dilation", dilation)
    require_padding(padding)


def _check_groups(channels: int, w_shape: tuple[int, ...], groups: int) -> None:
    if groups < 1 or channels % groups or w_shape[0] % groups:
        raise ValueError(
            f"groups must divide the {channels} input and {w_shape[0]} output channels, "
            f"not {groups}"
        )
    if w_shape[3] != channels // groups:
        raise ValueError(
            f"w must have C / groups = {channels // groups} input channels, not {w_shape[3]}"
        )
