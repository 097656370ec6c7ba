"""Runs one host operator: golden kernels for TFLite, the reference evaluator for ONNX."""

import json
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from npulse.sim.golden.softmax import SoftmaxParameters, softmax
from npulse.sw.errors import UserError
from npulse.sw.frontends.onnx_host import run_payload
from npulse.sw.ir.graph import HostOp
from npulse.sw.ir.graph_rules import need_quant
from npulse.sw.ir.types import QuantAttr

Array = NDArray[Any]


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


def _softmax(op: HostOp, options: dict[str, Any], inputs: Sequence[Array]) -> Array:
    parameters = SoftmaxParameters.from_scale(float(_quant(op, 0).scale), options["Beta"])
    return softmax(inputs[0], parameters)


_TFLITE = {"SOFTMAX": _softmax}


def _run_onnx(op: HostOp, inputs: Sequence[Array]) -> list[Array]:
    try:
        return run_payload(op.payload.data, inputs)
    except Exception as error:  # the evaluator raises whatever its Python code does
        text = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"{op.kind.data} node {op.node_name!r}: the host cannot run it on these inputs "
            f"({text}); replace the operator"
        ) from error
