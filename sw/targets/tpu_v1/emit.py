"""Encodes TPU instructions as the bytes that the core fetches."""

from npulse.hw.spec.tpu_v1_isa import ISA
from npulse.sw.ir.tpu import ProgramOp

__all__ = ["emit"]


def emit(program: ProgramOp) -> bytes:
    """Instruction words of a program; `ValueError` for a field out of range."""
    return b"".join(ISA.encode(op.instruction()) for op in program.instructions)
