"""Plant one fault at a time in the engine's lowering, and see a default test fail.

Usage: python scripts/engine_mutants.py [--only WORD] [--start N] [--list]

A fault is a replacement in the source of one module, made while it is imported in a child
process; no file is changed. The exit status is 1 if a fault survives.
"""

# A fault is one line, however long.
# ruff: noqa: E501

import argparse
import importlib.abc
import importlib.machinery
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Fault(NamedTuple):
    """Replace `old` by `new`, once, in ``npulse.sim.engine.<module>``; `tests` should notice."""

    module: str
    old: str
    new: str
    tests: str


OPS, MEM, BULK, GRID, RANDOM = "operators", "memory", "bulk", "grid", "random"
FAULTS = [
    # Operators
    *(
        Fault("scalar", f'"{op}": "{right}"', f'"{op}": "{wrong}"', OPS)
        for op, right, wrong in (
            ("+", "add", "sub"), ("-", "sub", "add"), ("*", "mul", "add"), ("&", "and", "or"),
            ("|", "or", "xor"), ("^", "xor", "or"), ("==", "eq", "ne"), ("!=", "ne", "eq"),
            ("u<", "ult", "ule"), ("u>", "ugt", "uge"), ("u<=", "ule", "ult"),
            ("u>=", "uge", "ugt"), ("s<", "slt", "ult"), ("s>", "sgt", "ugt"),
            ("s<=", "sle", "slt"), ("s>=", "sge", "sgt"), ("<<", "shl", "lshr"),
            ("u>>", "lshr", "ashr"), ("s>>", "ashr", "lshr"),
        )
    ),
    Fault("scalar", "{width} 0, {operands[0]}", "{width} -1, {operands[0]}", OPS),  # negation
    Fault("scalar", "xor i{width} {operands[0]}, -1", "xor i{width} {operands[0]}, 1", OPS),
    Fault("scalar", "i{width} {yes}, i{width} {no}", "i{width} {no}, i{width} {yes}", OPS),
    Fault("scalar", "icmp eq i{width} {name}, -1", "icmp ne i{width} {name}, 0", OPS),  # all
    Fault("scalar", "icmp ne i{width} {name}, 0", "icmp eq i{width} {name}, 1", OPS),  # any
    Fault("scalar", "@llvm.ctpop.i{width}(i{width} {name})\")", "@llvm.ctpop.i{width}(i{width} 1)\")", OPS),
    Fault("scalar", 'return "1" if op == "r&" else "0"', 'return "0"', OPS),
    Fault("scalar", "{amount}, {width}\")", "{amount}, {width + 1}\")", OPS),  # shift to the end
    Fault("scalar", "i{width} {width - 1}, i{width} {near}", "i{width} 0, i{width} {near}", OPS),
    Fault("scalar", "source, wide, signed=cell.signed", "source, wide", OPS),
    Fault("scalar", "bits = count + cell.stride.bit_length()", "bits = count", OPS),  # part wraps
    Fault("scalar", "signed=True)\n        return self.join([", "signed=False)\n        return self.join([", OPS),
    Fault("divide", "{zero}, i{width} 0, i{width} {result}", "{zero}, i{width} 1, i{width} {result}", OPS),
    Fault("divide", "signed=True) for name", "signed=False) for name", OPS),
    Fault("divide", "add i{wide} {quotient}, {less}", "add i{wide} {quotient}, 0", OPS),
    Fault("divide", "i{wide} {b}, i{wide} 0", "i{wide} 0, i{wide} 0", OPS),
    Fault("divide", "icmp uge i{wide} %tried, %bw", "icmp ugt i{wide} %tried, %bw", OPS),
    # Decisions
    Fault("scalar", 'f"or i1 {result}, {hit}"', 'f"and i1 {result}, {hit}"', OPS),
    Fault("scalar", 'pattern.replace("0", "1").replace("-", "0")', 'pattern.replace("-", "0")', OPS),
    Fault("scalar", "if not self._disjoint(own, other)]", "if False]", RANDOM),
    Fault("scalar", "in range(start, bit):", "in range(start, bit - 1):", OPS),
    Fault("scalar", "i{width} {value}, i{width} {result}", "i{width} {result}, i{width} {value}", RANDOM),
    Fault("scalar", 'if cond == "1":', 'if cond != "0":', RANDOM),
    # State
    Fault("scalar", "{reset}, i{width} {cell.init}", "{reset}, i{width} 0", "bulk"),
    Fault("effects", "select i1 {fires}, i{width} {name}", "select i1 true, i{width} {name}", BULK),
    Fault("program", "if event < 0 or not self.masked:", "if True:", BULK),
    Fault("program", "self._crossing(cycle))", "set())", RANDOM),
    Fault("access", "if isinstance(cell, cells.Input) and cell.width and cell.init:", "if False:", BULK),
    Fault("access", "cells.SyncRead)) and cell.width and cell.init:", "cells.SyncRead)) and False:", BULK),
    Fault("netlist", "row & mask for row", "row & 1 for row", MEM),
    Fault("text", "zext i{width} {value} to i{bits}", "sext i{width} {value} to i{bits}", RANDOM),
    # Memories
    Fault("scalar", "select i1 {inside}, i{width} {name}, i{width} 0", "select i1 true, i{width} {name}, i{width} 0", MEM),
    Fault("scalar", "mul i64 {row}, {self.layout.stride[index]}", "mul i64 {row}, 1", MEM),
    Fault("effects", "select i1 {enable}, i{width} {name}", "select i1 true, i{width} {name}", MEM),
    Fault("effects", "for port in cell.transparent:", "for port in ():", MEM),
    Fault("effects", "select i1 {same}, i{width} {value(port.enable)}", "select i1 true, i{width} {value(port.enable)}", RANDOM),
    Fault("effects", "self._guarded(inside, store)", "store()", MEM),
    Fault("effects", "if len(groups) == 1 and groups[0][1] == width:", "if True:", MEM),
    Fault("effects", "body.address(pointer, lo // 8)", "body.address(pointer, 0)", MEM),
    Fault("effects", "data = body.op(f\"and i{width} {self.emitter.value(cell.data)}, {mask}\")", "data = self.emitter.value(cell.data)", MEM),
    Fault("schedule", "if index not in late:", "if True:", MEM),  # writes before reads
    # Checks
    Fault("effects", 'test = self.body.op(f"xor i1 {test}, 1")', "pass", BULK),
    Fault("effects", "i64 1, ptr {stop}", "i64 0, ptr {stop}", BULK),
    Fault("checks", "if signed and width and number >> width - 1:", "if False:", BULK),
    # Wires
    Fault("simplify", "slice_value(value, end, cell.width - end)", "slice_value(value, 0, cell.width - end)", RANDOM),
    Fault("cells", "last.lo | run.lo << last.width", "last.lo | run.lo", RANDOM),
    # Grids
    Fault("grid", "{1 - self.odd}, ptr {at}", "{self.odd}, ptr {at}", GRID),
    Fault("grid", "return edge if self.first else", "return", GRID),
    Fault("grid", "icmp eq i64 {self._coordinate(body, row, role.axis)}, 0", "icmp eq i64 {row}, 0", GRID),
    Fault("grid", "if self.odd != next_copy else 0", "if self.odd else 0", GRID),
    Fault("grid", "(self.plan.columns - 1) * array.size", "0", GRID),
    Fault("grid", "{self.plan.shape[axis] - 1}", "0", GRID),
    Fault("grid", "ready = [i for i in waiting if not self._readers(i, waiting)]", "ready = list(waiting)", GRID),
    Fault("grid", "if array.other:  # cheaper", "if False:  # cheaper", GRID),
    Fault("gridrow", "for target, array, name in stores:\n            self._store", "for target, array, name in stores[1:]:\n            self._store", GRID),
    Fault("gridrow", "{array.pitch * self.plan.rows}", "{array.pitch}", GRID),
    Fault("gridrow", "i1 {enable}, i{width} {name}, i{width} {old}", "i1 true, i{width} {name}, i{width} {old}", GRID),
    Fault("gridrow", "for port in cell.transparent:", "for port in ():", GRID),
    Fault("gridrow", "icmp ne i{width} {mask}, 0", "icmp eq i{width} {mask}, {mask}", GRID),
    Fault("gridrow", "mask = body.op(f\"select i1 {in_range}, i{width} {mask}, i{width} 0\")", "pass", GRID),
    Fault("gridplan", "for parity in (0, 1) if array.other else (0,):", "for parity in ():", GRID),
    Fault("gridplan", "_fill(view[row], content, array.size)", "pass", GRID),
]  # fmt: skip


class _Planter(importlib.abc.MetaPathFinder):
    """Finds the faulty module by the finders after it, and changes its source."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.name = f"npulse.sim.engine.{fault.module}"

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        file = ROOT / "sim" / "engine" / f"{self.fault.module}.py"
        loader = _FaultyLoader(name, str(file))
        loader.fault = self.fault
        return importlib.machinery.ModuleSpec(name, loader, origin=str(file))


class _FaultyLoader(importlib.machinery.SourceFileLoader):
    fault: Fault

    def get_code(self, fullname: str) -> Any:
        source = Path(self.path).read_text(encoding="utf-8")
        return compile(source.replace(self.fault.old, self.fault.new, 1), self.path, "exec")


def run_child(number: int) -> int:
    """Run the tests of one fault in this process."""
    import pytest

    fault = FAULTS[number]
    sys.meta_path.insert(0, _Planter(fault))
    tests = ROOT / "tests" / "sim" / "engine" / f"test_{fault.tests}.py"
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--no-header", str(tests)]))


def stale(fault: Fault) -> bool:
    """Whether the fault's text is no longer in the source."""
    return fault.old not in (ROOT / "sim" / "engine" / f"{fault.module}.py").read_text("utf-8")


def is_killed(number: int) -> bool:
    """Run one fault in a child; a crash of compiled code also counts as noticed."""
    command = [sys.executable, __file__, "--child", str(number)]
    environment = {**os.environ, "NPULSE_CACHE": os.devnull, "NPULSE_FEW": "1"}
    child = subprocess.run(command, capture_output=True, check=False, env=environment, cwd=ROOT)
    return child.returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="run faults whose text has this word")
    parser.add_argument("--start", type=int, default=0, help="number of the first fault")
    parser.add_argument("--list", action="store_true", help="list the faults")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        return run_child(arguments.child)
    chosen = [n for n, fault in enumerate(FAULTS) if arguments.only in "\n".join(fault)]
    chosen = [number for number in chosen if number >= arguments.start]
    survivors = []
    for number in chosen:
        fault, started = FAULTS[number], time.perf_counter()
        text = f"{fault.module}: {fault.old!r} -> {fault.new!r}"
        if arguments.list:
            print(text)
            continue
        outcome = "stale" if stale(fault) else "killed" if is_killed(number) else "SURVIVES"
        if outcome != "killed":
            survivors.append(text)
        print(f"{outcome:8} {time.perf_counter() - started:5.1f} s  {text}", flush=True)
    if not arguments.list:
        print(f"{len(chosen) - len(survivors)} of {len(chosen)} faults killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
