"""Grids are vectorised, and a build far slower than estimated is linked again."""

import re
import time

import pytest

from npulse.sim.engine import speed
from npulse.sim.engine.access import State
from npulse.sim.engine.bench_designs import Control, DrivenArray
from npulse.sim.engine.build import build
from npulse.sim.engine.bulk import Compiled
from npulse.sim.engine.cache import ObjectCache
from npulse.sim.engine.jit import optimised

NO_CACHE = ObjectCache(None)


def test_the_loop_over_processing_elements_is_vectorised() -> None:
    text = optimised(build(DrivenArray(4, 128), cache=NO_CACHE).program.grids.text())
    body = re.search(r"define [^\n]*@row0\(.*?\n}\n", text, re.S)
    assert body is not None
    assert re.search(r"mul (nsw )?<16 x i32>", body[0]), "the product is computed 16 at a time"
    assert "<16 x i8>" in body[0]


def test_a_slow_build_is_linked_again_and_reported() -> None:
    built = build(DrivenArray(4, 4), cache=NO_CACHE)
    state = State(built.program)
    first = built.module
    speed.check_speed(built, state, iter([1.0, 1e-9]).__next__)
    assert built.module is not first
    assert built.report.notes == [
        "the code was linked again, since it was far slower than estimated"
    ]
    built.start(state)
    assert built.run(*state.pointers, 10) == 10


def test_a_build_that_stays_slow_is_kept_with_a_note() -> None:
    built = build(DrivenArray(4, 4), cache=NO_CACHE)
    speed.check_speed(built, State(built.program), lambda: 1.0)
    assert len(built.report.notes) == 3
    assert re.match(
        r"^a cycle takes 1000000\.0 us, over 10 times the estimate of [0-9.]+ us, after 3 links$",
        built.report.notes[-1],
    )


def test_the_benchmark_designs_keep_their_checksums() -> None:
    array, control = Compiled(DrivenArray(4, 4)), Compiled(Control(2))
    array.step(1_000)
    control.step(1_000)
    assert array.get("checksum") and control.get("checksum")
    assert array.report.notes == [] and control.report.notes == []


def test_gating_aside_a_grid_costs_far_less_than_its_cells() -> None:
    """A ratio in one run, so that a busy machine does not matter: 64 times the cells."""

    def seconds(rows: int) -> float:
        compiled = Compiled(DrivenArray(rows, 32), cache=NO_CACHE)
        best = float("inf")
        for _ in range(3):
            started = time.process_time()
            compiled.step(20_000)
            best = min(best, time.process_time() - started)
        return best

    assert seconds(32) < 30 * seconds(1)


@pytest.mark.parametrize("clusters", [1, 8])
def test_scalar_cells_are_counted_by_module(clusters: int) -> None:
    report = build(Control(clusters), cache=NO_CACHE).report
    modules = report.to_json()["modules"]
    assert sum(modules.values()) == report.scalar_cells > 100 * clusters
    assert sum("cluster" in name for name in modules) >= clusters
