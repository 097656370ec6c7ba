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


@pytest.mark.long
@pytest.mark.skipif("NPULSE_LONG" not in os.environ, reason="scripts/engine_fuzz.py runs it")
@settings(max_examples=3000)
@given(st.integers(0, 2**31), st.integers(1, 16))
def test_many_random_designs_equal_pysim(seed: int, statements: int) -> None:
    assert check_design(RandomDesign(seed, statements)) > 0
