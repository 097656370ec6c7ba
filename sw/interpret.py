"""Golden interpreter of the graph dialect: what the outputs must be, independent of any hardware.

Integer operators run on `npulse.sim.golden`, host operators on `npulse.sw.host`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from npulse.hw.spec.numerics import INT8, UINT8, RequantScheme, Rounding
from npulse.sim.golden.conv import conv2d
from npulse.sim.golden.elementwise import dequantize, quantize
from npulse.sim.golden.matmul import fully_connected
from npulse.sim.golden.pool import max_pool2d
from npulse.sim.golden.requant import quantize_multipliers, requantize, requantize_f32
from npulse.sw.errors import UserError
from npulse.sw.frontends.model import Model, Weights, main_of
from npulse.sw.host import run_host
from npulse.sw.ir.graph import (
    ClampOp,
    Conv2dOp,
    DequantizeOp,
    FullyConnectedOp,
    HostOp,
    MaxPool2dOp,
    QuantizeOp,
    RequantizeOp,
    ReshapeOp,
    TransposeOp,
    WeightOp,
)
from npulse.sw.ir.graph_rules import need_quant
from npulse.sw.ir.types import dtype_of, ints, type_of
from npulse.sw.kernels import KERNELS

Array = NDArray[Any]


def interpret(
    model: Model, inputs: Mapping[str, Array], trace: dict[str, Array] | None = None
) -> dict[str, Array]:
    """Compute the outputs of a model.

    Parameters
    ----------
    inputs
        One array for each input of the model, by name, of its shape and dtype. A variable may be
        left out: it then has its first contents.
    trace
        Filled with every value of the graph by its SSA name, as printed, when given.

    Returns
    -------
    Output arrays by name. Of two outputs with one name the later wins.

    Raises
    ------
    UserError
        For an input that is missing, unknown or of another shape or dtype.
    """
    unknown = sorted(set(inputs) - {info.name for info in model.inputs})
    if unknown:
        names = ", ".join(info.name for info in model.inputs)
        raise UserError(f"input {unknown[0]} does not exist; the inputs of the model are {names}")
    arrays = []
    for info in model.inputs:
        if info.name not in inputs and info.initial is not None:
            arrays.append(model.weights[info.initial])
            continue
        if info.name not in inputs:
            raise UserError(f"input {info.name} is missing; give {info.dtype} of {info.shape}")
        problem = info.check(inputs[info.name])
        if problem is not None:
            raise UserError(problem)
        arrays.append(inputs[info.name])
    results = interpret_module(model.module, model.weights, arrays, trace)
    return {info.name: result for info, result in zip(model.outputs, results, strict=True)}


def interpret_module(
    module: ModuleOp,
    weights: Weights,
    inputs: Sequence[Array],
    trace: dict[str, Array] | None = None,
) -> list[Array]:
    """Run the one function of a graph module on arrays in the order of its arguments.

    Values that no later operator reads are dropped as it goes, unless ``trace`` keeps them.
    """
    block = main_of(module).body.block
    values: dict[SSAValue, Array] = dict(zip(block.args, inputs, strict=True))
    last_use = {operand: op for op in block.ops for operand in op.operands}
    *ops, end = block.ops
    for op in ops:
        arguments = [values[operand] for operand in op.operands]
        results = run_op(op, arguments, weights)
        for value, result in zip(op.results, results, strict=True):
            _check_result(op, value, result)
            values[value] = result
        if trace is None:
            for operand in set(op.operands):
                if last_use[operand] is op:
                    del values[operand]
    if trace is not None:
        names = ssa_names(module)
        trace.update({names[value]: array for value, array in values.items()})
    return [values[operand] for operand in end.operands]


def ssa_names(module: ModuleOp) -> dict[SSAValue, str]:
    """Names of all values of the function, without the percent sign, as the printer writes them."""
    block = main_of(module).body.block
    names: dict[SSAValue, str] = {}
    uses: dict[str, int] = {}
    unnamed = 0
    for value in (*block.args, *(result for op in block.ops for result in op.results)):
        hint = value.name_hint
        if hint is None:
            names[value], unnamed = str(unnamed), unnamed + 1
            continue
        count = uses.get(hint, 0)
        names[value] = f"{hint}_{count}" if count else hint
        uses[hint] = count + 1
    return names


def _check_result(op: Operation, value: SSAValue, result: Array) -> None:
    """Hold every kernel to the type that the IR declares."""
    tensor = type_of(value)
    if result.shape != tensor.get_shape() or result.dtype != dtype_of(tensor):
        node = getattr(op, "node_name", op.name)
        raise UserError(
            f"{op.name} node {node!r} must give {dtype_of(tensor)} of {tensor.get_shape()}, not "
            f"{result.dtype} of {result.shape}; give the model static shapes"
        )


def run_op(op: Operation, arguments: Sequence[Array], weights: Weights) -> Sequence[Array]:
    """Run one operator of the graph dialect; `TypeError` for any other operator."""
    if isinstance(op, WeightOp):
        return [weights[op.array_name]]
    if isinstance(op, HostOp):
        return run_host(op, arguments)
    kernel = _KERNELS.get(type(op))
    if kernel is None:
        raise TypeError(f"op must be an operator of the graph dialect, not {op.name}")
    return [kernel(op, *arguments)]


def _requantized(op: Conv2dOp | FullyConnectedOp, acc: Array) -> Array:
    low, high = op.clamp_range
    scheme, scales = op.requant_scheme, op.effective_scales
    zero = op.output_zero_point
    if scheme is RequantScheme.ONNX_F32_RNE:
        scale = scales.astype(np.float32)
        return requantize_f32(acc, scale, zero_point=zero, act_min=low, act_max=high)
    multiplier, shift = quantize_multipliers(scales)
    return requantize(
        acc, multiplier, shift, zero_point=zero, act_min=low, act_max=high, scheme=scheme
    )


def _conv2d(op: Conv2dOp, x: Array, w: Array, bias: Array) -> Array:
    top, left, bottom, right = ints(op.pads)
    stride_h, stride_w = ints(op.strides)
    dilation_h, dilation_w = ints(op.dilations)
    acc = conv2d(
        x,
        w,
        bias,
        stride=(stride_h, stride_w),
        dilation=(dilation_h, dilation_w),
        padding=((top, bottom), (left, right)),
        input_zero_point=op.input_zero_point,
        weight_zero_point=op.weight_zero_point,
        groups=op.group_count,
    )
    return _requantized(op, acc)


def _fully_connected(op: FullyConnectedOp, x: Array, w: Array, bias: Array) -> Array:
    acc = fully_connected(
        x,
        w,
        bias,
        input_zero_point=op.input_zero_point,
        weight_zero_point=op.weight_zero_point,
    )
    return _requantized(op, acc)


def _max_pool2d(op: MaxPool2dOp, x: Array) -> Array:
    top, left, bottom, right = ints(op.pads)
    kernel_h, kernel_w = ints(op.kernel)
    stride_h, stride_w = ints(op.strides)
    low, high = op.clamp_range
    return max_pool2d(
        x,
        (kernel_h, kernel_w),
        stride=(stride_h, stride_w),
        padding=((top, bottom), (left, right)),
        act_min=low,
        act_max=high,
    )


def _clamp(op: ClampOp, x: Array) -> Array:
    return x.clip(*op.clamp_range)


def _reshape(op: ReshapeOp, x: Array) -> Array:
    return x.reshape(type_of(op.result).get_shape())


def _transpose(op: TransposeOp, x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(ints(op.permutation)))


def _quantize(op: QuantizeOp, x: Array) -> Array:
    quant = need_quant(op, "result", op.result.type)
    out = INT8 if dtype_of(type_of(op.result)) == np.int8 else UINT8
    if np.isnan(x).any():
        raise UserError(f"{op.name} node {op.node_name!r}: its input holds NaN, which has no code")
    return quantize(x, float(quant.scale), quant.zero_point, Rounding(op.rounding.data), out)


def _dequantize(op: DequantizeOp, x: Array) -> Array:
    quant = need_quant(op, "input", op.input.type)
    if quant.per_tensor and x.dtype in (np.int8, np.uint8):
        return dequantize(x, float(quant.scale), quant.zero_point)
    shape = [1] * x.ndim
    shape[quant.axis.data if not quant.per_tensor else 0] = -1
    zeros, scales = quant.zero_point_array.reshape(shape), quant.scale_array.reshape(shape)
    return (x.astype(np.int64) - zeros).astype(np.float32) * scales


def _requantize(op: RequantizeOp, x: Array) -> Array:
    quant = need_quant(op, "input", op.input.type)
    result = need_quant(op, "result", op.result.type)
    low, high = op.clamp_range
    multiplier, shift = quantize_multipliers(np.array(op.effective_scale))
    return requantize(
        x.astype(np.int32).reshape(-1, 1) - quant.zero_point,
        multiplier,
        shift,
        zero_point=result.zero_point,
        act_min=low,
        act_max=high,
        scheme=op.requant_scheme,
        out=INT8 if dtype_of(type_of(op.result)) == np.int8 else UINT8,
    ).reshape(x.shape)


_KERNELS: dict[type[Operation], Callable[..., Array]] = {
    Conv2dOp: _conv2d,
    FullyConnectedOp: _fully_connected,
    MaxPool2dOp: _max_pool2d,
    ClampOp: _clamp,
    ReshapeOp: _reshape,
    TransposeOp: _transpose,
    QuantizeOp: _quantize,
    DequantizeOp: _dequantize,
    RequantizeOp: _requantize,
    **KERNELS,
}
