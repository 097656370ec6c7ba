"""Lowers a placed tile program to TPU instructions, in the plainest correct order of reads.

Each chunk of a pass is ReadWeights, ReadParameters, MatrixMultiply, Activate. `insert_syncs` and
`hoist_reads` come behind.
"""

from collections.abc import Iterator, Sequence

from xdsl.ir import Operation

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.sw.ir import tpu
from npulse.sw.ir.tile import (
    BufferOp,
    ConvPartOp,
    ConvPassOp,
    FinishPassOp,
    LoadOp,
    ProgramOp,
    StoreOp,
    WaitOp,
    buffer_of,
)
from npulse.sw.targets.tpu_v1.chunks import Chunk, Geometry, chunks
from npulse.sw.targets.tpu_v1.constants import Constants
from npulse.sw.targets.tpu_v1.rows import ROW_MODULUS

__all__ = ["Addresses", "lower_tile"]

Pair = tuple[int, int]


class Addresses:
    """Where in DRAM constants and slots lie."""

    def __init__(
        self, constants: Constants, tiles: int, parameters: int, slots: Sequence[int]
    ) -> None:
        self.constants = constants
        self.tiles = tiles  #: Byte address of the first tile.
        self.parameters = parameters  #: Byte address of the first parameter entry.
        self.slots = slots  #: Byte address of each slot.

    def tile(self, op: ConvPassOp | ConvPartOp, run: int = 0) -> int:
        """Byte address of the first tile of a pass, or of a run of a part."""
        name = op.constants.root_reference.data
        index = op.number("first_tile") + run * op.number("tile_stride")
        return self.tiles + self.constants.tile_offset(name, index)

    def entry(self, op: ConvPassOp | FinishPassOp) -> int:
        """Byte address of the parameters of a pass."""
        name = op.constants.root_reference.data
        return self.parameters + self.constants.entry_offset(name, op.number("entry"))


def lower_tile(
    config: TpuV1Config, program: ProgramOp, addresses: Addresses
) -> tuple[tpu.ProgramOp, dict[tpu.InstructionOp, Operation]]:
    """Instructions of a tile program, ended by Halt, and what each is for.

    The only Syncs are those of ``tile.wait``.
    """
    origin: dict[tpu.InstructionOp, Operation] = {}
    half = 0
    for op in program.ops:
        made: list[tpu.InstructionOp] = []
        if isinstance(op, LoadOp | StoreOp):
            made += _move(config, op, addresses)
        elif isinstance(op, WaitOp):
            made.append(tpu.SyncOp(op.label, units=op.number("units")))
        elif isinstance(op, ConvPassOp):
            for index, chunk in enumerate(chunks(_geometry(op), op.pair("chunk"))):
                made += _chunk(config, op, addresses, index, chunk, half)
                half ^= 1
        elif isinstance(op, ConvPartOp):
            made += _part(config, op, addresses, half)
        elif isinstance(op, FinishPassOp):
            made += _finish(config, op, addresses, half)
            half ^= 1
        elif not isinstance(op, BufferOp):
            raise TypeError(f"op must be of the tile dialect, not {op.name}")
        origin.update(dict.fromkeys(made, op))
    return tpu.ProgramOp(program.sym_name.data, [*origin, tpu.HaltOp()]), origin


def _geometry(op: ConvPassOp | FinishPassOp) -> Geometry:
    return Geometry(
        out=op.out_size if isinstance(op, ConvPassOp) else op.pair("out"),
        size=op.pair("size"),
        window=op.pair("window"),
        strides=op.pair("window_strides"),
        origin=op.pair("window_origin"),
    )


def _move(
    config: TpuV1Config, op: LoadOp | StoreOp, addresses: Addresses
) -> Iterator[tpu.InstructionOp]:
    """One instruction for whole rows of pixels, one a block for a part of them."""
    buffer = buffer_of(op.buffer)
    kind = tpu.ReadHostOp if isinstance(op, LoadOp) else tpu.WriteHostOp
    slot, first_row = addresses.slots[op.slot_index], buffer.first_row
    if op.image is None:
        yield kind(op.label, dram_addr=slot, ub_addr=first_row, rows=buffer.row_count, runs=1)
        return
    (height, width), (top, left), (rows, columns) = (op.pair(n) for n in ("image", "at", "part"))
    first, count = op.number("first_block"), op.number("blocks")
    start, row_bytes = first * height * width + top * width + left, config.host_row_bytes
    if columns < width:
        for block in range(count):
            yield kind(
                op.label,
                dram_addr=slot + (start + block * height * width) * row_bytes,
                ub_addr=first_row + block * rows * columns,
                rows=columns,
                runs=rows,
                dram_stride=width * row_bytes,
                ub_stride=columns,
            )
        return
    contiguous = rows == height or count == 1
    yield kind(
        op.label,
        dram_addr=slot + start * row_bytes,
        ub_addr=first_row,
        rows=count * rows * width if contiguous else rows * width,
        runs=1 if contiguous else count,
        dram_stride=0 if contiguous else height * width * row_bytes,
        ub_stride=0 if contiguous else rows * width,
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
    place = chunk.conv_first, chunk.conv_count
    if op.number("repeat", 1) > 1:
        yield from _repeated(op, place, accumulators, fresh)
    else:
        fields = _stream(op, *place)
        yield tpu.MatrixMultiplyOp(op.label, acc_addr=accumulators, switch=int(fresh), **fields)
    yield tpu.ActivateOp(
        op.label, switch=int(index == 0), **_requantise(config, op, chunk, accumulators)
    )


def _repeated(
    op: ConvPassOp, place: tuple[Pair, Pair], accumulators: int, fresh: bool
) -> Iterator[tpu.InstructionOp]:
    """One instruction for each kernel place, all with the tile that the first one takes."""
    rows, columns = op.pair("kernel")
    for ky in range(rows):
        for kx in range(columns):
            later = int((ky, kx) != (0, 0))
            yield tpu.MatrixMultiplyOp(
                op.label,
                acc_addr=accumulators,
                accumulate=later,
                switch=int(fresh and not later),
                **_stream(op, *place, tap=(ky, kx), span=(1, 1)),
            )


def _part(
    config: TpuV1Config, op: ConvPartOp, addresses: Addresses, half: int
) -> Iterator[tpu.InstructionOp]:
    for run in range(op.number("runs")):
        yield tpu.ReadWeightsOp(
            op.label, dram_addr=addresses.tile(op, run), tiles=op.number("tiles")
        )
    yield tpu.MatrixMultiplyOp(
        op.label,
        acc_addr=half * config.half_rows + op.number("acc_row"),
        accumulate=op.number("accumulate"),
        switch=1,
        **_stream(op, (0, 0), op.pair("size")),
    )


def _finish(
    config: TpuV1Config, op: FinishPassOp, addresses: Addresses, half: int
) -> Iterator[tpu.InstructionOp]:
    yield tpu.ReadParametersOp(op.label, dram_addr=addresses.entry(op), entries=1)
    (chunk,) = chunks(_geometry(op), op.pair("out"))
    fields = _requantise(config, op, chunk, half * config.half_rows)
    yield tpu.ActivateOp(op.label, switch=1, **fields)


def _stream(
    op: ConvPassOp | ConvPartOp,
    first: Pair,
    count: Pair,
    tap: Pair = (0, 0),
    span: Pair | None = None,
) -> dict[str, int]:
    """Fields of MatrixMultiply that say which rows are read."""
    height, width = op.pair("source_size")
    (step_y, step_x), (dilate_y, dilate_x) = op.pair("strides"), op.pair("dilations")
    origin_y = op.pair("origin")[0] + first[0] * step_y + tap[0] * dilate_y
    origin_x = op.pair("origin")[1] + first[1] * step_x + tap[1] * dilate_x
    kernel = span or op.pair("kernel")
    block = buffer_of(op.source).first_row + op.number("first_block") * height * width
    return {
        "ub_addr": (block + origin_y * width + origin_x) % ROW_MODULUS,
        "fill": op.number("fill"),
        "blocks": op.number("blocks"),
        "block_stride": height * width,
        "kernel_y": kernel[0],
        "kernel_x": kernel[1],
        "rows_y": count[0],
        "rows_x": count[1],
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
    config: TpuV1Config, op: ConvPassOp | FinishPassOp, chunk: Chunk, accumulators: int
) -> dict[str, int]:
    """Fields of Activate that say which accumulators are read and where results go."""
    height, width = op.target_size_pair if isinstance(op, ConvPassOp) else op.pair("target_size")
    (step_y, step_x), (window_y, window_x) = op.pair("window_strides"), op.pair("window")
    columns = chunk.conv_count[1]
    origin_y = op.pair("window_origin")[0] + chunk.first[0] * step_y - chunk.conv_first[0]
    origin_x = op.pair("window_origin")[1] + chunk.first[1] * step_x - chunk.conv_first[1]
    top, left = op.pair("target_at")[0] + chunk.first[0], op.pair("target_at")[1] + chunk.first[1]
    target = buffer_of(op.target).first_row + op.number("target_block") * height * width
    return {
        # The address counts modulo a half, so that a window may start above its rows.
        "acc_addr": accumulators + (origin_y * columns + origin_x) % config.half_rows,
        "ub_addr": target + top * width + left,
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
        "ub_y_stride": width,
    }
