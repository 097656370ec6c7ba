"""Lowers a placed tile program to TPU instructions, in the plainest correct order of reads.

Each chunk of a pass is ReadWeights, ReadParameters, MatrixMultiply, Activate. `insert_syncs` and
`hoist_reads` come behind.
"""

from collections.abc import Iterator, Sequence

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.sw.ir import tpu
from npulse.sw.ir.tile import BufferOp, ConvPassOp, LoadOp, ProgramOp, StoreOp, buffer_of
from npulse.sw.targets.tpu_v1.chunks import Chunk, Geometry, chunks
from npulse.sw.targets.tpu_v1.constants import Constants
from npulse.sw.targets.tpu_v1.rows import ROW_MODULUS

__all__ = ["Addresses", "lower_tile"]


class Addresses:
    """Where in DRAM constants and slots lie."""

    def __init__(
        self, constants: Constants, tiles: int, parameters: int, slots: Sequence[int]
    ) -> None:
        self.constants = constants
        self.tiles = tiles  #: Byte address of the first tile.
        self.parameters = parameters  #: Byte address of the first parameter entry.
        self.slots = slots  #: Byte address of each slot.

    def tile(self, op: ConvPassOp) -> int:
        """Byte address of the first tile of a pass."""
        name = op.constants.root_reference.data
        return self.tiles + self.constants.tile_offset(name, op.number("first_tile"))

    def entry(self, op: ConvPassOp) -> int:
        """Byte address of the parameters of a pass."""
        name = op.constants.root_reference.data
        return self.parameters + self.constants.entry_offset(name, op.number("entry"))


def lower_tile(config: TpuV1Config, program: ProgramOp, addresses: Addresses) -> tpu.ProgramOp:
    """Instructions of a tile program, ended by Halt, without Sync."""
    instructions: list[tpu.InstructionOp] = []
    half = 0
    for op in program.ops:
        if isinstance(op, LoadOp | StoreOp):
            instructions.append(_move(op, addresses))
        elif isinstance(op, ConvPassOp):
            for index, chunk in enumerate(chunks(_geometry(op), op.pair("chunk"))):
                instructions += _chunk(config, op, addresses, index, chunk, half)
                half ^= 1
        elif not isinstance(op, BufferOp):
            raise TypeError(f"op must be of the tile dialect, not {op.name}")
    return tpu.ProgramOp(program.sym_name.data, [*instructions, tpu.HaltOp()])


def _geometry(op: ConvPassOp) -> Geometry:
    return Geometry(
        out=op.out_size,
        size=op.pair("size"),
        window=op.pair("window"),
        strides=op.pair("window_strides"),
        origin=op.pair("window_origin"),
    )


def _move(op: LoadOp | StoreOp, addresses: Addresses) -> tpu.InstructionOp:
    buffer = buffer_of(op.buffer)
    kind = tpu.ReadHostOp if isinstance(op, LoadOp) else tpu.WriteHostOp
    return kind(
        op.label,
        dram_addr=addresses.slots[op.slot_index],
        ub_addr=buffer.first_row,
        rows=buffer.row_count,
        runs=1,
    )


def _chunk(
    config: TpuV1Config, op: ConvPassOp, addresses: Addresses, index: int, chunk: Chunk, half: int
) -> Iterator[tpu.InstructionOp]:
    # A single tile stays in the array for all chunks; of several the first would be gone.
    fresh = index == 0 or op.number("tiles") > 1
    if fresh:
        yield tpu.ReadWeightsOp(op.label, dram_addr=addresses.tile(op), tiles=op.number("tiles"))
    if index == 0:
        yield tpu.ReadParametersOp(op.label, dram_addr=addresses.entry(op), entries=1)
    accumulators = half * config.half_rows
    yield tpu.MatrixMultiplyOp(
        op.label, acc_addr=accumulators, switch=int(fresh), **_stream(op, chunk)
    )
    yield tpu.ActivateOp(
        op.label, switch=int(index == 0), **_requantise(config, op, chunk, accumulators)
    )


def _stream(op: ConvPassOp, chunk: Chunk) -> dict[str, int]:
    """Fields of MatrixMultiply that say which rows are read."""
    height, width = op.pair("source_size")
    (step_y, step_x), (dilate_y, dilate_x) = op.pair("strides"), op.pair("dilations")
    origin_y = op.pair("origin")[0] + chunk.conv_first[0] * step_y
    origin_x = op.pair("origin")[1] + chunk.conv_first[1] * step_x
    block = buffer_of(op.source).first_row + op.number("first_block") * height * width
    return {
        "ub_addr": (block + origin_y * width + origin_x) % ROW_MODULUS,
        "fill": op.number("fill"),
        "blocks": op.number("blocks"),
        "block_stride": height * width,
        "kernel_y": op.pair("kernel")[0],
        "kernel_x": op.pair("kernel")[1],
        "rows_y": chunk.conv_count[0],
        "rows_x": chunk.conv_count[1],
        "step_y": step_y,
        "step_x": step_x,
        "dilate_y": dilate_y,
        "dilate_x": dilate_x,
        "step_y_rows": step_y * width,
        "dilate_y_rows": dilate_y * width,
        "origin_y": origin_y,
        "origin_x": origin_x,
        "limit_y": height,
        "limit_x": width,
    }


def _requantise(
    config: TpuV1Config, op: ConvPassOp, chunk: Chunk, accumulators: int
) -> dict[str, int]:
    """Fields of Activate that say which accumulators are read and where results go."""
    out_y, out_x = op.out_size
    (step_y, step_x), (window_y, window_x) = op.pair("window_strides"), op.pair("window")
    columns = chunk.conv_count[1]
    origin_y = op.pair("window_origin")[0] + chunk.first[0] * step_y - chunk.conv_first[0]
    origin_x = op.pair("window_origin")[1] + chunk.first[1] * step_x - chunk.conv_first[1]
    target = buffer_of(op.target).first_row + op.number("target_block") * out_y * out_x
    return {
        # The address counts modulo a half, so that a window may start above its rows.
        "acc_addr": accumulators + (origin_y * columns + origin_x) % config.half_rows,
        "ub_addr": target + chunk.first[0] * out_x + chunk.first[1],
        "group": op.number("lane_group"),
        "rows_y": chunk.count[0],
        "rows_x": chunk.count[1],
        "window_y": window_y,
        "window_x": window_x,
        "step_y": step_y,
        "step_x": step_x,
        # With one row of windows nothing steps, and the product may be out of range.
        "step_y_rows": step_y * columns if chunk.count[0] > 1 else 0,
        "window_y_rows": columns,
        "origin_y": origin_y,
        "origin_x": origin_x,
        "limit_y": chunk.conv_count[0],
        "limit_x": columns,
        "ub_y_stride": out_x,
    }
