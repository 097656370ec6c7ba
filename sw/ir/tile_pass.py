"""Passes of the tile dialect: convolutions from buffer to buffer, whole or in parts."""

from collections.abc import Mapping

from xdsl.dialects.builtin import StringAttr, SymbolRefAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def

from npulse.sw.ir.tile_base import (
    BufferType,
    Number,
    PairAttr,
    TileOp,
    buffer_of,
    buffer_type,
    number_attr,
    pair_attr,
)

_Pair = tuple[int, int]


def verify_fill(op: TileOp) -> None:
    """Refuse a byte of padding that is none."""
    if not -128 <= op.number("fill") <= 127:
        op.fail(f"fill must be from -128 to 127, not {op.number('fill')}")


def verify_source(op: "ConvPassOp | ConvPartOp") -> None:
    """Refuse blocks that the source does not hold."""
    height, width = op.pair("source_size")
    last = op.number("first_block") + op.number("blocks")
    rows = buffer_of(op.source).row_count
    if last * height * width > rows:
        op.fail(f"blocks must end within the {rows} rows of the source, not at block {last}")


def verify_target(op: "ConvPassOp | FinishPassOp", out: _Pair, size: _Pair) -> None:
    """Refuse a block or a rectangle that lies outside the target."""
    rows, block = buffer_of(op.target).row_count, op.number("target_block")
    if (block + 1) * size[0] * size[1] > rows:
        op.fail(f"target_block must lie within the {rows} rows of the target, not {block}")
    at = op.pair("target_at")
    for axis in (0, 1):
        if at[axis] < 0 or at[axis] + out[axis] > size[axis]:
            op.fail(
                f"target_at must leave room for {out[axis]} of {size[axis]} pixels in "
                f"{'yx'[axis]}, not be {at[axis]}"
            )


@irdl_op_definition
class ConvPassOp(TileOp):
    """One pass of a convolution over all output pixels, with an optional max-pool behind it.

    With image coordinates of the source, output pixel ``o`` of the convolution and kernel place
    ``k`` read ``origin + o * strides + k * dilations``; outside ``source_size`` the byte ``fill``
    is read. Output pixel ``p`` of the pass is the maximum over the window that starts at
    ``window_origin + p * window_strides`` in the pixels of the convolution, ``size``, of which
    those outside do not count. The result goes to one lane group of one block of the target.

    Of a layer in stripes the source and the target may be stages that hold a part of the image:
    ``source_size`` and ``target_size`` are the pixels of that part, ``out`` are the output pixels
    of the stripe, and ``target_at`` is where in the target they begin. With ``repeat`` the one
    tile serves that many kernel places.
    """

    name = "tile.conv_pass"
    source = operand_def(BufferType)
    target = operand_def(BufferType)
    node = prop_def(StringAttr)
    constants = prop_def(SymbolRefAttr)
    first_tile = prop_def(Number)
    tiles = prop_def(Number)
    entry = prop_def(Number)
    fill = prop_def(Number)
    first_block = prop_def(Number)
    blocks = prop_def(Number)
    target_block = prop_def(Number)
    lane_group = prop_def(Number)
    source_size = prop_def(PairAttr)
    kernel = prop_def(PairAttr)
    strides = prop_def(PairAttr)
    dilations = prop_def(PairAttr)
    origin = prop_def(PairAttr)
    size = prop_def(PairAttr)
    window = prop_def(PairAttr)
    window_strides = prop_def(PairAttr)
    window_origin = prop_def(PairAttr)
    chunk = prop_def(PairAttr)
    out = opt_prop_def(PairAttr)
    target_size = opt_prop_def(PairAttr)
    target_at = opt_prop_def(PairAttr)
    repeat = opt_prop_def(Number)
    assembly_format = "$source `,` $target attr-dict `:` type($source) `,` type($target)"

    def __init__(
        self,
        source: SSAValue,
        target: SSAValue,
        *,
        node: str,
        constants: str,
        numbers: Mapping[str, int],
        pairs: Mapping[str, _Pair],
    ) -> None:
        super().__init__(
            operands=[source, target],
            properties={
                "node": StringAttr(node),
                "constants": SymbolRefAttr(constants),
                **{name: number_attr(value) for name, value in numbers.items()},
                **{name: pair_attr(values) for name, values in pairs.items()},
            },
        )

    @property
    def label(self) -> str:
        """Node of the model."""
        return self.node.data

    @property
    def out_size(self) -> tuple[int, int]:
        """Output pixels in y and x that this operator makes, behind the window."""
        return self.pair("out", self.target_size_pair)

    @property
    def target_size_pair(self) -> tuple[int, int]:
        """Pixels in y and x of the image that the target holds."""
        return self.pair("target_size", buffer_type(self.target).shape[:2])

    def verify_(self) -> None:
        self.need_pairs("source_size", "kernel", "strides", "dilations", "size", "window")
        self.need_pairs("out", "target_size")
        self.need(0, "first_tile", "entry", "first_block", "target_block", "lane_group")
        self.need(1, "tiles", "blocks", "repeat")
        verify_fill(self)
        verify_source(self)
        verify_target(self, self.out_size, self.target_size_pair)
        self._verify_windows()

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
class ConvPartOp(TileOp):
    """Add a part of the sums of a pass to the accumulators of the current half.

    The part is a rectangle of ``size`` pixels of the convolution from accumulator row ``acc_row``,
    with some blocks of channels and some kernel places. Its tiles are ``runs`` runs of ``tiles``
    each, ``tile_stride`` apart. Without ``accumulate`` the sums begin.
    """

    name = "tile.conv_part"
    source = operand_def(BufferType)
    node = prop_def(StringAttr)
    constants = prop_def(SymbolRefAttr)
    first_tile = prop_def(Number)
    tiles = prop_def(Number)
    runs = prop_def(Number)
    tile_stride = prop_def(Number)
    acc_row = prop_def(Number)
    accumulate = prop_def(Number)
    fill = prop_def(Number)
    first_block = prop_def(Number)
    blocks = prop_def(Number)
    source_size = prop_def(PairAttr)
    kernel = prop_def(PairAttr)
    strides = prop_def(PairAttr)
    dilations = prop_def(PairAttr)
    origin = prop_def(PairAttr)
    size = prop_def(PairAttr)
    assembly_format = "$source attr-dict `:` type($source)"

    def __init__(
        self,
        source: SSAValue,
        *,
        node: str,
        constants: str,
        numbers: Mapping[str, int],
        pairs: Mapping[str, _Pair],
    ) -> None:
        super().__init__(
            operands=[source],
            properties={
                "node": StringAttr(node),
                "constants": SymbolRefAttr(constants),
                **{name: number_attr(value) for name, value in numbers.items()},
                **{name: pair_attr(values) for name, values in pairs.items()},
            },
        )

    @property
    def label(self) -> str:
        """Node of the model."""
        return self.node.data

    def verify_(self) -> None:
        self.need_pairs("source_size", "kernel", "strides", "dilations", "size")
        self.need(0, "first_tile", "acc_row", "first_block", "accumulate", "tile_stride")
        self.need(1, "tiles", "runs", "blocks")
        verify_fill(self)
        verify_source(self)


@irdl_op_definition
class FinishPassOp(TileOp):
    """Requantise the sums of all parts before it into a rectangle of the target."""

    name = "tile.finish_pass"
    target = operand_def(BufferType)
    node = prop_def(StringAttr)
    constants = prop_def(SymbolRefAttr)
    entry = prop_def(Number)
    target_block = prop_def(Number)
    lane_group = prop_def(Number)
    size = prop_def(PairAttr)
    window = prop_def(PairAttr)
    window_strides = prop_def(PairAttr)
    window_origin = prop_def(PairAttr)
    out = prop_def(PairAttr)
    target_size = prop_def(PairAttr)
    target_at = prop_def(PairAttr)
    assembly_format = "$target attr-dict `:` type($target)"

    def __init__(
        self,
        target: SSAValue,
        *,
        node: str,
        constants: str,
        numbers: Mapping[str, int],
        pairs: Mapping[str, _Pair],
    ) -> None:
        super().__init__(
            operands=[target],
            properties={
                "node": StringAttr(node),
                "constants": SymbolRefAttr(constants),
                **{name: number_attr(value) for name, value in numbers.items()},
                **{name: pair_attr(values) for name, values in pairs.items()},
            },
        )

    @property
    def label(self) -> str:
        """Node of the model."""
        return self.node.data

    def verify_(self) -> None:
        self.need_pairs("size", "window", "out", "target_size")
        self.need(0, "entry", "target_block", "lane_group")
        verify_target(self, self.pair("out"), self.pair("target_size"))
