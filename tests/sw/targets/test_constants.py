"""Weights and parameters as they lie in DRAM."""

import numpy as np
import pytest

from npulse.hw.spec.flavours import resolve
from npulse.hw.spec.tpu_v1_layout import conv_tiles, pack_tiles
from npulse.sw.targets.tpu_v1.constants import Constants, entry_bytes, input_blocks, pass_tiles
from npulse.sw.targets.tpu_v1.layers import layer_of

SHAPES = ["8x8", "5x3", "16x5", "3x10", "1x1"]


def config_of(shape: str):
    rows, cols = shape.split("x")
    return resolve("tpu-v1:sim", [f"array.rows={rows}", f"array.cols={cols}"]).config


def layer(made):
    return layer_of(made.value.owner, made.builder.weights)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_dense_layer_is_packed_as_the_layout_says(net, shape) -> None:
    config, made = config_of(shape), layer(net().input(1, 5, 5, 11).conv(13, (2, 3)))
    constants = Constants(config)
    passes = constants.add("conv", made)
    assert constants.tiles == pack_tiles(config, conv_tiles(config, made.weights))
    assert len(constants.parameters) == len(passes) * entry_bytes(config)
    assert [p.entry for p in passes] == list(range(len(passes)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("groups", [1, 2, 4, 12])
def test_tiles_of_groups_hold_each_weight_once_and_zeros_besides(net, shape, groups) -> None:
    config = config_of(shape)
    made = layer(net().input(1, 5, 5, 12).conv(24, (2, 1), groups=groups))
    total = np.zeros((24, 2, 1, 60), np.int64)
    for index in range(-(-24 // config.array.cols)):
        start, end = input_blocks(config, made, index)
        tiles = pass_tiles(config, made, index)
        split = tiles.reshape(end - start, config.read_groups, 2, 1, config.array.rows, -1)
        for block in range(end - start):
            lanes = split[block].transpose(1, 2, 0, 3, 4).reshape(2, 1, -1, config.array.cols)
            first = (start + block) * config.block_channels
            for column in range(min(config.array.cols, 24 - index * config.array.cols)):
                lane = lanes[..., : config.block_channels, column]
                target = total[index * config.array.cols + column]
                width = min(config.block_channels, 60 - first)
                target[..., first : first + width] += lane[..., :width]
    depth = 12 // groups
    for channel in range(24):
        at = channel // (24 // groups) * depth
        assert (total[channel, ..., at : at + depth] == made.weights[channel]).all()
        total[channel, ..., at : at + depth] = 0
    assert not total.any()


def test_a_depthwise_pass_reads_the_blocks_of_its_own_channels_only(net) -> None:
    made = layer(net().input(1, 5, 5, 24).conv(24, groups=24))
    assert [input_blocks(config_of("8x8"), made, n) for n in range(3)] == [(0, 1), (1, 2), (2, 3)]


def test_copies_share_one_identity_tile(net) -> None:
    config, made = config_of("8x8"), layer(net().input(1, 4, 4, 20).pool())
    constants = Constants(config)
    passes = constants.add("pool", made)
    assert [p.first_tile for p in passes] == [0, 0, 1]  # the third has 4 channels only
    identity = np.frombuffer(constants.tiles, np.int8)[:64].reshape(8, 8)
    assert (identity == np.eye(8)).all()


def test_offsets_count_from_the_start_of_all(net) -> None:
    config = config_of("8x8")
    constants = Constants(config)
    first, second = (layer(net(n).input(1, 4, 4, 8).conv(9)) for n in range(2))
    for made in (first, second):
        constants.add(constants.name_of("conv/1"), made)
    assert constants.tile_offset("conv_1_1", 1) == (2 * 9 + 1) * config.tile_bytes
    assert constants.entry_offset("conv_1_1", 1) == (2 + 1) * entry_bytes(config)


@pytest.mark.parametrize(("node", "name"), [("a/b:c", "a_b_c"), ("3x", "n3x"), ("é", "layer")])
def test_symbols_of_odd_node_names(node, name) -> None:
    assert Constants(config_of("8x8")).name_of(node) == name
