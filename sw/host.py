"""Runs one host operator: golden kernels for TFLite, the reference evaluator for ONNX."""

import json
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from npulse.sim.golden.elementwise import Activation, AddParameters, activation_range, add
from npulse.sim.golden.geometry import NO_PADDING, same_padding
from npulse.sim.golden.pool import average_pool2d
from npulse.sim.golden.softmax import SoftmaxParameters, softmax
from npulse.sw.errors import UserError
from npulse.sw.frontends.onnx_host import run_payload
from npulse.sw.ir.graph import HostOp
from npulse.sw.ir.graph_rules import need_quant
from npulse.sw.ir.types import QuantAttr

Array = NDArray[Any]

#: ActivationFunctionType of the TFLite schema.
TFLITE_ACTIVATIONS = {
    0: Activation.NONE,
    1: Activation.RELU,
    2: Activation.RELU_N1_TO_1,
    3: Activation.RELU6,
}


def run_host(op: HostOp, inputs: Sequence[Array]) -> list[Array]:
    """Run an operator on arrays that have the types of its operands.

    Raises
    ------
    UserError
        For an operator that the host cannot run on these inputs.
    """
    if op.origin.data == "onnx":
        return _run_onnx(op, inputs)
    return [_TFLITE[op.kind.data](op, json.loads(op.payload.data), inputs)]


def _quant(op: HostOp, index: int) -> QuantAttr:
    return need_quant(op, f"input {index}", op.inputs[index].type)


def _clamp(op: HostOp, options: dict[str, Any]) -> tuple[int, int]:
    quant = need_quant(op, "output 0", op.outputs[0].type)
    activation = TFLITE_ACTIVATIONS[options["FusedActivationFunction"]]
    return activation_range(activation, float(quant.scale), quant.zero_point)


def _average_pool(op: HostOp, options: dict[str, Any], inputs: Sequence[Array]) -> Array:
    (image,) = inputs
    window = options["FilterHeight"], options["FilterWidth"]
    stride = options["StrideH"], options["StrideW"]
    padding = NO_PADDING
    if options["Padding"] == 0:
        padding = same_padding((image.shape[1], image.shape[2]), window, stride)
    low, high = _clamp(op, options)
    return average_pool2d(image, window, stride=stride, padding=padding, act_min=low, act_max=high)


def _add(op: HostOp, options: dict[str, Any], inputs: Sequence[Array]) -> Array:
    a, b = _quant(op, 0), _quant(op, 1)
    result = need_quant(op, "output 0", op.outputs[0].type)
    low, high = _clamp(op, options)
    return add(
        inputs[0],
        inputs[1],
        AddParameters.from_scales(float(a.scale), float(b.scale), float(result.scale)),
        a_zero_point=a.zero_point,
        b_zero_point=b.zero_point,
        zero_point=result.zero_point,
        act_min=low,
        act_max=high,
    )


def _softmax(op: HostOp, options: dict[str, Any], inputs: Sequence[Array]) -> Array:
    parameters = SoftmaxParameters.from_scale(float(_quant(op, 0).scale), options["Beta"])
    return softmax(inputs[0], parameters)


_TFLITE = {"AVERAGE_POOL_2D": _average_pool, "ADD": _add, "SOFTMAX": _softmax}


def _run_onnx(op: HostOp, inputs: Sequence[Array]) -> list[Array]:
    try:
        return run_payload(op.payload.data, inputs)
    except Exception as error:  # the evaluator raises whatever its Python code does
        text = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"{op.kind.data} node {op.node_name!r}: the host cannot run it on these inputs "
            f"({text}); replace the operator"
        ) from error
