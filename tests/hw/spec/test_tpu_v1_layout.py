"""Bytes in DRAM against loops that place one value at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.arith.requantiser import Parameters
from npulse.hw.spec.numerics import RequantScheme
from npulse.hw.spec.tpu_v1 import ArrayConfig, BusConfig, TpuV1Config
from npulse.hw.spec.tpu_v1_layout import (
    PARAMETER_BYTES,
    ROUNDING_CODES,
    blocks,
    conv_tiles,
    pack_activations,
    pack_parameters,
    pack_tiles,
    tensor_rows,
    unpack_activations,
)

#: Square, tall (write groups) and wide (read groups), whole multiples and not.
SHAPES = [(1, 1), (4, 4), (8, 2), (7, 3), (5, 4), (2, 8), (3, 7), (4, 5), (1, 6), (6, 1)]


@st.composite
def configs(draw):
    rows, cols = draw(st.sampled_from(SHAPES))
    beat = st.sampled_from([1, 2, 4, 16])
    return TpuV1Config(
        array=ArrayConfig(rows=rows, cols=cols),
        bus=BusConfig(weight_bytes=draw(beat), host_bytes=draw(beat)),
    )


def integers(seed, *shape):
    """Random int8 without zero, so that a value in the wrong place is seen."""
    values = np.random.default_rng(seed).integers(-128, 127, shape)
    return np.where(values >= 0, values + 1, values).astype(np.int8)


SEEDS = st.integers(0, 2**31)
SMALL = st.integers(1, 4)
CHANNELS = st.integers(1, 20)


def channel_of_lane(config, block, lane):
    """Channel of a byte lane, from the meaning of lane groups alone; None in the padding."""
    if config.array.rows >= config.array.cols:  # whole groups of `cols` that fit in the rows
        lanes = config.array.rows // config.array.cols * config.array.cols
    else:
        lanes = config.array.cols
    return block * lanes + lane if lane < lanes else None


@settings(max_examples=40)
@given(configs(), SMALL, SMALL, CHANNELS, SEEDS)
def test_activations_lie_one_row_a_pixel_and_block(config, height, width, channels, seed):
    x = integers(seed, height, width, channels)
    raw = np.frombuffer(pack_activations(config, x), np.int8)
    rows = tensor_rows(config, height, width, channels)
    assert raw.size == rows * config.host_row_bytes
    wanted = np.zeros_like(raw)
    for block in range(blocks(config, channels)):
        for y in range(height):
            for at in range(width):
                row = (block * height + y) * width + at
                for lane in range(config.lanes):
                    channel = channel_of_lane(config, block, lane)
                    if channel is not None and channel < channels:
                        wanted[row * config.host_row_bytes + lane] = x[y, at, channel]
    np.testing.assert_array_equal(raw, wanted)


@settings(max_examples=40)
@given(configs(), SMALL, SMALL, CHANNELS, SEEDS, st.booleans())
def test_unpack_undoes_pack_whatever_the_padding_holds(
    config, height, width, channels, seed, as_array
):
    x = integers(seed, height, width, channels)
    raw = bytearray(pack_activations(config, x))
    for at in range(len(raw)):  # no value of x is zero, so zeros are padding
        raw[at] = raw[at] or 0x55
    octets = np.frombuffer(raw, np.uint8) if as_array else bytes(raw)
    np.testing.assert_array_equal(unpack_activations(config, octets, x.shape), x)


@settings(max_examples=40)
@given(configs(), st.integers(1, 9), SMALL, SMALL, CHANNELS, SEEDS)
def test_tiles_come_by_pass_block_group_and_kernel(
    config, outs, kernel_y, kernel_x, channels, seed
):
    weights = integers(seed, outs, kernel_y, kernel_x, channels)
    tiles = conv_tiles(config, weights)
    rows, cols = config.array.rows, config.array.cols
    groups = -(-cols // rows) if cols > rows else 1
    wanted = []
    for first in range(0, outs, cols):
        for block in range(blocks(config, channels)):
            for group in range(groups):
                for ky in range(kernel_y):
                    for kx in range(kernel_x):
                        tile = np.zeros((rows, cols), np.int8)
                        for r in range(rows):
                            channel = channel_of_lane(config, block, group * rows + r)
                            if channel is None or channel >= channels:
                                continue
                            for c in range(min(cols, outs - first)):
                                tile[r, c] = weights[first + c, ky, kx, channel]
                        wanted.append(tile)
    passes = -(-outs // cols)
    np.testing.assert_array_equal(tiles, np.reshape(wanted, (passes, -1, rows, cols)))


@settings(max_examples=40)
@given(configs(), st.integers(1, 3), SEEDS)
def test_rows_of_a_tile_start_on_a_beat(config, count, seed):
    tiles = integers(seed, count, config.array.rows, config.array.cols)
    raw = np.frombuffer(pack_tiles(config, tiles), np.int8)
    assert raw.size == count * config.tile_bytes
    pitch = config.tile_bytes // config.array.rows
    for tile in range(count):
        for row in range(config.array.rows):
            at = tile * config.tile_bytes + row * pitch
            np.testing.assert_array_equal(raw[at : at + config.array.cols], tiles[tile, row])
            assert not raw[at + config.array.cols : at + pitch].any()


@settings(max_examples=40)
@given(configs(), st.integers(1, 9), st.sampled_from(list(ROUNDING_CODES)), SEEDS)
def test_parameter_entry_has_a_row_for_each_byte_of_a_column(config, outs, scheme, seed):
    rng = np.random.default_rng(seed)
    bias = rng.integers(-(2**31), 2**31, outs).astype(np.int32)
    multiplier = rng.integers(0, 2**31, outs).astype(np.int32)
    shift = rng.integers(-31, 31, outs).astype(np.int8)
    zero_point, act_min, act_max = (int(v) for v in rng.integers(-128, 128, 3))
    raw = pack_parameters(
        config,
        bias=bias,
        multiplier=multiplier,
        shift=shift,
        scheme=scheme,
        zero_point=zero_point,
        act_min=act_min,
        act_max=act_max,
    )
    cols, layout = config.array.cols, Parameters()
    pitch = config.tile_bytes // config.array.rows
    passes = -(-outs // cols)
    assert len(raw) == passes * PARAMETER_BYTES * pitch
    assert layout.size == 8 * PARAMETER_BYTES
    for column in range(passes * cols):
        entry, lane = divmod(column, cols)
        octets = bytes(
            raw[(entry * PARAMETER_BYTES + n) * pitch + lane] for n in range(PARAMETER_BYTES)
        )
        if column >= outs:
            assert octets == bytes(PARAMETER_BYTES)
            continue
        # What the requantiser of the column makes of these bytes.
        seen = layout.from_bits(int.from_bytes(octets, "little"))
        assert (seen.bias, seen.multiplier) == (bias[column], multiplier[column])
        assert (seen.shift, seen.rounding) == (shift[column], ROUNDING_CODES[scheme])
        assert (seen.zero_point, seen.act_min, seen.act_max) == (zero_point, act_min, act_max)


def test_parameters_of_one_channel_byte_by_byte():
    config = TpuV1Config(array=ArrayConfig(rows=1, cols=1), bus=BusConfig(weight_bytes=1))
    raw = pack_parameters(
        config,
        bias=np.array([-2], np.int32),
        multiplier=np.array([0x40000001], np.int32),
        shift=np.array([-3], np.int8),
        scheme=RequantScheme.TFLITE_Q31_AWAY,
        zero_point=-1,
        act_min=-128,
        act_max=127,
    )
    assert raw == bytes.fromhex("feffffff01000040bdff807f")


@pytest.mark.parametrize("channels, count", [(1, 1), (6, 1), (7, 2), (13, 3)])
def test_blocks_round_up(channels, count):
    tall = TpuV1Config(array=ArrayConfig(rows=7, cols=3))  # two groups of three lanes
    assert blocks(tall, channels) == count
    assert tensor_rows(tall, 2, 5, channels) == 10 * count
