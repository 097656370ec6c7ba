"""Golden kernels of the operators that no matrix unit runs: one function an operator of the graph.

`npulse.sw.interpret` has the kernels of convolutions, products and changes of type.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from npulse.hw.spec.numerics import quantize_multiplier
from npulse.sim.golden.binary import mul, prelu, sub
from npulse.sim.golden.elementwise import AddParameters, add
from npulse.sim.golden.lut import lookup
from npulse.sim.golden.matmul import matmul
from npulse.sim.golden.movement import pad, resize_nearest, strided_slice
from npulse.sim.golden.pool import average_pool2d
from npulse.sim.golden.reduce import mean
from npulse.sim.golden.requant import quantize_multipliers, requantize
from npulse.sim.golden.transpose_conv import transpose_conv2d
from npulse.sw.ir.graph_base import IntegerOp
from npulse.sw.ir.graph_elementwise import (
    AddOp,
    LutOp,
    MaximumOp,
    MinimumOp,
    MulOp,
    PreluOp,
    SubOp,
)
from npulse.sw.ir.graph_matrix import BatchMatmulOp, TransposeConv2dOp
from npulse.sw.ir.graph_move import ConcatOp, PadOp, ResizeNearestOp, SliceOp
from npulse.sw.ir.graph_pool import AveragePool2dOp, MeanOp
from npulse.sw.ir.graph_rules import need_quant
from npulse.sw.ir.types import ints, type_of

Array = NDArray[Any]


def _average_pool2d(op: AveragePool2dOp, x: Array) -> Array:
    top, left, bottom, right = ints(op.pads)
    kernel_h, kernel_w = ints(op.kernel)
    stride_h, stride_w = ints(op.strides)
    low, high = op.clamp_range
    return average_pool2d(
        x,
        (kernel_h, kernel_w),
        stride=(stride_h, stride_w),
        padding=((top, bottom), (left, right)),
        act_min=low,
        act_max=high,
    )


def _mean(op: MeanOp, x: Array) -> Array:
    low, high = op.clamp_range
    return mean(
        x,
        ints(op.axes),
        op.effective_scale,
        input_zero_point=need_quant(op, "input", op.input.type).zero_point,
        zero_point=need_quant(op, "result", op.result.type).zero_point,
        act_min=low,
        act_max=high,
    )


def _sum(kernel: Callable[..., Array]) -> Callable[[AddOp | SubOp, Array, Array], Array]:
    def run(op: AddOp | SubOp, a: Array, b: Array) -> Array:
        x, y, result = op.quants
        low, high = op.clamp_range
        return kernel(
            a,
            b,
            AddParameters.from_scales(float(x.scale), float(y.scale), float(result.scale)),
            a_zero_point=x.zero_point,
            b_zero_point=y.zero_point,
            zero_point=result.zero_point,
            act_min=low,
            act_max=high,
        )

    return run


def _mul(op: MulOp, a: Array, b: Array) -> Array:
    x, y, result = op.quants
    low, high = op.clamp_range
    multiplier, shift = quantize_multiplier(op.effective_scale)
    return mul(
        a,
        b,
        multiplier,
        shift,
        a_zero_point=x.zero_point,
        b_zero_point=y.zero_point,
        zero_point=result.zero_point,
        act_min=low,
        act_max=high,
    )


def _prelu(op: PreluOp, x: Array, alpha: Array) -> Array:
    source, slope, result = op.quants
    return prelu(
        x,
        alpha,
        x_scale=float(source.scale),
        alpha_scale=float(slope.scale),
        scale=float(result.scale),
        x_zero_point=source.zero_point,
        alpha_zero_point=slope.zero_point,
        zero_point=result.zero_point,
    ).clip(*op.clamp_range)


def _minimum(op: MinimumOp, a: Array, b: Array) -> Array:
    return np.minimum(a, b).clip(*op.clamp_range)


def _maximum(op: MaximumOp, a: Array, b: Array) -> Array:
    return np.maximum(a, b).clip(*op.clamp_range)


def _lut(op: LutOp, x: Array, table: Array) -> Array:
    return lookup(x, table)


def _pad(op: PadOp, x: Array) -> Array:
    return pad(x, op.before, op.after, op.pad_value)


def _concat(op: ConcatOp, *inputs: Array) -> Array:
    return np.concatenate(inputs, axis=op.along)


def _slice(op: SliceOp, x: Array) -> Array:
    return strided_slice(x, ints(op.starts), ints(op.steps), type_of(op.result).get_shape())


def _resize_nearest(op: ResizeNearestOp, x: Array) -> Array:
    _, height, width, _ = type_of(op.result).get_shape()
    (corners,), (half_pixel,) = ints(op.corners), ints(op.half_pixel)
    return resize_nearest(
        x, (height, width), align_corners=bool(corners), half_pixel=bool(half_pixel)
    )


def _finish(op: IntegerOp, acc: Array, scales: Any, zero_point: int) -> Array:
    multiplier, shift = quantize_multipliers(scales)
    low, high = op.clamp_range
    return requantize(
        acc,
        multiplier,
        shift,
        zero_point=zero_point,
        act_min=low,
        act_max=high,
        scheme=op.requant_scheme,
    )


def _transpose_conv2d(op: TransposeConv2dOp, x: Array, w: Array, bias: Array) -> Array:
    _, height, width, _ = type_of(op.result).get_shape()
    stride_h, stride_w = ints(op.strides)
    top, left = ints(op.pads)
    acc = transpose_conv2d(
        x,
        w,
        bias,
        size=(height, width),
        stride=(stride_h, stride_w),
        before=(top, left),
        input_zero_point=op.input_zero_point,
    )
    return _finish(op, acc, op.effective_scales, op.output_zero_point)


def _batch_matmul(op: BatchMatmulOp, a: Array, b: Array) -> Array:
    flip_a, flip_b = ints(op.adjoint)
    acc = matmul(
        a.swapaxes(-1, -2) if flip_a else a,
        b.swapaxes(-1, -2) if flip_b else b,
        a_zero_point=need_quant(op, "a", op.a.type).zero_point,
        b_zero_point=need_quant(op, "b", op.b.type).zero_point,
    )
    zero_point = need_quant(op, "result", op.result.type).zero_point
    return _finish(op, acc, op.effective_scale, zero_point)


#: Kernel of each operator; arguments are the operator and its operands.
KERNELS: dict[type[Operation], Callable[..., Array]] = {
    AveragePool2dOp: _average_pool2d,
    MeanOp: _mean,
    AddOp: _sum(add),
    SubOp: _sum(sub),
    MulOp: _mul,
    PreluOp: _prelu,
    MinimumOp: _minimum,
    MaximumOp: _maximum,
    LutOp: _lut,
    PadOp: _pad,
    ConcatOp: _concat,
    SliceOp: _slice,
    ResizeNearestOp: _resize_nearest,
    TransposeConv2dOp: _transpose_conv2d,
    BatchMatmulOp: _batch_matmul,
}
