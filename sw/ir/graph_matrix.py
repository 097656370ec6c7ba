"""Operators of the graph dialect that multiply matrices and are no plain convolution."""

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, StringAttr, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from npulse.hw.spec.numerics import RequantScheme
from npulse.sw.ir import graph_rules as rules
from npulse.sw.ir.graph_base import FORMAT, IntegerOp, Ints, LinearOp, i32s, i64s
from npulse.sw.ir.types import GraphTensor, ints, type_of


@irdl_op_definition
class TransposeConv2dOp(LinearOp):
    """Transposed convolution with bias, requantisation and clamp.

    Shapes: input (B, H, W, Cin), weight (N, Kh, Kw, Cin), bias (N,) int32, result (B, Ho, Wo, N).
    ``pads`` are the rows and columns cut off at the top and left; the result says how many stay.
    """

    name = "graph.transpose_conv2d"
    strides = prop_def(DenseArrayBase.constr(i64))
    pads = prop_def(DenseArrayBase.constr(i64))
    assembly_format = FORMAT

    def __init__(
        self,
        input: SSAValue,
        weight: SSAValue,
        bias: SSAValue,
        result: GraphTensor,
        *,
        node: str,
        strides: Ints = (1, 1),
        pads: Ints = (0, 0),
        clamp: Ints = (-128, 127),
        scheme: RequantScheme = RequantScheme.TFLITE_Q31_DOUBLE,
    ) -> None:
        super().__init__(
            operands=[input, weight, bias],
            result_types=[result],
            properties={
                "strides": i64s(strides),
                "pads": i64s(pads),
                "clamp": i32s(clamp),
                "scheme": StringAttr(scheme.value),
                "node": StringAttr(node),
            },
        )

    def verify_(self) -> None:
        batch, *_, channels = rules.need_rank(self, "input", self.input.type, 4)
        count, *_, depth = rules.need_rank(self, "weight", self.weight.type, 4)
        size = rules.need_rank(self, "result", self.result.type, 4)[1:3]
        if depth != channels:
            rules.fail(self, f"weight must have {channels} channels as input has, not {depth}")
        rules.need_ints(self, "strides", self.strides, 2, 1)
        rules.need_ints(self, "pads", self.pads, 2, 0)
        rules.check_linear(self)
        if self.weight_quant.zero_point_array.any():
            rules.fail(self, "weight must have zero points of 0")
        rules.need_shape(self, "result", self.result.type, (batch, *size, count))


@irdl_op_definition
class BatchMatmulOp(IntegerOp):
    """Matrix products of two activations, requantised and clamped.

    Shapes: a (..., M, K), b (..., K, N), result (..., M, N); leading axes broadcast. An operand
    whose matrices are stored the other way round is marked in ``adjoint``, 1 for a and for b.
    """

    name = "graph.batch_matmul"
    a = operand_def()
    b = operand_def()
    result = result_def()
    adjoint = prop_def(DenseArrayBase.constr(i64))
    assembly_format = FORMAT

    def __init__(
        self,
        a: SSAValue,
        b: SSAValue,
        result: GraphTensor,
        *,
        node: str,
        adjoint: Ints = (0, 0),
        clamp: Ints = (-128, 127),
        scheme: RequantScheme = RequantScheme.TFLITE_Q31_DOUBLE,
    ) -> None:
        super().__init__(
            operands=[a, b],
            result_types=[result],
            properties={
                "adjoint": i64s(adjoint),
                "clamp": i32s(clamp),
                "scheme": StringAttr(scheme.value),
                "node": StringAttr(node),
            },
        )

    @property
    def effective_scale(self) -> float:
        """Factor from accumulator to output; the scales are multiplied in float32 as in TFLite."""
        a = rules.need_quant(self, "a", self.a.type)
        b = rules.need_quant(self, "b", self.b.type)
        result = rules.need_quant(self, "result", self.result.type)
        return float(np.float64(a.scale * b.scale) / np.float64(result.scale))

    def verify_(self) -> None:
        shapes = []
        rules.need_ints(self, "adjoint", self.adjoint, 2, 0)
        for name, value, flip in zip(("a", "b"), (self.a, self.b), ints(self.adjoint), strict=True):
            rules.need_codes(self, name, SSAValue.get(value).type, "int8")
            shape = type_of(value).get_shape()
            if len(shape) < 2:
                rules.fail(self, f"{name} must have at least 2 axes, not {rules.dims(shape)}")
            shapes.append((*shape[:-2], shape[-1], shape[-2]) if flip else shape)
        rules.need_codes(self, "result", self.result.type, "int8")
        (*_, rows, depth), (*_, b_depth, columns) = shapes
        if depth != b_depth or not depth:
            rules.fail(self, f"a and b must have one K of at least 1, not {depth} and {b_depth}")
        try:
            batch = np.broadcast_shapes(shapes[0][:-2], shapes[1][:-2])
        except ValueError:
            rules.fail(self, "a and b must have leading axes that broadcast")
        rules.need_shape(self, "result", self.result.type, (*batch, rows, columns))
        rules.check_clamp(self, self.clamp, type_of(self.result))
        rules.check_scheme(self, self.scheme)
        rules.check_ratios(self, [self.effective_scale])
