"""Operators of the graph dialect that only move elements, of any type: pad, concatenate, slice."""

from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase, StringAttr, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, var_operand_def

from npulse.sw.ir import graph_rules as rules
from npulse.sw.ir.graph_base import FORMAT, GraphOp, Ints, i64s
from npulse.sw.ir.types import GraphTensor, dtype_of, ints, type_of


def _need_same_kind(op: GraphOp, operand: str, value: SSAValue, result: SSAValue) -> None:
    """Check that elements keep type and quantisation on their way."""
    x = rules.need_tensor(op, operand, value.type)
    y = rules.need_tensor(op, "result", result.type)
    if (x.element_type, x.encoding) != (y.element_type, y.encoding):
        rules.fail(op, f"result must have elements and quantisation of {operand}, not {y}")


@irdl_op_definition
class PadOp(GraphOp):
    """Surround a tensor with ``value``, a code; ``pads`` are before and after each axis, in turn.

    A convolution or pooling that reads it may take it over as its own padding if ``value`` is the
    code of real zero.
    """

    name = "graph.pad"
    input = operand_def()
    result = result_def()
    pads = prop_def(DenseArrayBase.constr(i64))
    value = prop_def(DenseArrayBase.constr(i64))
    assembly_format = FORMAT

    def __init__(
        self, input: SSAValue, result: GraphTensor, *, node: str, pads: Ints, value: int
    ) -> None:
        super().__init__(
            operands=[input],
            result_types=[result],
            properties={"pads": i64s(pads), "value": i64s([value]), "node": StringAttr(node)},
        )

    @property
    def pad_value(self) -> int:
        """Code of the elements that are added."""
        return ints(self.value)[0]

    @property
    def before(self) -> tuple[int, ...]:
        """Elements added before each axis."""
        return ints(self.pads)[::2]

    @property
    def after(self) -> tuple[int, ...]:
        """Elements added after each axis."""
        return ints(self.pads)[1::2]

    def verify_(self) -> None:
        _need_same_kind(self, "input", SSAValue.get(self.input), self.result)
        shape = type_of(self.input).get_shape()
        rules.need_ints(self, "pads", self.pads, 2 * len(shape), 0)
        if len(ints(self.value)) != 1:
            rules.fail(self, f"value must be one integer, not {list(ints(self.value))}")
        tensor = type_of(self.result)
        low, high = (0, 0) if dtype_of(tensor).kind not in "iu" else rules.code_range(tensor)
        if not low <= self.pad_value <= high:
            rules.fail(self, f"value must be from {low} to {high}, not {self.pad_value}")
        sides = zip(shape, self.before, self.after, strict=True)
        rules.need_shape(self, "result", self.result.type, [sum(s) for s in sides])


@irdl_op_definition
class ConcatOp(GraphOp):
    """Join tensors of one scale and zero point along ``axis``."""

    name = "graph.concat"
    inputs = var_operand_def()
    result = result_def()
    axis = prop_def(DenseArrayBase.constr(i64))
    assembly_format = FORMAT

    def __init__(
        self, inputs: Sequence[SSAValue], result: GraphTensor, *, node: str, axis: int
    ) -> None:
        super().__init__(
            operands=[list(inputs)],
            result_types=[result],
            properties={"axis": i64s([axis]), "node": StringAttr(node)},
        )

    @property
    def along(self) -> int:
        """Axis along which the inputs follow each other."""
        return ints(self.axis)[0]

    def verify_(self) -> None:
        if not self.inputs:
            rules.fail(self, "inputs must be at least 1, not 0")
        due = list(rules.need_tensor(self, "result", self.result.type).get_shape())
        rules.need_ints(self, "axis", self.axis, 1, 0)
        if self.along >= len(due):
            rules.fail(self, f"axis must be one of 0 to {len(due) - 1}, not {self.along}")
        total = 0
        for index, value in enumerate(self.inputs):
            _need_same_kind(self, f"input {index}", value, self.result)
            shape = list(type_of(value).get_shape())
            extent = shape[self.along] if len(shape) == len(due) else 0
            total += extent
            others = [*due[: self.along], extent, *due[self.along + 1 :]]
            rules.need_shape(self, f"input {index}", value.type, others)
        if total != due[self.along]:
            rules.fail(
                self, f"inputs must have {due[self.along]} elements on the axis, not {total}"
            )


@irdl_op_definition
class SliceOp(GraphOp):
    """Take ``input[start], input[start + step], ...`` on each axis; the result says how many."""

    name = "graph.slice"
    input = operand_def()
    result = result_def()
    starts = prop_def(DenseArrayBase.constr(i64))
    steps = prop_def(DenseArrayBase.constr(i64))
    assembly_format = FORMAT

    def __init__(
        self, input: SSAValue, result: GraphTensor, *, node: str, starts: Ints, steps: Ints
    ) -> None:
        super().__init__(
            operands=[input],
            result_types=[result],
            properties={"starts": i64s(starts), "steps": i64s(steps), "node": StringAttr(node)},
        )

    def verify_(self) -> None:
        _need_same_kind(self, "input", SSAValue.get(self.input), self.result)
        x, y = type_of(self.input).get_shape(), type_of(self.result).get_shape()
        starts, steps = list(ints(self.starts)), list(ints(self.steps))
        if not len(x) == len(y) == len(starts) == len(steps):
            rules.fail(self, f"starts, steps and result must have {len(x)} axes as input has")
        for axis, (extent, count, start, step) in enumerate(zip(x, y, starts, steps, strict=True)):
            last = start + step * (count - 1)
            if step == 0 or (count and not (0 <= start < extent and 0 <= last < extent)):
                rules.fail(
                    self,
                    f"axis {axis} must be cut from its {extent} elements, not from {start} in "
                    f"{count} steps of {step}",
                )


@irdl_op_definition
class ResizeNearestOp(GraphOp):
    """Copy the nearest pixel. Shapes: (B, H, W, C) to (B, Ho, Wo, C).

    ``corners`` is 1 if the corners of both images lie on each other, ``half_pixel`` 1 if positions
    are those of pixel centres; `npulse.sim.golden.movement.nearest_indices` has the formula.
    """

    name = "graph.resize_nearest"
    input = operand_def()
    result = result_def()
    corners = prop_def(DenseArrayBase.constr(i64))
    half_pixel = prop_def(DenseArrayBase.constr(i64))
    assembly_format = FORMAT

    def __init__(
        self,
        input: SSAValue,
        result: GraphTensor,
        *,
        node: str,
        corners: bool = False,
        half_pixel: bool = False,
    ) -> None:
        super().__init__(
            operands=[input],
            result_types=[result],
            properties={
                "corners": i64s([corners]),
                "half_pixel": i64s([half_pixel]),
                "node": StringAttr(node),
            },
        )

    def verify_(self) -> None:
        _need_same_kind(self, "input", SSAValue.get(self.input), self.result)
        batch, *_, channels = rules.need_rank(self, "input", self.input.type, 4)
        height, width = rules.need_rank(self, "result", self.result.type, 4)[1:3]
        rules.need_shape(self, "result", self.result.type, (batch, height, width, channels))
        for name, flag in (("corners", self.corners), ("half_pixel", self.half_pixel)):
            if ints(flag) not in ((0,), (1,)):
                rules.fail(self, f"{name} must be 0 or 1, not {list(ints(flag))}")
