"""ONNX operators, one function each: what stays integer; all others go to the host with a reason.

DequantizeLinear computes nothing here: it makes a float tensor that is known by its codes. Moving
data, Relu and MaxPool commute with it, so they act on the codes.
"""

import math
from collections.abc import Callable

import numpy as np

from npulse.hw.spec.numerics import Rounding
from npulse.sw.frontends.onnx_context import OnnxImporter
from npulse.sw.frontends.onnx_host import Reason
from npulse.sw.frontends.onnx_linear import conv, matmul
from npulse.sw.frontends.onnx_operands import (
    QUANTIZE,
    clip_bounds,
    code_of,
    qdq_operands,
    qlinear_operands,
)
from npulse.sw.frontends.onnx_reader import OnnxNode
from npulse.sw.frontends.onnx_values import Codes, QuantizedArray, Value
from npulse.sw.frontends.onnx_window import Window
from npulse.sw.ir.graph import ClampOp, MaxPool2dOp, QuantizeOp, RequantizeOp
from npulse.sw.ir.types import QuantAttr, dtype_of, tensor_type, type_of

_FLOAT = Reason("operator.float", "a float input", QUANTIZE)
_NO_HARDWARE = "none: the matrix and activation units have no such operation"

Handler = Callable[[OnnxImporter, OnnxNode], Reason | None]


def import_node(importer: OnnxImporter, node: OnnxNode) -> None:
    """Append one node, as an integer operator if its handler can, else as a host operator."""
    if node in importer.absorbed:
        return
    domains = ("", "com.microsoft") if node.op_type == "QGemm" else ("",)
    handler = _HANDLERS.get(node.op_type) if node.domain in domains else None
    reason = Reason("operator.no_hardware", f"operator {node.kind}", _NO_HARDWARE)
    if handler is not None:
        found = handler(importer, node)
        if found is None:
            return
        reason = found
    importer.host(node, reason)


def _dequantize(importer: OnnxImporter, node: OnnxNode) -> Reason | None:
    value = importer.input(node, 0)
    static = importer.static.get(node.outputs[0])
    if value is None or static is None or node.attributes.get("block_size", 0):
        return Reason("dequantize.blocked", "block_size", "use one scale or one for each channel")
    if static.dtype != np.float32:
        return Reason("dequantize.type", f"result of {static.dtype}", "use float32 scales")
    axis = node.attributes.get("axis", 1)
    stated = importer.quantization(node, 1, 2, axis)
    if stated is None:
        return Reason("dequantize.scale", "scale or zero point", "make both constant")
    name = node.outputs[0]
    result = Value(name, node.label, static.dtype)
    if value.array is not None:
        integers = value.array
        channels = integers.shape[axis] if -integers.ndim <= axis < integers.ndim else None
        if integers.dtype.kind not in "iuV" or stated.scale.size not in (1, channels):
            return Reason("dequantize.scale", "number of scales", "use one for each channel")
        wide = integers.astype(np.int8 if integers.dtype.kind == "V" else integers.dtype)
        result.quantized = QuantizedArray(wide, stated.scale, stated.zero, axis)
    else:
        codes = value.as_codes(importer.builder)
        quant = importer.activation_quant(node, 1, 2, value.dtype)
        if codes is None or quant is None or codes.quant != quant:
            return Reason("dequantize.type", f"input of {value.dtype}", QUANTIZE)
        result.codes = codes
    importer.values[name] = result
    return None


def _quantize(importer: OnnxImporter, node: OnnxNode) -> Reason | None:
    value = importer.input(node, 0)
    name = node.outputs[0]
    static = importer.static.get(name)
    if value is None or static is None or value.dtype != np.float32:
        return Reason("quantize.type", "input type", "quantise from float32")
    quant = importer.activation_quant(node, 1, 2, static.dtype)
    if quant is None:
        return Reason("quantize.scale", "scale, zero point or type", QUANTIZE)
    if value.constant is None and value.codes is not None:
        codes = requantized(importer, node, value.codes, quant)
    else:
        plain = importer.plain(value)
        result = tensor_type(type_of(plain).get_shape(), np.int8, quant)
        op = QuantizeOp(plain, result, node=node.label, rounding=Rounding.HALF_EVEN)
        native = importer.builder.add(op, name).result
        codes = Codes(result.get_shape(), quant, native=native)
    importer.set_codes(node, name, codes, static.dtype)
    return None


def requantized(importer: OnnxImporter, node: OnnxNode, codes: Codes, quant: QuantAttr) -> Codes:
    """Codes in another scale, in the form that they have; the same codes when nothing changes."""
    if codes.quant == quant:
        return codes
    result = Codes(codes.shape, quant, image=codes.image)
    for form in ("nhwc", "rows", "native"):
        source = getattr(codes, form)
        if source is not None:
            tensor = tensor_type(type_of(source).get_shape(), np.int8, quant)
            op = RequantizeOp(source, tensor, node=node.label, clamp=(-128, 127))
            setattr(result, form, importer.builder.add(op, node.outputs[0]).result)
            break
    return result


def _codes_of(importer: OnnxImporter, node: OnnxNode) -> Codes | None:
    value = importer.input(node, 0)
    if value is None or value.constant is not None:
        return None
    return value.as_codes(importer.builder)


def _result(importer: OnnxImporter, node: OnnxNode, codes: Codes) -> None:
    """Make codes the result of a node that keeps the type of its input."""
    importer.set_codes(node, node.outputs[0], codes, importer.values[node.inputs[0]].dtype)


def _reshape(importer: OnnxImporter, node: OnnxNode) -> Reason | None:
    """Flatten, Reshape, Squeeze, Unsqueeze, Identity, Dropout: the inferred shape is the result."""
    value = importer.input(node, 0)
    if len([n for n in node.outputs if n]) != 1 or value is None:
        return Reason("reshape.outputs", "a second output", "remove it")
    if node.op_type == "Dropout" and importer.input(node, 2) is not None:
        return Reason("dropout.training", "training_mode", "export the model for inference")
    shape = importer.known(node, node.outputs[0]).shape
    codes = _codes_of(importer, node)
    if codes is not None:
        if math.prod(shape) != math.prod(codes.shape):
            importer.fail(node, f"a shape of {shape} cannot hold {codes.shape}; export it again")
        _result(importer, node, codes.reshaped(importer.builder, shape, node.label))
        return None
    plain = importer.plain(value)
    if math.prod(shape) != math.prod(type_of(plain).get_shape()):
        importer.fail(
            node,
            f"a shape of {shape} cannot hold {type_of(plain).get_shape()}; export the model again",
        )
    result = importer.builder.reshape(plain, shape, node.label, node.outputs[0])
    importer.values[node.outputs[0]] = Value(
        node.outputs[0], node.label, dtype_of(type_of(plain)), plain=result
    )
    return None


def _transpose(importer: OnnxImporter, node: OnnxNode) -> Reason | None:
    codes = _codes_of(importer, node)
    if codes is None:
        return _FLOAT
    order = list(node.attributes.get("perm", range(len(codes.shape))[::-1]))
    if sorted(order) != list(range(len(codes.shape))):
        importer.fail(node, f"perm must order the axes of {codes.shape}, not {order}")
    native = codes.as_native(importer.builder, node.label)
    moved = importer.builder.transpose(native, order, node.label, node.outputs[0])
    shape = type_of(moved).get_shape()
    _result(importer, node, Codes(shape, codes.quant, native=moved))
    return None


def _clip(importer: OnnxImporter, node: OnnxNode) -> Reason | None:
    """Relu or Clip of codes, when the bounds are codes or a QuantizeLinear rounds them to codes."""
    value, codes = importer.input(node, 0), _codes_of(importer, node)
    if value is None or codes is None or not value.is_real:
        return _FLOAT
    bounds = clip_bounds(importer, node)
    if bounds is None:
        return Reason("clip.bounds", "min or max", "make both constant, min <= max")
    clamp = code_of(bounds[0], codes.quant), code_of(bounds[1], codes.quant)
    if not all(_is_code(b, codes.quant) for b in bounds) and not _same_quantize(
        importer, node, codes.quant
    ):
        return Reason("clip.bounds", "min or max", "choose bounds that are codes of the input")
    source = codes.nhwc if codes.nhwc is not None else codes.as_native(importer.builder, node.label)
    op = ClampOp(source, node=node.label, clamp=clamp)
    result = importer.builder.add(op, node.outputs[0]).result
    clipped = Codes(codes.shape, codes.quant)
    setattr(clipped, "native" if codes.nhwc is None else "nhwc", result)
    _result(importer, node, clipped)
    return None


def _is_code(real: float, quant: QuantAttr) -> bool:
    """Whether clipping at a real bound gives a number that has a code."""
    if math.isinf(real):
        return True
    steps = float(np.float32(real) / quant.scale)
    return steps == math.floor(steps) or not -128 <= steps + quant.zero_point <= 127


def _same_quantize(importer: OnnxImporter, node: OnnxNode, quant: QuantAttr) -> bool:
    reader = importer.only_reader(node.outputs[0])
    if reader is None or reader.op_type != "QuantizeLinear":
        return False
    dtype = importer.known(reader, reader.outputs[0]).dtype
    return importer.activation_quant(reader, 1, 2, dtype) == quant


def _max_pool(importer: OnnxImporter, node: OnnxNode) -> Reason | None:
    codes = _codes_of(importer, node)
    if codes is None:
        return _FLOAT
    kernel = node.attributes.get("kernel_shape", [])
    if len(codes.shape) != 4 or len(kernel) != 2:
        return Reason("pool.rank", f"input of {len(codes.shape)} axes", "use a 2-D pooling")
    if len([n for n in node.outputs if n]) != 1:
        return Reason("pool.indices", "the output Indices", "remove it")
    window = Window.of(node, (codes.shape[2], codes.shape[3]), (kernel[0], kernel[1]))
    if window is None or window.dilations != (1, 1):
        return Reason("pool.window", "dilations or pads", "use dense 2-D windows")
    static = importer.static.get(node.outputs[0])
    due = (*codes.shape[:2], *window.out)
    if static is None or static.shape != due:
        return Reason(
            "pool.ceil_mode", "ceil_mode", "use ceil_mode = 0 and pads for the last window"
        )
    top, left, bottom, right = window.pads
    if max(top, bottom) >= kernel[0] or max(left, right) >= kernel[1]:
        return Reason("pool.window", "pads", "use pads smaller than the window")
    op = MaxPool2dOp(
        codes.as_nhwc(importer.builder, node.label),
        tensor_type((due[0], *window.out, due[1]), np.int8, codes.quant),
        node=node.label,
        kernel=kernel,
        strides=window.strides,
        pads=window.pads,
    )
    result = importer.builder.add(op, node.outputs[0]).result
    _result(importer, node, Codes(due, codes.quant, nhwc=result))
    return None


def _conv(importer: OnnxImporter, node: OnnxNode) -> Reason | None:
    linear = qdq_operands(importer, node)
    return linear if isinstance(linear, Reason) else conv(importer, node, linear)


def _matmul(importer: OnnxImporter, node: OnnxNode) -> Reason | None:
    linear = qdq_operands(importer, node)
    return linear if isinstance(linear, Reason) else matmul(importer, node, linear)


def _qlinear_conv(importer: OnnxImporter, node: OnnxNode) -> Reason | None:
    linear = qlinear_operands(importer, node, 8, (6, 7))
    return linear if isinstance(linear, Reason) else conv(importer, node, linear)


def _qlinear_matmul(importer: OnnxImporter, node: OnnxNode) -> Reason | None:
    linear = qlinear_operands(importer, node, None, (6, 7))
    return linear if isinstance(linear, Reason) else matmul(importer, node, linear)


def _qgemm(importer: OnnxImporter, node: OnnxNode) -> Reason | None:
    """QGemm of ONNX Runtime: A, B with scales, bias C, and the scale of the result last."""
    if len(node.inputs) < 9:
        return Reason("output.not_quantized", "y_scale or y_zero_point", QUANTIZE)
    linear = qlinear_operands(importer, node, 6, (7, 8))
    return linear if isinstance(linear, Reason) else matmul(importer, node, linear)


_HANDLERS: dict[str, Handler] = {
    "DequantizeLinear": _dequantize,
    "QuantizeLinear": _quantize,
    "Conv": _conv,
    "Gemm": _matmul,
    "MatMul": _matmul,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QGemm": _qgemm,
    "Relu": _clip,
    "Clip": _clip,
    "MaxPool": _max_pool,
    "Flatten": _reshape,
    "Reshape": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Identity": _reshape,
    "Dropout": _reshape,
    "Transpose": _transpose,
}
