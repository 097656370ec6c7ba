"""TPU dialect: one operator is one instruction of the TPU v1 style.

Fields and their ranges are those of `npulse.hw.spec.tpu_v1_isa.ISA`, so the dialect cannot drift
from the encoding. An instruction prints the fields that differ from their default, and the node
of the model that it works for::

    tpu.program @npu0 {
      tpu.read_weights {dram_addr = 4096, tiles = 2} for "conv1"
      tpu.sync {units = 1}
      tpu.halt {}
    }

Rules that depend on the size of an NPU are in `npulse.sw.targets.tpu_v1.check_program`.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import ClassVar

from xdsl.dialects.builtin import (
    BytesAttr,
    DenseArrayBase,
    IntegerType,
    StringAttr,
    SymbolNameConstraint,
    i64,
)
from xdsl.ir import Block, Dialect, Operation, Region
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from npulse.hw.spec.isa import Format, Instruction
from npulse.hw.spec.tpu_v1_isa import ISA

_FORMATS: dict[str, Format] = {f.name: f for f in ISA.formats}


@lru_cache(maxsize=1 << 16)
def _decoded(name: str, values: bytes) -> dict[str, int]:
    """Fields of a format by name; passes ask for those of an instruction again and again."""
    fields = _FORMATS[name].fields
    unpacked = struct.unpack(f"<{len(values) // 8}q", values)
    return dict(zip((f.name for f in fields), unpacked, strict=True))


class InstructionOp(IRDLOperation):
    """What all instructions have in common: values of the fields of their format, in its order."""

    FORMAT: ClassVar[Format]

    values = prop_def(DenseArrayBase[IntegerType])
    node = opt_prop_def(StringAttr)

    def __init__(self, node: str | None = None, **fields: int) -> None:
        """Build from field values; fields left out are at their default.

        Raises
        ------
        ValueError
            A name that is no field of the instruction.
        """
        known = [f.name for f in self.FORMAT.fields]
        for name in fields:
            if name not in known:
                raise ValueError(
                    f"field of {self.name} must be one of {', '.join(known)}, not {name!r}"
                )
        defaults = (max(0, f.low) for f in self.FORMAT.fields)
        values = [fields.get(n, d) for n, d in zip(known, defaults, strict=True)]
        super().__init__(
            properties={
                "values": DenseArrayBase(i64, BytesAttr(struct.pack(f"<{len(values)}q", *values))),
                "node": None if node is None else StringAttr(node),
            }
        )

    @property
    def fields(self) -> dict[str, int]:
        """Value of each field by its name."""
        return dict(_decoded(self.FORMAT.name, self.values.data.data))

    @property
    def node_name(self) -> str:
        """Node of the model that the instruction works for, or nothing."""
        return self.node.data if self.node is not None else ""

    @property
    def unit(self) -> str:
        """Unit that carries the instruction out."""
        return self.FORMAT.unit

    def instruction(self) -> Instruction:
        """Instruction for the encoder; `ValueError` for a value out of range."""
        return ISA.make(self.FORMAT.name, **self.fields)

    def verify_(self) -> None:
        values = self.values.get_values()
        where = f"{self.name} {self.node_name!r}" if self.node_name else self.name
        if len(values) != len(self.FORMAT.fields):
            raise VerifyException(
                f"{where}: values must be {len(self.FORMAT.fields)}, not {len(values)}"
            )
        for field, value in zip(self.FORMAT.fields, values, strict=True):
            if not field.low <= value <= field.high:
                raise VerifyException(
                    f"{where}: {field.name} must be from {field.low} to {field.high}, not {value}"
                )

    def print(self, printer: Printer) -> None:
        """Write the fields that are not at their default."""
        given = self.fields
        shown = [f.name for f in self.FORMAT.fields if given[f.name] != max(0, f.low)]
        printer.print_string(" {" + ", ".join(f"{name} = {given[name]}" for name in shown) + "}")
        if self.node is not None:
            printer.print_string(" for ")
            printer.print_string_literal(self.node.data)

    @classmethod
    def parse(cls, parser: Parser) -> "InstructionOp":
        """Read what `print` writes; an unknown or repeated field is an error."""

        def pair() -> tuple[str, int]:
            name = parser.parse_identifier()
            parser.parse_punctuation("=")
            return name, parser.parse_integer()

        pairs = parser.parse_comma_separated_list(parser.Delimiter.BRACES, pair)
        node = parser.parse_str_literal() if parser.parse_optional_keyword("for") else None
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            parser.raise_error(f"fields of {cls.name} must be given once each")
        try:
            return cls(node, **dict(pairs))
        except ValueError as error:
            parser.raise_error(str(error))


@irdl_op_definition
class HaltOp(InstructionOp):
    """Wait for all units, then end the program."""

    name = "tpu.halt"
    FORMAT: ClassVar[Format] = _FORMATS["Halt"]


@irdl_op_definition
class SyncOp(InstructionOp):
    """Hold back later instructions until the units of a mask are done."""

    name = "tpu.sync"
    FORMAT: ClassVar[Format] = _FORMATS["Sync"]


@irdl_op_definition
class ReadHostOp(InstructionOp):
    """Copy DRAM to the unified buffer."""

    name = "tpu.read_host"
    FORMAT: ClassVar[Format] = _FORMATS["ReadHostMemory"]


@irdl_op_definition
class WriteHostOp(InstructionOp):
    """Copy the unified buffer to DRAM."""

    name = "tpu.write_host"
    FORMAT: ClassVar[Format] = _FORMATS["WriteHostMemory"]


@irdl_op_definition
class ReadWeightsOp(InstructionOp):
    """Push weight tiles into their FIFO."""

    name = "tpu.read_weights"
    FORMAT: ClassVar[Format] = _FORMATS["ReadWeights"]


@irdl_op_definition
class ReadParametersOp(InstructionOp):
    """Push requantisation parameters into their FIFO."""

    name = "tpu.read_parameters"
    FORMAT: ClassVar[Format] = _FORMATS["ReadParameters"]


@irdl_op_definition
class MatrixMultiplyOp(InstructionOp):
    """Stream rows of the unified buffer through the array into the accumulators."""

    name = "tpu.matrix_multiply"
    FORMAT: ClassVar[Format] = _FORMATS["MatrixMultiply"]


@irdl_op_definition
class ActivateOp(InstructionOp):
    """Requantise and pool accumulators into the unified buffer."""

    name = "tpu.activate"
    FORMAT: ClassVar[Format] = _FORMATS["Activate"]


_INSTRUCTIONS: tuple[type[InstructionOp], ...] = (
    HaltOp,
    SyncOp,
    ReadHostOp,
    WriteHostOp,
    ReadWeightsOp,
    ReadParametersOp,
    MatrixMultiplyOp,
    ActivateOp,
)


@irdl_op_definition
class ProgramOp(IRDLOperation):
    """Instructions of one NPU segment in the order of dispatch; the last one is the only Halt."""

    name = "tpu.program"
    sym_name = prop_def(SymbolNameConstraint())
    body = region_def("single_block")
    traits = traits_def(NoTerminator(), SymbolOpInterface())
    assembly_format = "$sym_name $body attr-dict"

    def __init__(self, name: str, instructions: Sequence[InstructionOp]) -> None:
        super().__init__(
            properties={"sym_name": StringAttr(name)}, regions=[Region(Block(instructions))]
        )

    @property
    def instructions(self) -> Iterator[InstructionOp]:
        """Instructions in order."""
        for op in self.body.block.ops:
            assert isinstance(op, InstructionOp)
            yield op

    def verify_(self) -> None:
        ops: list[Operation] = list(self.body.block.ops)
        label = f"{self.name} @{self.sym_name.data}"
        for op in ops:
            if not isinstance(op, InstructionOp):
                raise VerifyException(f"{label}: body must hold instructions only, not {op.name}")
        halts = [i for i, op in enumerate(ops) if isinstance(op, HaltOp)]
        if halts != [len(ops) - 1]:
            raise VerifyException(
                f"{label}: body must end with its only tpu.halt at {len(ops) - 1}, not {halts}"
            )


Tpu = Dialect("tpu", [ProgramOp, *_INSTRUCTIONS], [])
