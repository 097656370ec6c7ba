"""Vector lanes: requantise by their own parameters, and keep the largest of a window."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.arith.requantiser import Parameters
from npulse.hw.spec.numerics import requantize_scalar
from npulse.hw.spec.tpu_v1_layout import PARAMETER_BYTES, ROUNDING_CODES
from npulse.hw.vector.lane import vector_lanes
from tests.hw.lockstep import Lockstep

ENTRIES = 2
JUNK = 0x5C5C5C
#: Makes int8 of an accumulator as it is: 2^30 * 2^(1 - 31) is one.
UNIT = {"bias": 0, "multiplier": 1 << 30, "shift": 1, "zero_point": 0, "act_min": -128,
        "act_max": 127, "scheme": list(ROUNDING_CODES)[0]}  # fmt: skip


@cache
def bench(cols, beat_bytes, sram_latency, requantiser_latency, engine="pysim"):
    dut = vector_lanes(
        cols=cols,
        entries=ENTRIES,
        beats=-(-cols // beat_bytes),
        sram_latency=sram_latency,
        requantiser_latency=requantiser_latency,
    )
    idle = {
        "command_i": {"en": 0, "first": 0, "retire": 0, "entry": 1},
        "write": {"en": 0, "beat": 0, "octet": 3, "entry": 0},
        "octet": [0xEE] * cols,
        "beat": [lane // beat_bytes for lane in range(cols)],
        "value": [JUNK] * cols,
    }
    return Lockstep(dut, idle, ["result", "command_o"], engine=engine)


class Schedule:
    """Parameters and commands at their cycles; values follow at the lanes' own times."""

    def __init__(self, cols, beat_bytes=8, sram_latency=1, requantiser_latency=4):
        self.shape = (cols, beat_bytes, sram_latency, requantiser_latency)
        self.cols, self.s = cols, sram_latency
        self.delay = sram_latency + requantiser_latency + 1
        self.cycles: dict[int, dict] = {}

    def load(self, at, entry, columns):
        """Write an entry, a byte of each column a beat; return the cycle after."""
        layout, (cols, width, _, _) = Parameters(), self.shape
        packed = []
        for column in columns:
            values = {k: v for k, v in column.items() if k != "scheme"}
            values["rounding"] = ROUNDING_CODES[column["scheme"]]
            packed.append(layout.const(values).as_bits().to_bytes(PARAMETER_BYTES, "little"))
        for octet in range(PARAMETER_BYTES):
            for beat in range(-(-cols // width)):
                lanes = [packed[min(beat * width + n % width, cols - 1)] for n in range(cols)]
                cycle = self.cycles.setdefault(at, {})
                cycle["write"] = {"en": 1, "beat": beat, "octet": octet, "entry": entry}
                cycle["octet"] = [lane[octet] for lane in lanes]
                at += 1
        return at

    def command(self, at, values, entry=0, en=1, first=0, retire=0):
        command = {"en": en, "first": first, "retire": retire, "entry": entry}
        self.cycles.setdefault(at, {})["command_i"] = command
        for n, value in enumerate(values):
            cycle = self.cycles.setdefault(at + self.s + n, {})
            cycle.setdefault("value", [JUNK] * self.cols)[n] = int(value)

    def play(self, **values):
        last = max(self.cycles) + self.delay + self.cols + 1
        return bench(*self.shape, **values).play([self.cycles.get(t, {}) for t in range(last)])

    def row(self, seen, at):
        """Results of the command of cycle `at`: ``result[t + s + q + 1]`` in lane 0."""
        return [seen[at + self.delay + n]["result"][n] for n in range(self.cols)]


@pytest.mark.parametrize("engine", ["pysim", "compiled"])
@pytest.mark.parametrize("sram_latency, requantiser_latency", [(1, 1), (1, 4), (2, 8)])
def test_result_comes_after_both_latencies_and_a_cycle(sram_latency, requantiser_latency, engine):
    schedule = Schedule(2, 2, sram_latency, requantiser_latency)
    at = schedule.load(0, 0, [UNIT, UNIT | {"zero_point": 1}])
    for step, value in enumerate([5, -100, 90]):  # one window a cycle
        schedule.command(at + step, [value, value], first=1)
    seen = schedule.play(engine=engine)
    rows = [schedule.row(seen, at + step) for step in range(3)]
    assert rows == [[5, 6], [-100, -99], [90, 91]]


def test_window_keeps_its_largest_value_over_idle_cycles():
    schedule = Schedule(1)
    at = schedule.load(0, 0, [UNIT])
    schedule.command(at, [-50], first=1)
    schedule.command(at + 1, [-20])
    schedule.command(at + 4, [-30])  # two cycles of junk before it
    schedule.command(at + 5, [99], en=0)  # does not count
    schedule.command(at + 6, [-70], first=1)
    seen = schedule.play()
    results = [schedule.row(seen, at + step)[0] for step in range(7)]
    assert results == [-50, -20, -20, -20, -20, -20, -70]


def test_window_without_a_value_is_the_smallest():
    schedule = Schedule(1)
    at = schedule.load(0, 0, [UNIT])
    schedule.command(at, [40], first=1)
    schedule.command(at + 1, [40], first=1, en=0)
    assert schedule.row(schedule.play(), at + 1) == [-128]


def test_entries_change_from_command_to_command():
    schedule = Schedule(1)
    at = schedule.load(0, 0, [UNIT])
    at = schedule.load(at, 1, [UNIT | {"bias": 7}])
    for step in range(4):
        schedule.command(at + step, [step], entry=step % 2, first=1)
    seen = schedule.play()
    assert [schedule.row(seen, at + step)[0] for step in range(4)] == [0, 8, 2, 10]


def test_retire_leaves_after_the_last_column():
    schedule = Schedule(3)
    schedule.command(2, [0, 0, 0], retire=1, en=0)
    assert [cycle["command_o"].retire for cycle in schedule.play()[4:7]] == [0, 1, 0]


PARAMETERS = st.fixed_dictionaries(
    {
        "bias": st.integers(-(2**31), 2**31 - 1),
        "multiplier": st.integers(2**30, 2**31 - 1),
        "shift": st.integers(-31, 30),
        "zero_point": st.integers(-128, 127),
        "act_min": st.integers(-128, 0),
        "act_max": st.integers(0, 127),
        "scheme": st.sampled_from(list(ROUNDING_CODES)),
    }
)
#: Entry, counts, starts a window, idle cycles before.
COMMAND = st.tuples(st.integers(0, 1), st.booleans(), st.booleans(), st.integers(0, 2))
SHAPES = [(1, 1, 1, 4), (3, 2, 2, 1), (2, 1, 1, 8), (3, 8, 2, 4)]


@settings(max_examples=16)
@given(st.sampled_from(SHAPES), st.data())
def test_equals_the_scalar_contract_and_a_running_maximum(shape, data):
    cols = shape[0]
    schedule = Schedule(*shape)
    columns = [[data.draw(PARAMETERS) for _ in range(cols)] for _ in range(ENTRIES)]
    at = schedule.load(0, 0, columns[0])
    at = schedule.load(at, 1, columns[1])
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    running, wanted = [-128] * cols, {}
    for index, (entry, counts, first, idle) in enumerate(data.draw(st.lists(COMMAND, max_size=15))):
        at += idle
        first = first or index == 0
        accs = rng.integers(-(2**31), 2**31, cols) >> rng.integers(0, 31, cols)
        schedule.command(at, accs, entry, counts, first)
        for n, acc in enumerate(accs.tolist()):
            value = requantize_scalar(acc, **columns[entry][n]) if counts else -128
            running[n] = max(value, -128 if first else running[n])
        wanted[at] = list(running)
        at += 1
    seen = schedule.play()
    for cycle, row in wanted.items():
        assert schedule.row(seen, cycle) == row
