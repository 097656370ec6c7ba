"""Cuts the output of a layer into chunks that fit one half of the accumulators, by cycles.

The closed form of a pass over one weight tile with M streamed rows is
``max(M, array.rows, sram_latency + 2)`` cycles, or the cycles in which DRAM brings the tile if
these are more. Meanwhile Activate takes a cycle for each row of each window of the chunk before;
the slower of the two sets the pace. So few large chunks are good, and where windows overlap, the
rows that two chunks both need are computed twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from npulse.hw.spec.tpu_v1 import TpuV1Config

__all__ = ["Chunk", "Geometry", "choose_chunk", "chunks", "layer_cycles", "pass_cycles"]

Pair = tuple[int, int]
#: Numbers of columns of chunks that are tried beyond the least; more never paid on real layers.
COLUMN_SPLITS = 8


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Output pixels, and the windows over the pixels of the convolution that they need."""

    out: Pair
    size: Pair  #: Pixels of the convolution.
    window: Pair
    strides: Pair
    origin: Pair  #: Where the first window starts; negative with padding.

    def span(self, axis: int, first: int, count: int) -> tuple[int, int]:
        """First and one-past-last pixel of the convolution that `count` outputs need."""
        start = self.origin[axis] + first * self.strides[axis]
        end = start + (count - 1) * self.strides[axis] + self.window[axis]
        return max(0, start), min(self.size[axis], end)


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A rectangle of output pixels and the rectangle of convolution pixels behind it."""

    first: Pair
    count: Pair
    conv_first: Pair
    conv_count: Pair

    @property
    def rows(self) -> int:
        """Rows that are streamed, and accumulator rows that are taken."""
        return self.conv_count[0] * self.conv_count[1]


def _cuts(geometry: Geometry, axis: int, step: int) -> Iterator[tuple[int, int, int, int]]:
    for first in range(0, geometry.out[axis], step):
        count = min(step, geometry.out[axis] - first)
        start, end = geometry.span(axis, first, count)
        yield first, count, start, end - start


def chunks(geometry: Geometry, chunk: Pair) -> Iterator[Chunk]:
    """All chunks of at most the given output rows and columns, row by row."""
    for y in _cuts(geometry, 0, chunk[0]):
        for x in _cuts(geometry, 1, chunk[1]):
            yield Chunk(
                first=(y[0], x[0]),
                count=(y[1], x[1]),
                conv_first=(y[2], x[2]),
                conv_count=(y[3], x[3]),
            )


def pass_cycles(config: TpuV1Config, rows: int) -> int:
    """Cycles of the array for one tile with `rows` streamed rows, weights at hand."""
    return max(rows, config.array.rows, config.memory.sram_latency + 2)


def layer_cycles(config: TpuV1Config, geometry: Geometry, chunk: Pair, tiles: int) -> int:
    """Cycles of one pass over all chunks, of `tiles` weight tiles each, without fill and drain.

    One tile stays in the array for all chunks; more are read again for each.
    """
    transfer = Fraction(config.tile_bytes) / config.dram.weight_bytes_per_cycle
    total = Fraction(0)
    for index, part in enumerate(chunks(geometry, chunk)):
        compute = pass_cycles(config, part.rows)
        reads = tiles > 1 or index == 0
        matrix = tiles * (max(Fraction(compute), transfer) if reads else Fraction(compute))
        activate = part.count[0] * part.count[1] * geometry.window[0] * geometry.window[1]
        total += max(matrix, Fraction(activate))
    return -(-total.numerator // total.denominator)


def choose_chunk(config: TpuV1Config, geometry: Geometry, tiles: int) -> Pair | None:
    """Output rows and columns of a chunk with the fewest cycles; None if no window fits."""
    best: tuple[int, Pair] | None = None
    for columns in _candidates(geometry, config.half_rows):
        rows = _most_rows(geometry, columns, config.half_rows)
        if rows == 0:
            continue
        even = -(-geometry.out[0] // -(-geometry.out[0] // rows))
        cycles = layer_cycles(config, geometry, (even, columns), tiles)
        if best is None or cycles < best[0]:
            best = cycles, (even, columns)
    return best[1] if best else None


def _candidates(geometry: Geometry, half_rows: int) -> Iterator[int]:
    """Columns of a chunk: the least number of equal parts that can fit, and a few more."""
    out = geometry.out[1]
    least = max(1, out // max(1, half_rows))
    seen = set()
    for parts in range(least, min(out, least + COLUMN_SPLITS) + 1):
        columns = -(-out // parts)
        if columns not in seen:
            seen.add(columns)
            yield columns
    if 1 not in seen:
        yield 1


def _widest(geometry: Geometry, axis: int, step: int) -> int:
    return max(cut[3] for cut in _cuts(geometry, axis, step))


def _most_rows(geometry: Geometry, columns: int, half_rows: int) -> int:
    """Most output rows with which every chunk of so many columns fits; 0 if none."""
    width = _widest(geometry, 1, columns)
    low, high = 0, geometry.out[0]
    while low < high:
        middle = (low + high + 1) // 2
        if _widest(geometry, 0, middle) * width <= half_rows:
            low = middle
        else:
            high = middle - 1
    return low
