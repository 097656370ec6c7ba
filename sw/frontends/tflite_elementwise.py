"""TFLite operators on single elements: two operands, and functions that become a table.

Ref: TensorFlow Lite ``kernels/{add,sub,mul,activations,maximum_minimum,gelu}.cc``.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.numerics import INT8
from npulse.sim.golden.lut import (
    FLOAT_FUNCTIONS,
    LutParameters,
    float_table,
    hard_swish_table,
    leaky_relu_table,
)
from npulse.sw.frontends.tflite_context import TfliteImporter
from npulse.sw.frontends.tflite_operands import codes, fused_clamp, tensor_at
from npulse.sw.frontends.tflite_reader import TfliteOperator
from npulse.sw.ir.graph_elementwise import (
    AddOp,
    BinaryOp,
    LutOp,
    MaximumOp,
    MinimumOp,
    MulOp,
    PreluOp,
    SubOp,
)

Handler = Callable[[TfliteImporter, TfliteOperator], None]
Table = Callable[[LutParameters, TfliteOperator], NDArray[np.int8]]


def _binary(kind: type[BinaryOp]) -> Handler:
    def run(importer: TfliteImporter, op: TfliteOperator) -> None:
        for position in (0, 1):
            codes(importer, op, tensor_at(importer, op, position))
        result = tensor_at(importer, op, 0, output=True)
        quant = codes(importer, op, result)
        fused = "FusedActivationFunction" in op.options
        clamp = fused_clamp(importer, op, quant) if fused else (INT8.min, INT8.max)
        a, b = (importer.value(op, op.inputs[position]) for position in (0, 1))
        combined = kind(a, b, importer.type_of(result), node=importer.node(op), clamp=clamp)
        importer.set_result(op, importer.builder.add(combined).result)

    return run


def _lut(function: str, tabulate: Table) -> Handler:
    def run(importer: TfliteImporter, op: TfliteOperator) -> None:
        x = codes(importer, op, tensor_at(importer, op, 0))
        result = tensor_at(importer, op, 0, output=True)
        y = codes(importer, op, result)
        try:
            parameters = LutParameters(
                input_scale=float(x.scale),
                input_zero_point=x.zero_point,
                scale=float(y.scale),
                zero_point=y.zero_point,
            )
            entries = tabulate(parameters, op)
        except ValueError as error:
            importer.fail(op, f"{error}; quantise the model again")
        node = importer.node(op)
        table = importer.builder.weight(entries, f"{node}.table", node)
        value = importer.value(op, op.inputs[0])
        mapped = LutOp(value, table, importer.type_of(result), node=node, function=function)
        importer.set_result(op, importer.builder.add(mapped).result)

    return run


def _gelu(parameters: LutParameters, op: TfliteOperator) -> NDArray[np.int8]:
    name = "gelu_tanh" if op.options["Approximate"] else "gelu"
    return float_table(FLOAT_FUNCTIONS[name], parameters)


def _float(name: str) -> Table:
    return lambda parameters, op: float_table(FLOAT_FUNCTIONS[name], parameters)


def _leaky_relu(parameters: LutParameters, op: TfliteOperator) -> NDArray[np.int8]:
    return leaky_relu_table(op.options["Alpha"], parameters)


def _hard_swish(parameters: LutParameters, op: TfliteOperator) -> NDArray[np.int8]:
    return hard_swish_table(parameters)


#: Operators of this file by their names in the schema.
ELEMENTWISE: dict[str, Handler] = {
    "ADD": _binary(AddOp),
    "SUB": _binary(SubOp),
    "MUL": _binary(MulOp),
    "MINIMUM": _binary(MinimumOp),
    "MAXIMUM": _binary(MaximumOp),
    "PRELU": _binary(PreluOp),
    "LOGISTIC": _lut("logistic", _float("logistic")),
    "TANH": _lut("tanh", _float("tanh")),
    "GELU": _lut("gelu", _gelu),
    "LEAKY_RELU": _lut("leaky_relu", _leaky_relu),
    "HARD_SWISH": _lut("hard_swish", _hard_swish),
}
