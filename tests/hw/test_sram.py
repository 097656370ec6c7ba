"""The memory primitive against a list of words."""

import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.memory.sram import Sram
from tests.hw.lockstep import Lockstep

ENGINES = ["pysim", "compiled"]
WIDTH = 8


@cache
def bench(depth, latency, granularity=None, engine="pysim"):
    dut = Sram(depth=depth, shape=WIDTH, latency=latency, granularity=granularity)
    idle = {"w_en": 0, "w_data": 0xEE, "w_addr": 0, "r_addr": 0}
    return Lockstep(dut, idle, ["r_data"], engine=engine)


def write(addr, value, lanes=1):
    return {"w_addr": addr, "w_data": value, "w_en": lanes}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("latency", [1, 2])
def test_word_written_in_one_cycle_is_read_from_the_next(latency, engine):
    """``r_data[t + latency] = words[r_addr[t]]``, one read a cycle."""
    schedule = [write(0, 10), write(1, 11) | {"r_addr": 0}, write(2, 12) | {"r_addr": 1}]
    schedule += [{"r_addr": 2}, {"r_addr": 0}, {"r_addr": 1}, {}, {}]
    seen = [cycle["r_data"] for cycle in bench(3, latency, engine=engine).play(schedule)]
    assert seen[1 + latency : 6 + latency] == [10, 11, 12, 10, 11]


@pytest.mark.parametrize("engine", ENGINES)
def test_enable_bits_cover_their_part_of_the_word(engine):
    schedule = [write(1, 0xFF, 0b11), write(1, 0x12, 0b01), write(1, 0x34, 0b10), {"r_addr": 1}, {}]
    assert bench(2, 1, 4, engine).play(schedule)[-1]["r_data"] == 0x32


@pytest.mark.parametrize("engine", ENGINES)
def test_beyond_the_depth_reads_zero_and_writes_nothing(engine):
    words = [write(addr, 20 + addr) for addr in range(3)]
    reads = [{"r_addr": addr} for addr in (0, 1, 2, 3)]
    seen = bench(3, 1, engine=engine).play([*words, write(3, 99), *reads, {}])
    assert [cycle["r_data"] for cycle in seen[-4:]] == [20, 21, 22, 0]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_single_word_needs_no_address(engine):
    seen = bench(1, 1, engine=engine).play([write(0, 7), {}, {}])
    assert seen[-1]["r_data"] == 7


#: Read address, write address, data, enable bits of a cycle.
CYCLE = st.tuples(
    st.integers(0, 15), st.integers(0, 15), st.integers(0, 255), st.sampled_from([0, 1, 2, 3])
)


@settings(max_examples=60)
@given(st.sampled_from([1, 2, 5, 8]), st.sampled_from([1, 2]), st.lists(CYCLE, max_size=40))
def test_equals_a_list_of_words(depth, latency, cycles):
    fill = [(0, addr, 0x11 * (addr + 1), 3) for addr in range(depth)]
    words, schedule, wanted = [0] * depth, [], []
    for r_addr, w_addr, value, lanes in fill + cycles:
        r_addr, w_addr = r_addr % depth, w_addr % depth
        if r_addr == w_addr:
            lanes = lanes if len(schedule) < depth else 0
        wanted.append(None if r_addr == w_addr and lanes else words[r_addr])
        mask = 0x0F * (lanes & 1) | 0xF0 * (lanes >> 1)
        words[w_addr] = words[w_addr] & ~mask | value & mask
        schedule.append(write(w_addr, value, lanes) | {"r_addr": r_addr})
    seen = bench(depth, latency, 4).play(schedule + [{}] * latency)
    for got, want in zip(seen[latency:], wanted, strict=True):
        assert want is None or got["r_data"] == want


@pytest.mark.parametrize(
    "values, message",
    [
        ({"depth": 0}, "depth must be at least 1 word, not 0"),
        ({"latency": 0}, "latency must be 1 or 2 cycles, not 0"),
        ({"latency": 3}, "latency must be 1 or 2 cycles, not 3"),
        ({"granularity": 3}, "granularity must divide the width of 8 bits, not 3"),
        ({"granularity": 0}, "granularity must divide the width of 8 bits, not 0"),
    ],
)
def test_refuses(values, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Sram(**{"depth": 2, "shape": 8, **values})
