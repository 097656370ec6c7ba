"""Is the compiled code as fast as it should be? If far from it, it is linked again.

The same machine code of a large grid has been seen to run a hundred times slower, depending only
on where the JIT put it. So each build is timed for a moment, against an estimate from what it does.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from npulse.sim.engine import cells
from npulse.sim.engine.access import State

if TYPE_CHECKING:
    from npulse.sim.engine.build import Built

__all__ = ["check_speed", "estimate_seconds"]

#: Scalar cells and bytes of grid state a second that slow machines still reach.
CELLS_PER_SECOND = 3e8
BYTES_PER_SECOND = 1e9
#: Factor over the estimate from which a build counts as slow.
SLOW = 10.0
#: Builds tried before a slow one is kept.
TRIES = 3


def estimate_seconds(built: "Built") -> float:
    """Seconds that one cycle should take at most on a slow machine that is not busy."""
    state = sum(plan.rows * plan.pitch for plan in built.program.grids.plans.values())
    ports = sum(_port_loops(plan.info.net.cells) for plan in built.program.grids.plans.values())
    scalar = built.report.scalar_cells + ports
    return 100e-9 + scalar / CELLS_PER_SECOND + state / BYTES_PER_SECOND


def _port_loops(found: list[cells.Cell | None]) -> int:
    """Memory ports of a cell, as scalar cells: they are not vectorised."""
    return sum(isinstance(cell, (cells.SyncRead, cells.WritePort)) for cell in found)


def check_speed(
    built: "Built", state: State, seconds_per_cycle: Callable[[], float] | None = None
) -> None:
    """Time `built` on `state`, and link it again while it is far slower than estimated.

    Does nothing for designs without grids, in which the fault has never been seen. The state is
    changed: call it before the state is initialised.

    Parameters
    ----------
    seconds_per_cycle : callable, optional
        Measures one cycle; for tests.
    """
    if not built.program.grids.plans:
        return
    limit = SLOW * estimate_seconds(built)
    measure = seconds_per_cycle or (lambda: _measure(built, state))
    taken = measure()
    for _ in range(TRIES - 1):
        if taken <= limit:
            return
        built.relink()
        taken = measure()
    if taken <= limit:
        return
    built.report.notes.append(
        f"a cycle takes {taken * 1e6:.1f} us, over {SLOW:.0f} times the estimate of "
        f"{limit / SLOW * 1e6:.1f} us, after {TRIES} links"
    )


def _measure(built: "Built", state: State) -> float:
    """Best of a few short runs, in processor time."""
    built.run(*state.pointers, 20)
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        done = built.run(*state.pointers, 100)
        best = min(best, (time.process_time() - started) / max(int(done), 1))
    return best
