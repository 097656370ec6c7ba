"""TFLite operators that multiply by weights, and the product of two activations.

Ref: TensorFlow Lite ``kernels/{conv,depthwise_conv,fully_connected,transpose_conv}.cc`` and
``kernels/batch_matmul.cc``.
"""

import math
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from npulse.sw.frontends.tflite_context import TfliteImporter
from npulse.sw.frontends.tflite_operands import (
    bias,
    codes,
    explicit_padding,
    fused_clamp,
    tensor_at,
    weight,
)
from npulse.sw.frontends.tflite_reader import TfliteOperator, TfliteTensor
from npulse.sw.ir.graph import Conv2dOp, FullyConnectedOp
from npulse.sw.ir.graph_matrix import BatchMatmulOp, TransposeConv2dOp
from npulse.sw.ir.graph_rules import dims
from npulse.sw.ir.types import type_of


def _convolution(importer: TfliteImporter, op: TfliteOperator, depthwise: bool) -> None:
    image, result = tensor_at(importer, op, 0), tensor_at(importer, op, 0, output=True)
    codes(importer, op, image)
    quant = codes(importer, op, result)

    def arrange(w: NDArray[Any]) -> NDArray[Any]:
        return w.transpose(3, 1, 2, 0) if depthwise else w

    kernels = weight(importer, op, 4, arrange)
    count, kernel_h, kernel_w, depth = type_of(kernels).get_shape()
    if len(image.shape) != 4:
        importer.fail(op, f"input must have 4 axes, not {dims(image.shape)}")
    strides = op.options["StrideH"], op.options["StrideW"]
    dilations = op.options["DilationHFactor"], op.options["DilationWFactor"]
    pads = explicit_padding(
        importer, op, image.shape[1:3], (kernel_h, kernel_w), strides, dilations
    )
    conv = Conv2dOp(
        importer.value(op, op.inputs[0]),
        kernels,
        bias(importer, op, count),
        importer.type_of(result),
        node=importer.node(op),
        strides=strides,
        dilations=dilations,
        pads=pads,
        groups=max(1, image.shape[3] // depth),
        clamp=fused_clamp(importer, op, quant),
        float32_product=image.unsigned,
    )
    importer.set_result(op, importer.builder.add(conv).result)


def conv2d(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Append CONV_2D."""
    _convolution(importer, op, depthwise=False)


def depthwise_conv2d(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Append DEPTHWISE_CONV_2D."""
    _convolution(importer, op, depthwise=True)


def fully_connected(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Append FULLY_CONNECTED; rows of the input are its last axes."""
    source, result = tensor_at(importer, op, 0), tensor_at(importer, op, 0, output=True)
    codes(importer, op, source)
    quant = codes(importer, op, result)
    if op.options["WeightsFormat"] != 0:
        importer.fail(op, "weights must be in the default format; convert the model again")
    kernels = weight(importer, op, 2, lambda w: w)
    count, depth = type_of(kernels).get_shape()
    elements = math.prod(source.shape)
    if elements % depth or math.prod(result.shape) != elements // depth * count:
        importer.fail(
            op,
            f"input {dims(source.shape)} and output {dims(result.shape)} must be rows of "
            f"{depth} and {count} elements, as the weight has",
        )
    node, builder = importer.node(op), importer.builder
    value = importer.value(op, op.inputs[0])
    rows = builder.reshape(value, (elements // depth, depth), node, f"{node}.rows")
    product = FullyConnectedOp(
        rows,
        kernels,
        bias(importer, op, count),
        importer.type_of(_with_shape(result, (elements // depth, count))),
        node=node,
        clamp=fused_clamp(importer, op, quant),
    )
    value = builder.add(product, node).result
    importer.set_result(op, builder.reshape(value, result.shape, node, result.name))


def _with_shape(tensor: TfliteTensor, shape: tuple[int, ...]) -> TfliteTensor:
    return replace(tensor, shape=shape)


def transpose_conv(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Append TRANSPOSE_CONV; the shape of the output is that of the file."""
    image, result = tensor_at(importer, op, 2), tensor_at(importer, op, 0, output=True)
    codes(importer, op, image)
    quant = codes(importer, op, result)
    kernels = weight(importer, op, 4, lambda w: w)
    count, kernel_h, kernel_w, _ = type_of(kernels).get_shape()
    if len(image.shape) != 4 or len(result.shape) != 4:
        importer.fail(op, f"input must have 4 axes, not {dims(image.shape)}")
    strides = op.options["StrideH"], op.options["StrideW"]
    top, left, _, _ = explicit_padding(
        importer, op, result.shape[1:3], (kernel_h, kernel_w), strides
    )
    spread = TransposeConv2dOp(
        importer.value(op, op.inputs[2]),
        kernels,
        bias(importer, op, count, 3),
        importer.type_of(result),
        node=importer.node(op),
        strides=strides,
        pads=(top, left),
        clamp=fused_clamp(importer, op, quant),
    )
    importer.set_result(op, importer.builder.add(spread).result)


def batch_matmul(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Append BATCH_MATMUL; either operand may be a constant."""
    for position in (0, 1):
        codes(importer, op, tensor_at(importer, op, position))
    result = tensor_at(importer, op, 0, output=True)
    codes(importer, op, result)
    product = BatchMatmulOp(
        importer.value(op, op.inputs[0]),
        importer.value(op, op.inputs[1]),
        importer.type_of(result),
        node=importer.node(op),
        adjoint=(op.options["AdjX"], op.options["AdjY"]),
    )
    importer.set_result(op, importer.builder.add(product).result)
