"""Buffers of the tile dialect, and what its operators have in common."""

import struct
from collections.abc import Sequence
from typing import NoReturn

from xdsl.dialects.builtin import (
    I64,
    BytesAttr,
    DenseArrayBase,
    IntAttr,
    IntegerAttr,
    StringAttr,
    i64,
)
from xdsl.ir import ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_attr_definition,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    result_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from npulse.sw.errors import shorten

#: The one memory of the TPU v1 style in which buffers live.
UNIFIED_BUFFER = "unified_buffer"

Number = IntegerAttr[I64]
PairAttr = DenseArrayBase[I64]


def number_attr(value: int) -> Number:
    """Attribute of one integer."""
    return IntegerAttr(value, i64)


def pair_attr(values: Sequence[int]) -> PairAttr:
    """Attribute of integers for y and x."""
    return DenseArrayBase(i64, BytesAttr(struct.pack(f"<{len(values)}q", *values)))


@irdl_attr_definition
class BufferType(ParametrizedAttribute, TypeAttribute):
    """Tensor (H, W, C) of bytes in a memory of lanes: a row holds one block of channels."""

    name = "tile.buffer"
    height: IntAttr
    width: IntAttr
    channels: IntAttr

    @staticmethod
    def of(shape: tuple[int, int, int]) -> "BufferType":
        """Build from a shape (H, W, C)."""
        return BufferType(*(IntAttr(n) for n in shape))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        return self.height.data, self.width.data, self.channels.data

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(", ".join(map(str, self.shape)))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[IntAttr]:
        sizes = parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parser.parse_integer)
        if len(sizes) != 3:
            parser.raise_error(f"buffer must have 3 sizes, not {len(sizes)}")
        return [IntAttr(n) for n in sizes]

    def verify(self) -> None:
        if min(self.shape) < 1:
            raise VerifyException(f"sizes of a buffer must be at least 1, not {self.shape}")


class TileOp(IRDLOperation):
    """What the operators of the dialect have in common."""

    irdl_options = (ParsePropInAttrDict(),)

    @property
    def label(self) -> str:
        """What the operator works on, for messages."""
        return ""

    def fail(self, sentence: str) -> NoReturn:
        """Raise `VerifyException` that names the operator and what it works on."""
        raise VerifyException(f"{self.name} {shorten(self.label)!r}: {sentence}")

    def number(self, name: str, default: int = 0) -> int:
        """Value of a property that is one integer; the default where it is absent."""
        attribute = self.properties.get(name)
        if attribute is None:
            return default
        assert isinstance(attribute, IntegerAttr)
        return attribute.value.data

    def pair(self, name: str, default: tuple[int, int] = (0, 0)) -> tuple[int, int]:
        """Values of a property for y and x; the default where it is absent."""
        attribute = self.properties.get(name)
        if attribute is None:
            return default
        assert isinstance(attribute, DenseArrayBase)
        y, x = struct.unpack("<2q", attribute.data.data)
        return y, x

    def need(self, least: int, *names: str) -> None:
        """Refuse numbers below a bound."""
        for name in names:
            if self.number(name, least) < least:
                self.fail(f"{name} must be at least {least}, not {self.number(name)}")

    def need_pairs(self, *names: str) -> None:
        """Refuse pairs below 1."""
        for name in names:
            if min(self.pair(name, (1, 1))) < 1:
                self.fail(f"{name} must be at least 1 in y and x, not {self.pair(name)}")


def buffer_type(value: SSAValue) -> BufferType:
    """Type of a buffer; `TypeError` for a value that is none."""
    if not isinstance(value.type, BufferType):
        raise TypeError(f"value must be a buffer, not {value.type}")
    return value.type


def buffer_of(value: SSAValue) -> "BufferOp":
    """Operator that defines a buffer; `TypeError` for a value that no such operator defines."""
    if not isinstance(value.owner, BufferOp):
        raise TypeError("value must be defined by tile.buffer")
    return value.owner


@irdl_op_definition
class BufferOp(TileOp):
    """Room for a tensor in a memory; ``base`` is its first row once it has a place."""

    name = "tile.buffer"
    tensor = prop_def(StringAttr)
    memory = prop_def(StringAttr)
    rows = prop_def(Number)
    base = opt_prop_def(Number)
    result = result_def(BufferType)
    assembly_format = "$tensor attr-dict `:` type($result)"

    def __init__(self, tensor: str, shape: tuple[int, int, int], rows: int) -> None:
        super().__init__(
            properties={
                "tensor": StringAttr(tensor),
                "memory": StringAttr(UNIFIED_BUFFER),
                "rows": number_attr(rows),
            },
            result_types=[BufferType.of(shape)],
        )

    @property
    def label(self) -> str:
        """Name of the tensor."""
        return self.tensor.data

    @property
    def row_count(self) -> int:
        """Rows of the memory that the buffer takes."""
        return self.rows.value.data

    @property
    def first_row(self) -> int:
        """First row; `ValueError` while the buffer has no place."""
        if self.base is None:
            raise ValueError(f"buffer {self.label} must be placed before its rows are asked for")
        return self.base.value.data

    def place(self, first_row: int) -> None:
        """Give the buffer its place."""
        self.base = number_attr(first_row)

    def verify_(self) -> None:
        if self.memory.data != UNIFIED_BUFFER:
            self.fail(f"memory must be {UNIFIED_BUFFER}, not {self.memory.data!r}")
        if self.row_count < 1:
            self.fail(f"rows must be at least 1, not {self.row_count}")
        if self.base is not None and self.first_row < 0:
            self.fail(f"base must be at least 0, not {self.first_row}")
