"""Takes a layer through stages: tile operators for tensors that live in DRAM.

With two copies of the stages, while the array works on one rectangle the host unit brings the
source of the next and takes away the target of the one before; a single wait a rectangle orders
all three. A layer in parts brings the source of each part in turn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_isa import UNITS
from npulse.hw.spec.tpu_v1_layout import blocks
from npulse.sw.ir.tile import (
    BufferOp,
    ConvPartOp,
    ConvPassOp,
    FinishPassOp,
    LoadOp,
    StoreOp,
    WaitOp,
)
from npulse.sw.targets.tpu_v1.chunks import choose_chunk
from npulse.sw.targets.tpu_v1.constants import Pass, repeats
from npulse.sw.targets.tpu_v1.layers import Layer
from npulse.sw.targets.tpu_v1.parts import Part, parts_of
from npulse.sw.targets.tpu_v1.regions import Region, geometry_of, regions, source_part
from npulse.sw.targets.tpu_v1.tiling import Tiling

__all__ = ["End", "Streamed"]

Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class End:
    """Source or target of a layer: a buffer, or a slot in DRAM."""

    value: str
    slot: int
    buffer: BufferOp | None  #: None for a tensor that lives in DRAM.


@dataclass(frozen=True, kw_only=True)
class Streamed:
    """A layer with its tiling and its constants."""

    config: TpuV1Config
    layer: Layer
    tiling: Tiling
    constants: str
    passes: Sequence[Pass]
    source: End
    target: End

    def ops(self) -> list[Operation]:
        """Tile operators of the layer, the stages first."""
        tiling = self.tiling
        copies = 1 if tiling.in_parts else tiling.copies
        sources = self._stages(self.source, tiling.source_rows, tiling.copies)
        targets = self._stages(self.target, tiling.target_rows, copies)
        fresh = [
            stage
            for end, stages in ((self.source, sources), (self.target, targets))
            if end.buffer is None
            for stage in stages
        ]
        body = self._in_parts if tiling.in_parts else self._whole
        return [*fresh, *body(sources, targets)]

    def _stages(self, end: End, rows: int, copies: int) -> list[BufferOp]:
        """Stages of an end, or its buffer in their place."""
        if end.buffer is not None:
            return [end.buffer] * copies
        shape = 1, rows, self.config.block_channels
        return [BufferOp(f"{end.value} stage {n}", shape, rows) for n in range(copies)]

    def _whole(
        self, sources: Sequence[BufferOp], targets: Sequence[BufferOp]
    ) -> Iterator[Operation]:
        todo, copies = list(regions(self.layer, self.tiling.tile)), self.tiling.copies
        if copies == 1:
            for part in todo:
                yield from self._load(part, sources[0])
                yield from self._compute(part, sources[0], targets[0])
                yield from self._store(part, targets[0])
            return
        yield from self._load(todo[0], sources[0])
        for index, part in enumerate(todo):
            if index:
                yield WaitOp(self._wait_mask(), self.layer.node)
            if index + 1 < len(todo):
                yield from self._load(todo[index + 1], sources[(index + 1) % 2])
            if index:
                yield from self._store(todo[index - 1], targets[(index - 1) % 2])
            yield from self._compute(part, sources[index % 2], targets[index % 2])
        yield from self._store(todo[-1], targets[(len(todo) - 1) % 2])

    def _wait_mask(self) -> int:
        """Units that must have finished with the rectangle before."""
        mask = UNITS["host"]
        if self.source.buffer is None:
            mask |= UNITS["matrix"]
        return mask if self.target.buffer is not None else mask | UNITS["activate"]

    def _load(self, part: Region, stage: BufferOp) -> Iterator[Operation]:
        if self.source.buffer is None:
            at, extent = source_part(self.layer, (part.conv_first, part.conv_count))
            yield self._load_blocks(stage, at, extent, 0, self._source_blocks)

    @property
    def _source_blocks(self) -> int:
        return blocks(self.config, self.layer.image[2])

    def _load_blocks(
        self, stage: BufferOp, at: Pair, extent: Pair, first: int, count: int
    ) -> LoadOp:
        return LoadOp(
            stage.result,
            self.source.value,
            self.source.slot,
            image=self.layer.source_size,
            at=at,
            part=extent,
            first_block=first,
            blocks=count,
        )

    def _store(self, part: Region, stage: BufferOp) -> Iterator[Operation]:
        if self.target.buffer is None:
            yield self._store_blocks(part, stage, 0, blocks(self.config, self.layer.channels))

    def _store_blocks(self, part: Region, stage: BufferOp, first: int, count: int) -> StoreOp:
        return StoreOp(
            stage.result,
            self.target.value,
            self.target.slot,
            image=self.layer.out_image[:2],
            at=part.first,
            part=part.count,
            first_block=first,
            blocks=count,
        )

    def _compute(self, part: Region, source: BufferOp, target: BufferOp) -> Iterator[Operation]:
        """All passes on one rectangle."""
        geometry = geometry_of(self.layer, part)
        chunk = choose_chunk(self.config, geometry, max(p.tiles for p in self.passes))
        assert chunk is not None, "the rule on windows sees to this"
        for index, constants in enumerate(self.passes):
            block, group = divmod(index, self.config.write_groups)
            pairs = {
                **self._reads(part.conv_first, part.conv_count),
                **self._writes(part),
                "chunk": chunk,
            }
            yield ConvPassOp(
                source.result,
                target.result,
                node=self.layer.node,
                constants=self.constants,
                numbers={
                    "first_tile": constants.first_tile,
                    "tiles": constants.tiles,
                    "entry": constants.entry,
                    "fill": self.layer.fill,
                    "first_block": constants.first_block,
                    "blocks": constants.blocks,
                    "target_block": block,
                    "lane_group": group,
                    "repeat": repeats(self.config, self.layer),
                },
                pairs=pairs,
            )

    def _reads(
        self, first: Pair, count: Pair, taps: tuple[Pair, Pair] | None = None
    ) -> dict[str, Pair]:
        """How pixels of the convolution read their source, in places of the stage."""
        layer = self.layer
        tap, span = taps or ((0, 0), layer.kernel)
        at, extent = (0, 0), layer.source_size
        if self.source.buffer is None:
            at, extent = source_part(layer, (first, count), (tap, span))
        origin_y, origin_x = (
            layer.origin[a] + first[a] * layer.strides[a] + tap[a] * layer.dilations[a] - at[a]
            for a in (0, 1)
        )
        return {
            "source_size": extent,
            "kernel": span,
            "strides": layer.strides,
            "dilations": layer.dilations,
            "origin": (origin_y, origin_x),
            "size": count,
        }

    def _writes(self, part: Region) -> dict[str, Pair]:
        """How a rectangle lies in its target."""
        staged = self.target.buffer is None
        return {
            "window": self.layer.window,
            "window_strides": self.layer.window_strides,
            "window_origin": geometry_of(self.layer, part).origin,
            "out": part.count,
            "target_size": part.count if staged else self.layer.out_image[:2],
            "target_at": (0, 0) if staged else part.first,
        }

    def _in_parts(
        self, sources: Sequence[BufferOp], targets: Sequence[BufferOp]
    ) -> Iterator[Operation]:
        """Pass by pass, its sums in parts; a block of the target leaves when it is complete."""
        groups, turn = self.config.write_groups, 0
        for part in regions(self.layer, self.tiling.tile):
            for index, constants in enumerate(self.passes):
                room = self.tiling.source_rows or None
                for piece in parts_of(self.layer, part, constants, room):
                    stage = sources[turn % len(sources)]
                    yield from self._part(part, constants, piece, stage)
                    turn += 1
                block, group = divmod(index, groups)
                yield self._finish(part, constants, targets[0], block, group)
                complete = group == groups - 1 or index == len(self.passes) - 1
                if complete and self.target.buffer is None:
                    yield self._store_blocks(part, targets[0], block, 1)

    def _part(
        self, part: Region, constants: Pass, piece: Part, stage: BufferOp
    ) -> Iterator[Operation]:
        layer, first_block = self.layer, piece.first_block
        first = part.conv_first[0] + piece.first[0], part.conv_first[1] + piece.first[1]
        if self.source.buffer is None:
            at, extent = source_part(layer, (first, piece.count), (piece.tap, piece.span))
            yield self._load_blocks(stage, at, extent, first_block, piece.blocks)
            first_block = 0
        runs = piece.tile_runs(self.config, layer, constants)
        yield ConvPartOp(
            stage.result,
            node=layer.node,
            constants=self.constants,
            numbers={
                "first_tile": runs.first,
                "tiles": runs.tiles,
                "runs": runs.runs,
                "tile_stride": runs.stride,
                "acc_row": piece.first[0] * part.conv_count[1] + piece.first[1],
                "accumulate": int(not piece.begins),
                "fill": layer.fill,
                "first_block": first_block,
                "blocks": piece.blocks,
            },
            pairs=self._reads(first, piece.count, (piece.tap, piece.span)),
        )

    def _finish(
        self, part: Region, constants: Pass, target: BufferOp, block: int, group: int
    ) -> FinishPassOp:
        return FinishPassOp(
            target.result,
            node=self.layer.node,
            constants=self.constants,
            numbers={
                "entry": constants.entry,
                # A stage holds one block.
                "target_block": block if self.target.buffer is not None else 0,
                "lane_group": group,
            },
            pairs={"size": part.conv_count, **self._writes(part)},
        )
