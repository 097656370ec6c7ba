"""Rows of the memories that one instruction touches, from its fields alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_layout import PARAMETER_BYTES
from npulse.sw.ir.tpu import (
    ActivateOp,
    InstructionOp,
    MatrixMultiplyOp,
    ReadHostOp,
    ReadParametersOp,
    ReadWeightsOp,
    WriteHostOp,
)

__all__ = ["ROW_MODULUS", "Span", "buffer_reads", "buffer_writes", "dram_span", "weight_tiles"]

#: Row addresses of the unified buffer count modulo this.
ROW_MODULUS = 1 << 17


@dataclass(frozen=True)
class Span:
    """Rows or bytes from the first to the last, both inclusive."""

    first: int
    last: int

    def meets(self, other: "Span") -> bool:
        """Whether the two have something in common."""
        return self.first <= other.last and other.first <= self.last


def weight_tiles(config: TpuV1Config, op: MatrixMultiplyOp) -> int:
    """Tiles that a matrix multiply takes from the FIFO."""
    f = op.fields
    passes = f["blocks"] * config.read_groups * f["kernel_y"] * f["kernel_x"]
    return passes if f["switch"] else passes - 1


def buffer_reads(op: InstructionOp) -> Span | None:
    """Rows of the unified buffer from which an instruction reads; None for none."""
    if isinstance(op, WriteHostOp):
        return _moved(op)
    if isinstance(op, MatrixMultiplyOp):
        return _streamed(op.fields)
    return None


def buffer_writes(op: InstructionOp) -> Span | None:
    """Rows of the unified buffer that an instruction writes; None for none."""
    if isinstance(op, ReadHostOp):
        return _moved(op)
    if isinstance(op, ActivateOp):
        f = op.fields
        last = f["ub_addr"] + (f["rows_y"] - 1) * f["ub_y_stride"] + f["rows_x"] - 1
        return Span(f["ub_addr"], last)
    return None


def dram_span(config: TpuV1Config, op: InstructionOp) -> Span | None:
    """Bytes of DRAM that an instruction reads or writes; None for none."""
    f = op.fields
    if isinstance(op, ReadWeightsOp):
        return Span(f["dram_addr"], f["dram_addr"] + f["tiles"] * config.tile_bytes - 1)
    if isinstance(op, ReadParametersOp):
        entry = PARAMETER_BYTES * config.weight_row_beats * config.bus.weight_bytes
        return Span(f["dram_addr"], f["dram_addr"] + f["entries"] * entry - 1)
    if isinstance(op, ReadHostOp | WriteHostOp):
        run = f["rows"] * config.host_row_bytes
        return Span(f["dram_addr"], f["dram_addr"] + (f["runs"] - 1) * f["dram_stride"] + run - 1)
    return None


def _moved(op: ReadHostOp | WriteHostOp) -> Span:
    f = op.fields
    return Span(f["ub_addr"], f["ub_addr"] + (f["runs"] - 1) * f["ub_stride"] + f["rows"] - 1)


def _offsets(f: dict[str, int], axis: str, outer: int, inner: int) -> NDArray[np.int64]:
    """Row offsets from the first tap along an axis, of the taps within the limits."""
    out = np.arange(f[f"rows_{axis}"])[:, None]
    tap = np.arange(f[f"kernel_{axis}"])[None, :]
    place = f[f"origin_{axis}"] + out * f[f"step_{axis}"] + tap * f[f"dilate_{axis}"]
    inside = (place >= 0) & (place < f[f"limit_{axis}"])
    return (out * outer + tap * inner)[inside]


def _streamed(f: dict[str, int]) -> Span | None:
    y = _offsets(f, "y", f["step_y_rows"], f["dilate_y_rows"])
    x = _offsets(f, "x", f["step_x"], f["dilate_x"])
    if not y.size or not x.size:
        return None
    first = (f["ub_addr"] + int(y.min() + x.min())) % ROW_MODULUS
    reach = int(y.max() - y.min() + x.max() - x.min())
    return Span(first, first + (f["blocks"] - 1) * f["block_stride"] + reach)
