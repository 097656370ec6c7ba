"""Proves the order of transfers through DRAM: nothing is read there before it was written.

The host unit carries out its instructions in order and one at a time, so a row of DRAM that an
earlier instruction wrote holds its value; no Sync is needed. What the driver fills before the
start may be read at any time, and what it reads at the end must be complete.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.sw.ir.tpu import ProgramOp, ReadHostOp, WriteHostOp
from npulse.sw.targets.executable import DramRange

__all__ = ["order_faults"]


def order_faults(
    program: ProgramOp,
    config: TpuV1Config,
    tensors: Sequence[DramRange],
    given: Sequence[int],
    wanted: Sequence[int],
) -> Iterator[str]:
    """One sentence for each transfer that reads too early, and each output that is incomplete.

    Parameters
    ----------
    tensors : sequence of DramRange
        All tensors in DRAM.
    given, wanted : sequence of int
        Addresses of those that the driver fills before the start, and reads at the end.
    """
    row_bytes = config.host_row_bytes
    known = {r.address: np.zeros(r.length_bytes // row_bytes, np.bool_) for r in tensors}
    for address in given:
        known[address][:] = True
    for index, op in enumerate(program.instructions):
        if not isinstance(op, ReadHostOp | WriteHostOp):
            continue
        place = _range_of(op, tensors)
        if place is None:
            continue  # a fault of its address, which is told elsewhere
        rows = _rows(op.fields, place.address, row_bytes)
        rows = rows[rows < known[place.address].size]
        if isinstance(op, WriteHostOp):
            known[place.address][rows] = True
        elif not known[place.address][rows].all():
            yield f"instruction {index}, {op.name}, must read {place.name} after it was written"
    for place in tensors:
        if place.address in wanted and not known[place.address].all():
            missing = int((~known[place.address]).sum())
            yield f"the end must leave {place.name} complete, not without {missing} rows"


def _range_of(op: ReadHostOp | WriteHostOp, tensors: Sequence[DramRange]) -> DramRange | None:
    address = op.fields["dram_addr"]
    return next((r for r in tensors if r.address <= address < r.end), None)


def _rows(f: dict[str, int], start: int, row_bytes: int) -> NDArray[np.int64]:
    """Rows of a tensor that a transfer moves."""
    first = (f["dram_addr"] - start) // row_bytes
    runs = np.arange(f["runs"])[:, None] * (f["dram_stride"] // row_bytes)
    return (first + runs + np.arange(f["rows"])[None, :]).ravel()
