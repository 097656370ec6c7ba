"""Tables of functions of one byte; tests/sw/frontends holds them to LiteRT."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npulse.hw.spec.numerics import UINT8
from npulse.sim.golden.lut import (
    FLOAT_FUNCTIONS,
    LutParameters,
    float_rescale_table,
    float_table,
    hard_swish_table,
    leaky_relu_table,
    lookup,
)

SCALES = st.floats(2**-10, 0.5, width=32)
CODES = st.integers(-128, 127)


@st.composite
def parameters(draw) -> LutParameters:
    scale = draw(SCALES)
    return LutParameters(
        input_scale=scale,
        input_zero_point=draw(CODES),
        scale=scale * draw(st.floats(0.1, 2)),
        zero_point=draw(CODES),
    )


def real(p: LutParameters) -> np.ndarray:
    return p.centred * p.input_scale


def quantised(p: LutParameters, values: np.ndarray) -> np.ndarray:
    return (values / p.scale + p.zero_point).clip(-128, 127)


@given(parameters(), st.sampled_from(sorted(FLOAT_FUNCTIONS)))
def test_float_tables_are_within_half_a_step_of_mathematics(p: LutParameters, name: str) -> None:
    exact = {
        "logistic": lambda x: 1 / (1 + np.exp(-x)),
        "tanh": np.tanh,
        "gelu": lambda x: x * np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in x]),
        "gelu_tanh": lambda x: (
            x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        ),
    }[name]
    error = np.abs(float_table(FLOAT_FUNCTIONS[name], p) - quantised(p, exact(real(p))))
    assert error.max() <= 0.501


@given(parameters(), st.floats(-1, 1, width=32))
def test_leaky_relu_is_within_one_step_of_mathematics(p: LutParameters, alpha: float) -> None:
    x = real(p)
    error = np.abs(leaky_relu_table(alpha, p) - quantised(p, np.where(x >= 0, x, alpha * x)))
    assert error.max() <= 1


@given(parameters())
def test_hard_swish_is_within_two_steps_of_mathematics(p: LutParameters) -> None:
    x = real(p)
    error = np.abs(hard_swish_table(p) - quantised(p, x * np.clip(x + 3, 0, 6) / 6))
    assert error.max() <= 2


@given(parameters())
def test_change_of_scale_in_float_is_within_half_a_step_of_mathematics(p: LutParameters) -> None:
    assert np.abs(float_rescale_table(p) - quantised(p, real(p))).max() <= 0.501


def test_lookup_counts_from_the_smallest_code() -> None:
    table = np.arange(256).astype(np.uint8)[::-1]
    assert lookup(np.array([-128, 0, 127], np.int8), table).tolist() == [255, 127, 0]
    assert lookup(np.array([0, 1, 255], np.uint8), table).tolist() == [255, 254, 0]


def test_parameters_hold_the_codes_of_their_format() -> None:
    p = LutParameters(input_scale=1, input_zero_point=200, scale=1, zero_point=0, fmt=UINT8)
    assert (p.centred[0], p.centred[255]) == (-200, 55)
    assert p.finish(np.array([-1, 300])).tolist() == [0, 255]


def make(**changes) -> LutParameters:
    return LutParameters(
        **{"input_scale": 1.0, "input_zero_point": 0, "scale": 1.0, "zero_point": 0, **changes}
    )


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: make(scale=0.0), "scale must be positive and finite, not 0.0"),
        (lambda: make(input_scale=math.inf), "input_scale must be positive and finite, not inf"),
        (lambda: make(zero_point=128), "zero_point must be from -128 to 127, not 128"),
        (
            lambda: hard_swish_table(make(scale=1e-3)),
            "scale must be at least input_scale / 128 for hard-swish, not 0.001 with input_scale "
            "1.0",
        ),
        (
            lambda: lookup(np.zeros(2, np.int8), np.zeros(255, np.int8)),
            "table must have shape (256,), not (255,)",
        ),
    ],
)
def test_message_names_the_rule(act, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        act()
    assert str(caught.value) == message
