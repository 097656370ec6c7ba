"""The result of ``npulse run`` as JSON values."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.sw.cli.compile import executable_report
from npulse.sw.driver.device import RunStats
from npulse.sw.driver.runtime import RunResult
from npulse.sw.targets.executable import Executable, NpuSegment

__all__ = ["Totals", "inline_outputs", "run_report", "totals"]

#: Elements up to which outputs stand in the report itself.
_INLINE_ELEMENTS = 4096


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Sums over all runs of one command."""

    runs: int
    stats: RunStats
    macs: int  #: Multiply-adds of the mathematics.
    checked: int
    wrong: int

    @property
    def equal(self) -> bool:
        """Whether a check was made and found no difference."""
        return self.checked > 0 and self.wrong == 0


def totals(executable: Executable, results: Sequence[RunResult]) -> Totals:
    """Add up the runs of an executable."""
    return Totals(
        runs=len(results),
        stats=sum((result.stats for result in results), RunStats()),
        macs=len(results) * executable.summary.macs,
        checked=sum(result.checked for result in results),
        wrong=sum(m.wrong for result in results for m in result.mismatches),
    )


def run_report(
    executable: Executable, results: Sequence[RunResult], *, engine: str, inputs: str
) -> dict[str, Any]:
    """Everything that a run has to report; outputs and files are the caller's to add.

    Parameters
    ----------
    results : sequence of RunResult
        One for each set of inputs.
    inputs : str
        Where the inputs came from.
    """
    total = totals(executable, results)
    peak = executable.npu.config.peak_macs_per_cycle
    cycles = total.stats.cycles
    return {
        **executable_report(executable),
        "engine": engine,
        "inputs": inputs,
        "runs": total.runs,
        "check": _check(total, results),
        "counters": asdict(total.stats),
        "breakdown": total.stats.breakdown,
        "macs": total.macs,
        "peak_macs": cycles * peak,
        "utilisation": total.macs / (cycles * peak) if cycles else 0.0,
        "bytes_moved": _bytes_moved(executable, total),
    }


def _check(total: Totals, results: Sequence[RunResult]) -> dict[str, Any] | None:
    if not total.checked:
        return None
    found = [str(m) for result in results for m in result.mismatches]
    return {
        "equal": total.equal,
        "values": total.checked,
        "wrong": total.wrong,
        "differences": found,
    }


def _bytes_moved(executable: Executable, total: Totals) -> dict[str, dict[str, int]]:
    """Bytes over each port, and the least that any program must move."""
    bus = executable.npu.config.bus
    segments = [s for s in executable.segments if isinstance(s, NpuSegment)]
    read = sum(binding.length_bytes for s in segments for binding in s.inputs)
    written = sum(binding.length_bytes for s in segments for binding in s.outputs)
    stats, runs = total.stats, total.runs
    return {
        "weights_read": {
            "bytes": stats.weight_beats * bus.weight_bytes,
            "minimum": runs * executable.summary.weight_bytes,
        },
        "host_read": {"bytes": stats.host_read_beats * bus.host_bytes, "minimum": runs * read},
        "host_written": {
            "bytes": stats.host_write_beats * bus.host_bytes,
            "minimum": runs * written,
        },
    }


def inline_outputs(outputs: dict[str, NDArray[Any]]) -> dict[str, Any] | None:
    """Outputs as JSON values; None where they are too many or JSON has no such number."""
    if sum(array.size for array in outputs.values()) > _INLINE_ELEMENTS:
        return None
    lists = {
        name: {
            "dtype": array.dtype.name,
            "shape": list(array.shape),
            "data": np.asarray(array).reshape(-1).tolist(),
        }
        for name, array in outputs.items()
    }
    numbers = (v for entry in lists.values() for v in entry["data"] if isinstance(v, float))
    return lists if all(map(math.isfinite, numbers)) else None
