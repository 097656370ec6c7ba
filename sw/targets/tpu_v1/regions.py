"""Rectangles of a layer's output, and the rectangles of its source that they need."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from npulse.sw.targets.tpu_v1.chunks import Geometry
from npulse.sw.targets.tpu_v1.layers import Layer

__all__ = ["Region", "geometry_of", "region", "regions", "source_part"]

Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Region:
    """A rectangle of output pixels and the pixels of the convolution behind it."""

    first: Pair
    count: Pair
    conv_first: Pair
    conv_count: Pair


def geometry_of(layer: Layer, part: Region | None = None) -> Geometry:
    """Output pixels and windows of a layer, or of a region as if it were a layer of its own."""
    whole = Geometry(
        out=layer.out_image[:2],
        size=layer.size,
        window=layer.window,
        strides=layer.window_strides,
        origin=layer.window_origin,
    )
    if part is None:
        return whole
    y, x = (
        layer.window_origin[a] + part.first[a] * layer.window_strides[a] - part.conv_first[a]
        for a in (0, 1)
    )
    return replace(whole, out=part.count, size=part.conv_count, origin=(y, x))


def region(layer: Layer, first: Pair, count: Pair) -> Region:
    """Region of `count` output pixels from `first` on."""
    geometry = geometry_of(layer)
    (top, bottom), (left, right) = (geometry.span(a, first[a], count[a]) for a in (0, 1))
    return Region(
        first=first, count=count, conv_first=(top, left), conv_count=(bottom - top, right - left)
    )


def regions(layer: Layer, tile: Pair) -> Iterator[Region]:
    """All regions of at most `tile` output pixels, row by row."""
    height, width = layer.out_image[:2]
    for y in range(0, height, tile[0]):
        for x in range(0, width, tile[1]):
            yield region(layer, (y, x), (min(tile[0], height - y), min(tile[1], width - x)))


def source_part(
    layer: Layer, conv: tuple[Pair, Pair], taps: tuple[Pair, Pair] | None = None
) -> tuple[Pair, Pair]:
    """First pixel and extent of the source that pixels of the convolution read.

    Whatever they read outside the rectangle lies outside the image: the limits of the rectangle
    are as good as those of the image for telling padding. It has at least one pixel.

    Parameters
    ----------
    conv : pair of pairs
        First pixel and extent of the convolution.
    taps : pair of pairs or None
        First kernel place and extent; all by default.
    """
    (first, count), (tap, span) = conv, taps or ((0, 0), layer.kernel)
    cuts = []
    for a in (0, 1):
        low = layer.origin[a] + first[a] * layer.strides[a] + tap[a] * layer.dilations[a]
        reach = (count[a] - 1) * layer.strides[a] + (span[a] - 1) * layer.dilations[a] + 1
        start = max(0, min(low, layer.source_size[a] - 1))
        cuts.append((start, max(1, min(low + reach, layer.source_size[a]) - start)))
    return (cuts[0][0], cuts[1][0]), (cuts[0][1], cuts[1][1])
