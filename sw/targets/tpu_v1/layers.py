"""Reduces every operator that the NPU carries out to one form: a convolution with a window.

A fully connected layer on an (H, W, C) tensor is a convolution with an H x W kernel and one output
pixel, its weights in the order in which the tensor lies in the buffer. A matrix of M rows is an
image of M pixels. Pooling, clamp and change of scale are convolutions with one identity kernel a
channel; a pooling is the window behind it.

Letters: O output channels, G groups, KH and KW kernel rows and columns, C channels of the source.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from npulse.hw.spec.numerics import RequantScheme, quantize_multiplier
from npulse.sw.ir.graph import (
    AveragePool2dOp,
    ClampOp,
    Conv2dOp,
    FullyConnectedOp,
    MaxPool2dOp,
    MeanOp,
    RequantizeOp,
    WeightOp,
)
from npulse.sw.ir.graph_rules import need_quant
from npulse.sw.ir.types import ints, type_of
from npulse.sw.passes.views import View, image_shape
from npulse.sw.targets.tpu_v1.averages import average_of
from npulse.sw.targets.tpu_v1.legality import Compute, source_view

__all__ = ["Layer", "fold_zero_point", "fuse_pool", "layer_of"]

Arrays = Mapping[str, NDArray[Any]]
Pair = tuple[int, int]
ONE: Pair = (1, 1)
ZERO: Pair = (0, 0)

#: Operators whose layer is a mean over windows.
AVERAGES = (AveragePool2dOp.name, MeanOp.name)

#: Factor of exactly 1 as multiplier and shift: (x << 1) * 2**30 >> 31 is x for |x| < 2**30.
IDENTITY = (1 << 30, 1)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A convolution with requantisation, clamp and a maximum over windows behind it."""

    node: str
    op: str
    base: SSAValue  #: Stored tensor that it reads.
    result: SSAValue  #: Value that it makes.
    image: tuple[int, int, int]  #: (H, W, C) of the stored tensor.
    source_size: Pair  #: H and W as the kernel sees them.
    out_image: tuple[int, int, int]  #: (H, W, O) of the result.
    weights: NDArray[np.int8]  #: (O, KH, KW, C / G)
    groups: int
    bias: NDArray[np.int32]  #: (O,), zero point of the input folded in.
    multiplier: NDArray[np.int32]  #: (O,)
    shift: NDArray[np.int8]  #: (O,)
    scheme: RequantScheme
    zero_point: int
    clamp: Pair
    fill: int  #: Byte of padding: zero point of the input.
    strides: Pair = ONE
    dilations: Pair = ONE
    origin: Pair = ZERO  #: Image coordinates of the first output pixel's first tap.
    size: Pair  #: Pixels of the convolution.
    window: Pair = ONE
    window_strides: Pair = ONE
    window_origin: Pair = ZERO

    @property
    def channels(self) -> int:
        """Output channels."""
        return len(self.bias)

    @property
    def kernel(self) -> Pair:
        """Kernel rows and columns."""
        return self.weights.shape[1], self.weights.shape[2]

    @property
    def is_copy(self) -> bool:
        """Whether the model multiplies nothing: no multiply-add counts."""
        return self.op in (MaxPool2dOp.name, ClampOp.name, RequantizeOp.name, *AVERAGES)

    @property
    def is_average(self) -> bool:
        """Whether all kernel places have the same weights, those of a mean."""
        return self.op in AVERAGES

    @property
    def macs(self) -> int:
        """Multiply-adds of the mathematics, padding included."""
        return 0 if self.is_copy else self.size[0] * self.size[1] * self.weights.size


def fold_zero_point(
    bias: NDArray[np.int32], weights: NDArray[np.int8], zero_point: int
) -> NDArray[np.int32]:
    """Bias (O,) that makes ``sum(x * w) + bias`` of ``sum((x - zero_point) * w)``; wraps.

    Padding reads the zero point, so the sum over all weights (O, ...) holds at every pixel.
    """
    total = weights.reshape(len(weights), -1).astype(np.int64).sum(axis=1)
    folded = bias.astype(np.int64) - zero_point * total
    return (folded & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def layer_of(op: Compute, arrays: Arrays) -> Layer:
    """Layer of an operator that no rule refuses."""
    view = source_view(op)
    assert view is not None
    if isinstance(op, Conv2dOp):
        return _convolution(op, view, arrays)
    if isinstance(op, FullyConnectedOp):
        return _fully_connected(op, view, arrays)
    if isinstance(op, AveragePool2dOp | MeanOp):
        return _average(op, view)
    return _copy(op, view)


def _array(value: SSAValue, arrays: Arrays) -> NDArray[Any]:
    owner = value.owner
    assert isinstance(owner, WeightOp)
    return arrays[owner.array_name]


def _image(value: SSAValue) -> tuple[int, int, int]:
    image = image_shape(type_of(value).get_shape())
    assert image is not None
    return image


def _scales(ratios: NDArray[np.float64]) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    pairs = [quantize_multiplier(float(r)) for r in ratios]
    return np.array([m for m, _ in pairs], np.int32), np.array([s for _, s in pairs], np.int8)


def _linear(op: Conv2dOp | FullyConnectedOp, weights: NDArray[np.int8], arrays: Arrays) -> dict:
    """Fields of a layer that both operators with weights make alike."""
    multiplier, shift = _scales(op.effective_scales)
    bias = _array(SSAValue.get(op.bias), arrays)
    return {
        "node": op.node_name,
        "op": op.name,
        "result": op.result,
        "out_image": _image(op.result),
        "weights": weights,
        "bias": fold_zero_point(bias, weights, op.input_zero_point),
        "multiplier": multiplier,
        "shift": shift,
        "scheme": op.requant_scheme,
        "zero_point": op.output_zero_point,
        "clamp": op.clamp_range,
        "fill": op.input_zero_point,
    }


def _convolution(op: Conv2dOp, view: View, arrays: Arrays) -> Layer:
    weights = _array(SSAValue.get(op.weight), arrays)
    top, left, _, _ = ints(op.pads)
    height, width, _ = _image(SSAValue.get(op.input))
    stride_y, stride_x = ints(op.strides)
    dilation_y, dilation_x = ints(op.dilations)
    fields = _linear(op, weights, arrays)
    return Layer(
        **fields,
        base=view.base,
        image=view.image,
        source_size=(height, width),
        groups=op.group_count,
        strides=(stride_y, stride_x),
        dilations=(dilation_y, dilation_x),
        origin=(-top, -left),
        size=fields["out_image"][:2],
    )


def _fully_connected(op: FullyConnectedOp, view: View, arrays: Arrays) -> Layer:
    weights = _array(SSAValue.get(op.weight), arrays)
    height, width, channels = view.image
    rows = type_of(op.result).get_shape()[0]
    if view.channels_kept:
        kernels, source_size = weights[:, None, None, :], (1, rows)
    else:
        # Column k of the weights belongs to the stored element `order[k]`.
        stored = np.empty_like(weights)
        stored[:, view.order.ravel()] = weights
        kernels, source_size = stored.reshape(-1, height, width, channels), (height, width)
    return Layer(
        **_linear(op, kernels, arrays),
        base=view.base,
        image=view.image,
        source_size=source_size,
        groups=1,
        size=(1, rows),
    )


def _copy(op: MaxPool2dOp | ClampOp | RequantizeOp, view: View) -> Layer:
    """Layer of one identity kernel a channel."""
    out_image = _image(op.result)
    channels = out_image[2]
    multiplier, shift = (np.full(channels, v) for v in IDENTITY)
    input_zero, zero_point, scheme = 0, 0, RequantScheme.TFLITE_Q31_DOUBLE
    if isinstance(op, RequantizeOp):
        multiplier, shift = _scales(np.full(channels, op.effective_scale))
        input_zero = need_quant(op, "input", op.input.type).zero_point
        zero_point = need_quant(op, "result", op.result.type).zero_point
        scheme = op.requant_scheme
    weights = np.ones((channels, 1, 1, 1), np.int8)
    height, width, _ = _image(SSAValue.get(op.input))
    layer = Layer(
        node=op.node_name,
        op=op.name,
        base=view.base,
        result=op.result,
        image=view.image,
        source_size=(height, width),
        out_image=out_image,
        weights=weights,
        groups=channels,
        bias=fold_zero_point(np.zeros(channels, np.int32), weights, input_zero),
        multiplier=multiplier.astype(np.int32),
        shift=shift.astype(np.int8),
        scheme=scheme,
        zero_point=zero_point,
        clamp=op.clamp_range,
        fill=0,
        size=(height, width),
    )
    return layer if not isinstance(op, MaxPool2dOp) else _with_window(layer, op)


def _average(op: AveragePool2dOp | MeanOp, view: View) -> Layer:
    """Layer of one kernel of ones a channel."""
    average, out_image = average_of(op), _image(op.result)
    assert average.factor is not None, "the rule on rounding sees to this"
    channels = out_image[2]
    weights = np.ones((channels, *average.kernel, 1), np.int8)
    height, width, _ = _image(SSAValue.get(op.input))
    return Layer(
        node=op.node_name,
        op=op.name,
        base=view.base,
        result=op.result,
        image=view.image,
        source_size=(height, width),
        out_image=out_image,
        weights=weights,
        groups=channels,
        bias=fold_zero_point(np.zeros(channels, np.int32), weights, average.input_zero_point),
        multiplier=np.full(channels, average.factor[0], np.int32),
        shift=np.full(channels, average.factor[1], np.int8),
        scheme=average.scheme,
        zero_point=average.zero_point,
        clamp=op.clamp_range,
        fill=0,
        strides=average.strides,
        size=out_image[:2],
    )


def _with_window(layer: Layer, op: MaxPool2dOp) -> Layer:
    top, left, _, _ = ints(op.pads)
    window_y, window_x = ints(op.kernel)
    stride_y, stride_x = ints(op.strides)
    return replace(
        layer,
        window=(window_y, window_x),
        window_strides=(stride_y, stride_x),
        window_origin=(-top, -left),
        out_image=_image(op.result),
        result=op.result,
    )


def fuse_pool(layer: Layer, op: MaxPool2dOp) -> Layer:
    """Layer that also does the pooling of its result: the maximum commutes with the clamp."""
    low, high = op.clamp_range
    bounds = (max(low, min(high, layer.clamp[0])), max(low, min(high, layer.clamp[1])))
    return replace(_with_window(layer, op), clamp=bounds)
