"""Operators of the graph dialect that average: over windows, and over whole axes."""

import math

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, StringAttr, i32, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from npulse.hw.spec.numerics import RequantScheme
from npulse.sw.ir import graph_rules as rules
from npulse.sw.ir.graph_base import FORMAT, GraphOp, IntegerOp, Ints, i32s, i64s
from npulse.sw.ir.types import GraphTensor, ints, type_of


@irdl_op_definition
class AveragePool2dOp(GraphOp):
    """Average over windows. Shapes: (B, H, W, C) to (B, Ho, Wo, C), int8 or uint8 codes.

    The sum of the codes of a window is divided by the number of its elements inside the image, to
    nearest with ties away from zero; scale and zero point stay. ``pads`` are top, left, bottom,
    right.
    """

    name = "graph.average_pool2d"
    input = operand_def()
    result = result_def()
    kernel = prop_def(DenseArrayBase.constr(i64))
    strides = prop_def(DenseArrayBase.constr(i64))
    pads = prop_def(DenseArrayBase.constr(i64))
    clamp = prop_def(DenseArrayBase.constr(i32))
    assembly_format = FORMAT

    def __init__(
        self,
        input: SSAValue,
        result: GraphTensor,
        *,
        node: str,
        kernel: Ints,
        strides: Ints = (1, 1),
        pads: Ints = (0, 0, 0, 0),
        clamp: Ints = (-128, 127),
    ) -> None:
        super().__init__(
            operands=[input],
            result_types=[result],
            properties={
                "kernel": i64s(kernel),
                "strides": i64s(strides),
                "pads": i64s(pads),
                "clamp": i32s(clamp),
                "node": StringAttr(node),
            },
        )

    @property
    def clamp_range(self) -> tuple[int, int]:
        """Smallest and largest code of the result, inclusive."""
        low, high = ints(self.clamp)
        return low, high

    def verify_(self) -> None:
        rules.verify_pool2d(self, "int8 or uint8")


@irdl_op_definition
class MeanOp(IntegerOp):
    """Mean over ``axes``, which stay with extent 1, and a change of scale.

    The requantisation factor is ``effective_scale / count`` as
    `npulse.sim.golden.reduce.mean_multiplier` writes it: one Q31 multiplier for the plain sum.
    """

    name = "graph.mean"
    input = operand_def()
    result = result_def()
    axes = prop_def(DenseArrayBase.constr(i64))
    assembly_format = FORMAT

    def __init__(
        self,
        input: SSAValue,
        result: GraphTensor,
        *,
        node: str,
        axes: Ints,
        clamp: Ints = (-128, 127),
        scheme: RequantScheme = RequantScheme.TFLITE_Q31_DOUBLE,
    ) -> None:
        super().__init__(
            operands=[input],
            result_types=[result],
            properties={
                "axes": i64s(axes),
                "clamp": i32s(clamp),
                "scheme": StringAttr(scheme.value),
                "node": StringAttr(node),
            },
        )

    @property
    def count(self) -> int:
        """Elements of the input that one element of the result averages."""
        shape = type_of(self.input).get_shape()
        return math.prod(shape[axis] for axis in ints(self.axes))

    @property
    def effective_scale(self) -> float:
        """Input scale over output scale, in double precision, without the division by count."""
        x = rules.need_quant(self, "input", self.input.type)
        y = rules.need_quant(self, "result", self.result.type)
        return float(np.float64(x.scale) / np.float64(y.scale))

    def verify_(self) -> None:
        rules.need_codes(self, "input", self.input.type, "int8")
        rules.need_codes(self, "result", self.result.type, "int8")
        shape, axes = type_of(self.input).get_shape(), list(ints(self.axes))
        if not axes or axes != sorted(set(axes)) or not 0 <= axes[0] <= axes[-1] < len(shape):
            rules.fail(self, f"axes must be ones of 0 to {len(shape) - 1} in order, not {axes}")
        due = [1 if axis in axes else extent for axis, extent in enumerate(shape)]
        rules.need_shape(self, "result", self.result.type, due)
        if not self.count:
            rules.fail(self, f"input must not be empty, not shape {rules.dims(shape)}")
        rules.check_clamp(self, self.clamp, type_of(self.result))
        rules.check_scheme(self, self.scheme)
        rules.check_ratios(self, [self.effective_scale])
