"""Tile dialect: buffers in named memories, and one macro operator for each pass of a layer.

A *pass* makes as many output channels as the array has columns, over the whole image: a loop nest
over rectangles of output pixels (*chunks* that fit one half of the accumulators), and in each over
blocks of input channels, kernel rows and kernel columns. The nest is never unrolled here: one
operator holds its bounds and strides::

    tile.program @npu0 {
      %x = tile.buffer "input" {memory = "unified_buffer", rows = 64 : i64, base = 0 : i64} : ...
      tile.load %x {value = "input", slot = 0 : i64} : !tile.buffer<8, 8, 1>
      %y = tile.buffer "conv1" {memory = "unified_buffer", rows = 16 : i64, base = 64 : i64} : ...
      tile.conv_pass %x, %y {node = "conv1", constants = @conv1, first_tile = 0 : i64, ...} : ...
      tile.store %y {value = "conv1", slot = 1 : i64} : !tile.buffer<4, 4, 8>
    }

Tiles and parameters are outside the IR: ``constants`` names them, ``first_tile`` and ``entry``
count from the start of what that name holds. ``base`` is absent until buffers are placed.
"""

from collections.abc import Iterator, Sequence
from typing import NoReturn

from xdsl.dialects.builtin import (
    I64,
    DenseArrayBase,
    IntAttr,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    i64,
)
from xdsl.ir import (
    Block,
    Dialect,
    Operation,
    ParametrizedAttribute,
    Region,
    SSAValue,
    TypeAttribute,
)
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from npulse.sw.errors import shorten
from npulse.sw.ir.types import ints

#: The one memory of the TPU v1 style in which buffers live.
UNIFIED_BUFFER = "unified_buffer"

_Number = IntegerAttr[I64]
_Pair = DenseArrayBase[I64]
_TYPED = "attr-dict `:` type($buffer)"


def _number(value: int) -> _Number:
    return IntegerAttr(value, i64)


def _pair(values: Sequence[int]) -> _Pair:
    return DenseArrayBase.from_list(i64, [int(v) for v in values])


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
    rows = prop_def(_Number)
    base = opt_prop_def(_Number)
    result = result_def(BufferType)
    assembly_format = "$tensor attr-dict `:` type($result)"

    def __init__(self, tensor: str, shape: tuple[int, int, int], rows: int) -> None:
        super().__init__(
            properties={
                "tensor": StringAttr(tensor),
                "memory": StringAttr(UNIFIED_BUFFER),
                "rows": _number(rows),
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
        self.base = _number(first_row)

    def verify_(self) -> None:
        if self.memory.data != UNIFIED_BUFFER:
            self.fail(f"memory must be {UNIFIED_BUFFER}, not {self.memory.data!r}")
        if self.row_count < 1:
            self.fail(f"rows must be at least 1, not {self.row_count}")
        if self.base is not None and self.first_row < 0:
            self.fail(f"base must be at least 0, not {self.first_row}")


class _MoveOp(TileOp):
    """Copy of a whole buffer from or to its slot in DRAM."""

    buffer = operand_def(BufferType)
    value = prop_def(StringAttr)
    slot = prop_def(_Number)

    def __init__(self, buffer: SSAValue, value: str, slot: int) -> None:
        super().__init__(
            operands=[buffer], properties={"value": StringAttr(value), "slot": _number(slot)}
        )

    @property
    def label(self) -> str:
        """Name of the value that is moved."""
        return self.value.data

    @property
    def slot_index(self) -> int:
        """Index of the DRAM range."""
        return self.slot.value.data

    def verify_(self) -> None:
        if self.slot_index < 0:
            self.fail(f"slot must be at least 0, not {self.slot_index}")


@irdl_op_definition
class LoadOp(_MoveOp):
    """Fill a buffer from a slot of DRAM."""

    name = "tile.load"
    assembly_format = f"$buffer {_TYPED}"


@irdl_op_definition
class StoreOp(_MoveOp):
    """Copy a buffer to a slot of DRAM."""

    name = "tile.store"
    assembly_format = f"$buffer {_TYPED}"


@irdl_op_definition
class ConvPassOp(TileOp):
    """One pass of a convolution over all output pixels, with an optional max-pool behind it.

    With image coordinates of the source, output pixel ``o`` of the convolution and kernel place
    ``k`` read ``origin + o * strides + k * dilations``; outside ``source_size`` the byte ``fill``
    is read. Output pixel ``p`` of the pass is the maximum over the window that starts at
    ``window_origin + p * window_strides`` in the pixels of the convolution, ``size``, of which
    those outside do not count. The result goes to one lane group of one block of the target.
    """

    name = "tile.conv_pass"
    source = operand_def(BufferType)
    target = operand_def(BufferType)
    node = prop_def(StringAttr)
    constants = prop_def(SymbolRefAttr)
    first_tile = prop_def(_Number)
    tiles = prop_def(_Number)
    entry = prop_def(_Number)
    fill = prop_def(_Number)
    first_block = prop_def(_Number)
    blocks = prop_def(_Number)
    target_block = prop_def(_Number)
    lane_group = prop_def(_Number)
    source_size = prop_def(_Pair)
    kernel = prop_def(_Pair)
    strides = prop_def(_Pair)
    dilations = prop_def(_Pair)
    origin = prop_def(_Pair)
    size = prop_def(_Pair)
    window = prop_def(_Pair)
    window_strides = prop_def(_Pair)
    window_origin = prop_def(_Pair)
    chunk = prop_def(_Pair)
    assembly_format = "$source `,` $target attr-dict `:` type($source) `,` type($target)"

    def __init__(
        self,
        source: SSAValue,
        target: SSAValue,
        *,
        node: str,
        constants: str,
        numbers: dict[str, int],
        pairs: dict[str, tuple[int, int]],
    ) -> None:
        super().__init__(
            operands=[source, target],
            properties={
                "node": StringAttr(node),
                "constants": SymbolRefAttr(constants),
                **{name: _number(value) for name, value in numbers.items()},
                **{name: _pair(values) for name, values in pairs.items()},
            },
        )

    @property
    def label(self) -> str:
        """Node of the model."""
        return self.node.data

    def number(self, name: str) -> int:
        """Value of a property that is one integer."""
        attribute = self.properties[name]
        assert isinstance(attribute, IntegerAttr)
        return attribute.value.data

    def pair(self, name: str) -> tuple[int, int]:
        """Values of a property for y and x."""
        attribute = self.properties[name]
        assert isinstance(attribute, DenseArrayBase)
        y, x = ints(attribute)
        return y, x

    @property
    def out_size(self) -> tuple[int, int]:
        """Output pixels in y and x, behind the window."""
        return buffer_type(self.target).shape[:2]

    def verify_(self) -> None:
        self._verify_ranges()
        height, width, _ = buffer_type(self.source).shape
        source_y, source_x = self.pair("source_size")
        if source_y * source_x != height * width:
            self.fail(
                f"source_size must have {height * width} pixels as the buffer has, "
                f"not {source_y * source_x}"
            )
        last = self.number("first_block") + self.number("blocks")
        rows = buffer_of(self.source).row_count
        if last * height * width > rows:
            self.fail(f"blocks must end within the {rows} rows of the source, not at block {last}")
        out_y, out_x = self.out_size
        rows = buffer_of(self.target).row_count
        if (self.number("target_block") + 1) * out_y * out_x > rows:
            block = self.number("target_block")
            self.fail(f"target_block must lie within the {rows} rows of the target, not {block}")
        self._verify_windows()

    def _verify_ranges(self) -> None:
        for name in ("source_size", "kernel", "strides", "dilations", "size", "window"):
            if min(self.pair(name)) < 1:
                self.fail(f"{name} must be at least 1 in y and x, not {self.pair(name)}")
        for name in ("first_tile", "entry", "first_block", "target_block", "lane_group"):
            if self.number(name) < 0:
                self.fail(f"{name} must be at least 0, not {self.number(name)}")
        for name in ("tiles", "blocks"):
            if self.number(name) < 1:
                self.fail(f"{name} must be at least 1, not {self.number(name)}")
        if not -128 <= self.number("fill") <= 127:
            self.fail(f"fill must be from -128 to 127, not {self.number('fill')}")

    def _verify_windows(self) -> None:
        for axis, out in zip("yx", self.out_size, strict=True):
            at = "yx".index(axis)
            size, window = self.pair("size")[at], self.pair("window")[at]
            start, step = self.pair("window_origin")[at], self.pair("window_strides")[at]
            if start + window < 1 or start + (out - 1) * step >= size:
                self.fail(
                    f"each window must touch the {size} pixels of the convolution in {axis}, "
                    f"not start at {start} with {out} steps of {step}"
                )
            if not 1 <= self.pair("chunk")[at] <= out:
                chunk = self.pair("chunk")[at]
                self.fail(f"chunk must be from 1 to {out} output pixels in {axis}, not {chunk}")


@irdl_op_definition
class ProgramOp(TileOp):
    """Buffers, moves and passes of one NPU segment, in order."""

    name = "tile.program"
    sym_name = prop_def(SymbolNameConstraint())
    body = region_def("single_block")
    traits = traits_def(NoTerminator(), SymbolOpInterface())
    assembly_format = "$sym_name $body attr-dict"

    def __init__(self, name: str, ops: Sequence[Operation]) -> None:
        super().__init__(properties={"sym_name": StringAttr(name)}, regions=[Region(Block(ops))])

    @property
    def label(self) -> str:
        """Name of the segment."""
        return self.sym_name.data

    @property
    def ops(self) -> Iterator[Operation]:
        """Operators in order."""
        return iter(self.body.block.ops)

    def verify_(self) -> None:
        for op in self.ops:
            if not isinstance(op, TileOp) or isinstance(op, ProgramOp):
                self.fail(f"body must hold buffers, moves and passes only, not {op.name}")


Tile = Dialect("tile", [BufferOp, LoadOp, StoreOp, ConvPassOp, ProgramOp], [BufferType])
