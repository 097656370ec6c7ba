"""What was built: cells by module, times of the steps, whether the code came from the cache."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from npulse.sim.engine import cells
from npulse.sim.engine.netlist import Netlist

__all__ = ["Report"]

T = TypeVar("T")


@dataclass
class Report:
    """Account of one build.

    Attributes
    ----------
    times : dict of str to float
        Seconds of each step.
    modules : dict of str to int
        Scalar cells of each module, without the cells of its submodules.
    kinds : dict of str to int
        Scalar cells by kind.
    grids : dict of str to int
        Copies of the cell in each grid.
    notes : list of str
        What a user should know, such as a rebuild after a slow start.
    """

    times: dict[str, float] = field(default_factory=dict)
    modules: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    grids: dict[str, int] = field(default_factory=dict)
    cached: bool = False
    notes: list[str] = field(default_factory=list)

    def timed(self, name: str, work: Callable[[], T]) -> T:
        """Do `work` and note how long it took."""
        started = time.perf_counter()
        result = work()
        self.times[name] = time.perf_counter() - started
        return result

    def describe(self, netlist: Netlist, cached: bool) -> None:
        """Count the cells of `netlist`."""
        self.cached = cached
        modules: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        for cell in netlist.cells:
            if cell is None or isinstance(cell, (cells.Input, cells.GridCell)):
                continue
            modules[netlist.modules[cell.module]] += 1
            kinds[type(cell).__name__] += 1
        self.modules, self.kinds = dict(modules), dict(kinds)

    @property
    def scalar_cells(self) -> int:
        """Cells outside grids: the budget that decides the speed of control logic."""
        return sum(self.modules.values())

    @property
    def seconds(self) -> float:
        """Whole time of the build."""
        return sum(self.times.values())

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "scalar_cells": self.scalar_cells,
            "modules": dict(sorted(self.modules.items(), key=lambda item: -item[1])),
            "kinds": self.kinds,
            "grids": self.grids,
            "seconds": self.times,
            "cached": self.cached,
            "notes": self.notes,
        }
