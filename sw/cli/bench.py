"""``npulse bench``: how fast the simulators of this machine are.

The measurement is a program of the engine, started as a process of its own: its processor time is
that of the simulators alone.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from npulse.sw.cli.options import JsonOption, find_npu, screen, write_json
from npulse.sw.driver.rtl import make_system

__all__ = ["FULL", "QUICK", "Sizes", "bench", "engine", "machine"]

_PROGRAM = "npulse.sim.engine.bench_program"
#: DRAM beside the core; its size costs no time, as only what is accessed is touched.
_MEMORY_BYTES = 1 << 20

bench = typer.Typer(help="Measure the speed of the simulators.")


@dataclass(frozen=True)
class Sizes:
    """What one benchmark measures."""

    arrays: tuple[str, ...]  #: Rows and columns: ``16x16``.
    clusters: int  #: Of control logic, about 300 cells each.
    machines: tuple[str, ...]  #: NPUs.
    verilator: bool


FULL = Sizes(
    ("16x16", "64x64", "256x256"), 10, ("tpu-v1:sim", "tpu-v1:fpga", "tpu-v1:silicon"), True
)
#: Verilator's models alone take minutes to build.
QUICK = Sizes(("16x16",), 3, ("tpu-v1:sim",), False)

QuickOption = Annotated[
    bool, typer.Option("--quick", help="Small sizes, without Verilator: within a minute.")
]


@bench.callback()
def _group() -> None:
    """Measure the speed of the simulators."""


@bench.command()
def engine(quick: QuickOption = False, json_file: JsonOption = None) -> None:
    """Measure the compiled engine beside Verilator and pysim, in a few minutes."""
    console = screen(json_file)
    result = _measure(QUICK if quick else FULL, console)
    for line in _report(result):
        console.print(line)
    write_json(json_file, result)


def machine(name: str) -> Any:
    """Make the core of an NPU with its DRAM, as ``npulse run`` has it."""
    return make_system(find_npu(name, None), _MEMORY_BYTES, None, "address_first")


def _measure(sizes: Sizes, console: Console) -> dict[str, Any]:
    """Run the program; its progress goes to the screen, its errors to stderr."""
    command = [sys.executable, "-P", "-m", _PROGRAM, "--clusters", str(sizes.clusters)]
    command += [f"--array={shape}" for shape in sizes.arrays]
    command += [f"--machine={name}={__name__}:{machine.__name__}" for name in sizes.machines]
    command.append("--verilator" if sizes.verilator else "--no-verilator")
    result: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                message = json.loads(line)
                result = message.get("result", result)
                if "progress" in message:
                    console.print(f"measuring {message['progress']} ...")
        except BaseException:
            child.terminate()  # an interrupt may have come to this process alone
            raise
    if child.returncode:
        raise RuntimeError(f"{_PROGRAM} must end with status 0, not {child.returncode}")
    return result


def _report(result: dict[str, Any]) -> Iterator[Table | str]:
    """Yield the tables and what a reader must know of them."""
    yield _peer_table(result)
    yield _machine_table(result["machines"])
    about = result["verilator"]
    yield "Cycles a second of processor time on one core; checksums of all simulators are equal."
    yield "Compile times are wall time, with elaboration."
    if about["missing"] is None:
        yield f"Verilator {about['version']} {about['flags']}, C++ {about['c_flags']}."
    else:
        yield f"Verilator did not run: {about['missing']}."


def _peer_table(result: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("design", "engine", "Verilator", "ratio", "pysim", "ratio"):
        table.add_column(heading, justify="left" if heading == "design" else "right")
    control = result["control"]
    rows = [(f"array {row['rows']} x {row['cols']}", row) for row in result["arrays"]]
    for name, row in [*rows, (f"control, {control['cells']:,} cells", control)]:
        peers = [
            text
            for peer in ("verilator", "pysim")
            for text in (_number(row.get(f"{peer}_cps")), _number(row.get(f"over_{peer}"), " x"))
        ]
        table.add_row(name, _number(row["engine_cps"]), *peers)
    return table


def _machine_table(machines: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("npu", "cycles/s", "scalar cells", "compile", "from cache"):
        table.add_column(heading, justify="left" if heading == "npu" else "right")
    for row in machines:
        times = (f"{row[key]:.1f} s" for key in ("compile_s", "cached_s"))
        table.add_row(row["npu"], _number(row["cps"]), f"{row['cells']:,}", *times)
    return table


def _number(value: float | None, unit: str = "") -> str:
    """Three digits of a number, with commas; a dash for none."""
    if value is None:
        return "-"
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}{unit}" if rounded >= 100 else f"{rounded:g}{unit}"
