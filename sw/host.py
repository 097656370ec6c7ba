"""Runs one host operator: golden kernels for TFLite, the reference evaluator for ONNX."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.numerics import INT8, INT16, RequantScheme, quantize_multiplier
from npulse.sim.golden.check import wrap_int32
from npulse.sim.golden.lstm import (
    LstmParameters,
    LstmWeights,
    gate_factors,
    hidden_factor,
    lstm,
)
from npulse.sim.golden.requant import scale_q31
from npulse.sim.golden.softmax import SoftmaxParameters, softmax
from npulse.sim.golden.svdf import SvdfParameters, svdf
from npulse.sw.errors import UserError
from npulse.sw.frontends.onnx_host import run_payload
from npulse.sw.ir.graph import HostOp
from npulse.sw.ir.graph_rules import need_quant
from npulse.sw.ir.types import QuantAttr, dtype_of, type_of

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
    return _TFLITE[op.kind.data](op, json.loads(op.payload.data), inputs)


def _quant(op: HostOp, index: int) -> QuantAttr:
    return need_quant(op, f"input {index}", op.inputs[index].type)


def _softmax(op: HostOp, options: dict[str, Any], inputs: Sequence[Array]) -> list[Array]:
    parameters = SoftmaxParameters.from_scale(float(_quant(op, 0).scale), options["Beta"])
    wide = dtype_of(type_of(op.outputs[0])) == np.int16
    return [softmax(inputs[0], parameters, INT16 if wide else INT8)]


def _lstm(op: HostOp, options: dict[str, Any], inputs: Sequence[Array]) -> list[Array]:
    """Inputs: x, four input weights, four recurrent weights, four biases, state, cell state."""
    x, matrices, biases, (state, cell) = inputs[0], inputs[1:9], inputs[9:13], inputs[13:15]
    scales = [float(_quant(op, place).scale) for place in range(9)]
    weights = LstmWeights(
        inputs=tuple(matrices[:4]), recurrent=tuple(matrices[4:]), bias=tuple(biases)
    )
    parameters = LstmParameters(
        input_zero_point=_quant(op, 0).zero_point,
        state_zero_point=_quant(op, 13).zero_point,
        input_factors=gate_factors(scales[0], scales[1:5]),
        recurrent_factors=gate_factors(float(_quant(op, 13).scale), scales[5:9]),
        cell_scale_log2=options["cell_scale_log2"],
        hidden_factor=hidden_factor(options["hidden_scale"]),
        hidden_zero_point=options["hidden_zero_point"],
        cell_clip=options["cell_clip"],
    )
    steps = x if options["time_major"] else x.swapaxes(0, 1)
    outputs, state, cell = lstm(steps, state, cell, weights, parameters)
    return [outputs if options["time_major"] else outputs.swapaxes(0, 1), state, cell]


def _svdf(op: HostOp, options: dict[str, Any], inputs: Sequence[Array]) -> list[Array]:
    """Inputs: x, weights of features, weights of time, bias if any, state."""
    x, features, time, *bias, state = inputs
    source, kept = _quant(op, 0), _quant(op, len(inputs) - 1)
    result = need_quant(op, "output 0", op.outputs[0].type)
    first = quantize_multiplier(float(source.scale * _quant(op, 1).scale / kept.scale))
    second = quantize_multiplier(float(kept.scale * _quant(op, 2).scale / result.scale))
    parameters = SvdfParameters(
        state_multiplier=first[0],
        state_shift=first[1],
        multiplier=second[0],
        shift=second[1],
        input_zero_point=source.zero_point,
        state_zero_point=kept.zero_point,
        zero_point=result.zero_point,
        rank=options["rank"],
    )
    output, state = svdf(x, features, time, bias[0] if bias else None, state, parameters)
    return [output, state]


def _quantize(op: HostOp, options: dict[str, Any], inputs: Sequence[Array]) -> list[Array]:
    """Change the scale of codes; the result may be as wide as int32."""
    due = dtype_of(type_of(op.outputs[0]))
    centred = wrap_int32(inputs[0].astype(np.int64) - options["input_zero_point"])
    multiplier, shift = quantize_multiplier(options["ratio"])
    scaled = scale_q31(centred, multiplier, shift, RequantScheme.TFLITE_Q31_DOUBLE)
    limits = np.iinfo(due)
    return [(scaled + options["zero_point"]).clip(limits.min, limits.max).astype(due)]


_TFLITE = {
    "QUANTIZE": _quantize,
    "SOFTMAX": _softmax,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "SVDF": _svdf,
}


def _run_onnx(op: HostOp, inputs: Sequence[Array]) -> list[Array]:
    try:
        return run_payload(op.payload.data, inputs)
    except Exception as error:  # the evaluator raises whatever its Python code does
        text = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"{op.kind.data} node {op.node_name!r}: the host cannot run it on these inputs "
            f"({text}); replace the operator"
        ) from error
