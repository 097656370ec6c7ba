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

A tensor that lives in DRAM has no buffer: its stripes come and go through *stages*, buffers that
hold a part of it at a time. ``tile.load`` and ``tile.store`` then move a rectangle, and
``tile.wait`` says where units wait for each other so that one stripe moves while the array works
on another.
"""

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import StringAttr, SymbolNameConstraint
from xdsl.ir import Block, Dialect, Operation, Region, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
)
from xdsl.traits import NoTerminator, SymbolOpInterface

from npulse.sw.ir.tile_base import (
    BufferOp,
    BufferType,
    Number,
    PairAttr,
    TileOp,
    buffer_of,
    buffer_type,
    number_attr,
    pair_attr,
)
from npulse.sw.ir.tile_pass import ConvPartOp, ConvPassOp, FinishPassOp

__all__ = [
    "BufferOp",
    "BufferType",
    "ConvPartOp",
    "ConvPassOp",
    "FinishPassOp",
    "LoadOp",
    "ProgramOp",
    "StoreOp",
    "Tile",
    "TileOp",
    "WaitOp",
    "buffer_of",
    "buffer_type",
]

_TYPED = "attr-dict `:` type($buffer)"


class MoveOp(TileOp):
    """Copy of a tensor, or of a rectangle of some of its blocks, from or to its slot in DRAM.

    The slot holds all blocks of an image of ``image`` pixels; moved are ``blocks`` blocks from
    ``first_block``, the rectangle of ``part`` pixels from ``at`` on. Without them, the whole.
    """

    buffer = operand_def(BufferType)
    value = prop_def(StringAttr)
    slot = prop_def(Number)
    image = opt_prop_def(PairAttr)
    at = opt_prop_def(PairAttr)
    part = opt_prop_def(PairAttr)
    first_block = opt_prop_def(Number)
    blocks = opt_prop_def(Number)

    def __init__(
        self,
        buffer: SSAValue,
        value: str,
        slot: int,
        *,
        image: tuple[int, int] | None = None,
        at: tuple[int, int] = (0, 0),
        part: tuple[int, int] = (1, 1),
        first_block: int = 0,
        blocks: int = 1,
    ) -> None:
        rectangle = (
            {}
            if image is None
            else {
                "image": pair_attr(image),
                "at": pair_attr(at),
                "part": pair_attr(part),
                "first_block": number_attr(first_block),
                "blocks": number_attr(blocks),
            }
        )
        super().__init__(
            operands=[buffer],
            properties={"value": StringAttr(value), "slot": number_attr(slot), **rectangle},
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
        if self.image is None:
            return
        self.need_pairs("image", "part")
        self.need(0, "first_block")
        self.need(1, "blocks")
        image, at, part = self.pair("image"), self.pair("at"), self.pair("part")
        for axis in (0, 1):
            if at[axis] < 0 or at[axis] + part[axis] > image[axis]:
                self.fail(
                    f"at must leave room for {part[axis]} of {image[axis]} pixels in "
                    f"{'yx'[axis]}, not be {at[axis]}"
                )
        needed, rows = self.number("blocks") * part[0] * part[1], buffer_of(self.buffer).row_count
        if needed > rows:
            self.fail(f"the rectangle must fit the {rows} rows of the buffer, not take {needed}")


@irdl_op_definition
class LoadOp(MoveOp):
    """Fill a buffer from a slot of DRAM."""

    name = "tile.load"
    assembly_format = f"$buffer {_TYPED}"


@irdl_op_definition
class StoreOp(MoveOp):
    """Copy a buffer to a slot of DRAM."""

    name = "tile.store"
    assembly_format = f"$buffer {_TYPED}"


@irdl_op_definition
class WaitOp(TileOp):
    """Hold back what follows until units (a mask, as Sync has it) are done with what precedes."""

    name = "tile.wait"
    units = prop_def(Number)
    node = prop_def(StringAttr)
    assembly_format = "attr-dict"

    def __init__(self, units: int, node: str) -> None:
        super().__init__(properties={"units": number_attr(units), "node": StringAttr(node)})

    @property
    def label(self) -> str:
        """Node of the model."""
        return self.node.data

    def verify_(self) -> None:
        if not 1 <= self.number("units") <= 15:
            self.fail(f"units must be from 1 to 15, not {self.number('units')}")


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


Tile = Dialect(
    "tile",
    [BufferOp, LoadOp, StoreOp, WaitOp, ConvPassOp, ConvPartOp, FinishPassOp, ProgramOp],
    [BufferType],
)
