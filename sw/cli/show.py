"""What ``npulse run`` shows of the results."""

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape

from npulse.sw.cli import digits
from npulse.sw.cli.figures import cycle_lines
from npulse.sw.cli.report import Totals
from npulse.sw.driver.runtime import RunResult, Runtime

__all__ = ["show_check", "show_cycles", "show_digits", "show_outputs"]


def show_digits(
    console: Console,
    runtime: Runtime,
    results: list[RunResult],
    report: dict[str, Any],
) -> None:
    """Draw the images with what the model says, and add the accuracy to the report."""
    pictures, labels = digits.images(len(results))
    outputs = [result.outputs for result in results]
    for line in digits.drawing(pictures, [int(label) for label in labels], outputs):
        console.print(line, markup=False)
    found = digits.accuracy(runtime)
    console.print(
        f"[bold]accuracy[/] int8 {found.int8 / found.images:.1%} by golden, "
        f"float {found.float32 / found.images:.1%}, on {found.images} bundled test images"
    )
    report["accuracy"] = asdict(found)


def show_outputs(console: Console, results: list[RunResult]) -> None:
    """Show the first values of each output of the first run."""
    for name, array in results[0].outputs.items():
        values = ", ".join(f"{value:g}" for value in array.reshape(-1)[:8])
        more = ", ..." if array.size > 8 else ""
        shape = " x ".join(map(str, array.shape)) or "scalar"
        console.print(
            f"[bold]output[/] {escape(name)}: {array.dtype} {shape} = {values}{more}", style=None
        )


def show_check(console: Console, total: Totals, results: list[RunResult]) -> None:
    """Say whether every value equals golden, and the first that do not."""
    checked, wrong = total.checked, total.wrong
    if not checked:
        console.print("output == golden: not checked; add --check")
        return
    verdict = "no" if wrong else "yes"
    console.print(
        f"[bold]output == golden: {verdict}, {checked - wrong:,} of {checked:,} values[/]"
    )
    for mismatch in [m for result in results for m in result.mismatches][:5]:
        console.print(f"  {mismatch}", markup=False)


def show_cycles(console: Console, total: Totals, peak: int, engine: str, seconds: float) -> None:
    """Show cycles, utilisation and stalls, and how fast the engine was.

    Parameters
    ----------
    peak : int
        Multiply-adds of the array in one cycle.
    """
    cycles = total.stats.cycles
    if not cycles:
        console.print("[bold]cycles[/] none: every operator runs on the host")
        return
    for line in cycle_lines(total.stats, total.macs, peak):
        console.print(line)
    console.print(
        f"  {total.runs} x {cycles // total.runs:,} cycles in {seconds:.1f} s of {engine}, "
        f"{cycles / seconds:,.0f} cycles/s"
    )
