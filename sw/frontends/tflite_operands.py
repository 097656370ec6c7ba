"""Operands of TFLite operators: tensors by place, codes, constants, weights, padding and clamps.

Padding SAME becomes explicit numbers, fused activations become a clamp of codes.
Ref: TensorFlow Lite ``kernels/padding.h`` and ``kernels/kernel_util.cc``
(CalculateActivationRangeQuantized).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from npulse.sim.golden.elementwise import Activation, activation_range
from npulse.sim.golden.geometry import same_padding
from npulse.sw.frontends.tflite_context import TfliteImporter
from npulse.sw.frontends.tflite_reader import TfliteOperator, TfliteTensor
from npulse.sw.ir.graph_rules import dims
from npulse.sw.ir.types import QuantAttr

#: ActivationFunctionType of the TFLite schema.
TFLITE_ACTIVATIONS = {
    0: Activation.NONE,
    1: Activation.RELU,
    2: Activation.RELU_N1_TO_1,
    3: Activation.RELU6,
}

CONVERT = "convert the model with full integer quantisation (int8)"
_SAME, _VALID = 0, 1


def tensor_at(
    importer: TfliteImporter, op: TfliteOperator, position: int, output: bool = False
) -> TfliteTensor:
    """Tensor at a place among the inputs or outputs; `UserError` when it is absent."""
    places = op.outputs if output else op.inputs
    if position >= len(places) or places[position] < 0:
        side = "output" if output else "input"
        importer.fail(op, f"{side} {position} is absent; convert the model again")
    return importer.graph.tensors[places[position]]


def codes(importer: TfliteImporter, op: TfliteOperator, tensor: TfliteTensor) -> QuantAttr:
    """Quantisation of an int8 activation; `UserError` for any other tensor."""
    quant = importer.quant(tensor)
    label = importer.label(tensor)
    if tensor.dtype != np.int8:
        importer.fail(op, f"tensor {label!r} must be int8, not {tensor.dtype}; {CONVERT}")
    if quant is None or not quant.per_tensor:
        importer.fail(op, f"tensor {label!r} must have one scale; {CONVERT}")
    return quant


def fused_clamp(importer: TfliteImporter, op: TfliteOperator, quant: QuantAttr) -> tuple[int, int]:
    """Range of int8 codes that a fused activation leaves."""
    number = op.options["FusedActivationFunction"]
    if number not in TFLITE_ACTIVATIONS:
        importer.fail(
            op,
            f"fused activation must be NONE, RELU, RELU6 or RELU_N1_TO_1, not number {number} of "
            f"the schema; write it as an operator of its own",
        )
    return activation_range(TFLITE_ACTIVATIONS[number], float(quant.scale), quant.zero_point)


def explicit_padding(
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


def constant(importer: TfliteImporter, op: TfliteOperator, tensor: TfliteTensor) -> NDArray[Any]:
    """Data of a constant; `UserError` for a computed tensor."""
    if tensor.data is None:
        importer.fail(
            op,
            f"{importer.label(tensor)!r} must be constant to be a weight or bias; "
            f"this operator runs with constant weights only",
        )
    return tensor.data


def weight(
    importer: TfliteImporter,
    op: TfliteOperator,
    rank: int,
    arrange: Callable[[NDArray[Any]], NDArray[Any]],
    position: int = 1,
) -> SSAValue:
    """Weight with outputs on axis 0, after ``arrange`` orders its axes.

    Zero points are subtracted, unless that would leave int8.
    """
    tensor = tensor_at(importer, op, position)
    data = constant(importer, op, tensor)
    quant = importer.quant(tensor)
    label = importer.label(tensor)
    if tensor.dtype != np.int8 or quant is None:
        importer.fail(op, f"weight {label!r} must be quantised int8, not {tensor.dtype}; {CONVERT}")
    if data.ndim != rank or not data.size:
        importer.fail(op, f"weight {label!r} must have {rank} axes, not {dims(data.shape)}")
    arranged = np.ascontiguousarray(arrange(data))
    zeros = quant.zero_point_array
    shifted = arranged.astype(np.int16) - zeros.reshape(-1, *(1,) * (rank - 1)).astype(np.int16)
    fits = shifted.min() >= -128 and shifted.max() <= 127
    if not (fits or quant.per_tensor):
        importer.fail(
            op, f"weight {label!r} less its zero point must fit int8; quantise it symmetrically"
        )
    if not quant.per_tensor and len(quant.scale_array) != arranged.shape[0]:
        importer.fail(op, f"weight {label!r} must have a scale for each output channel; {CONVERT}")
    zero = 0 if fits else quant.zero_point
    due = QuantAttr.of(quant.scale_array, zero, None if quant.per_tensor else 0)
    stored = shifted.astype(np.int8) if fits else arranged
    return importer.builder.weight(stored, tensor.name, importer.node(op), due)


def bias(
    importer: TfliteImporter, op: TfliteOperator, channels: int, position: int = 2
) -> SSAValue:
    """Bias in units of the accumulator; zeros when the operator has none."""
    node = importer.node(op)
    if len(op.inputs) <= position or op.inputs[position] < 0:
        return importer.builder.weight(np.zeros(channels, np.int32), f"{node}.no_bias", node)
    tensor = tensor_at(importer, op, position)
    data = constant(importer, op, tensor)
    label = importer.label(tensor)
    if tensor.dtype != np.int32:
        importer.fail(op, f"bias {label!r} must be int32, not {tensor.dtype}; {CONVERT}")
    if data.size != channels:
        importer.fail(op, f"bias {label!r} must have {channels} elements, not {data.size}")
    return importer.builder.weight(data.reshape(channels), tensor.name, node)
