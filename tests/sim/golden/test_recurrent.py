"""Fixed-point logistic and tanh over all inputs, and recurrent layers against mathematics."""

import numpy as np
import pytest

from npulse.hw.spec.numerics import quantize_multiplier
from npulse.sim.golden.fixed16 import logistic16, tanh16
from npulse.sim.golden.lstm import LstmParameters, LstmWeights, gate_factors, hidden_factor, lstm
from npulse.sim.golden.svdf import SvdfParameters, svdf

ALL = np.arange(-32768, 32768).astype(np.int16)


def test_logistic_is_within_16_steps_of_mathematics_on_every_input() -> None:
    exact = 1 / (1 + np.exp(ALL / -4096))
    assert np.abs(logistic16(ALL) / 32768 - exact).max() <= 16 / 32768


@pytest.mark.parametrize("bits", range(7))
def test_tanh_is_within_16_steps_of_mathematics_and_odd(bits: int) -> None:
    exact = np.tanh(ALL / 2 ** (15 - bits))
    found = tanh16(ALL, bits)
    assert np.abs(found / 32768 - exact).max() <= 16 / 32768
    np.testing.assert_array_equal(found[1:32768], -found[:32768:-1])


def test_tanh_refuses_bits_that_gemmlowp_has_no_code_for() -> None:
    with pytest.raises(ValueError, match=r"^integer_bits must be from 0 to 6, not 7$"):
        tanh16(ALL, 7)


def float_lstm(x, weights, scales, state, cell):
    """One sequence in float64; weights and scales by gate."""
    outputs = []
    for step in x:
        i, f, g, o = (
            step @ (w * s).T + state @ (r * t).T + b
            for w, r, b, s, t in zip(
                weights.inputs, weights.recurrent, scales[2], scales[0], scales[1], strict=True
            )
        )
        i, f, o = (1 / (1 + np.exp(-v)) for v in (i, f, o))
        cell = f * cell + i * np.tanh(g)
        state = o * np.tanh(cell)
        outputs.append(state)
    return np.array(outputs)


def test_lstm_follows_mathematics_and_carries_its_state() -> None:
    rng = np.random.default_rng(4)
    steps, batch, inputs, cells = 12, 2, 5, 7
    weights = LstmWeights(
        inputs=tuple(rng.integers(-127, 128, (cells, inputs)).astype(np.int8) for _ in range(4)),
        recurrent=tuple(rng.integers(-127, 128, (cells, cells)).astype(np.int8) for _ in range(4)),
        bias=tuple(rng.integers(-2000, 2000, cells).astype(np.int32) for _ in range(4)),
    )
    x_scale, state_scale = 0.02, 1 / 128
    w_scales, r_scales = (0.008, 0.006, 0.01, 0.007), (0.004, 0.006, 0.003, 0.005)
    parameters = LstmParameters(
        input_zero_point=-20,
        state_zero_point=3,
        input_factors=gate_factors(x_scale, w_scales),
        recurrent_factors=gate_factors(state_scale, r_scales),
        cell_scale_log2=-11,
        hidden_factor=hidden_factor(state_scale),
        hidden_zero_point=3,
    )
    x = rng.integers(-128, 128, (steps, batch, inputs)).astype(np.int8)
    state, cell = np.full((batch, cells), 3, np.int8), np.zeros((batch, cells), np.int16)
    whole, last, memory = lstm(x, state, cell, weights, parameters)
    biases = [b * x_scale * s for b, s in zip(weights.bias, w_scales, strict=True)]
    exact = float_lstm(
        (x.astype(int) + 20) * x_scale,
        weights,
        (w_scales, r_scales, biases),
        np.zeros((batch, cells)),
        np.zeros((batch, cells)),
    )
    assert np.abs((whole.astype(int) - 3) * state_scale - exact).max() < 0.03
    first, state, cell = lstm(x[:5], state, cell, weights, parameters)
    second, state, cell = lstm(x[5:], state, cell, weights, parameters)
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)
    np.testing.assert_array_equal(state, last)
    np.testing.assert_array_equal(cell, memory)


def test_lstm_clips_its_cell_state() -> None:
    parameters = LstmParameters(
        input_zero_point=0,
        state_zero_point=0,
        input_factors=gate_factors(1.0, [1.0] * 4),
        recurrent_factors=gate_factors(1.0, [1.0] * 4),
        cell_scale_log2=-12,
        hidden_factor=hidden_factor(1 / 128),
        hidden_zero_point=0,
        cell_clip=6000,
    )
    one = np.full((1, 1), 127, np.int8)
    weights = LstmWeights(
        inputs=(one,) * 4, recurrent=(one,) * 4, bias=(np.zeros(1, np.int32),) * 4
    )
    x = np.full((9, 1, 1), 127, np.int8)
    cell = lstm(x, np.zeros((1, 1), np.int8), np.zeros((1, 1), np.int16), weights, parameters)[2]
    assert cell.tolist() == [[6000]]


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_svdf_is_two_filters_one_after_the_other(dtype: type) -> None:
    """With all factors 1/2 the sums stay small integers, whose ties round away from zero."""
    rng = np.random.default_rng(5)
    half = quantize_multiplier(0.5)
    parameters = SvdfParameters(
        state_multiplier=half[0],
        state_shift=half[1],
        multiplier=half[0],
        shift=half[1],
        input_zero_point=2,
        state_zero_point=0,
        zero_point=-5,
        rank=2,
    )
    features = rng.integers(-2, 3, (6, 4)).astype(np.int8)
    time = rng.integers(-2, 3, (6, 3)).astype(dtype)
    bias = rng.integers(-9, 9, 3).astype(np.int32)
    xs = rng.integers(-5, 6, (5, 1, 4)).astype(np.int8)
    state, kept = np.zeros((1, 18), dtype), np.zeros((6, 3))
    for x in xs:
        output, state = svdf(x, features, time, bias, state, parameters)
        halves = features.astype(int) @ (x[0].astype(int) - 2) / 2
        fresh = np.sign(halves) * np.floor(np.abs(halves) + 0.5)  # of a positive tie: up too
        kept = np.concatenate([kept[:, 1:], fresh[:, None]], axis=1)
        sums = ((kept * time).sum(axis=1).reshape(3, 2).sum(axis=1) + bias) / 2
        due = np.sign(sums) * np.floor(np.abs(sums) + 0.5) - 5
        assert np.abs(output[0] - due).max() <= 1
        np.testing.assert_allclose(state.reshape(6, 3), kept, atol=1)
        kept = state.reshape(6, 3).astype(float)


def test_svdf_refuses_a_rank_that_does_not_divide_the_filters() -> None:
    parameters = SvdfParameters(
        state_multiplier=1,
        state_shift=0,
        multiplier=1,
        shift=0,
        input_zero_point=0,
        state_zero_point=0,
        zero_point=0,
        rank=4,
    )
    arrays = [np.zeros(shape, np.int8) for shape in ((1, 4), (6, 4), (6, 3))]
    with pytest.raises(ValueError, match=r"^rank must divide the 6 filters, not 4$"):
        svdf(*arrays, None, np.zeros((1, 18), np.int8), parameters)
