"""Builds emitted Verilog with Verilator and runs a cocotb bench on it.

`cocotb_tools.runner` would make every signal public, which keeps Verilator from optimising and
makes a core of thousands of signals slow to compile. Here only the ports of the top module are
public: a bench drives and reads ports. The run itself is left to cocotb's runner.

Measured on the 8 x 8 core (seconds of processor time): verilation 7, its C++ 4 with ``-O0`` and 13
with ``-O1``; Verilator's own library 20, which is why its objects may be kept for the next design.
A bench spends nearly all its time in Python, so ``-O0`` is the better choice.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

import cocotb_tools.config
from cocotb_tools.runner import get_runner

from npulse.sim.verilog.verilator import Verilator, VerilogError

__all__ = ["build", "run_bench"]

#: Warnings have been the matter of lint.
_SILENT = ("-Wno-lint", "-Wno-style", "-Wno-SYMRSVDWORD")
#: One C++ file at a time and no precompiled headers, for which the wheel lacks the options.
_MAKE = ("VM_PARALLEL_BUILDS=0", "OPT_FAST=-O0", "OPT_SLOW=-O0", "OPT_GLOBAL=-O0")
#: Rewritten assertions would load pytest and its plugins into the simulator: 4 s a bench.
_QUICK = {"COCOTB_REWRITE_ASSERTION_FILES": ""}


def build(
    source: Path,
    *,
    top: str,
    ports: Iterable[str],
    folder: Path,
    library: Path | None = None,
) -> None:
    """Build the simulator of a design.

    Parameters
    ----------
    source : Path
        Verilog of all modules.
    top : str
        Name of the top module.
    ports : iterable of str
        Names of its ports, which the bench can reach.
    folder : Path
        Where to build; made if absent.
    library : Path or None
        Folder that keeps the compiled library of Verilator from one build to the next.

    Raises
    ------
    VerilogError
        Verilator, make or a C++ compiler is absent or fails; the message has what it printed.
    """
    verilator = Verilator.find()
    for tool in ("make", "g++"):
        if shutil.which(tool) is None:
            raise VerilogError(f"{tool} must be installed to build a simulator, but is not")
    folder.mkdir(parents=True, exist_ok=True)
    _verilate(verilator, source, top, _public(top, ports, folder), folder)
    if library is not None:
        library.mkdir(parents=True, exist_ok=True)
        _copy_objects(library, folder)
    command = ["make", "-f", "Vtop.mk", f"PYTHON3={sys.executable}", *_MAKE]
    ran = subprocess.run(
        command, cwd=folder, env=verilator.environment, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise VerilogError(f"C++ of {top} must compile, but: {ran.stderr.strip()}")
    if library is not None:
        _copy_objects(folder, library)


def _public(top: str, ports: Iterable[str], folder: Path) -> Path:
    """Write the configuration that makes the ports reachable from outside."""
    path = folder / "ports.vlt"
    lines = [f'public_flat_rw -module "{top}" -var "{port}"' for port in ports]
    path.write_text("\n".join(["`verilator_config", *lines, ""]))
    return path


def _verilate(verilator: Verilator, source: Path, top: str, public: Path, folder: Path) -> None:
    """Turn Verilog into C++ and a makefile."""
    libraries, shared = cocotb_tools.config.libs_dir, cocotb_tools.config.share_dir
    options = ["--cc", "--exe", "--vpi", "--prefix", "Vtop", "-o", top, "--top-module", top]
    ran = verilator.run(
        [
            *options,
            *_SILENT,
            "--timescale",
            "1ns/1ps",
            "-Mdir",
            str(folder),
            "-LDFLAGS",
            f"-Wl,-rpath,{libraries} -L{libraries} -lcocotbvpi_verilator",
            str(Path(shared) / "lib" / "verilator" / "verilator.cpp"),
            str(public),
            str(source),
        ]
    )
    if ran.returncode:
        raise VerilogError(f"verilator must take {top}, but: {ran.stderr.strip()}")


def _copy_objects(source: Path, target: Path) -> None:
    """Copy the objects that are the same for each design, as if they were new."""
    for path in source.glob("verilated*.o"):
        shutil.copyfile(path, target / path.name)


def run_bench(
    bench: Path,
    *,
    top: str,
    folder: Path,
    only: str = "",
    seed: int = 1,
    settings: Mapping[str, str] | None = None,
) -> list[str]:
    """Run the cocotb tests of a bench.

    Parameters
    ----------
    bench : Path
        Python module with the tests.
    top : str
        Name of the top module.
    folder : Path
        Where `build` has built; results and log go there too.
    only : str
        Regular expression that the full name of a test must contain.
    seed : int
        Of ``cocotb.RANDOM_SEED`` and `random`.
    settings : mapping or None
        Environment variables for the bench.

    Returns
    -------
    list of str
        Names of the tests, all passed, at least one.

    Raises
    ------
    VerilogError
        A test failed, or the simulator ended without results; the message has the log.
    """
    results, log = folder / f"{bench.stem}.xml", folder / f"{bench.stem}.log"
    with suppress(SystemExit):  # how the runner tells a failure when pytest calls it
        get_runner("verilator").test(
            test_module=bench.stem,
            test_dir=bench.parent,
            hdl_toplevel=top,
            hdl_toplevel_lang="verilog",
            build_dir=folder,
            results_xml=str(results.absolute()),
            log_file=log,
            test_filter=only,
            seed=seed,
            extra_env={**_QUICK, **(settings or {})},
        )
    if not results.is_file():
        raise VerilogError(f"{bench.stem} must end with results, but: {log.read_text()}")
    cases = list(ElementTree.parse(results).getroot().iter("testcase"))
    failed = [case.get("name") for case in cases if case.find("failure") is not None]
    if failed or not cases:
        raise VerilogError(f"{bench.stem} must pass, but {failed} failed: {log.read_text()}")
    return [str(case.get("name")) for case in cases]
