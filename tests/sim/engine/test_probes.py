"""Native probes: every cycle, every n-th, on change; rings that fill; wide signals."""

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed

from npulse.sim.engine.bulk import Compiled
from npulse.sim.engine.cache import ObjectCache


def machine() -> Compiled:
    m = Module()
    count, slow = Signal(16, name="count"), Signal(signed(5), name="slow")
    wide, odd = Signal(100, name="wide"), Signal(name="odd")
    m.d.sync += [count.eq(count + 1), wide.eq((wide << 3) ^ count)]
    m.d.comb += [odd.eq(count[0]), slow.eq(count >> 4)]
    return Compiled(m, cache=ObjectCache(None))


def test_samples_before_each_edge_with_the_cycle() -> None:
    compiled = machine()
    compiled.step(3)
    probes = compiled.probe({"n": "count", "odd": "odd"})
    compiled.step(5)
    records = probes.records()
    assert records["cycle"].tolist() == [3, 4, 5, 6, 7]
    assert records["n"].tolist() == [3, 4, 5, 6, 7]
    assert records["odd"].tolist() == [1, 0, 1, 0, 1]


def test_a_full_ring_loses_nothing() -> None:
    compiled = machine()
    probes = compiled.probe(["count", "slow"], rows=7)
    compiled.step(1_000)
    records = probes.records()
    assert np.array_equal(records["count"], np.arange(1_000))
    assert np.array_equal(records["slow"], np.arange(1_000) >> 4 & 31)
    assert compiled.cycle == 1_000


def test_every_n_th_cycle() -> None:
    compiled = machine()
    compiled.step(5)
    probes = compiled.probe(["count"], every=10)
    compiled.step(45)
    assert probes.records()["cycle"].tolist() == [10, 20, 30, 40]


@pytest.mark.parametrize("rows", [2, 1_000])
def test_on_change_keeps_the_first_and_each_change(rows: int) -> None:
    compiled = machine()
    probes = compiled.probe(["slow"], on_change=True, rows=rows)
    compiled.step(16 * 40)
    records = probes.records()
    assert records["cycle"].tolist() == list(range(0, 640, 16))
    assert records["slow"].tolist() == [n & 31 for n in range(40)]


def test_wide_signals_are_rows_of_bytes() -> None:
    compiled = machine()
    probes = compiled.probe(["wide"])
    expected, wide = [], 0
    for count in range(50):
        expected.append(wide)
        wide = (wide << 3 ^ count) & (1 << 100) - 1
    compiled.step(50)
    rows = probes.records()["wide"]
    assert [int.from_bytes(row.tobytes(), "little") for row in rows] == expected


def test_stops_with_close_and_forgets_with_clear() -> None:
    compiled = machine()
    probes = compiled.probe(["count"])
    compiled.step(4)
    probes.clear()
    compiled.step(2)
    probes.close()
    compiled.step(10)
    assert probes.records()["count"].tolist() == [4, 5]


def test_works_beside_run_until() -> None:
    compiled = machine()
    probes = compiled.probe(["count"], rows=16)
    assert compiled.run_until("slow", 100) == 16
    assert len(probes.records()) == 16


def test_arguments_are_checked() -> None:
    compiled = machine()
    with pytest.raises(ValueError, match=r"^every must be at least 1 cycle, not 0$"):
        compiled.probe(["count"], every=0)
    with pytest.raises(ValueError, match=r"^rows must be at least 2 records, not 1$"):
        compiled.probe(["count"], rows=1)
    with pytest.raises(ValueError, match=r"^signals must name at least one signal$"):
        compiled.probe([])
