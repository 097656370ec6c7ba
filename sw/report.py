"""What a compilation says of itself, as plain data for JSON and as lines for people."""

from collections import Counter
from dataclasses import asdict
from typing import Any

from npulse.sw.targets.executable import Executable

__all__ = ["explain", "explain_lines", "summary", "summary_lines"]


def explain(executable: Executable) -> dict[str, Any]:
    """Where each operator runs and why, ready for JSON.

    Returns
    -------
    dict
        ``operators``, a list of the fields of `Placement`; ``counts`` of operators on the NPU, on
        the host by design and on the host as a fallback; ``rules``, fallbacks by rule; ``notes``.
    """
    reasons = executable.reasons
    fallback = [r for r in reasons if r.fallback]
    npu = sum(r.placed == "npu" for r in reasons)
    return {
        "npu": executable.npu.name,
        "model": executable.source,
        "operators": [asdict(r) for r in reasons],
        "counts": {
            "npu": npu,
            "host_by_design": len(reasons) - npu - len(fallback),
            "host_fallback": len(fallback),
        },
        "rules": dict(Counter(r.rule for r in fallback)),
        "notes": list(executable.notes),
    }


def explain_lines(executable: Executable) -> list[str]:
    """One line for each operator, and how many run where."""
    counts = explain(executable)["counts"]
    lines = []
    for r in executable.reasons:
        cycles = f", about {r.estimated_cycles} cycles" if r.estimated_cycles else ""
        detail = f" ({r.attribute})" if r.attribute else ""
        remedy = f"; to change that: {r.remedy}" if r.remedy else ""
        lines.append(f"{r.placed:4} {r.op} {r.node!r}: {r.rule}{detail}{cycles}{remedy}")
    lines.append(
        f"{counts['npu']} operators on the NPU, {counts['host_by_design']} on the host by design, "
        f"{counts['host_fallback']} on the host as a fallback"
    )
    return lines


def summary(executable: Executable) -> dict[str, Any]:
    """Figures of what was compiled, ready for JSON."""
    figures = asdict(executable.summary)
    figures["segments"] = len(executable.segments)
    figures["dram_bytes"] = executable.memory.total_bytes
    figures["program_bytes"] = len(executable.program)
    return figures


def summary_lines(executable: Executable) -> list[str]:
    """The same figures for people."""
    s = executable.summary
    percent = 100 * s.sram_peak_rows / s.sram_capacity_rows
    return [
        f"layers {len(s.layers)}, instructions {s.instructions}, weights {s.weight_bytes} bytes",
        f"unified buffer: peak {s.sram_peak_rows} of {s.sram_capacity_rows} rows "
        f"({percent:.1f} %), lower bound {s.sram_lower_bound_rows}, {s.row_bytes} bytes a row",
        f"multiply-adds {s.macs}, estimate {s.estimated_cycles} cycles",
    ]
