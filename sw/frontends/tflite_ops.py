"""Operators of TFLite, one function each: int8 arithmetic stays integer, the rest is host.

Padding SAME becomes explicit numbers, fused activations become a clamp of codes.
Ref: TensorFlow Lite ``kernels/{conv,depthwise_conv,fully_connected,pooling,activations}.cc`` and
``kernels/kernel_util.cc`` (CalculateActivationRangeQuantized).
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from npulse.hw.spec.numerics import Rounding
from npulse.sim.golden.elementwise import Activation, activation_range
from npulse.sim.golden.geometry import same_padding
from npulse.sw.frontends.tflite_context import TfliteImporter
from npulse.sw.frontends.tflite_reader import TfliteOperator, TfliteTensor
from npulse.sw.host import TFLITE_ACTIVATIONS
from npulse.sw.ir.graph import (
    Conv2dOp,
    DequantizeOp,
    FullyConnectedOp,
    MaxPool2dOp,
    QuantizeOp,
    RequantizeOp,
)
from npulse.sw.ir.graph_rules import code_range, dims
from npulse.sw.ir.types import QuantAttr, quant_of, type_of

_CONVERT = "convert the model with full integer quantisation (int8)"
_SAME, _VALID = 0, 1

Padding = tuple[tuple[int, int], tuple[int, int]]


def _tensor(
    importer: TfliteImporter, op: TfliteOperator, position: int, output: bool = False
) -> TfliteTensor:
    """Tensor at a place among the inputs or outputs; `UserError` when it is absent."""
    places = op.outputs if output else op.inputs
    if position >= len(places) or places[position] < 0:
        side = "output" if output else "input"
        importer.fail(op, f"{side} {position} is absent; convert the model again")
    return importer.graph.tensors[places[position]]


def _codes(importer: TfliteImporter, op: TfliteOperator, tensor: TfliteTensor) -> QuantAttr:
    """Quantisation of an int8 activation; `UserError` for any other tensor."""
    quant = importer.quant(tensor)
    label = importer.label(tensor)
    if tensor.dtype != np.int8:
        importer.fail(op, f"tensor {label!r} must be int8, not {tensor.dtype}; {_CONVERT}")
    if quant is None or not quant.per_tensor:
        importer.fail(op, f"tensor {label!r} must have one scale; {_CONVERT}")
    return quant


def _clamp(importer: TfliteImporter, op: TfliteOperator, quant: QuantAttr) -> tuple[int, int]:
    """Range of int8 codes that a fused activation leaves."""
    number = op.options["FusedActivationFunction"]
    if number not in TFLITE_ACTIVATIONS:
        importer.fail(
            op,
            f"fused activation must be NONE, RELU, RELU6 or RELU_N1_TO_1, not number {number} of "
            f"the schema; write it as an operator of its own",
        )
    return _range(TFLITE_ACTIVATIONS[number], quant)


def _range(activation: Activation, quant: QuantAttr) -> tuple[int, int]:
    return activation_range(activation, float(quant.scale), quant.zero_point)


def _explicit_padding(
    importer: TfliteImporter,
    op: TfliteOperator,
    image: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int] = (1, 1),
) -> tuple[int, int, int, int]:
    """Top, left, bottom, right of SAME or VALID."""
    if min(*stride, *dilation, *kernel) < 1:
        importer.fail(op, "kernel, stride and dilation must be at least 1; convert it again")
    if op.options["Padding"] == _VALID:
        return 0, 0, 0, 0
    if op.options["Padding"] != _SAME:
        importer.fail(op, f"padding must be SAME or VALID, not number {op.options['Padding']}")
    (top, bottom), (left, right) = same_padding(image, kernel, stride, dilation)
    return top, left, bottom, right


def _constant(importer: TfliteImporter, op: TfliteOperator, tensor: TfliteTensor) -> NDArray[Any]:
    if tensor.data is None:
        importer.fail(
            op,
            f"{importer.label(tensor)!r} must be constant to be a weight or bias; "
            f"this operator runs with constant weights only",
        )
    return tensor.data


def _weight(
    importer: TfliteImporter,
    op: TfliteOperator,
    rank: int,
    arrange: Callable[[NDArray[Any]], NDArray[Any]],
) -> SSAValue:
    """Weight with outputs on axis 0 and zero points of 0, after ``arrange`` orders its axes."""
    tensor = _tensor(importer, op, 1)
    data = _constant(importer, op, tensor)
    quant = importer.quant(tensor)
    label = importer.label(tensor)
    if tensor.dtype != np.int8 or quant is None:
        importer.fail(
            op, f"weight {label!r} must be quantised int8, not {tensor.dtype}; {_CONVERT}"
        )
    if data.ndim != rank or not data.size:
        importer.fail(op, f"weight {label!r} must have {rank} axes, not {dims(data.shape)}")
    arranged = np.ascontiguousarray(arrange(data))
    zeros = quant.zero_point_array
    shifted = arranged.astype(np.int16) - zeros.reshape(-1, *(1,) * (rank - 1)).astype(np.int16)
    if shifted.min() < -128 or shifted.max() > 127:
        importer.fail(
            op, f"weight {label!r} less its zero point must fit int8; quantise it symmetrically"
        )
    if not quant.per_tensor and len(quant.scale_array) != arranged.shape[0]:
        importer.fail(op, f"weight {label!r} must have a scale for each output channel; {_CONVERT}")
    due = QuantAttr.of(quant.scale_array, 0, None if quant.per_tensor else 0)
    return importer.builder.weight(shifted.astype(np.int8), tensor.name, importer.node(op), due)


def _bias(importer: TfliteImporter, op: TfliteOperator, channels: int) -> SSAValue:
    """Bias in units of the accumulator; zeros when the operator has none."""
    node = importer.node(op)
    if len(op.inputs) < 3 or op.inputs[2] < 0:
        return importer.builder.weight(np.zeros(channels, np.int32), f"{node}.no_bias", node)
    tensor = _tensor(importer, op, 2)
    data = _constant(importer, op, tensor)
    label = importer.label(tensor)
    if tensor.dtype != np.int32:
        importer.fail(op, f"bias {label!r} must be int32, not {tensor.dtype}; {_CONVERT}")
    if data.size != channels:
        importer.fail(op, f"bias {label!r} must have {channels} elements, not {data.size}")
    return importer.builder.weight(data.reshape(channels), tensor.name, node)


def _convolution(importer: TfliteImporter, op: TfliteOperator, depthwise: bool) -> None:
    image, result = _tensor(importer, op, 0), _tensor(importer, op, 0, output=True)
    _codes(importer, op, image)
    quant = _codes(importer, op, result)

    def arrange(w: NDArray[Any]) -> NDArray[Any]:
        return w.transpose(3, 1, 2, 0) if depthwise else w

    weight = _weight(importer, op, 4, arrange)
    count, kernel_h, kernel_w, depth = type_of(weight).get_shape()
    if len(image.shape) != 4:
        importer.fail(op, f"input must have 4 axes, not {dims(image.shape)}")
    strides = op.options["StrideH"], op.options["StrideW"]
    dilations = op.options["DilationHFactor"], op.options["DilationWFactor"]
    pads = _explicit_padding(
        importer, op, image.shape[1:3], (kernel_h, kernel_w), strides, dilations
    )
    conv = Conv2dOp(
        importer.value(op, op.inputs[0]),
        weight,
        _bias(importer, op, count),
        importer.type_of(result),
        node=importer.node(op),
        strides=strides,
        dilations=dilations,
        pads=pads,
        groups=max(1, image.shape[3] // depth),
        clamp=_clamp(importer, op, quant),
    )
    importer.set_result(op, importer.builder.add(conv).result)


def _conv2d(importer: TfliteImporter, op: TfliteOperator) -> None:
    _convolution(importer, op, depthwise=False)


def _depthwise_conv2d(importer: TfliteImporter, op: TfliteOperator) -> None:
    _convolution(importer, op, depthwise=True)


def _fully_connected(importer: TfliteImporter, op: TfliteOperator) -> None:
    source, result = _tensor(importer, op, 0), _tensor(importer, op, 0, output=True)
    _codes(importer, op, source)
    quant = _codes(importer, op, result)
    if op.options["WeightsFormat"] != 0:
        importer.fail(op, "weights must be in the default format; convert the model again")
    weight = _weight(importer, op, 2, lambda w: w)
    count, depth = type_of(weight).get_shape()
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
        weight,
        _bias(importer, op, count),
        importer.type_of(_with_shape(result, (elements // depth, count))),
        node=node,
        clamp=_clamp(importer, op, quant),
    )
    value = builder.add(product, node).result
    importer.set_result(op, builder.reshape(value, result.shape, node, result.name))


def _with_shape(tensor: TfliteTensor, shape: tuple[int, ...]) -> TfliteTensor:
    return TfliteTensor(**{**vars(tensor), "shape": shape})


def _max_pool2d(importer: TfliteImporter, op: TfliteOperator) -> None:
    image, result = _tensor(importer, op, 0), _tensor(importer, op, 0, output=True)
    _codes(importer, op, image)
    quant = _codes(importer, op, result)
    if len(image.shape) != 4:
        importer.fail(op, f"input must have 4 axes, not {dims(image.shape)}")
    kernel = op.options["FilterHeight"], op.options["FilterWidth"]
    strides = op.options["StrideH"], op.options["StrideW"]
    pool = MaxPool2dOp(
        importer.value(op, op.inputs[0]),
        importer.type_of(result),
        node=importer.node(op),
        kernel=kernel,
        strides=strides,
        pads=_explicit_padding(importer, op, image.shape[1:3], kernel, strides),
        clamp=_clamp(importer, op, quant),
    )
    importer.set_result(op, importer.builder.add(pool).result)


def _relu(activation: Activation) -> Callable[[TfliteImporter, TfliteOperator], None]:
    def run(importer: TfliteImporter, op: TfliteOperator) -> None:
        result = _tensor(importer, op, 0, output=True)
        _codes(importer, op, _tensor(importer, op, 0))
        quant = _codes(importer, op, result)
        _requantize(
            importer, op, activation_range(activation, float(quant.scale), quant.zero_point)
        )

    return run


def _requantize(importer: TfliteImporter, op: TfliteOperator, clamp: tuple[int, int]) -> None:
    result = _tensor(importer, op, 0, output=True)
    value = importer.value(op, op.inputs[0])
    change = RequantizeOp(value, importer.type_of(result), node=importer.node(op), clamp=clamp)
    importer.set_result(op, importer.builder.add(change).result)


def _reshape(importer: TfliteImporter, op: TfliteOperator) -> None:
    source, result = _tensor(importer, op, 0), _tensor(importer, op, 0, output=True)
    if math.prod(source.shape) != math.prod(result.shape):
        importer.fail(
            op, f"output must have the elements of {dims(source.shape)}, not {dims(result.shape)}"
        )
    value = importer.value(op, op.inputs[0])
    if value.type == importer.type_of(result):
        importer.values[op.outputs[0]] = value
        return
    node = importer.node(op)
    importer.set_result(op, importer.builder.reshape(value, result.shape, node, result.name))


def _quantize(importer: TfliteImporter, op: TfliteOperator) -> None:
    source, result = _tensor(importer, op, 0), _tensor(importer, op, 0, output=True)
    due = importer.type_of(result)
    if quant_of(due) is None or result.dtype not in (np.int8, np.uint8):
        importer.fail(op, f"output must be quantised int8 or uint8, not {result.dtype}; {_CONVERT}")
    if source.dtype in (np.int8, np.uint8):
        _requantize(importer, op, code_range(due))
        return
    if source.dtype != np.float32:
        importer.fail(op, f"input must be float32, int8 or uint8, not {source.dtype}")
    value = importer.value(op, op.inputs[0])
    change = QuantizeOp(value, due, node=importer.node(op), rounding=Rounding.HALF_AWAY)
    importer.set_result(op, importer.builder.add(change).result)


def _dequantize(importer: TfliteImporter, op: TfliteOperator) -> None:
    source, result = _tensor(importer, op, 0), _tensor(importer, op, 0, output=True)
    if importer.quant(source) is None or result.dtype != np.float32:
        importer.fail(
            op, f"input must be quantised and output float32, not {source.dtype}; {_CONVERT}"
        )
    value = importer.value(op, op.inputs[0])
    change = DequantizeOp(value, importer.type_of(result), node=importer.node(op))
    importer.set_result(op, importer.builder.add(change).result)


def _host_int8(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Send an int8 operator that has a golden kernel to the host."""
    for position in range(len(op.inputs)):
        _codes(importer, op, _tensor(importer, op, position))
    _codes(importer, op, _tensor(importer, op, 0, output=True))
    importer.host(
        op,
        rule="operator.no_hardware",
        decided_by=f"operator {op.kind}",
        remedy="none: the matrix and activation units have no such operation",
    )


_OPERATORS: dict[str, Callable[[TfliteImporter, TfliteOperator], None]] = {
    "CONV_2D": _conv2d,
    "DEPTHWISE_CONV_2D": _depthwise_conv2d,
    "FULLY_CONNECTED": _fully_connected,
    "MAX_POOL_2D": _max_pool2d,
    "RELU": _relu(Activation.RELU),
    "RELU6": _relu(Activation.RELU6),
    "RELU_N1_TO_1": _relu(Activation.RELU_N1_TO_1),
    "RESHAPE": _reshape,
    "QUANTIZE": _quantize,
    "DEQUANTIZE": _dequantize,
    "AVERAGE_POOL_2D": _host_int8,
    "ADD": _host_int8,
    "SOFTMAX": _host_int8,
}


def import_operator(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Append one operator of the file to the graph.

    Raises
    ------
    UserError
        For an operator that neither the graph nor the host has.
    """
    handler = _OPERATORS.get(op.kind)
    if handler is None:
        known = ", ".join(sorted(_OPERATORS))
        importer.fail(op, f"the operator is not supported; a model may use {known}")
    handler(importer, op)
