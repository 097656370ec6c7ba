"""Decoder parts made from an instruction set's definition."""

from collections.abc import Iterable
from functools import reduce
from operator import and_, or_

from amaranth.hdl import Const, Value, signed
from amaranth.lib import data

from npulse.hw.spec.isa import Format, Isa

__all__ = ["format_layout", "is_legal"]


def format_layout(isa: Isa, f: Format) -> data.StructLayout:
    """Layout of the used bits of a format: the opcode and each field by name."""
    shapes = {
        field.name: signed(field.width) if field.signed else field.width for field in f.fields
    }
    return data.StructLayout({"opcode": isa.opcode_width, **shapes})


def is_legal(isa: Isa, word: Value, formats: Iterable[Format] | None = None) -> Value:
    """1 if `Isa.decode` would take the word: known opcode, reserved bits zero, no zero count.

    Field minimums other than 0 and 1 are not checked, and no instruction set here has any.
    """
    return reduce(or_, (_matches(isa, f, word) for f in formats or isa.formats), Const(0))


def _matches(isa: Isa, f: Format, word: Value) -> Value:
    used = isa.used_bits(f)
    tests = [word[: isa.opcode_width] == f.opcode]
    if used < 8 * isa.word_bytes:
        tests.append(~word[used:].any())
    for field, offset in isa.offsets(f):
        if field.minimum == 1:
            tests.append(word[offset : offset + field.width].any())
    return reduce(and_, tests)
