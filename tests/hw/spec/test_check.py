"""Rules about parameters: what they take, and what they say when they refuse."""

import re

import pytest

from npulse.hw.spec.check import power_of_two, within


def refuses(error: type[Exception], message: str):
    return pytest.raises(error, match=f"^{re.escape(message)}$")


@pytest.mark.parametrize("value", [-3, 0, 5])
def test_within_takes_both_bounds_and_what_lies_between(value):
    within("depth", value, -3, 5)


@pytest.mark.parametrize("value", [-4, 6])
@pytest.mark.parametrize("unit, words", [("", ""), ("rows", " rows")])
def test_within_names_bounds_and_unit(value, unit, words):
    with refuses(ValueError, f"depth must be from -3 to 5{words}, not {value}"):
        within("depth", value, -3, 5, unit)


@pytest.mark.parametrize("value", [True, 2.0, "2", None])
@pytest.mark.parametrize("rule", [within, power_of_two])
def test_only_an_integer_is_an_integer(rule, value):
    with refuses(TypeError, f"depth must be an integer, not {value!r}"):
        rule("depth", value, 0, 8)


@pytest.mark.parametrize("value", [1, 2, 4, 8])
def test_power_of_two_takes_powers_of_two(value):
    power_of_two("depth", value, 1, 8)


@pytest.mark.parametrize("value", [3, 5, 6, 7])
def test_power_of_two_refuses_the_numbers_between(value):
    with refuses(ValueError, f"depth must be a power of two, not {value}"):
        power_of_two("depth", value, 1, 8)


def test_power_of_two_has_bounds():
    with refuses(ValueError, "depth must be from 2 to 8 rows, not 16"):
        power_of_two("depth", 16, 2, 8, "rows")
