"""Divides the sums of a pass into parts whose source fits a stage."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.sw.targets.tpu_v1.constants import Pass, repeats
from npulse.sw.targets.tpu_v1.layers import Layer
from npulse.sw.targets.tpu_v1.regions import Region, source_part

__all__ = ["Part", "TileRuns", "parts_of"]

Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class TileRuns:
    """Tiles of a part in the constants of its layer: runs of equal length and distance."""

    first: int
    tiles: int  #: Of one run.
    runs: int
    stride: int  #: Tiles from run to run.


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some blocks of channels and kernel places, for some pixels of the convolution."""

    first: Pair  #: First pixel, in the rectangle of the region.
    count: Pair  #: Pixels; columns are fewer than the region's in a single row only.
    tap: Pair  #: First kernel place.
    span: Pair  #: Kernel places.
    first_block: int
    blocks: int
    begins: bool  #: Whether no part before it adds to the same sums.

    def tile_runs(self, config: TpuV1Config, layer: Layer, constants: Pass) -> TileRuns:
        """Tiles of the part; they lie by block, read group, kernel row and kernel column."""
        rows, columns = layer.kernel
        if repeats(config, layer) > 1:
            return TileRuns(
                first=constants.first_tile, tiles=1, runs=self.span[0] * self.span[1], stride=0
            )
        places, groups = rows * columns, self.blocks * config.read_groups
        block = self.first_block - constants.first_block
        first = constants.first_tile + block * config.read_groups * places
        first += self.tap[0] * columns + self.tap[1]
        if self.span == layer.kernel:
            return TileRuns(first=first, tiles=groups * places, runs=1, stride=0)
        # Part of a kernel: whole rows of it, or a piece of one row.
        return TileRuns(first=first, tiles=self.span[0] * self.span[1], runs=groups, stride=places)


def parts_of(layer: Layer, region: Region, constants: Pass, room: int | None) -> Iterator[Part]:
    """Parts of a pass over a region, each with a source of at most `room` rows (None: any).

    Kernel places and blocks are divided before pixels, so that tiles are read once where they can
    be; the first part of a pixel is the first block at the first kernel place.
    """
    whole = Part(
        first=(0, 0),
        count=region.conv_count,
        tap=(0, 0),
        span=layer.kernel,
        first_block=constants.first_block,
        blocks=constants.blocks,
        begins=True,
    )
    yield from _divide(layer, region, constants, room, whole)


def _divide(
    layer: Layer, region: Region, constants: Pass, room: int | None, part: Part
) -> Iterator[Part]:
    first = region.conv_first[0] + part.first[0], region.conv_first[1] + part.first[1]
    _, extent = source_part(layer, (first, part.count), (part.tap, part.span))
    if room is None or part.blocks * extent[0] * extent[1] <= room:
        begins = part.first_block == constants.first_block and part.tap == (0, 0)
        yield replace(part, begins=begins)
        return
    for half in _halves(part):
        yield from _divide(layer, region, constants, room, half)


def _halves(part: Part) -> tuple[Part, Part]:
    """Two parts in the order of their tiles; whole rows of kernel and pixels as long as it goes."""
    if part.blocks > 1:
        cut = part.blocks // 2
        rest = replace(part, first_block=part.first_block + cut, blocks=part.blocks - cut)
        return replace(part, blocks=cut), rest
    for place, size, axis in (
        ("tap", "span", 0),
        ("tap", "span", 1),
        ("first", "count", 0),
        ("first", "count", 1),
    ):
        start, extent = list(getattr(part, place)), list(getattr(part, size))
        if extent[axis] > 1:
            cut = extent[axis] // 2
            lower, upper = extent.copy(), extent.copy()
            lower[axis], upper[axis] = cut, extent[axis] - cut
            moved = start.copy()
            moved[axis] += cut
            return (
                replace(part, **{size: tuple(lower)}),
                replace(part, **{place: tuple(moved), size: tuple(upper)}),
            )
    raise AssertionError("one row holds the source of one pixel, kernel place and block")
