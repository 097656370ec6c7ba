"""How tensors, weight tiles and requantisation parameters lie in DRAM for the TPU v1 style.

Compiler, driver and benches all pack with these functions, so that there is one statement of the
layout. Letters: H, W, C are height, width and channels; B blocks of `block_channels` channels.
"""

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.numerics import RequantScheme
from npulse.hw.spec.tpu_v1 import TpuV1Config

__all__ = [
    "PARAMETER_BYTES",
    "ROUNDING_CODES",
    "blocks",
    "conv_tiles",
    "pack_activations",
    "pack_parameters",
    "pack_tiles",
    "tensor_rows",
    "unpack_activations",
]

#: Bytes of one column's parameters: bias 4, multiplier 4, shift (6 bits, two's complement) and
#: rounding (2 bits above them) 1, zero point 1, lower bound 1, upper bound 1.
PARAMETER_BYTES = 12

#: The two bits that name a scheme to the requantiser.
ROUNDING_CODES = {
    RequantScheme.TFLITE_Q31_DOUBLE: 0,
    RequantScheme.TFLITE_Q31_SINGLE: 1,
    RequantScheme.TFLITE_Q31_AWAY: 2,
}

Int8 = NDArray[np.int8]


def blocks(config: TpuV1Config, channels: int) -> int:
    """Blocks that hold `channels` channels."""
    return -(-channels // config.block_channels)


def tensor_rows(config: TpuV1Config, height: int, width: int, channels: int) -> int:
    """Rows of the unified buffer (and of DRAM) that a tensor takes."""
    return blocks(config, channels) * height * width


def pack_activations(config: TpuV1Config, x: Int8) -> bytes:
    """Rows in DRAM of `x`, (H, W, C) int8: row ``(block * H + y) * W + x``, lane = channel.

    A row has `host_row_bytes` bytes; lanes without a channel are zero.
    """
    height, width, channels = x.shape
    count = blocks(config, channels)
    padded = np.zeros((height, width, count * config.block_channels), np.int8)
    padded[..., :channels] = x
    split = padded.reshape(height * width, count, config.block_channels).transpose(1, 0, 2)
    rows = np.zeros((count, height * width, config.host_row_bytes), np.int8)
    rows[..., : config.block_channels] = split
    return rows.tobytes()


def unpack_activations(
    config: TpuV1Config, raw: bytes | NDArray[np.uint8], shape: tuple[int, int, int]
) -> Int8:
    """Tensor (H, W, C) int8 of the rows that `pack_activations` would make of it."""
    height, width, channels = shape
    rows = np.frombuffer(raw, np.int8).reshape(-1, height * width, config.host_row_bytes)
    split = rows[..., : config.block_channels].transpose(1, 0, 2)
    return split.reshape(height, width, -1)[..., :channels].copy()


def conv_tiles(config: TpuV1Config, weights: Int8) -> Int8:
    """Tiles of convolution weights in the order in which `MatrixMultiply` takes them.

    Parameters
    ----------
    weights : (O, KH, KW, C) int8
        A fully connected layer on an (H, W, C) tensor of one pixel has KH = KW = 1.

    Returns
    -------
    (N, T, rows, cols) int8
        For each of the N = ceil(O / cols) passes over output channels, one tile for each block,
        read group, kernel row and kernel column, in this order; entry (r, c) multiplies the
        channel of array row r for the output channel of column c.
    """
    rows, cols = config.array.rows, config.array.cols
    outs, kernel_y, kernel_x, channels = weights.shape
    passes, count = -(-outs // cols), blocks(config, channels)
    padded = np.zeros(
        (passes * cols, kernel_y, kernel_x, count, config.read_groups * rows), np.int8
    )
    lanes = np.zeros((outs, kernel_y, kernel_x, count * config.block_channels), np.int8)
    lanes[..., :channels] = weights
    lanes = lanes.reshape(outs, kernel_y, kernel_x, count, config.block_channels)
    padded[:outs, ..., : config.block_channels] = lanes
    split = padded.reshape(passes, cols, kernel_y, kernel_x, count, config.read_groups, rows)
    tiles = split.transpose(0, 4, 5, 2, 3, 6, 1)  # pass, block, group, ky, kx, row, column
    return tiles.reshape(passes, -1, rows, cols)


def pack_tiles(config: TpuV1Config, tiles: Int8) -> bytes:
    """Bytes in DRAM of tiles (..., rows, cols) int8: each row padded to whole beats."""
    padded = np.zeros((*tiles.shape[:-1], config.weight_row_beats * config.bus.weight_bytes), "i1")
    padded[..., : config.array.cols] = tiles
    return padded.tobytes()


def pack_parameters(
    config: TpuV1Config,
    *,
    bias: NDArray[np.int32],
    multiplier: NDArray[np.int32],
    shift: NDArray[np.int8],
    scheme: RequantScheme,
    zero_point: int,
    act_min: int,
    act_max: int,
) -> bytes:
    """Bytes in DRAM of the parameter entries that `ReadParameters` fetches, one a pass.

    Parameters
    ----------
    bias, multiplier, shift : (O,) int32, int32, int8
        One an output channel; a positive shift is to the left. Columns without a channel get
        parameters that make zeros.
    scheme : RequantScheme
        One of `ROUNDING_CODES`.

    Returns
    -------
    bytes
        ceil(O / cols) entries of `PARAMETER_BYTES` rows of one byte a column, padded to beats.
    """
    cols, outs = config.array.cols, len(bias)
    passes = -(-outs // cols)
    columns = np.zeros((passes * cols, PARAMETER_BYTES), np.uint8)
    columns[:outs, 0:4] = np.ascontiguousarray(bias, "<i4")[:, None].view(np.uint8)
    columns[:outs, 4:8] = np.ascontiguousarray(multiplier, "<i4")[:, None].view(np.uint8)
    columns[:outs, 8] = (np.asarray(shift, np.int64) & 0x3F) | (ROUNDING_CODES[scheme] << 6)
    columns[:outs, 9:12] = np.array([zero_point, act_min, act_max], np.int64) & 0xFF
    rows = columns.reshape(passes, cols, PARAMETER_BYTES).transpose(0, 2, 1)
    padded = np.zeros(
        (passes, PARAMETER_BYTES, config.weight_row_beats * config.bus.weight_bytes), np.uint8
    )
    padded[..., :cols] = rows
    return padded.tobytes()
