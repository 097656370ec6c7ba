"""Accumulator lanes: passing sums into rows, rows to the vector lanes, two halves at once."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.memory.accumulator import accumulator_lanes
from tests.hw.lockstep import Lockstep

HALF_ROWS = 4
JUNK = -12345


@cache
def bench(cols, latency, psum_width=32, engine="pysim"):
    dut = accumulator_lanes(cols=cols, half_rows=HALF_ROWS, psum_width=psum_width, latency=latency)
    idle = {
        "write_i": {"en": 0, "accumulate": 1, "row": 0, "half": 0},
        "read_i": {"row": 0, "half": 1},
        "psum": [JUNK] * cols,
    }
    return Lockstep(dut, idle, ["value", "write_o", "read_o"], engine=engine)


class Schedule:
    """Commands at their cycles; sums follow a write at the lanes' own times."""

    def __init__(self, cols, latency):
        self.cols, self.latency = cols, latency
        self.cycles: dict[int, dict] = {}

    def write(self, at, half, row, psums, accumulate=True):
        command = {"en": 1, "accumulate": accumulate, "row": row, "half": half}
        self.cycles.setdefault(at, {})["write_i"] = command
        for n, psum in enumerate(psums):
            cycle = self.cycles.setdefault(at + self.latency + n, {})
            cycle.setdefault("psum", [JUNK] * self.cols)[n] = int(psum)

    def read(self, at, half, row):
        self.cycles.setdefault(at, {})["read_i"] = {"half": half, "row": row}

    def play(self, **values):
        last = max(self.cycles) + self.latency + self.cols + 2
        schedule = [self.cycles.get(at, {}) for at in range(last)]
        return bench(self.cols, self.latency, **values).play(schedule)

    def row(self, seen, at):
        """Row that the read command of cycle `at` gave: ``value[t + s + 1]`` in lane 0."""
        return [seen[at + self.latency + 1 + n]["value"][n] for n in range(self.cols)]


@pytest.mark.parametrize("engine", ["pysim", "compiled"])
@pytest.mark.parametrize("latency", [1, 2])
def test_sum_is_added_latency_cycles_after_its_command(latency, engine):
    schedule = Schedule(2, latency)
    schedule.write(0, 0, 3, [100, -7], accumulate=False)
    seen_from = latency + 2  # a command from then on sees the row
    schedule.write(seen_from, 0, 3, [11, 8])
    schedule.read(2 * seen_from, 0, 3)
    assert schedule.row(schedule.play(engine=engine), 2 * seen_from) == [111, 1]


@pytest.mark.parametrize("latency", [1, 2])
def test_rows_follow_each_other_every_cycle(latency):
    schedule = Schedule(1, latency)
    for step in range(2 * HALF_ROWS):
        schedule.write(step, 1, step % HALF_ROWS, [step + 1], accumulate=step >= HALF_ROWS)
    start = 2 * HALF_ROWS + latency + 2
    for row in range(HALF_ROWS):
        schedule.read(start + row, 1, row)
    seen = schedule.play()
    assert [schedule.row(seen, start + row) for row in range(HALF_ROWS)] == [[6], [8], [10], [12]]


def test_one_half_is_read_while_the_other_is_filled():
    schedule = Schedule(1, 1)
    for row in range(HALF_ROWS):
        schedule.write(row, 0, row, [50 + row], accumulate=False)
        schedule.write(10 + row, 1, row, [70 + row], accumulate=False)
        schedule.read(10 + row, 0, row)
    seen = schedule.play()
    assert [schedule.row(seen, 10 + row) for row in range(HALF_ROWS)] == [[50], [51], [52], [53]]


def test_commands_leave_after_the_last_column():
    schedule = Schedule(3, 1)
    schedule.write(0, 1, 2, [0, 0, 0])
    schedule.read(1, 0, 3)
    seen = schedule.play()
    assert [cycle["write_o"].en for cycle in seen[2:5]] == [0, 1, 0]
    assert (seen[3]["write_o"].row, seen[3]["write_o"].half) == (2, 1)
    assert (seen[4]["read_o"].row, seen[4]["read_o"].half) == (3, 0)


def test_sum_wraps_at_32_bits():
    schedule = Schedule(1, 1)
    schedule.write(0, 0, 0, [2**31 - 1], accumulate=False)
    schedule.write(4, 0, 0, [2])
    schedule.read(8, 0, 0)
    assert schedule.row(schedule.play(), 8) == [-(2**31) + 1]


def test_narrow_sums_keep_their_sign():
    schedule = Schedule(1, 1)
    schedule.write(0, 0, 0, [-1], accumulate=False)
    schedule.write(4, 0, 0, [-128])
    schedule.read(8, 0, 0)
    assert schedule.row(schedule.play(psum_width=8), 8) == [-129]


#: Write: half, row, accumulate. Read: half, row. Either may be left out.
STEP = st.tuples(
    st.none() | st.tuples(st.integers(0, 1), st.integers(0, HALF_ROWS - 1), st.booleans()),
    st.none() | st.tuples(st.integers(0, 1), st.integers(0, HALF_ROWS - 1)),
)


@settings(max_examples=40)
@given(st.integers(1, 3), st.integers(1, 2), st.lists(STEP, max_size=40), st.integers(0, 2**31))
def test_equals_numpy_for_any_commands_that_keep_the_rules(cols, latency, steps, seed):
    rng = np.random.default_rng(seed)
    schedule, at = Schedule(cols, latency), 0
    rows = rng.integers(-(2**31), 2**31, (2, HALF_ROWS, cols))
    for half, row in np.ndindex(2, HALF_ROWS):
        schedule.write(at, half, row, rows[half, row], accumulate=False)
        at += 1
    at += latency + 1
    settled: dict = {}  # first cycle whose commands see a row
    wanted = {}
    for write, read in steps:
        if write is not None and settled.get(write[:2], 0) <= at:
            half, row, accumulate = write
            psums = rng.integers(-(2**31), 2**31, cols)
            schedule.write(at, half, row, psums, accumulate)
            total = psums + rows[half, row] * accumulate
            rows[half, row] = (total + 2**31) % 2**32 - 2**31
            settled[half, row] = at + latency + 2
        else:
            write = None
        if read is not None and settled.get(read, 0) <= at and not (write and write[0] == read[0]):
            schedule.read(at, *read)
            wanted[at] = rows[read].tolist()
        at += 1
    seen = schedule.play()
    for cycle, row in wanted.items():
        assert schedule.row(seen, cycle) == row
