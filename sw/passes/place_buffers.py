"""Gives each buffer of a tile program its rows in the unified buffer."""

from dataclasses import dataclass

from npulse.sw.ir.tile import BufferOp, ConvPassOp, ProgramOp
from npulse.sw.passes.allocate import Allocation, Interval, allocate

__all__ = ["DoesNotFit", "place_buffers"]


@dataclass
class DoesNotFit(Exception):
    """The buffers of a program need more rows than the memory has."""

    node: str  #: Node that works while most rows are in use.
    needed_rows: int  #: Rows that the best placement found needs.
    capacity_rows: int

    def __str__(self) -> str:
        return (
            f"node {self.node!r} must find its tensors within {self.capacity_rows} rows of the "
            f"unified buffer, not {self.needed_rows}"
        )


def place_buffers(program: ProgramOp, capacity_rows: int) -> Allocation:
    """Place all buffers from row 0; each lives from its first to its last user.

    Raises
    ------
    DoesNotFit
        More than `capacity_rows` rows are needed.
    """
    ops = list(program.ops)
    step = {op: index for index, op in enumerate(ops)}
    buffers = [op for op in ops if isinstance(op, BufferOp)]
    intervals = [_lifetime(op, step) for op in buffers]
    allocation = allocate(intervals)
    if allocation.peak_rows > capacity_rows:
        raise DoesNotFit(_busiest(ops, intervals), allocation.peak_rows, capacity_rows)
    for op, base in zip(buffers, allocation.bases, strict=True):
        op.place(base)
    return allocation


def _lifetime(op: BufferOp, step: dict) -> Interval:
    users = [step[use.operation] for use in op.result.uses]
    return Interval(rows=op.row_count, first=min(users, default=0), last=max(users, default=0))


def _busiest(ops: list, intervals: list[Interval]) -> str:
    """Node of the operator during which most rows are in use."""
    steps = [s for s, op in enumerate(ops) if isinstance(op, ConvPassOp)]
    live = {s: sum(i.rows for i in intervals if i.first <= s <= i.last) for s in steps}
    return ops[max(live, key=lambda s: live[s])].label
