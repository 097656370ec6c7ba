"""Placement of buffers with lifetimes in one memory."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npulse.sw.passes.allocate import Interval, allocate, lower_bound

INTERVALS = st.lists(
    st.builds(
        lambda rows, first, length: Interval(rows=rows, first=first, last=first + length),
        st.integers(1, 40),
        st.integers(0, 12),
        st.integers(0, 6),
    ),
    max_size=25,
)


def live_at(intervals, step):
    return [i for i, v in enumerate(intervals) if v.first <= step <= v.last]


@given(INTERVALS)
def test_no_two_live_buffers_share_a_row_and_the_peak_is_honest(intervals) -> None:
    found = allocate(intervals)
    for step in range(20):
        rows: list[int] = []
        for index in live_at(intervals, step):
            base = found.bases[index]
            rows.extend(range(base, base + intervals[index].rows))
        assert len(rows) == len(set(rows))
        assert max(rows, default=-1) < max(found.peak_rows, 0)
    assert found.lower_bound_rows <= found.peak_rows


@given(INTERVALS)
def test_lower_bound_is_the_largest_sum_of_live_rows(intervals) -> None:
    sums = (sum(intervals[i].rows for i in live_at(intervals, step)) for step in range(20))
    assert lower_bound(intervals) == max(sums)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=40))
def test_a_chain_of_layers_meets_the_lower_bound(sizes) -> None:
    chain = [Interval(rows=rows, first=i, last=i + 1) for i, rows in enumerate(sizes)]
    found = allocate(chain)
    assert found.peak_rows == found.lower_bound_rows


def test_the_climb_mends_an_order_in_which_greedy_is_caught() -> None:
    sizes = [(1, 0, 0), (2, 2, 4), (3, 5, 6), (2, 4, 6), (5, 0, 2), (4, 1, 3), (6, 3, 5)]
    intervals = [Interval(rows=rows, first=first, last=last) for rows, first, last in sizes]
    assert allocate(intervals, steps=0).peak_rows == 14
    assert allocate(intervals).peak_rows == lower_bound(intervals) == 12


def test_random_sets_come_within_five_percent_of_the_bound_on_average() -> None:
    rng = random.Random(1)
    ratio = 0.0
    for _ in range(10):
        sets = []
        for _ in range(40):
            first = rng.randrange(60)
            sets.append(
                Interval(rows=rng.randint(1, 50), first=first, last=first + rng.randint(0, 12))
            )
        found = allocate(sets)
        ratio += found.peak_rows / found.lower_bound_rows / 10
    assert ratio < 1.05


def test_nothing_needs_nothing() -> None:
    found = allocate([])
    assert (found.bases, found.peak_rows, found.lower_bound_rows) == ((), 0, 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rows": 0, "first": 0, "last": 0}, "rows must be at least 1, not 0"),
        ({"rows": 1, "first": 3, "last": 2}, "last must be at least first = 3, not 2"),
    ],
)
def test_refuses_an_impossible_interval(fields, message) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Interval(**fields)
