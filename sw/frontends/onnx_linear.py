"""ONNX convolutions and matrix products as integer operators, from QDQ and from QOperator form.

QDQ form is a float operator between DequantizeLinear and QuantizeLinear: the operator, an Add of a
constant, a Relu or Clip and the QuantizeLinear behind it become one integer operator. QOperator
form (QLinearConv, QLinearMatMul, QGemm) is one already. Requantisation is that of the target
(`npulse.hw.spec.numerics.RequantScheme`), which may differ from ONNX by one unit in the last place.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from xdsl.ir import SSAValue

from npulse.sw.frontends.onnx_context import OnnxImporter
from npulse.sw.frontends.onnx_host import Reason
from npulse.sw.frontends.onnx_reader import OnnxNode
from npulse.sw.frontends.onnx_values import Array, Codes, QuantizedArray, Value
from npulse.sw.ir.graph import Conv2dOp, FullyConnectedOp
from npulse.sw.ir.graph_rules import dims, window_output
from npulse.sw.ir.types import QuantAttr, tensor_type

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
    dtype = importer.static[last.outputs[0]].dtype
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


def _weight_quant(weight: QuantizedArray, axis: int) -> QuantAttr | None:
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


def _store(
    importer: OnnxImporter, node: OnnxNode, linear: Linear, weight: Array, quant: QuantAttr
) -> tuple[SSAValue, SSAValue] | Reason:
    """Store weight (outputs on axis 0) and bias and refer to them."""
    scales = np.broadcast_to(quant.scale_array, (weight.shape[0],)).astype(np.float64)
    unit = np.float64(linear.codes.quant.scale) * scales
    bias = bias_codes(importer, node, linear.bias, linear.tail.bias, unit)
    if bias is None:
        return Reason(
            "bias.not_int32",
            "bias",
            "use a constant bias with one value for each output that fits int32 in units of "
            "input scale * weight scale",
        )
    builder, label = importer.builder, node.label
    place = 3 if node.op_type in ("QLinearConv", "QLinearMatMul", "QGemm") else 1
    stored = builder.weight(np.ascontiguousarray(weight), node.inputs[place], label, quant)
    return stored, builder.weight(bias, f"{label}.bias", label)


def conv(importer: OnnxImporter, node: OnnxNode, linear: Linear) -> Reason | None:
    """Append a convolution; a reason when it is none that the graph has."""
    shape, weight = linear.codes.shape, linear.weight
    if len(shape) != 4 or weight.integers.ndim != 4:
        return Reason("conv.rank", f"input of {len(shape)} axes", "use a 2-D convolution")
    quant = _weight_quant(weight, 0)
    if quant is None:
        return Reason("weight.axis", f"axis {weight.axis}", "put weight scales on axis 0")
    ohwi = weight.integers.transpose(0, 2, 3, 1)
    kernel = ohwi.shape[1], ohwi.shape[2]
    window = Window.of(node, (shape[2], shape[3]), kernel)
    if window is None:
        return Reason("conv.window", "strides, dilations or pads", "use explicit 2-D windows")
    count, groups = ohwi.shape[0], int(node.attributes.get("group", 1))
    if groups < 1 or groups * ohwi.shape[3] != shape[1] or count % groups or min(window.out) < 1:
        importer.fail(
            node,
            f"weight {dims(weight.integers.shape)} in {groups} groups must fit the input "
            f"{dims(shape)}; export the model again",
        )
    stored = _store(importer, node, linear, ohwi, quant)
    if isinstance(stored, Reason):
        return stored
    builder, tail = importer.builder, linear.tail
    op = Conv2dOp(
        linear.codes.as_nhwc(builder, node.label),
        *stored,
        tensor_type((shape[0], *window.out, count), np.int8, tail.quant),
        node=node.label,
        strides=window.strides,
        dilations=window.dilations,
        pads=window.pads,
        groups=groups,
        clamp=tail.clamp,
    )
    result = builder.add(op, tail.output).result
    codes = Codes((shape[0], count, *window.out), tail.quant, nhwc=result)
    importer.set_codes(node, tail.output, codes, tail.dtype)
    importer.absorbed.update(tail.nodes)
    return None


@dataclass(frozen=True)
class Window:
    """Places of a 2-D window; pads are top, left, bottom, right."""

    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]
    out: tuple[int, int]

    @staticmethod
    def of(node: OnnxNode, image: tuple[int, int], kernel: tuple[int, int]) -> "Window | None":
        """Read strides, dilations, pads and auto_pad of a node; None when they are no 2-D window.

        Ref: ONNX operator Conv, attributes auto_pad and pads.
        """
        attributes = node.attributes
        strides = list(attributes.get("strides", [1, 1]))
        dilations = list(attributes.get("dilations", [1, 1]))
        pads = list(attributes.get("pads", [0, 0, 0, 0]))
        if len(strides) != 2 or len(dilations) != 2 or len(pads) != 4:
            return None
        if min(*strides, *dilations, *kernel) < 1 or min(pads) < 0:
            return None
        mode = attributes.get("auto_pad", b"NOTSET")
        if mode in (b"SAME_UPPER", b"SAME_LOWER"):
            pads = [0, 0, 0, 0]
            for axis in (0, 1):
                extent = dilations[axis] * (kernel[axis] - 1) + 1
                places = -(-image[axis] // strides[axis])
                total = max((places - 1) * strides[axis] + extent - image[axis], 0)
                small, large = total // 2, total - total // 2
                upper = mode == b"SAME_UPPER"
                pads[axis], pads[axis + 2] = (small, large) if upper else (large, small)
        elif mode == b"VALID":
            pads = [0, 0, 0, 0]
        elif mode != b"NOTSET":
            return None
        out = [
            window_output(image[a], kernel[a], strides[a], dilations[a], pads[a] + pads[a + 2])
            for a in (0, 1)
        ]
        return Window(
            (strides[0], strides[1]),
            (dilations[0], dilations[1]),
            (pads[0], pads[1], pads[2], pads[3]),
            (out[0], out[1]),
        )


def matmul(importer: OnnxImporter, node: OnnxNode, linear: Linear) -> Reason | None:
    """Append a product with a constant matrix; a reason when it is none that the graph has."""
    shape, weight = linear.codes.shape, linear.weight
    transposed = node.op_type in ("Gemm", "QGemm") and bool(node.attributes.get("transB", 0))
    if weight.integers.ndim != 2 or len(shape) < 2:
        return Reason(
            "matmul.rank", f"weight of {weight.integers.ndim} axes", "use a weight of 2 axes"
        )
    if node.attributes.get("transA", 0) or node.attributes.get("alpha", 1.0) != 1.0:
        return Reason("gemm.attributes", "transA or alpha", "use transA = 0 and alpha = 1")
    if linear.bias is not None and node.attributes.get("beta", 1.0) != 1.0:
        return Reason("gemm.attributes", "beta", "use beta = 1")
    quant = _weight_quant(weight, 0 if transposed else 1)
    if quant is None:
        return Reason("weight.axis", f"axis {weight.axis}", "put weight scales on the outputs")
    matrix = weight.integers if transposed else weight.integers.T
    depth, count = matrix.shape[1], matrix.shape[0]
    if shape[-1] != depth:
        importer.fail(
            node,
            f"weight {dims(weight.integers.shape)} must fit the input {dims(shape)}; export the "
            f"model again",
        )
    builder, tail, codes = importer.builder, linear.tail, linear.codes
    by_rows = codes.native is None and codes.rows is not None
    if by_rows:
        # The rows are H, W, C where ONNX has C, H, W: order the columns of the weight alike.
        channels, height, width = codes.image
        matrix = matrix.reshape(count, channels, height, width).transpose(0, 2, 3, 1)
        matrix = matrix.reshape(count, depth)
    stored = _store(importer, node, linear, matrix, quant)
    if isinstance(stored, Reason):
        return stored
    if by_rows and codes.rows is not None:
        rows = codes.rows
    else:
        native = codes.as_native(builder, node.label)
        rows = builder.reshape(native, (math.prod(shape[:-1]), depth), node.label, node.label)
    op = FullyConnectedOp(
        rows,
        *stored,
        tensor_type((math.prod(shape[:-1]), count), np.int8, tail.quant),
        node=node.label,
        clamp=tail.clamp,
    )
    due = (*shape[:-1], count)
    result = builder.add(op, tail.output).result
    result = builder.reshape(result, due, node.label, tail.output)
    importer.set_codes(node, tail.output, Codes(due, tail.quant, native=result), tail.dtype)
    importer.absorbed.update(tail.nodes)
    return None
