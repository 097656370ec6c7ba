"""From an elaboratable to native functions: the pipeline, timed step by step."""

import ctypes
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from npulse.sim.engine.access import State
from npulse.sim.engine.cache import ObjectCache
from npulse.sim.engine.cells import Value
from npulse.sim.engine.jit import CompiledModule, Source, compile_sources, compile_text
from npulse.sim.engine.lower import EnginePlatform
from npulse.sim.engine.netlist import Netlist, netlist_of, prepare, refuse_cycles
from npulse.sim.engine.program import CHUNK, Program, plan
from npulse.sim.engine.report import Report
from npulse.sim.engine.sample import until_text
from npulse.sim.engine.schedule import Loop
from npulse.sim.engine.simplify import simplify

__all__ = ["Built", "build"]

_POINTER = ctypes.c_void_p


@dataclass
class Built:
    """A program with its native code."""

    program: Program
    module: CompiledModule
    report: Report
    level: int
    cache: ObjectCache | None

    def relink(self) -> None:
        """Link the same code at another place; running functions must not be in use."""
        self.links.append(self.module)  # keeps its place taken, so that the new one differs
        self.module = compile_sources(_sources(self.program, self.level), self.cache)
        for name in ("run", "cycle"):
            self.__dict__.pop(name, None)
        self.report.notes.append(
            "the code was linked again, since it was far slower than estimated"
        )

    @cached_property
    def links(self) -> list[CompiledModule]:
        """Modules that were given up."""
        return []

    @cached_property
    def run(self) -> Callable[..., int]:
        """``run(state, memories, cycles) -> cycles done``."""
        return self.module.function("run", ctypes.c_int64, _POINTER, _POINTER, ctypes.c_int64)

    @cached_property
    def cycle(self) -> Callable[..., None]:
        """``cycle(state, memories, edge mask)``."""
        return self.module.function("cycle", None, _POINTER, _POINTER, ctypes.c_uint64)

    def start(self, state: State) -> None:
        """Set `state` to power-on."""
        state.initialise()
        if self.program.grids.plans:
            self.module.function("show", None, _POINTER, _POINTER)(*state.pointers)

    @cached_property
    def _eval_module(self) -> CompiledModule:
        started = time.perf_counter()
        module = compile_text(self.program.eval_text(), level=self.level, cache=self.cache)
        self.report.times["evaluation of all nets"] = time.perf_counter() - started
        return module

    @cached_property
    def eval(self) -> Callable[..., None]:
        """``eval(state, memories)``; compiled when first asked for."""
        return self._eval_module.function("eval", None, _POINTER, _POINTER)

    def until(self, value: Value) -> CompiledModule:
        """Compile the test of one signal, as ``until``."""
        return compile_text(until_text(self.program, value), level=self.level, cache=self.cache)


def build(
    elaboratable: Any,
    *,
    grids: Mapping[str, Any] | None = None,
    cache: ObjectCache | None = None,
    chunk: int = CHUNK,
    level: int = 1,
    eager_checks: bool = False,
) -> Built:
    """Elaborate, read the netlist, schedule, emit and compile.

    Parameters
    ----------
    elaboratable : Elaboratable or prepared Design
    grids : mapping of str to Grid
        For a prepared design: what its black boxes stand for.
    """
    report = Report()
    platform = EnginePlatform()
    design = report.timed("elaboration", lambda: prepare(elaboratable, platform))
    known = {**platform.grids, **(grids or {})}
    netlist: Netlist = report.timed("netlist", lambda: netlist_of(design, known))
    try:
        report.timed("simplification", lambda: simplify(netlist))
        program = report.timed("schedule", lambda: plan(netlist, chunk, eager_checks=eager_checks))
    except Loop:
        refuse_cycles(design)
        raise
    sources = report.timed("emission", lambda: _sources(program, level))
    module = report.timed("compilation", lambda: compile_sources(sources, cache))
    report.notes += platform.notes
    report.describe(netlist, module.cached)
    return Built(program, module, report, level, cache)


def _sources(program: Program, level: int) -> list[Source]:
    sources = [Source(program.cycle_text(), level)]
    if program.grids.plans:
        sources.insert(0, Source(program.grids.text(), 1, vectorise=True))
    return sources
