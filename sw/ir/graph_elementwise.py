"""Operators of the graph dialect on single elements: two operands, and tables of one byte.

Operands broadcast as in numpy. ``graph.lut`` holds every function from a byte to a byte: logistic,
tanh, leaky ReLU, hard-swish, GELU, a change of scale in float. Its table is an array of the model,
computed at import.
"""

from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, StringAttr, i32
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from npulse.hw.spec.numerics import RequantScheme
from npulse.sw.ir import graph_rules as rules
from npulse.sw.ir.graph_base import FORMAT, GraphOp, Ints, i32s
from npulse.sw.ir.types import GraphTensor, QuantAttr, ints, type_of


class BinaryOp(GraphOp):
    """Operator on two int8 tensors with scales of their own, and a clamp of the result."""

    a = operand_def()
    b = operand_def()
    result = result_def()
    clamp = prop_def(DenseArrayBase.constr(i32))

    #: Whether both operands and the result have one scale and zero point.
    SAME_SCALE: ClassVar[bool] = False

    def __init__(
        self,
        a: SSAValue,
        b: SSAValue,
        result: GraphTensor,
        *,
        node: str,
        clamp: Ints = (-128, 127),
    ) -> None:
        super().__init__(
            operands=[a, b],
            result_types=[result],
            properties={"clamp": i32s(clamp), "node": StringAttr(node)},
        )

    @property
    def clamp_range(self) -> tuple[int, int]:
        """Smallest and largest code of the result, inclusive."""
        low, high = ints(self.clamp)
        return low, high

    @property
    def requant_scheme(self) -> RequantScheme:
        """Rounding of every scaling in it."""
        return RequantScheme.TFLITE_Q31_DOUBLE

    @property
    def quants(self) -> tuple[QuantAttr, QuantAttr, QuantAttr]:
        """Quantisation of both operands and of the result."""
        a = rules.need_quant(self, "a", self.a.type)
        b = rules.need_quant(self, "b", self.b.type)
        return a, b, rules.need_quant(self, "result", self.result.type)

    def verify_(self) -> None:
        for name, value in (("a", self.a), ("b", self.b), ("result", self.result)):
            rules.need_codes(self, name, SSAValue.get(value).type, "int8")
        shapes = [type_of(value).get_shape() for value in (self.a, self.b)]
        try:
            due = np.broadcast_shapes(*shapes)
        except ValueError:
            rules.fail(
                self,
                f"a and b must have shapes that broadcast, not {rules.dims(shapes[0])} and "
                f"{rules.dims(shapes[1])}",
            )
        rules.need_shape(self, "result", self.result.type, due)
        rules.check_clamp(self, self.clamp, type_of(self.result))
        if self.SAME_SCALE and len(set(self.quants)) > 1:
            rules.fail(self, "a, b and result must have one scale and zero point")


@irdl_op_definition
class AddOp(BinaryOp):
    """Sum as `npulse.sim.golden.elementwise.add` computes it."""

    name = "graph.add"
    assembly_format = FORMAT


@irdl_op_definition
class SubOp(BinaryOp):
    """Difference ``a - b`` as `npulse.sim.golden.binary.sub` computes it."""

    name = "graph.sub"
    assembly_format = FORMAT


@irdl_op_definition
class MulOp(BinaryOp):
    """Product: ``(a - za) * (b - zb)`` requantised by ``effective_scale``."""

    name = "graph.mul"
    assembly_format = FORMAT

    @property
    def effective_scale(self) -> float:
        """Factor from product to output, formed in float32 as TFLite does."""
        a, b, result = self.quants
        return float(a.scale * b.scale / result.scale)

    def verify_(self) -> None:
        super().verify_()
        rules.check_ratios(self, [self.effective_scale])


@irdl_op_definition
class PreluOp(BinaryOp):
    """``a`` at and above real zero, ``a * b`` below, each requantised to the result."""

    name = "graph.prelu"
    assembly_format = FORMAT

    def verify_(self) -> None:
        super().verify_()
        a, b, result = self.quants
        product = float(a.scale * b.scale / result.scale)
        rules.check_ratios(self, [float(a.scale / result.scale), product])


@irdl_op_definition
class MinimumOp(BinaryOp):
    """Smaller code of two tensors of one scale."""

    name = "graph.minimum"
    SAME_SCALE: ClassVar[bool] = True
    assembly_format = FORMAT


@irdl_op_definition
class MaximumOp(BinaryOp):
    """Larger code of two tensors of one scale."""

    name = "graph.maximum"
    SAME_SCALE: ClassVar[bool] = True
    assembly_format = FORMAT


@irdl_op_definition
class LutOp(GraphOp):
    """Replace each code by an entry of a table, ``y = table[x - smallest code]``.

    ``table`` is (256,) of the element type of the result; ``function`` says what it tabulates.
    """

    name = "graph.lut"
    input = operand_def()
    table = operand_def()
    result = result_def()
    function = prop_def(StringAttr)
    assembly_format = FORMAT

    def __init__(
        self, input: SSAValue, table: SSAValue, result: GraphTensor, *, node: str, function: str
    ) -> None:
        super().__init__(
            operands=[input, table],
            result_types=[result],
            properties={"function": StringAttr(function), "node": StringAttr(node)},
        )

    def verify_(self) -> None:
        rules.need_codes(self, "input", self.input.type, "int8 or uint8")
        rules.need_codes(self, "result", self.result.type, "int8 or uint8")
        rules.need_shape(self, "table", self.table.type, (256,))
        if type_of(self.table).element_type != type_of(self.result).element_type:
            rules.fail(self, f"table must have the elements of result, not {self.table.type}")
        shape = type_of(self.input).get_shape()
        rules.need_shape(self, "result", self.result.type, shape)
