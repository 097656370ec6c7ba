"""Random designs: every signal of the engine equals pysim's after every clock edge."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.sim.engine.fuzz import RandomDesign, check_design

# ``NPULSE_FEW`` is for scripts/engine_mutants.py, which runs this file once a planted fault.
# Amaranth warns of conditions that a person would not write; a generator does.
pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.SyntaxWarning")


@settings(max_examples=40 if "NPULSE_FEW" in os.environ else 200)
@given(st.integers(0, 2**31), st.integers(1, 6))
def test_random_designs_equal_pysim(seed: int, statements: int) -> None:
    assert check_design(RandomDesign(seed, statements), instants=8) > 0


def test_widths_that_end_the_process_at_higher_levels_of_llvm_are_safe() -> None:
    assert check_design(RandomDesign(20311597, 4), instants=8, level=1, chunk=7) > 0


def test_refuses_a_level_that_could_end_the_process() -> None:
    with pytest.raises(ValueError, match="^level must be 0 or 1, not 2$"):
        check_design(RandomDesign(1, 1), level=2)


@pytest.mark.long
@pytest.mark.skipif("NPULSE_LONG" not in os.environ, reason="scripts/engine_fuzz.py runs it")
@settings(max_examples=3000)
@given(st.integers(0, 2**31), st.integers(1, 16))
def test_many_random_designs_equal_pysim(seed: int, statements: int) -> None:
    assert check_design(RandomDesign(seed, statements)) > 0
