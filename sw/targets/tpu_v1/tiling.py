"""Chooses how a layer goes through stages when its source or target lives in DRAM.

A layer is cut into rectangles of output pixels. Where the stages have room, a rectangle's whole
source is brought at once and all passes run on it; of all rectangles that fit, the one with the
fewest cycles by the closed forms wins, with two copies of each stage (one moves while the array
works on the other) or with one. Where not even one output pixel's source fits, sums are made *in
parts*: some blocks of channels, some kernel places and some pixels at a time stay in the
accumulators until they are complete. That needs one row for a source and one for a target, so
nothing is too large.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_layout import blocks
from npulse.sw.targets.tpu_v1.constants import pass_tile_counts
from npulse.sw.targets.tpu_v1.layers import Layer

__all__ = ["Tiling", "choose_tiling", "host_row_cycles"]

Pair = tuple[int, int]
#: Numbers of columns of rectangles that are tried.
COLUMN_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """Rectangle of output pixels, and the stages through which it goes."""

    tile: Pair
    source_rows: int  #: Rows of one source stage, 0 where the source stays in the buffer.
    target_rows: int  #: Rows of one target stage, 0 where the target stays in the buffer.
    copies: int  #: Stages of each kind; of a layer in parts, of the source only.
    in_parts: bool


@dataclass(frozen=True, kw_only=True)
class _Problem:
    config: TpuV1Config
    layer: Layer
    free: int  #: Rows for all stages.
    source: bool  #: Whether the source comes through stages.
    target: bool

    def conv(self, tile: Pair) -> Pair:
        """Most pixels of the convolution behind a rectangle."""
        layer = self.layer
        y, x = (
            min(layer.size[a], (tile[a] - 1) * layer.window_strides[a] + layer.window[a])
            for a in (0, 1)
        )
        return y, x

    def source_rows(self, tile: Pair) -> int:
        layer, conv = self.layer, self.conv(tile)
        y, x = (
            min(
                layer.source_size[a],
                (conv[a] - 1) * layer.strides[a] + (layer.kernel[a] - 1) * layer.dilations[a] + 1,
            )
            for a in (0, 1)
        )
        return blocks(self.config, layer.image[2]) * y * x if self.source else 0

    def target_rows(self, tile: Pair) -> int:
        depth = blocks(self.config, self.layer.out_image[2])
        return depth * tile[0] * tile[1] if self.target else 0

    def rows(self, tile: Pair) -> int:
        return self.source_rows(tile) + self.target_rows(tile)

    def widths(self) -> Iterator[int]:
        out = self.layer.out_image[1]
        yield from dict.fromkeys(-(-out // min(out, parts)) for parts in (*COLUMN_SPLITS, out))


def host_row_cycles(config: TpuV1Config) -> Fraction:
    """Cycles in which a row moves between DRAM and the buffer."""
    rate = min(Fraction(config.bus.host_bytes), config.dram.host_bytes_per_cycle)
    return config.host_row_bytes / rate


def choose_tiling(
    config: TpuV1Config, layer: Layer, free: int, *, source: bool, target: bool
) -> Tiling:
    """Best tiling whose stages take at most `free` rows, at least 2.

    Parameters
    ----------
    source, target : bool
        Whether the source, the target live in DRAM.
    """
    problem = _Problem(config=config, layer=layer, free=free, source=source, target=target)
    found: list[tuple[Fraction, Tiling]] = []
    for copies in (2, 1):
        for width in problem.widths():
            height = _tallest(problem, width, copies)
            if height:
                tile = height, width
                tiling = Tiling(
                    tile=tile,
                    source_rows=problem.source_rows(tile),
                    target_rows=problem.target_rows(tile),
                    copies=copies,
                    in_parts=False,
                )
                found.append((_cost(problem, tiling), tiling))
    return min(found, key=lambda f: f[0])[1] if found else _in_parts(problem)


def _tallest(problem: _Problem, width: int, copies: int) -> int:
    """Most output rows of rectangles of a width that fit, evened out; 0 if none do."""
    out = problem.layer.out_image[0]
    low, high = 0, out
    while low < high:
        middle = (low + high + 1) // 2
        if copies * problem.rows((middle, width)) <= problem.free:
            low = middle
        else:
            high = middle - 1
    return -(-out // -(-out // low)) if low else 0


def _cost(problem: _Problem, tiling: Tiling) -> Fraction:
    """Cycles of the layer, roughly: rectangles at the edge count as whole ones."""
    config, layer = problem.config, problem.layer
    count = 1
    for a in (0, 1):
        count *= -(-layer.out_image[a] // tiling.tile[a])
    conv = problem.conv(tiling.tile)
    pixels = conv[0] * conv[1]
    chunks = -(-pixels // config.half_rows)
    weights = Fraction(config.tile_bytes) / config.dram.weight_bytes_per_cycle
    least = chunks * max(Fraction(config.array.rows), weights)
    compute = sum(pass_tile_counts(config, layer)) * max(Fraction(pixels), least)
    rows = tiling.source_rows + tiling.target_rows
    moves = rows * host_row_cycles(config) + 2 * (config.dram.latency_cycles + config.lanes)
    if tiling.copies == 1 or count == 1:
        return count * (compute + moves)
    return count * max(compute, moves) + moves


def _in_parts(problem: _Problem) -> Tiling:
    """Largest rectangle whose pixels fit a half of the accumulators, its target a quarter."""
    half, free = problem.config.half_rows, problem.free
    share = max(1, free // 4)

    def fits(tile: Pair) -> bool:
        conv = problem.conv(tile)
        return conv[0] * conv[1] <= half and (not problem.target or tile[0] * tile[1] <= share)

    best = 1, 1
    for width in problem.widths():
        height = 0
        while height < problem.layer.out_image[0] and fits((height + 1, width)):
            height += 1
        if height * width > best[0] * best[1]:
            best = height, width
    rows = best[0] * best[1] if problem.target else 0
    room = free - rows if problem.source else 0
    copies = 2 if room >= 2 else 1
    return Tiling(
        tile=best,
        source_rows=min(room // copies, problem.source_rows(best)),
        target_rows=rows,
        copies=copies,
        in_parts=True,
    )
