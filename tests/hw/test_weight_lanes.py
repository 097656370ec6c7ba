"""Lanes of the weight FIFO: beats in, a column of weights each, one cycle behind its neighbour."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.memory.weight_fifo import weight_lanes
from tests.hw.lockstep import Lockstep

DEPTH = 6
#: Columns and bytes of a beat.
SHAPES = [(1, 1), (3, 1), (4, 2), (5, 2), (3, 4), (5, 8)]
JUNK = 0xA5


@cache
def bench(cols, beat_bytes, latency, engine="pysim"):
    beats = -(-cols // beat_bytes)
    dut = weight_lanes(cols=cols, depth=DEPTH, beats=beats, latency=latency)
    idle = {
        "read_i": {"load": 0, "last": 0, "addr": 1},
        "write": {"en": 0, "beat": 0, "addr": 2},
        "octet": [JUNK] * cols,
        "beat": [lane // beat_bytes for lane in range(cols)],
    }
    return Lockstep(dut, idle, ["weight", "load", "read_o"], engine=engine)


def write(cols, beat_bytes, addr, beat, row):
    """Beat of a row; as in the core, the same bytes stand at the lanes of every other beat."""
    octets = [row[(beat * beat_bytes + lane % beat_bytes) % cols] & 0xFF for lane in range(cols)]
    return {"write": {"en": 1, "beat": beat, "addr": addr}, "octet": octets}


@pytest.mark.parametrize("engine", ["pysim", "compiled"])
@pytest.mark.parametrize("latency", [1, 2])
def test_row_leaves_column_n_after_latency_and_n_cycles(latency, engine):
    """``weight[t + s + n]`` and ``load[t + s + n]``; the command leaves after the last column."""
    cols = 3
    schedule = [write(cols, 4, 4, 0, [10, -20, 30]), write(cols, 4, 5, 0, [11, -21, 31])]
    schedule += [
        {"read_i": {"load": 1, "last": 0, "addr": 4}},
        {"read_i": {"load": 0, "last": 1, "addr": 5}},
    ]
    seen = bench(cols, 4, latency, engine).play(schedule + [{}] * 6)
    for n, (first, second) in enumerate([(10, 11), (-20, -21), (30, 31)]):
        t = 2 + latency + n
        assert [seen[t]["weight"][n], seen[t + 1]["weight"][n]] == [first, second]
        assert [seen[at]["load"][n] for at in range(t - 1, t + 2)] == [0, 1, 0]
    assert [cycle["read_o"].last for cycle in seen[5:8]] == [0, 1, 0]
    assert seen[2 + cols]["read_o"].load and seen[2 + cols]["read_o"].addr == 4


@pytest.mark.parametrize("shape", SHAPES)
def test_beat_reaches_its_own_lanes_alone(shape):
    cols, beat_bytes = shape
    beats = -(-cols // beat_bytes)
    for changed in range(beats):
        schedule = [write(cols, beat_bytes, 0, beat, [7] * cols) for beat in range(beats)]
        schedule.append(write(cols, beat_bytes, 0, changed, [99] * cols))
        schedule.append({"read_i": {"load": 1, "last": 1, "addr": 0}})
        seen = bench(cols, beat_bytes, 1).play(schedule + [{}] * (cols + 1))
        start = len(schedule)
        got = [seen[start + n]["weight"][n] for n in range(cols)]
        assert got == [99 if n // beat_bytes == changed else 7 for n in range(cols)]


#: Row to write and beat of it, row to read; one of them or both in a cycle.
STEP = st.tuples(
    st.none() | st.tuples(st.integers(0, DEPTH - 1), st.integers(0, 4)),
    st.none() | st.integers(0, DEPTH - 1),
)


@settings(max_examples=40)
@given(
    st.sampled_from(SHAPES), st.integers(1, 2), st.lists(STEP, max_size=30), st.integers(0, 2**31)
)
def test_equals_numpy_with_writes_and_reads_at_once(shape, latency, steps, seed):
    cols, beat_bytes = shape
    beats = -(-cols // beat_bytes)
    rng = np.random.default_rng(seed)
    words = rng.integers(-128, 128, (DEPTH, cols))
    schedule = [
        write(cols, beat_bytes, addr, beat, words[addr].tolist())
        for addr in range(DEPTH)
        for beat in range(beats)
    ]
    schedule += [{}] * cols  # a command reads column n only n cycles after column 0
    wanted = {}
    recent: list = []
    for store, fetch in steps:
        cycle, at = {}, len(schedule)
        # A row that the wave still reads must not be written: `Credit` sees to it in the core.
        if store is not None and store[0] not in recent[-cols:] and store[0] != fetch:
            addr, beat = store[0], store[1] % beats
            row = rng.integers(-128, 128, cols)
            cycle |= write(cols, beat_bytes, addr, beat, row.tolist())
            mine = slice(beat * beat_bytes, (beat + 1) * beat_bytes)
            words[addr, mine] = row[mine]
        if fetch is not None:
            load = bool(rng.integers(2))
            cycle["read_i"] = {"load": load, "last": 0, "addr": fetch}
            wanted[at] = (words[fetch].tolist(), load)
        recent.append(fetch)
        schedule.append(cycle)
    seen = bench(cols, beat_bytes, latency).play(schedule + [{}] * (cols + latency))
    for at, (row, load) in wanted.items():
        for n in range(cols):
            assert seen[at + latency + n]["weight"][n] == row[n]
            assert seen[at + latency + n]["load"][n] == load
