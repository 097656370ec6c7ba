"""Operators of TFLite: int8 arithmetic stays integer, the rest is host.

Each operator of the file becomes one of the graph, by the function that stands under its name in
the schema. Ref: TensorFlow Lite ``kernels/{pooling,activations,reduce,quantize}.cc``.
"""

import math
from collections.abc import Callable

import numpy as np

from npulse.hw.spec.numerics import MULTIPLIER_MAX, Rounding
from npulse.sim.golden.elementwise import Activation, activation_range
from npulse.sw.frontends.tflite_context import TfliteImporter
from npulse.sw.frontends.tflite_elementwise import ELEMENTWISE
from npulse.sw.frontends.tflite_linear import (
    batch_matmul,
    conv2d,
    depthwise_conv2d,
    fully_connected,
    transpose_conv,
)
from npulse.sw.frontends.tflite_move import MOVES, axis_of, numbers
from npulse.sw.frontends.tflite_operands import (
    CONVERT,
    codes,
    explicit_padding,
    fused_clamp,
    tensor_at,
)
from npulse.sw.frontends.tflite_reader import TfliteOperator
from npulse.sw.frontends.tflite_recurrent import RECURRENT
from npulse.sw.frontends.tflite_state import STATE
from npulse.sw.ir.graph import DequantizeOp, MaxPool2dOp, QuantizeOp, RequantizeOp
from npulse.sw.ir.graph_pool import AveragePool2dOp, MeanOp
from npulse.sw.ir.graph_rules import code_range, dims
from npulse.sw.ir.types import quant_of, tensor_type, type_of, with_shape


def _pooling(
    importer: TfliteImporter, op: TfliteOperator, kind: type[MaxPool2dOp | AveragePool2dOp]
) -> None:
    image, result = tensor_at(importer, op, 0), tensor_at(importer, op, 0, output=True)
    codes(importer, op, image)
    quant = codes(importer, op, result)
    if len(image.shape) != 4:
        importer.fail(op, f"input must have 4 axes, not {dims(image.shape)}")
    kernel = op.options["FilterHeight"], op.options["FilterWidth"]
    strides = op.options["StrideH"], op.options["StrideW"]
    pads = explicit_padding(importer, op, image.shape[1:3], kernel, strides)
    clamp = fused_clamp(importer, op, quant)
    value, due = importer.value(op, op.inputs[0]), importer.type_of(result)
    node, builder = importer.node(op), importer.builder
    # Halves of an average round away from code 0, which is another place in uint8 codes.
    unsigned = image.unsigned and kind is AveragePool2dOp
    if unsigned:
        value = builder.flip_sign(value, node, f"{node}.codes")
        due = tensor_type(result.shape, np.uint8, quant_of(type_of(value)))
        clamp = (clamp[0] + 128, clamp[1] + 128)
    pooled = kind(value, due, node=node, kernel=kernel, strides=strides, pads=pads, clamp=clamp)
    made = builder.add(pooled).result
    importer.set_result(op, builder.flip_sign(made, node, node) if unsigned else made)


def _max_pool2d(importer: TfliteImporter, op: TfliteOperator) -> None:
    _pooling(importer, op, MaxPool2dOp)


def _average_pool2d(importer: TfliteImporter, op: TfliteOperator) -> None:
    _pooling(importer, op, AveragePool2dOp)


def _mean(importer: TfliteImporter, op: TfliteOperator) -> None:
    source, result = tensor_at(importer, op, 0), tensor_at(importer, op, 0, output=True)
    codes(importer, op, source)
    codes(importer, op, result)
    rank = len(source.shape)
    axes = sorted({axis_of(importer, op, axis, rank) for axis in numbers(importer, op, 1)})
    kept = [1 if axis in axes else extent for axis, extent in enumerate(source.shape)]
    node, builder = importer.node(op), importer.builder
    if math.prod(kept) != math.prod(result.shape) or not axes:
        importer.fail(op, f"output must be the mean over axes {axes}, not {dims(result.shape)}")
    average = MeanOp(
        importer.value(op, op.inputs[0]),
        with_shape(importer.type_of(result), kept),
        node=node,
        axes=axes,
    )
    value = builder.add(average, node).result
    importer.set_result(op, builder.reshape(value, result.shape, node, result.name))


def _relu(activation: Activation) -> Callable[[TfliteImporter, TfliteOperator], None]:
    def run(importer: TfliteImporter, op: TfliteOperator) -> None:
        result = tensor_at(importer, op, 0, output=True)
        codes(importer, op, tensor_at(importer, op, 0))
        quant = codes(importer, op, result)
        _requantize(
            importer, op, activation_range(activation, float(quant.scale), quant.zero_point)
        )

    return run


def _requantize(importer: TfliteImporter, op: TfliteOperator, clamp: tuple[int, int]) -> None:
    result = tensor_at(importer, op, 0, output=True)
    value = importer.value(op, op.inputs[0])
    change = RequantizeOp(value, importer.type_of(result), node=importer.node(op), clamp=clamp)
    importer.set_result(op, importer.builder.add(change).result)


def _quantize(importer: TfliteImporter, op: TfliteOperator) -> None:
    source, result = tensor_at(importer, op, 0), tensor_at(importer, op, 0, output=True)
    if {source.dtype, result.dtype} & {np.dtype(np.int16), np.dtype(np.int32)}:
        _wide_quantize(importer, op)
        return
    due = importer.type_of(result)
    if quant_of(due) is None or result.dtype not in (np.int8, np.uint8):
        importer.fail(op, f"output must be quantised int8 or uint8, not {result.dtype}; {CONVERT}")
    if source.dtype in (np.int8, np.uint8):
        _requantize(importer, op, code_range(due))
        return
    if source.dtype != np.float32:
        importer.fail(op, f"input must be float32, int8 or uint8, not {source.dtype}")
    value = importer.value(op, op.inputs[0])
    change = QuantizeOp(value, due, node=importer.node(op), rounding=Rounding.HALF_AWAY)
    importer.set_result(op, importer.builder.add(change).result)


def _wide_quantize(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Change the scale of codes of which one side is wider than a byte: on the host."""
    source, result = tensor_at(importer, op, 0), tensor_at(importer, op, 0, output=True)
    scales = [*source.scales, *result.scales]
    if len(source.scales) != 1 or len(result.scales) != 1 or not min(scales) > 0:
        importer.fail(op, f"input and output must be quantised with one scale; {CONVERT}")
    ratio = float(np.float64(scales[0]) / np.float64(scales[1]))
    if not ratio <= MULTIPLIER_MAX / 2:
        importer.fail(op, f"input scale / output scale must be at most 2**30, not {ratio:g}")
    if source.dtype not in (np.int8, np.int16, np.int32):
        importer.fail(op, f"input must be int8, int16 or int32, not {source.dtype}; {CONVERT}")
    if result.dtype not in (np.int8, np.int16, np.int32):
        importer.fail(op, f"output must be int8, int16 or int32, not {result.dtype}; {CONVERT}")
    op.options.update(
        ratio=ratio,
        input_zero_point=int(source.zero_points[0]),
        zero_point=int(result.zero_points[0]),
    )
    importer.host(
        op,
        rule="operator.no_hardware",
        decided_by=f"operator {op.kind} from {source.dtype} to {result.dtype}",
        remedy="quantise activations to int8",
    )


def _dequantize(importer: TfliteImporter, op: TfliteOperator) -> None:
    source, result = tensor_at(importer, op, 0), tensor_at(importer, op, 0, output=True)
    if importer.quant(source) is None or result.dtype != np.float32:
        importer.fail(
            op, f"input must be quantised and output float32, not {source.dtype}; {CONVERT}"
        )
    value = importer.value(op, op.inputs[0])
    change = DequantizeOp(value, importer.type_of(result), node=importer.node(op))
    importer.set_result(op, importer.builder.add(change).result)


def _softmax(importer: TfliteImporter, op: TfliteOperator) -> None:
    codes(importer, op, tensor_at(importer, op, 0))
    result = tensor_at(importer, op, 0, output=True)
    if result.dtype != np.int16:
        codes(importer, op, result)
    importer.host(
        op,
        rule="operator.no_hardware",
        decided_by=f"operator {op.kind}",
        remedy="none: the matrix and activation units have no such operation",
    )


#: Operators that a model may use, by their names in the schema.
OPERATORS: dict[str, Callable[[TfliteImporter, TfliteOperator], None]] = {
    "CONV_2D": conv2d,
    "DEPTHWISE_CONV_2D": depthwise_conv2d,
    "FULLY_CONNECTED": fully_connected,
    "TRANSPOSE_CONV": transpose_conv,
    "BATCH_MATMUL": batch_matmul,
    "MAX_POOL_2D": _max_pool2d,
    "AVERAGE_POOL_2D": _average_pool2d,
    "MEAN": _mean,
    "RELU": _relu(Activation.RELU),
    "RELU6": _relu(Activation.RELU6),
    "RELU_N1_TO_1": _relu(Activation.RELU_N1_TO_1),
    "QUANTIZE": _quantize,
    "DEQUANTIZE": _dequantize,
    "SOFTMAX": _softmax,
    **ELEMENTWISE,
    **MOVES,
    **STATE,
    **RECURRENT,
}


def import_operator(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Append one operator of the file to the graph.

    Raises
    ------
    UserError
        For an operator that neither the graph nor the host has.
    """
    handler = OPERATORS.get(op.kind)
    if handler is None:
        known = ", ".join(sorted(OPERATORS))
        importer.fail(op, f"the operator is not supported; a model may use {known}")
    handler(importer, op)
