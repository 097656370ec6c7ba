"""Windows over images: output sizes, TFLite's SAME padding, and views of the windows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Pair = tuple[int, int]  #: (height, width)
Padding = tuple[Pair, Pair]  #: ((top, bottom), (left, right)) rows and columns

NO_PADDING: Padding = ((0, 0), (0, 0))


def require_positive(name: str, pair: Pair) -> None:
    """Raise `ValueError` unless both numbers are at least 1."""
    if len(pair) != 2 or min(pair) < 1:
        raise ValueError(f"{name} must be two numbers of at least 1, not {pair}")


def require_padding(padding: Padding) -> None:
    """Raise `ValueError` unless ``padding`` is two pairs of numbers of at least 0."""
    flat = [side for pair in padding for side in pair]
    if len(padding) != 2 or len(flat) != 4 or min(flat) < 0:
        raise ValueError(
            f"padding must be ((top, bottom), (left, right)) of at least 0, not {padding}"
        )


def window_extent(kernel: Pair, dilation: Pair) -> Pair:
    """Rows and columns from the first to the last tap of a dilated kernel, inclusive."""
    return (kernel[0] - 1) * dilation[0] + 1, (kernel[1] - 1) * dilation[1] + 1


def output_size(image: Pair, kernel: Pair, stride: Pair, dilation: Pair, padding: Padding) -> Pair:
    """Count the window positions that lie in the padded image; `ValueError` if there is none."""
    extent = window_extent(kernel, dilation)
    padded = image[0] + sum(padding[0]), image[1] + sum(padding[1])
    if padded[0] < extent[0] or padded[1] < extent[1]:
        raise ValueError(f"window must be at most the padded image {padded}, not {extent}")
    return (padded[0] - extent[0]) // stride[0] + 1, (padded[1] - extent[1]) // stride[1] + 1


def same_padding(image: Pair, kernel: Pair, stride: Pair, dilation: Pair = (1, 1)) -> Padding:
    """Pad so that the output has ``ceil(image / stride)`` rows and columns.

    An odd row or column goes to the bottom or right. Ref: TensorFlow Lite ``kernels/padding.h``,
    ComputePaddingHeightWidth.
    """

    def one_axis(size: int, extent: int, step: int) -> Pair:
        total = max((-(-size // step) - 1) * step + extent - size, 0)
        return total // 2, total - total // 2

    rows, columns = window_extent(kernel, dilation)
    return one_axis(image[0], rows, stride[0]), one_axis(image[1], columns, stride[1])


def pad_image(x: Array, padding: Padding, value: int) -> Array:
    """Surround ``x (N, H, W, C)`` by ``value``; returns ``x`` itself when there is no padding."""
    if padding == NO_PADDING:
        return x
    return np.pad(x, ((0, 0), *padding, (0, 0)), constant_values=value)


def windows(x: Array, kernel: Pair, stride: Pair, dilation: Pair) -> Array:
    """View the windows of ``x (N, H, W, C)`` as ``(N, OH, OW, KH, KW, C)``, without a copy."""
    view = np.lib.stride_tricks.sliding_window_view(x, window_extent(kernel, dilation), (1, 2))
    taps = view[:, :: stride[0], :: stride[1], :, :: dilation[0], :: dilation[1]]
    return taps.transpose(0, 1, 2, 4, 5, 3)
