"""Splits a graph into segments for the NPU and for the host, in an order that can run.

What the NPU can carry out, and which stored value it reads for an operator, is the target's to
say. Layout operators (reshape, transpose) that only the NPU reads through are carried out by
nobody; operators whose result nobody needs are dropped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from npulse.sw.frontends.model import main_of
from npulse.sw.ir.graph import GraphOp, ReshapeOp, TransposeOp, WeightOp

__all__ = ["LAYOUT", "Partition", "Segment", "host_module", "partition"]

#: Operators that only move data.
LAYOUT = (ReshapeOp, TransposeOp)

#: Stored value that the NPU reads for an operator; None for an operator of the host.
Source = Callable[[GraphOp], SSAValue | None]


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Operators that one side carries out without the other."""

    on_npu: bool
    ops: tuple[GraphOp, ...]
    inputs: tuple[SSAValue, ...]  #: Values from outside, in order of first use.
    outputs: tuple[SSAValue, ...]  #: Values that later segments or the caller need.


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Segments in order, and the layout operators that are carried out by nobody."""

    segments: tuple[Segment, ...]
    views: tuple[GraphOp, ...]


def partition(module: ModuleOp, source: Source) -> Partition:
    """Split the one function of a graph module.

    As long as an operator of the current side is ready it goes first, so that segments are few.
    """
    ops = [op for op in main_of(module).body.block.ops if isinstance(op, GraphOp)]
    end = main_of(module).body.block.last_op
    assert isinstance(end, ReturnOp)
    reads = {op: _reads(op, source) for op in ops}
    needed = _needed(ops, end, reads)
    todo = [
        op for op in ops if not isinstance(op, WeightOp) and any(r in needed for r in op.results)
    ]
    views = [op for op in ops if isinstance(op, LAYOUT) and op not in todo and _is_read(op)]
    groups = _groups(todo, main_of(module).body.block.args, reads, source)
    final = set(end.operands)
    segments = []
    for index, (on_npu, members) in enumerate(groups):
        later = {value for _, group in groups[index + 1 :] for op in group for value in reads[op]}
        made = [value for op in members for value in op.results]
        inside = set(made)
        outside = [v for op in members for v in reads[op] if v not in inside]
        segments.append(
            Segment(
                on_npu=on_npu,
                ops=tuple(members),
                inputs=tuple(dict.fromkeys(outside)),
                outputs=tuple(v for v in made if v in later or v in final),
            )
        )
    return Partition(segments=tuple(segments), views=tuple(views))


def _reads(op: GraphOp, source: Source) -> list[SSAValue]:
    """Values other than constants that an operator reads."""
    stored = source(op)
    if stored is not None:
        return [stored]
    return [v for v in op.operands if not isinstance(v.owner, WeightOp)]


def _needed(
    ops: Sequence[GraphOp], end: ReturnOp, reads: dict[GraphOp, list[SSAValue]]
) -> set[SSAValue]:
    needed = set(end.operands)
    for op in reversed(ops):
        if any(result in needed for result in op.results):
            needed.update(reads[op])
    return needed


def _is_read(op: GraphOp) -> bool:
    return any(True for result in op.results for _ in result.uses)


def _groups(
    todo: Sequence[GraphOp],
    arguments: Sequence[SSAValue],
    reads: dict[GraphOp, list[SSAValue]],
    source: Source,
) -> list[tuple[bool, list[GraphOp]]]:
    ready, left = set(arguments), list(todo)
    groups: list[tuple[bool, list[GraphOp]]] = []
    on_npu = False
    while left:
        members = []
        for op in left:
            if (source(op) is not None) == on_npu and ready.issuperset(reads[op]):
                members.append(op)
                ready.update(op.results)
        if members:
            groups.append((on_npu, members))
            taken = set(members)
            left = [op for op in left if op not in taken]
        on_npu = not on_npu
    return groups


def host_module(segment: Segment) -> ModuleOp:
    """Graph module of a host segment: its ``main`` takes the inputs and returns the outputs."""
    block = Block(arg_types=[value.type for value in segment.inputs])
    mapped: dict[SSAValue, SSAValue] = dict(zip(segment.inputs, block.args, strict=True))
    for value, argument in zip(segment.inputs, block.args, strict=True):
        argument.name_hint = value.name_hint
    for op in segment.ops:
        for operand in op.operands:
            if isinstance(operand.owner, WeightOp) and operand not in mapped:
                weight = operand.owner.clone()
                block.add_op(weight)
                mapped[operand] = weight.result
        block.add_op(op.clone(mapped))
    results = [mapped[value] for value in segment.outputs]
    block.add_op(ReturnOp(*results))
    signature = FunctionType.from_lists([v.type for v in segment.inputs], [v.type for v in results])
    return ModuleOp([FuncOp("main", signature, Region([block]))])
