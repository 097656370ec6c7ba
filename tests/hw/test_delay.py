"""Delays: the same word so many cycles later, and zero until then."""

import pytest
from amaranth.hdl import Elaboratable, Module, ResetInserter, Signal, signed
from amaranth.lib import data
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.common.delay import DelayLine, delayed
from npulse.hw.common.struct import struct
from tests.hw.lockstep import Lockstep


def delay_line(cycles, engine="pysim"):
    return Lockstep(DelayLine(signed(6), cycles=cycles), {"i": -1}, ["o"], engine=engine)


@pytest.mark.parametrize("engine", ["pysim", "compiled"])
@pytest.mark.parametrize("cycles", [2, 3, 8])
def test_word_comes_back_after_the_cycles(cycles, engine):
    """``o[t + cycles] = i[t]``, and zero before."""
    words = [17, -32, 31, -1, 5, 0, 9, -9, 1, 2, 3]
    seen = delay_line(cycles, engine).play([{"i": word} for word in words])
    assert [cycle["o"] for cycle in seen] == ([0] * cycles + words)[: len(words)]


@settings(max_examples=25)
@given(st.integers(2, 9), st.lists(st.integers(-32, 31), max_size=40))
def test_delays_any_words(cycles, words):
    seen = delay_line(cycles).play([{"i": word} for word in words])
    assert [cycle["o"] for cycle in seen] == ([0] * cycles + words)[: len(words)]


@pytest.mark.parametrize("before", [1, 3, 4, 5, 11])
def test_nothing_from_before_a_reset_comes_out_after_it(before):
    line, reset = DelayLine(6, cycles=4), Signal()

    class Resettable(Elaboratable):
        i, o, rst = line.i, line.o, reset

        def elaborate(self, platform):
            return ResetInserter(reset)(line)

    schedule = [{"i": 33 + n} for n in range(before)] + [{"i": 60, "rst": 1}]
    schedule += [{"i": n} for n in range(1, 10)]
    seen = Lockstep(Resettable(), {"i": 7, "rst": 0}, ["o"]).play(schedule)
    assert [cycle["o"] for cycle in seen[before + 1 :]] == [0, 0, 0, 0, 1, 2, 3, 4, 5]


class Delayed(Elaboratable):
    """A pair of fields behind `delayed`."""

    def __init__(self, cycles):
        self.layout = data.StructLayout({"a": 3, "b": signed(4)})
        self.i, self.o = struct(self.layout, name="i"), struct(self.layout, name="o")
        self.cycles = cycles

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(delayed(m, self.i, self.cycles, "later"))
        return m


@pytest.mark.parametrize("cycles", [0, 1, 4, 5, 7])
def test_structures_are_delayed_by_registers_and_by_lines(cycles):
    words = [{"a": n % 8, "b": n % 16 - 8} for n in range(1, 20)]
    dut = Delayed(cycles)
    seen = Lockstep(dut, {"i": words[0]}, ["o"]).play([{"i": word} for word in words])
    zero = {"a": 0, "b": 0}
    wanted = ([zero] * cycles + words)[: len(words)]
    assert [{"a": cycle["o"].a, "b": cycle["o"].b} for cycle in seen] == wanted


@pytest.mark.parametrize("cycles", [1, 0, -2])
def test_refuses_a_delay_too_short_for_a_ring(cycles):
    with pytest.raises(ValueError, match=f"^cycles must be at least 2, not {cycles}$"):
        DelayLine(4, cycles=cycles)
