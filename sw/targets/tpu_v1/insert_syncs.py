"""Orders the units through the unified buffer: inserts Sync where one unit waits for another.

Hardware orders matrix and activate on the accumulators, and each unit carries out its own
instructions in order. So of all conflicts on rows of the buffer only these need a Sync:

* matrix reads what activate or host wrote;
* host reads what activate wrote, or writes what activate wrote or matrix may still read;
* activate writes what host wrote or may still read.

Activate never has to wait for matrix: it starts after the matrix multiply on its accumulators,
which is later than every other one that was dispatched before it.
"""

from xdsl.rewriter import InsertPoint, Rewriter

from npulse.hw.spec.tpu_v1_isa import UNITS
from npulse.sw.ir.tpu import InstructionOp, ProgramOp, SyncOp
from npulse.sw.targets.tpu_v1.rows import Span, buffer_reads, buffer_writes

__all__ = ["conflicts", "insert_syncs"]

#: For each unit, the units whose unfinished writes (reads) its reads (writes) must wait for.
_AFTER_WRITE = {"matrix": ("activate", "host"), "host": ("activate",), "activate": ("host",)}
_AFTER_READ = {"host": ("matrix",), "activate": ("host",)}


class _Pending:
    """Rows that instructions under way may still read or write, by unit."""

    def __init__(self) -> None:
        self.reads: dict[str, list[Span]] = {}
        self.writes: dict[str, list[Span]] = {}

    def add(self, op: InstructionOp) -> None:
        for spans, span in ((self.reads, buffer_reads(op)), (self.writes, buffer_writes(op))):
            if span is not None:
                spans.setdefault(op.unit, []).append(span)

    def finish(self, mask: int) -> None:
        for unit, bit in UNITS.items():
            if mask & bit:
                self.reads.pop(unit, None)
                self.writes.pop(unit, None)

    def waits(self, op: InstructionOp) -> int:
        """Mask of the units that must finish before an instruction may start."""
        mask = 0
        read, write = buffer_reads(op), buffer_writes(op)
        for unit in _AFTER_WRITE.get(op.unit, ()):
            for span in (read, write):
                if span is not None and _meets(self.writes.get(unit, ()), span):
                    mask |= UNITS[unit]
        for unit in _AFTER_READ.get(op.unit, ()):
            if write is not None and _meets(self.reads.get(unit, ()), write):
                mask |= UNITS[unit]
        return mask


def _meets(spans: "list[Span] | tuple[()]", span: Span) -> bool:
    return any(s.meets(span) for s in spans)


def insert_syncs(program: ProgramOp) -> None:
    """Insert the Syncs that a program needs before the instructions that need them."""
    pending = _Pending()
    for op in list(program.instructions):
        mask = pending.waits(op)
        if mask:
            Rewriter.insert_op(SyncOp(op.node_name or None, units=mask), InsertPoint.before(op))
            pending.finish(mask)
        if isinstance(op, SyncOp):
            pending.finish(op.fields["units"])
        pending.add(op)


def conflicts(program: ProgramOp) -> list[str]:
    """One sentence for each instruction that starts too early; none in a correct program."""
    pending, found = _Pending(), []
    names = {bit: unit for unit, bit in UNITS.items()}
    for index, op in enumerate(program.instructions):
        mask = pending.waits(op)
        if mask:
            units = " and ".join(name for bit, name in names.items() if mask & bit)
            found.append(f"instruction {index}, {op.name}, must come after a Sync of {units}")
        if isinstance(op, SyncOp):
            pending.finish(op.fields["units"])
        pending.add(op)
    return found
