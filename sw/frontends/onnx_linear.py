"""ONNX convolutions and matrix products with constant weights as integer operators.

Requantisation is that of the target (`npulse.hw.spec.numerics.RequantScheme`), which may differ
from ONNX by one unit in the last place.
"""

import math

import numpy as np
from xdsl.ir import SSAValue

from npulse.sw.frontends.onnx_context import OnnxImporter
from npulse.sw.frontends.onnx_host import Reason
from npulse.sw.frontends.onnx_operands import Linear, bias_codes, weight_quant
from npulse.sw.frontends.onnx_reader import OnnxNode
from npulse.sw.frontends.onnx_values import Array, Codes
from npulse.sw.frontends.onnx_window import Window
from npulse.sw.ir.graph import Conv2dOp, FullyConnectedOp
from npulse.sw.ir.graph_rules import dims
from npulse.sw.ir.types import QuantAttr, tensor_type


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
    quant = weight_quant(weight, 0)
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
    quant = weight_quant(weight, 0 if transposed else 1)
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
