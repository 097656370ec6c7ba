"""Verifier of the graph dialect: what holds for every operator, one sentence a rule.

Each sentence names the operator, the node of the model, the operand, and the bound.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from xdsl.dialects.builtin import I32, I64, DenseArrayBase, StringAttr, TensorType
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from npulse.hw.spec.numerics import MULTIPLIER_MAX, RequantScheme, Rounding
from npulse.sw.errors import shorten
from npulse.sw.ir.types import GraphTensor, QuantAttr, dtype_of, ints, quant_of, type_of

if TYPE_CHECKING:
    from npulse.sw.ir.graph import (
        ClampOp,
        Conv2dOp,
        DequantizeOp,
        FullyConnectedOp,
        GraphOp,
        HostOp,
        MaxPool2dOp,
        QuantizeOp,
        RequantizeOp,
        ReshapeOp,
        TransposeOp,
    )
    from npulse.sw.ir.graph_base import LinearOp
    from npulse.sw.ir.graph_pool import AveragePool2dOp

#: A tensor larger than this is refused: no machine of this project holds it.
MAX_TENSOR_BYTES = 1 << 30


def fail(op: "GraphOp", sentence: str) -> NoReturn:
    """Raise `VerifyException` that names the operator and its node."""
    raise VerifyException(f"{op.name} {shorten(op.node_name)!r}: {sentence}")


def dims(shape: Sequence[int]) -> str:
    """Write a shape as in ``1x8x8x3``; a scalar is ``scalar``."""
    return "x".join(map(str, shape)) if len(shape) else "scalar"


def code_range(tensor: GraphTensor) -> tuple[int, int]:
    """Smallest and largest integer that an element can hold."""
    info = np.iinfo(dtype_of(tensor))
    return int(info.min), int(info.max)


def need_tensor(op: "GraphOp", operand: str, attribute: Attribute) -> GraphTensor:
    """Check that a type is a static tensor whose quantisation fits it."""
    if not isinstance(attribute, TensorType):
        fail(op, f"{operand} must be a tensor, not {attribute}")
    tensor: GraphTensor = attribute
    shape = tensor.get_shape()
    if any(d < 0 for d in shape):
        fail(op, f"{operand} must have a static shape, not {tensor}")
    try:
        dtype = dtype_of(tensor)
    except ValueError as error:
        fail(op, f"{operand} has {error}")
    if math.prod(shape) * dtype.itemsize > MAX_TENSOR_BYTES:
        fail(op, f"{operand} must have at most {MAX_TENSOR_BYTES} bytes, not shape {dims(shape)}")
    quant = quant_of(tensor)
    if quant is not None:
        _check_quant(op, operand, tensor, quant)
    return tensor


def _check_quant(op: "GraphOp", operand: str, tensor: GraphTensor, quant: QuantAttr) -> None:
    shape, axis = tensor.get_shape(), quant.axis.data
    if dtype_of(tensor).kind not in "iu":
        fail(op, f"{operand} must have integer elements to be quantised, not {tensor.element_type}")
    if not quant.per_tensor and not (axis < len(shape) and shape[axis] == len(quant.scale_array)):
        count = len(quant.scale_array)
        fail(op, f"{operand} of shape {dims(shape)} must have {count} channels on axis {axis}")
    low, high = code_range(tensor)
    for zero in quant.zero_point_array:
        if not low <= zero <= high:
            fail(op, f"zero point of {operand} must be from {low} to {high}, not {zero}")


def need_quant(op: "GraphOp", operand: str, attribute: Attribute) -> QuantAttr:
    """Check that a type is a quantised tensor and give its quantisation."""
    quant = quant_of(need_tensor(op, operand, attribute))
    if quant is None:
        fail(op, f"{operand} must be quantised, not {attribute}")
    return quant


def need_codes(op: "GraphOp", operand: str, attribute: Attribute, dtypes: str) -> QuantAttr:
    """Check for a per-tensor quantised tensor of one of the numpy types in ``dtypes``."""
    quant = need_quant(op, operand, attribute)
    tensor = need_tensor(op, operand, attribute)
    if dtype_of(tensor).name not in dtypes.split(" or "):
        fail(op, f"{operand} must be {dtypes}, not {dtype_of(tensor)}")
    if not quant.per_tensor:
        fail(op, f"{operand} must have one scale, not {len(quant.scale_array)}")
    return quant


def need_rank(op: "GraphOp", operand: str, attribute: Attribute, rank: int) -> tuple[int, ...]:
    """Check the number of axes of a tensor and give its shape."""
    shape = need_tensor(op, operand, attribute).get_shape()
    if len(shape) != rank:
        fail(op, f"{operand} must have {rank} axes, not shape {dims(shape)}")
    return shape


def need_shape(op: "GraphOp", operand: str, attribute: Attribute, due: Sequence[int]) -> None:
    """Check the shape of a tensor."""
    shape = need_tensor(op, operand, attribute).get_shape()
    if shape != tuple(due):
        fail(op, f"{operand} must have shape {dims(due)}, not {dims(shape)}")


def need_ints(
    op: "GraphOp", name: str, attribute: DenseArrayBase[I64], count: int, low: int
) -> list[int]:
    """Check the length and smallest element of an array property and give it."""
    values = list(ints(attribute))
    if len(values) != count or any(v < low for v in values):
        fail(op, f"{name} must be {count} integers of at least {low}, not {values}")
    return values


def check_clamp(op: "GraphOp", clamp: DenseArrayBase[I32], tensor: GraphTensor) -> None:
    """Check that a clamp is two codes in order."""
    low, high = code_range(tensor)
    values = list(ints(clamp))
    if len(values) != 2 or not low <= values[0] <= values[1] <= high:
        fail(op, f"clamp must be two integers in order, from {low} to {high}, not {values}")


def check_scheme(op: "GraphOp", scheme: StringAttr) -> None:
    """Check that a requantisation scheme is one of `RequantScheme`."""
    known = [s.value for s in RequantScheme]
    if scheme.data not in known:
        fail(op, f"scheme must be one of {', '.join(known)}, not {scheme.data!r}")


def check_ratios(op: "GraphOp", ratios: Sequence[float]) -> None:
    """Check that requantisation factors have a Q31 multiplier."""
    limit = MULTIPLIER_MAX / 2
    worst = max(ratios)
    if worst > limit:
        fail(op, f"input scale * weight scale / output scale must be <= {limit:g}, not {worst:g}")


def window_output(extent: int, kernel: int, stride: int, dilation: int, pads: int) -> int:
    """Places of a window along one axis; below 1 when the window does not fit."""
    return (extent + pads - dilation * (kernel - 1) - 1) // stride + 1


def check_linear(op: "LinearOp") -> None:
    """Check types and arithmetic of an operator with weights and bias."""
    need_codes(op, "input", op.input.type, "int8")
    need_codes(op, "result", op.result.type, "int8")
    weight_quant = need_quant(op, "weight", op.weight.type)
    weight = need_tensor(op, "weight", op.weight.type)
    if dtype_of(weight) != np.int8:
        fail(op, f"weight must be int8, not {dtype_of(weight)}")
    if weight_quant.axis.data > 0:
        fail(op, f"weight scales must be on axis 0, not {weight_quant.axis.data}")
    if weight_quant.zero_point_array.any() and not weight_quant.per_tensor:
        fail(op, "weight must have zero points of 0 when it has a scale for each channel")
    bias = need_tensor(op, "bias", op.bias.type)
    if dtype_of(bias) != np.int32:
        fail(op, f"bias must be int32, not {dtype_of(bias)}")
    need_shape(op, "bias", op.bias.type, weight.get_shape()[:1])
    check_clamp(op, op.clamp, need_tensor(op, "result", op.result.type))
    check_scheme(op, op.scheme)
    check_ratios(op, list(op.effective_scales))


def verify_conv2d(op: "Conv2dOp") -> None:
    """Check shapes, windows, groups and arithmetic of a convolution."""
    batch, height, width, channels = need_rank(op, "input", op.input.type, 4)
    count, kernel_h, kernel_w, group_channels = need_rank(op, "weight", op.weight.type, 4)
    strides = need_ints(op, "strides", op.strides, 2, 1)
    dilations = need_ints(op, "dilations", op.dilations, 2, 1)
    top, left, bottom, right = need_ints(op, "pads", op.pads, 4, 0)
    (groups,) = need_ints(op, "groups", op.groups, 1, 1)
    if min(kernel_h, kernel_w, count, channels) < 1:
        fail(op, f"weight must not be empty, not shape {dims((count, kernel_h, kernel_w))}")
    if group_channels * groups != channels or count % groups:
        fail(
            op,
            f"weight must have input channels / groups = {channels} / {groups} channels and a "
            f"multiple of {groups} filters, not {group_channels} and {count}",
        )
    out_h = window_output(height, kernel_h, strides[0], dilations[0], top + bottom)
    out_w = window_output(width, kernel_w, strides[1], dilations[1], left + right)
    if min(out_h, out_w) < 1:
        extent = dims((height + top + bottom, width + left + right))
        fail(op, f"window {kernel_h}x{kernel_w} must fit in the padded input {extent}")
    check_linear(op)
    need_shape(op, "result", op.result.type, (batch, out_h, out_w, count))


def verify_fully_connected(op: "FullyConnectedOp") -> None:
    """Check shapes and arithmetic of a matrix product."""
    rows, depth = need_rank(op, "input", op.input.type, 2)
    count, weight_depth = need_rank(op, "weight", op.weight.type, 2)
    if depth != weight_depth:
        fail(op, f"weight must have {depth} columns as input has, not {weight_depth}")
    if min(count, depth) < 1:
        fail(op, f"weight must not be empty, not shape {dims((count, depth))}")
    check_linear(op)
    need_shape(op, "result", op.result.type, (rows, count))


def verify_pool2d(op: "MaxPool2dOp | AveragePool2dOp", dtypes: str = "int8") -> None:
    """Check windows of a pooling and that it keeps the scale of its codes."""
    batch, height, width, channels = need_rank(op, "input", op.input.type, 4)
    kernel_h, kernel_w = need_ints(op, "kernel", op.kernel, 2, 1)
    stride_h, stride_w = need_ints(op, "strides", op.strides, 2, 1)
    top, left, bottom, right = need_ints(op, "pads", op.pads, 4, 0)
    if max(top, bottom) >= kernel_h or max(left, right) >= kernel_w:
        fail(op, f"pads must be smaller than the window {kernel_h}x{kernel_w}")
    out_h = window_output(height, kernel_h, stride_h, 1, top + bottom)
    out_w = window_output(width, kernel_w, stride_w, 1, left + right)
    if min(out_h, out_w) < 1:
        extent = dims((height + top + bottom, width + left + right))
        fail(op, f"window {kernel_h}x{kernel_w} must fit in the padded input {extent}")
    quant = need_codes(op, "input", op.input.type, dtypes)
    if need_codes(op, "result", op.result.type, dtypes) != quant:
        fail(op, "result must have the scale and zero point of input")
    if type_of(op.result).element_type != type_of(op.input).element_type:
        fail(op, f"result must have the elements of input, not {type_of(op.result)}")
    check_clamp(op, op.clamp, need_tensor(op, "result", op.result.type))
    need_shape(op, "result", op.result.type, (batch, out_h, out_w, channels))


def verify_clamp(op: "ClampOp") -> None:
    """Check that a clamp keeps the type and is within its codes."""
    need_codes(op, "input", op.input.type, "int8")
    if op.result.type != op.input.type:
        fail(op, f"result must have the type of input, not {op.result.type}")
    check_clamp(op, op.clamp, need_tensor(op, "result", op.result.type))


def _check_same_elements(op: "ReshapeOp | TransposeOp") -> tuple[GraphTensor, GraphTensor]:
    x = need_tensor(op, "input", op.input.type)
    y = need_tensor(op, "result", op.result.type)
    if (x.element_type, x.encoding) != (y.element_type, y.encoding):
        fail(op, f"result must have elements and quantisation of input, not {y}")
    quant = quant_of(x)
    if quant is not None and not quant.per_tensor:
        fail(op, f"input must have one scale, not {len(quant.scale_array)}")
    return x, y


def verify_reshape(op: "ReshapeOp") -> None:
    """Check that a reshape keeps the number and kind of elements."""
    x, y = (t.get_shape() for t in _check_same_elements(op))
    if math.prod(x) != math.prod(y):
        fail(op, f"result must have {math.prod(x)} elements as input has, not shape {dims(y)}")


def verify_transpose(op: "TransposeOp") -> None:
    """Check the permutation and the shape that it gives."""
    x, y = (t.get_shape() for t in _check_same_elements(op))
    order = list(ints(op.permutation))
    if sorted(order) != list(range(len(x))):
        fail(op, f"permutation must order the axes 0 to {len(x) - 1}, not {order}")
    if y != tuple(x[axis] for axis in order):
        fail(op, f"result must have shape {dims([x[axis] for axis in order])}, not {dims(y)}")


def verify_quantize(op: "QuantizeOp") -> None:
    """Check types and rounding of a quantisation."""
    x = need_tensor(op, "input", op.input.type)
    if dtype_of(x) != np.float32:
        fail(op, f"input must be float32, not {dtype_of(x)}")
    need_codes(op, "result", op.result.type, "int8 or uint8")
    known = [r.value for r in Rounding]
    if op.rounding.data not in known:
        fail(op, f"rounding must be {' or '.join(known)}, not {op.rounding.data!r}")
    need_shape(op, "result", op.result.type, x.get_shape())


def verify_dequantize(op: "DequantizeOp") -> None:
    """Check types of a dequantisation, which may be per channel."""
    need_quant(op, "input", op.input.type)
    y = need_tensor(op, "result", op.result.type)
    if dtype_of(y) != np.float32:
        fail(op, f"result must be float32, not {dtype_of(y)}")
    need_shape(op, "input", op.input.type, y.get_shape())


def verify_requantize(op: "RequantizeOp") -> None:
    """Check types, clamp and scheme of a change of scale."""
    need_codes(op, "input", op.input.type, "int8 or uint8")
    need_codes(op, "result", op.result.type, "int8 or uint8")
    x = need_tensor(op, "input", op.input.type)
    need_shape(op, "result", op.result.type, x.get_shape())
    check_clamp(op, op.clamp, need_tensor(op, "result", op.result.type))
    check_scheme(op, op.scheme)
    check_ratios(op, [op.effective_scale])


def verify_host(op: "HostOp") -> None:
    """Check the types of a host operator and that it says why it is one."""
    for index, operand in enumerate(op.inputs):
        need_tensor(op, f"input {index}", operand.type)
    for index, result in enumerate(op.outputs):
        need_tensor(op, f"output {index}", result.type)
    if op.origin.data not in op.ORIGINS:
        fail(op, f"origin must be {' or '.join(op.ORIGINS)}, not {op.origin.data!r}")
    if set(op.why()) != {"rule", "decided_by", "remedy"}:
        fail(op, f"reason must have rule, decided_by and remedy, not {sorted(op.why())}")
