"""What was compiled and what happened, as lines of text for the screen."""

from collections.abc import Iterator

from rich.markup import escape

from npulse.sw.driver.device import RunStats
from npulse.sw.targets.executable import Executable

__all__ = ["compiled_lines", "cycle_lines"]

#: What the matrix unit did, as people would say it.
_MEANINGS = {
    "busy": "busy",
    "wait_weights": "waiting for weights",
    "wait_activations": "waiting for activations",
    "wait_accumulators": "waiting for accumulators",
    "fill_drain": "filling and draining",
    "idle": "no instruction",
}
_BAR_WIDTH = 24
#: Layers that are listed on the screen.
_LAYERS = 12


def compiled_lines(executable: Executable) -> Iterator[str]:
    """Yield layers, instructions, bytes and the placement in SRAM."""
    summary = executable.summary
    host = [p for p in executable.reasons if p.placed == "host"]
    yield (
        f"[bold]compiled[/] {len(summary.layers)} layers for the NPU; "
        f"{len(host)} operators stay on the host"
    )
    yield f"  {'layer':<18} {'operator':<16} {'multiply-adds':>14} {'tiles':>7} {'instr.':>7}"
    for layer in summary.layers[:_LAYERS]:
        kind = layer.op.removeprefix("graph.")
        yield (
            f"  {escape(_short(layer.node)):<18} {kind:<16} {layer.macs:>14,} {layer.tiles:>7,} "
            f"{layer.instructions:>7,}"
        )
    if len(summary.layers) > _LAYERS:
        yield f"  and {len(summary.layers) - _LAYERS} layers more; --json has them all"
    peak, bound, capacity = (
        rows * summary.row_bytes
        for rows in (
            summary.sram_peak_rows,
            summary.sram_lower_bound_rows,
            summary.sram_capacity_rows,
        )
    )
    yield (
        f"  {summary.instructions:,} instructions, {summary.weight_bytes:,} weight bytes; "
        f"SRAM peak {peak:,} of {capacity:,} bytes"
    )
    yield (
        f"  (no placement takes less than {bound:,}); {summary.macs:,} multiply-adds an inference"
    )
    for placement in host:
        if placement.fallback:
            yield f"  on host: {escape(_short(placement.node))}, {escape(placement.attribute)}"
    for note in executable.notes:
        yield f"  note: {escape(note)}"


def cycle_lines(stats: RunStats, macs: int, peak: int) -> Iterator[str]:
    """Yield cycles, utilisation, and a bar for each thing that the matrix unit did.

    Parameters
    ----------
    macs : int
        Multiply-adds of the mathematics in these cycles.
    peak : int
        Multiply-adds of the array in one cycle.
    """
    used = macs / (stats.cycles * peak) if stats.cycles else 0.0
    yield (
        f"[bold]cycles[/] {stats.cycles:,} at RTL; utilisation {used:.1%} "
        f"({macs:,} of {stats.cycles * peak:,} multiply-adds)"
    )
    for name, cycles in stats.breakdown.items():
        share = cycles / stats.cycles if stats.cycles else 0.0
        bar = "█" * round(share * _BAR_WIDTH)
        yield f"  {_MEANINGS[name]:<25} {cycles:>9,} {share:>6.1%} {bar}"
    total = sum(stats.breakdown.values())
    yield f"  {'sum':<25} {total:>9,} {'all cycles' if total == stats.cycles else 'NOT ALL'}"


def _short(name: str, limit: int = 18) -> str:
    return name if len(name) <= limit else name[: limit - 2] + ".."
