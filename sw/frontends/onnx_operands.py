"""Operands of integer operators in an ONNX graph: codes, weight, bias, and the fused tail.

QDQ form is a float operator between DequantizeLinear and QuantizeLinear: the operator, an Add of a
constant, a Relu or Clip and the QuantizeLinear behind it become one integer operator. QOperator
form (QLinearConv, QLinearMatMul, QGemm) is one already.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from npulse.sw.frontends.onnx_context import OnnxImporter
from npulse.sw.frontends.onnx_host import Reason
from npulse.sw.frontends.onnx_reader import OnnxNode
from npulse.sw.frontends.onnx_values import Array, Codes, QuantizedArray, Value
from npulse.sw.ir.types import QuantAttr

QUANTIZE = "quantise the model to int8 (QDQ) with one scale for each activation"


@dataclass
class Tail:
    """What is fused behind an operator, up to its QuantizeLinear."""

    quant: QuantAttr  #: of int8 codes
    dtype: np.dtype  #: of ONNX
    output: str
    clamp: tuple[int, int] = (-128, 127)
    bias: Array | None = None
    nodes: list[OnnxNode] = field(default_factory=list)


def code_of(real: float, quant: QuantAttr) -> int:
    """Int8 code of a real number: half to even and saturated, as QuantizeLinear."""
    if math.isinf(real):
        return -128 if real < 0 else 127
    steps = np.rint(np.float32(real) / quant.scale)
    return int(min(max(float(steps) + quant.zero_point, -128), 127))


def clip_bounds(importer: OnnxImporter, node: OnnxNode) -> tuple[float, float] | None:
    """Real bounds of a Relu or Clip; None unless they are constant and in order."""
    if node.op_type == "Relu":
        return 0.0, math.inf
    low, high = node.attributes.get("min", -math.inf), node.attributes.get("max", math.inf)
    bounds = [low, high]
    for place in (1, 2):
        if importer.input(node, place) is not None:
            array = importer.constant(node, place)
            if array is None or array.size != 1:
                return None
            bounds[place - 1] = float(array.reshape(()))
    if math.isnan(bounds[0]) or math.isnan(bounds[1]) or bounds[0] > bounds[1]:
        return None
    return bounds[0], bounds[1]


def find_tail(importer: OnnxImporter, node: OnnxNode) -> Tail | None:
    """Follow the readers of a float result to its QuantizeLinear; None when it has another use."""
    bounds: list[tuple[float, float]] = []
    bias: Array | None = None
    passed: list[OnnxNode] = []
    name = node.outputs[0]
    while True:
        reader = importer.only_reader(name)
        if reader is None or name not in reader.inputs:
            return None
        passed.append(reader)
        if reader.op_type == "QuantizeLinear" and reader.inputs[0] == name:
            break
        if reader.op_type in ("Relu", "Clip") and reader.inputs[0] == name:
            found = clip_bounds(importer, reader)
            if found is None:
                return None
            bounds.append(found)
        elif reader.op_type == "Add" and bias is None and not bounds:
            other = 1 if reader.inputs[0] == name else 0
            bias = importer.constant(reader, other)
            if bias is None:
                return None
        else:
            return None
        name = reader.outputs[0]
    last = passed[-1]
    dtype = importer.known(last, last.outputs[0]).dtype
    quant = importer.activation_quant(last, 1, 2, dtype)
    if quant is None:
        return None
    # Both roundings are monotone, so clipping codes equals quantising what was clipped.
    clamp = (-128, 127)
    for low, high in bounds:
        codes = code_of(low, quant), code_of(high, quant)
        clamp = min(max(clamp[0], codes[0]), codes[1]), max(min(clamp[1], codes[1]), codes[0])
    return Tail(quant, dtype, last.outputs[0], clamp, bias, passed)


def constant_weight(value: Value | None) -> QuantizedArray | None:
    """Weight whose integers less zero points fit int8, with zero points of 0; None otherwise."""
    quantized = None if value is None else value.quantized
    if quantized is None or not quantized.integers.size:
        return None
    centred = quantized.integers.astype(np.int64) - quantized.along_axis(quantized.zero)
    if centred.min() < -128 or centred.max() > 127:
        return None
    zeros = np.zeros_like(quantized.zero)
    return QuantizedArray(centred.astype(np.int8), quantized.scale, zeros, quantized.axis)


def weight_quant(weight: QuantizedArray, axis: int) -> QuantAttr | None:
    """Quantisation with outputs on axis 0; None when scales lie on another axis than ``axis``."""
    if weight.scale.size == 1:
        return QuantAttr.of(weight.scale)
    on_outputs = weight.axis % weight.integers.ndim == axis
    return QuantAttr.of(weight.scale, 0, 0) if on_outputs else None


def bias_codes(
    importer: OnnxImporter,
    node: OnnxNode,
    value: Value | None,
    extra: Array | None,
    unit: np.ndarray,
) -> Array | None:
    """Bias in units of the accumulator, (N,) int32; None when it does not fit or is not constant.

    ``unit`` (N,) float64 is input scale * weight scale. A bias in that scale is taken as it is, a
    float one is rounded to it, which is at most half a unit of the accumulator.
    """
    count = len(unit)
    total = np.zeros(count, np.float64)
    exact = True
    if value is not None:
        quantized = value.quantized
        array = value.constant
        if array is None or array.size not in (1, count):
            return None
        if quantized is not None and not quantized.zero.any() and _same_scale(quantized, unit):
            total += quantized.integers.astype(np.float64).reshape(-1)
        else:
            steps = array.astype(np.float64).reshape(-1) / unit
            exact = np.allclose(steps, np.rint(steps), rtol=0, atol=1e-3)
            total += np.rint(steps)
    if extra is not None:
        if extra.size not in (1, count):
            return None
        steps = extra.astype(np.float64).reshape(-1) / unit
        exact = exact and np.allclose(steps, np.rint(steps), rtol=0, atol=1e-3)
        total += np.rint(steps)
    info = np.iinfo(np.int32)
    if not np.isfinite(total).all() or total.min() < info.min or total.max() > info.max:
        return None
    if not exact:
        importer.note(
            node, "the bias is rounded to input scale * weight scale, by at most half of it"
        )
    return total.astype(np.int32)


def _same_scale(quantized: QuantizedArray, unit: np.ndarray) -> bool:
    """Whether a bias is in units of the accumulator, but for the rounding of its float32 scale."""
    return bool(np.allclose(quantized.scale.astype(np.float64), unit, rtol=1e-5, atol=0))


@dataclass
class Linear:
    """Operands of an integer operator as an ONNX node states them."""

    codes: Codes
    weight: QuantizedArray
    bias: Value | None
    tail: Tail


def qdq_operands(importer: OnnxImporter, node: OnnxNode) -> Linear | Reason:
    """Operands of a float Conv, Gemm or MatMul between DequantizeLinear and QuantizeLinear."""
    value = importer.input(node, 0)
    codes = value.as_codes(importer.builder) if value is not None and value.is_real else None
    if codes is None:
        return Reason("input.not_quantized", f"input {node.inputs[0]}", QUANTIZE)
    weight = constant_weight(importer.input(node, 1))
    if weight is None:
        return Reason(
            "weight.not_int8",
            f"weight {node.inputs[1]}",
            "use a constant weight behind DequantizeLinear whose integers less zero point fit int8",
        )
    tail = find_tail(importer, node)
    if tail is None:
        return Reason(
            "output.not_quantized",
            f"output {node.outputs[0]}",
            "put one QuantizeLinear with constant scale behind it, after Relu or Clip if any",
        )
    return Linear(codes, weight, importer.input(node, 2), tail)


def qlinear_operands(
    importer: OnnxImporter, node: OnnxNode, bias: int | None, output: tuple[int, int]
) -> Linear | Reason:
    """Operands of QLinearConv, QLinearMatMul or QGemm; ``output`` are places of scale and zero."""
    value = importer.input(node, 0)
    if value is None:
        return Reason("input.not_quantized", "input 0", QUANTIZE)
    quant = importer.activation_quant(node, 1, 2, value.dtype)
    codes = None if quant is None else value.as_codes(importer.builder)
    if codes is None or codes.quant != quant:
        return Reason("input.not_quantized", f"scale of input {node.inputs[0]}", QUANTIZE)
    integers, stated = importer.constant(node, 3), importer.quantization(node, 4, 5)
    weight = None
    if integers is not None and stated is not None and integers.ndim >= 2:
        axis = 0 if node.op_type == "QLinearConv" else _gemm_axis(node, integers)
        raw = QuantizedArray(integers, stated.scale, stated.zero, axis)
        weight = constant_weight(Value("", node.label, integers.dtype, quantized=raw))
    if weight is None or weight.scale.size not in (1, weight.integers.shape[weight.axis]):
        return Reason(
            "weight.not_int8",
            f"weight {node.inputs[3]}",
            "use a constant weight whose integers less zero point fit int8",
        )
    static = importer.static.get(node.outputs[0])
    dtype = static.dtype if static is not None else value.dtype
    result = importer.activation_quant(node, *output, dtype)
    if result is None:
        return Reason("output.not_quantized", f"scale of output {node.outputs[0]}", QUANTIZE)
    bias_value = None if bias is None else importer.input(node, bias)
    if bias_value is not None and bias_value.array is not None:
        unit = (np.float64(codes.quant.scale) * weight.scale).astype(np.float32)
        zero = np.zeros(unit.size, np.int64)
        held = QuantizedArray(bias_value.array, unit, zero, 0)
        bias_value = Value(bias_value.name, node.label, bias_value.dtype, quantized=held)
    return Linear(codes, weight, bias_value, Tail(result, np.dtype(dtype), node.outputs[0]))


def _gemm_axis(node: OnnxNode, integers: Array) -> int:
    return 0 if node.attributes.get("transB", 0) else integers.ndim - 1
