"""Slots of a ring: filled, taken into use, given back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.cores.tpu_v1.weights import Credit
from tests.hw.lockstep import Lockstep


def bench(slots):
    return Lockstep(Credit(slots), {"put": 0, "get": 0, "free": 0}, ["available", "room"])


def states(slots, schedule):
    return [(s["available"], s["room"]) for s in bench(slots).play(schedule + [{}])]


def test_a_slot_is_available_from_fill_to_use_and_takes_room_until_it_is_free():
    """Every count changes one cycle after its cause."""
    schedule = [{"put": 1}, {"put": 1}, {}, {"get": 1}, {"get": 1}, {}, {"free": 1}, {}]
    assert states(2, schedule) == [
        (0, 1),
        (1, 1),
        (1, 0),
        (1, 0),
        (1, 0),
        (0, 0),
        (0, 0),
        (0, 1),
        (0, 1),
    ]


@pytest.mark.parametrize("slots", [1, 2, 3, 16])
def test_as_many_slots_fit_as_there_are(slots):
    seen = states(slots, [{"put": 1}] * slots)
    assert [room for _, room in seen] == [1] * slots + [0]


def test_put_get_and_free_in_one_cycle_leave_the_counts():
    schedule = [{"put": 1}, {"put": 1, "get": 1}] + [{"put": 1, "get": 1, "free": 1}] * 5
    assert states(3, schedule)[2:] == [(1, 1)] * 6


WISH = st.tuples(st.booleans(), st.booleans(), st.booleans())


@settings(max_examples=40)
@given(st.integers(1, 5), st.lists(WISH, max_size=60))
def test_equals_counting_for_any_legal_order(slots, wishes):
    waiting, used = 0, 0  # slots filled and not yet taken; taken and not yet free
    schedule, wanted = [], []
    for put, get, free in wishes:
        wanted.append((waiting > 0, waiting + used < slots))
        put, get, free = put and waiting + used < slots, get and waiting > 0, free and used > 0
        schedule.append({"put": put, "get": get, "free": free})
        waiting += put - get
        used += get - free
    wanted.append((waiting > 0, waiting + used < slots))
    assert states(slots, schedule) == wanted
