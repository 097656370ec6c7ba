"""What an instruction is: named fields in a fixed-width word, stated once.

Decoder, assembler, disassembler, the table in the documentation and the random generator all read
the same `Isa`. Encodings are ours.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from npulse.hw.spec.check import within

__all__ = ["Field", "Format", "Instruction", "Isa"]


@dataclass(frozen=True, kw_only=True)
class Field:
    """Some bits of an instruction."""

    name: str
    width: int  #: Bits.
    doc: str  #: Meaning and unit, for the table.
    signed: bool = False
    minimum: int | None = None  #: Smallest legal value where it is not that of the bits.

    @property
    def low(self) -> int:
        """Smallest legal value."""
        if self.minimum is not None:
            return self.minimum
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        """Largest legal value."""
        return (1 << (self.width - self.signed)) - 1


@dataclass(frozen=True, kw_only=True)
class Format:
    """One kind of instruction."""

    name: str
    opcode: int
    unit: str  #: Unit that carries it out.
    doc: str
    fields: tuple[Field, ...] = ()

    def field(self, name: str) -> Field:
        """Field called `name`."""
        return next(f for f in self.fields if f.name == name)


@dataclass(frozen=True)
class Instruction:
    """A format with a value for each of its fields; fields left out are at their lowest or 0."""

    format: Format
    values: Mapping[str, int]

    def __str__(self) -> str:
        values = " ".join(f"{name}={value}" for name, value in self.values.items())
        return f"{self.format.name} {values}".strip()


class Isa:
    """A set of formats that share a word.

    The opcode fills the lowest `opcode_width` bits, the fields follow upwards in their order, and
    the bits above the last are reserved and zero.
    """

    def __init__(self, *, name: str, word_bytes: int, opcode_width: int, formats: tuple) -> None:
        self.name = name
        self.word_bytes = word_bytes
        self.opcode_width = opcode_width
        self.formats: tuple[Format, ...] = formats
        self._by_name = {f.name: f for f in formats}
        self._by_opcode = {f.opcode: f for f in formats}
        for f in formats:
            within(f"opcode of {f.name}", f.opcode, 0, (1 << opcode_width) - 1)
            within(f"bits of {f.name}", self.used_bits(f), 1, 8 * word_bytes)
        if not len(self._by_name) == len(self._by_opcode) == len(formats):
            raise ValueError(f"formats of {name} must have names and opcodes of their own")

    def used_bits(self, f: Format) -> int:
        """Bits of a format from 0 up to its last field; those above are reserved."""
        return self.opcode_width + sum(field.width for field in f.fields)

    def offsets(self, f: Format) -> Iterator[tuple[Field, int]]:
        """Each field with the position of its lowest bit."""
        offset = self.opcode_width
        for field in f.fields:
            yield field, offset
            offset += field.width

    def make(self, name: str, **values: int) -> Instruction:
        """Instruction with its values checked.

        Raises
        ------
        ValueError
            Unknown instruction or field, or a value out of its field's range.
        """
        if name not in self._by_name:
            raise ValueError(f"instruction must be one of {', '.join(self._by_name)}, not {name!r}")
        f = self._by_name[name]
        names = [field.name for field in f.fields]
        for given in values:
            if given not in names:
                raise ValueError(
                    f"field of {name} must be one of {', '.join(names)}, not {given!r}"
                )
        full = {field.name: values.get(field.name, max(0, field.low)) for field in f.fields}
        for field in f.fields:
            within(f"{name}.{field.name}", full[field.name], field.low, field.high)
        return Instruction(f, full)

    def encode(self, instruction: Instruction) -> bytes:
        """Word of an instruction, little endian, `word_bytes` long."""
        word = instruction.format.opcode
        for field, offset in self.offsets(instruction.format):
            word |= (instruction.values[field.name] & ((1 << field.width) - 1)) << offset
        return word.to_bytes(self.word_bytes, "little")

    def decode(self, word: bytes) -> Instruction:
        """Instruction of a word.

        Raises
        ------
        ValueError
            Unknown opcode, reserved bits set, or a field out of range: what the core stops at.
        """
        within("bytes of an instruction", len(word), self.word_bytes, self.word_bytes)
        bits = int.from_bytes(word, "little")
        opcode = bits & ((1 << self.opcode_width) - 1)
        if opcode not in self._by_opcode:
            raise ValueError(f"opcode must be one of {sorted(self._by_opcode)}, not {opcode}")
        f = self._by_opcode[opcode]
        if bits >> self.used_bits(f):
            raise ValueError(f"bits {self.used_bits(f)} and above of {f.name} must be zero")
        values = {}
        for field, offset in self.offsets(f):
            value = bits >> offset & ((1 << field.width) - 1)
            if field.signed and value >> (field.width - 1):
                value -= 1 << field.width
            values[field.name] = value
        return self.make(f.name, **values)

    def parse(self, line: str) -> Instruction:
        """Instruction of a line such as ``ReadWeights dram_addr=4096 tiles=2``."""
        name, *pairs = line.split() or [""]
        values: dict[str, int] = {}
        for pair in pairs:
            key, _, value = pair.partition("=")
            if key in values:
                raise ValueError(f"field {key} must be given once, not again in {line.strip()!r}")
            try:
                values[key] = int(value, 0)
            except ValueError:
                raise ValueError(f"operand must be field=integer, not {pair!r}") from None
        return self.make(name, **values)

    def assemble(self, text: str) -> bytes:
        """Words of a program, one instruction a line; ``#`` starts a comment."""
        lines = (line.partition("#")[0].strip() for line in text.splitlines())
        return b"".join(self.encode(self.parse(line)) for line in lines if line)

    def disassemble(self, program: bytes) -> list[Instruction]:
        """Instructions of a program."""
        step = self.word_bytes
        return [self.decode(program[at : at + step]) for at in range(0, len(program), step)]

    def random(self, rng: Random) -> Instruction:
        """Any legal encoding, uniform over formats and over the range of each field."""
        f = rng.choice(self.formats)
        values = {field.name: rng.randint(field.low, field.high) for field in f.fields}
        return self.make(f.name, **values)

    def table(self) -> str:
        """Markdown table of all formats, for the documentation."""
        rows = [
            "| instruction | opcode | unit | field | bits | meaning |",
            "|---|---|---|---|---|---|",
        ]
        for f in self.formats:
            rows.append(f"| **{f.name}** | {f.opcode} | {f.unit} | | | {f.doc} |")
            for field, offset in self.offsets(f):
                sign = "signed, " if field.signed else ""
                bits = f"{offset + field.width - 1}:{offset}"
                rows.append(f"| | | | `{field.name}` | {bits} | {sign}{field.doc} |")
        return "\n".join(rows) + "\n"
