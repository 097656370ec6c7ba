"""Packs weights and requantisation parameters of all layers as they lie in DRAM.

A pass over output channels needs the blocks of input channels that its groups touch, and no other:
a depthwise layer reads one block a pass, its kernel as diagonal tiles.
"""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_layout import PARAMETER_BYTES, conv_tiles, pack_parameters, pack_tiles
from npulse.sw.targets.tpu_v1.layers import Layer

__all__ = [
    "Constants",
    "Pass",
    "entry_bytes",
    "input_blocks",
    "pass_tile_counts",
    "pass_tiles",
    "repeats",
]


@dataclass(frozen=True, kw_only=True)
class Pass:
    """Constants of one pass; tiles and entries count from the first of its layer."""

    first_tile: int
    tiles: int
    entry: int
    first_block: int
    blocks: int


def entry_bytes(config: TpuV1Config) -> int:
    """Bytes of one parameter entry in DRAM."""
    return PARAMETER_BYTES * config.weight_row_beats * config.bus.weight_bytes


def input_blocks(config: TpuV1Config, layer: Layer, index: int) -> tuple[int, int]:
    """First and one-past-last block of input channels that a pass needs."""
    first, last = _channels(config, layer, index)
    inputs, outputs = layer.weights.shape[3], layer.channels // layer.groups
    start = first // outputs * inputs
    end = ((last - 1) // outputs + 1) * inputs
    return start // config.block_channels, -(-end // config.block_channels)


def _channels(config: TpuV1Config, layer: Layer, index: int) -> tuple[int, int]:
    first = index * config.array.cols
    return first, min(first + config.array.cols, layer.channels)


def repeats(config: TpuV1Config, layer: Layer) -> int:
    """Kernel places that one tile serves: all where they have equal weights, else 1.

    A tile that stays in the array costs an instruction for each place and no read, which pays
    for the ones of an average; the array must take all channels of a pass in one tile.
    """
    places = layer.kernel[0] * layer.kernel[1]
    passes = range(-(-layer.channels // config.array.cols))
    spans = [input_blocks(config, layer, index) for index in passes]
    alone = config.read_groups == 1 and all(end - start == 1 for start, end in spans)
    return places if layer.is_average and alone else 1


def pass_tile_counts(config: TpuV1Config, layer: Layer) -> list[int]:
    """Weight tiles of each pass, without packing them."""
    kernel = layer.kernel[0] * layer.kernel[1] // repeats(config, layer)
    spans = (input_blocks(config, layer, n) for n in range(-(-layer.channels // config.array.cols)))
    return [(end - start) * config.read_groups * kernel for start, end in spans]


def pass_tiles(config: TpuV1Config, layer: Layer, index: int) -> NDArray[np.int8]:
    """Tiles (T, rows, cols) int8 of a pass, in the order in which the array takes them."""
    first, last = _channels(config, layer, index)
    start, end = input_blocks(config, layer, index)
    inputs, outputs = layer.weights.shape[3], layer.channels // layer.groups
    # Channels of the last block that the tensor does not have keep zeros: whatever their lanes
    # hold, it does not count.
    depth = (end - start) * config.block_channels
    dense = np.zeros((last - first, *layer.kernel, depth), np.int8)
    for channel in range(first, last):
        at = channel // outputs * inputs - start * config.block_channels
        dense[channel - first, ..., at : at + inputs] = layer.weights[channel]
    return conv_tiles(config, dense)[0][:: repeats(config, layer)]


class Constants:
    """Collects the constants of layers and gives each its place."""

    def __init__(self, config: TpuV1Config) -> None:
        self.config = config
        self._tiles: list[bytes] = []  #: Runs of tiles.
        self._entries: list[bytes] = []
        self._tile_count = 0
        self._entry_count = 0
        self._bases: dict[str, tuple[int, int]] = {}

    def name_of(self, node: str) -> str:
        """Symbol for the constants of a node that no other node has."""
        stem = re.sub(r"\W+", "_", node, flags=re.ASCII).strip("_") or "layer"
        stem = f"n{stem}" if stem[0].isdigit() else stem
        name, suffix = stem, 1
        while name in self._bases:
            name, suffix = f"{stem}_{suffix}", suffix + 1
        return name

    def add(self, name: str, layer: Layer) -> list[Pass]:
        """Pack a layer; passes with equal tiles share them."""
        self._bases[name] = self._tile_count, self._entry_count
        base, known, passes = self._tile_count, dict[bytes, int](), []
        for index in range(-(-layer.channels // self.config.array.cols)):
            tiles = pass_tiles(self.config, layer, index)
            start, end = input_blocks(self.config, layer, index)
            packed = pack_tiles(self.config, tiles)
            if packed not in known:
                known[packed] = self._tile_count - base
                self._tiles.append(packed)
                self._tile_count += len(tiles)
            passes.append(
                Pass(
                    first_tile=known[packed],
                    tiles=len(tiles),
                    entry=index,
                    first_block=start,
                    blocks=end - start,
                )
            )
        self._entries.append(_parameters(self.config, layer))
        self._entry_count += len(passes)
        return passes

    def tile_offset(self, name: str, tile: int) -> int:
        """Byte of a tile of a layer from the start of all tiles."""
        return (self._bases[name][0] + tile) * self.config.tile_bytes

    def entry_offset(self, name: str, entry: int) -> int:
        """Byte of a parameter entry of a layer from the start of all entries."""
        return (self._bases[name][1] + entry) * entry_bytes(self.config)

    @property
    def tiles(self) -> bytes:
        """All tiles as they lie in DRAM."""
        return b"".join(self._tiles)

    @property
    def parameters(self) -> bytes:
        """All parameter entries as they lie in DRAM."""
        return b"".join(self._entries)


def _parameters(config: TpuV1Config, layer: Layer) -> bytes:
    return pack_parameters(
        config,
        bias=layer.bias,
        multiplier=layer.multiplier,
        shift=layer.shift,
        scheme=layer.scheme,
        zero_point=layer.zero_point,
        act_min=layer.clamp[0],
        act_max=layer.clamp[1],
    )
