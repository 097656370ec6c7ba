"""Quantise, dequantise, rescale, add and clamps against LiteRT, ONNX and real numbers."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npulse.hw.spec.numerics import INT8, UINT8, Rounding, quantize_multiplier
from npulse.sim.golden.elementwise import (
    Activation,
    AddParameters,
    activation_range,
    add,
    clamp,
    dequantize,
    quantize,
    relu,
    rescale,
)

EVERY = np.arange(-128, 128, dtype=np.int8)
SCALES = (0.0371, 0.1, 0.5, 1.0)
EVEN, AWAY = Rounding.HALF_EVEN, Rounding.HALF_AWAY


def near_ties(scale: float) -> np.ndarray:
    """Float32 values on, just below and away from the ties of a scale."""
    ties = (np.arange(-300, 300) * np.float32(scale) / 2).astype(np.float32)
    below = np.nextafter(ties, np.float32(0))
    rest = np.random.default_rng(8).normal(0, 60 * scale, 3000).astype(np.float32)
    return np.concatenate([ties, below, rest, np.float32([1e6, -1e6])])


@pytest.mark.parametrize("scale", SCALES)
def test_quantize_half_away_equals_litert(litert, scale) -> None:
    x = near_ties(scale)
    tensors = [litert.tensor(x.shape, "FLOAT32"), litert.tensor(x.shape, "INT8", scale, -7)]
    expected = litert.run("QUANTIZE", tensors, [x])
    assert np.array_equal(quantize(x, scale, -7, AWAY), expected)


@pytest.mark.parametrize("scale", SCALES)
def test_quantize_half_even_equals_onnx(onnx_ref, scale) -> None:
    x = near_ties(scale)
    expected = onnx_ref("QuantizeLinear", [x, np.array(scale, np.float32), np.array(100, np.uint8)])
    assert np.array_equal(quantize(x, scale, 100, EVEN, UINT8), expected)


def test_quantize_rounds_ties_as_named_and_saturates_infinity() -> None:
    x = np.array([0.5, 1.5, -0.5, -2.5, np.inf, -np.inf], np.float32)
    assert quantize(x, 1.0, 0, EVEN).tolist() == [0, 2, 0, -2, 127, -128]
    assert quantize(x, 1.0, 0, AWAY).tolist() == [1, 2, -1, -3, 127, -128]
    assert quantize(np.float32([3e38]), 1e-30, 0, AWAY).tolist() == [127]
    below_half = np.nextafter(np.float32([0.5]), np.float32(0))
    assert quantize(below_half, 1.0, 0, AWAY).tolist() == [0]


@pytest.mark.parametrize("scale", SCALES)
def test_dequantize_equals_litert(litert, scale) -> None:
    tensors = [litert.tensor(EVERY.shape, "INT8", scale, -7), litert.tensor(EVERY.shape, "FLOAT32")]
    assert np.array_equal(dequantize(EVERY, scale, -7), litert.run("DEQUANTIZE", tensors, [EVERY]))


@given(st.floats(1e-3, 1e3), st.integers(-128, 127), st.sampled_from([EVEN, AWAY]))
def test_quantize_undoes_dequantize(scale, zero, rounding) -> None:
    assert np.array_equal(quantize(dequantize(EVERY, scale, zero), scale, zero, rounding), EVERY)


@pytest.mark.parametrize("target", (0.03, 0.11, 0.5))
@pytest.mark.parametrize("source", SCALES)
def test_rescale_equals_litert(litert, source, target) -> None:
    tensors = [
        litert.tensor(EVERY.shape, "INT8", source, -7),
        litert.tensor(EVERY.shape, "INT8", target, 9),
    ]
    multiplier, shift = quantize_multiplier(float(np.float32(source)) / float(np.float32(target)))
    got = rescale(EVERY, multiplier, shift, input_zero_point=-7, zero_point=9)
    assert np.array_equal(got, litert.run("QUANTIZE", tensors, [EVERY]))


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("scales", [(0.1, 0.03, 0.05), (0.5, 0.5, 0.3), (0.0371, 1.0, 0.9)])
def test_add_with_activation_equals_litert(litert, scales, activation) -> None:
    rng = np.random.default_rng(9)
    a, b = rng.integers(-128, 128, (2, 20_000)).astype(np.int8)
    options = litert.schema.AddOptionsT()
    options.fusedActivationFunction = getattr(litert.schema.ActivationFunctionType, activation.name)
    zeros = (-7, 3, -20)
    tensors = [
        litert.tensor(a.shape, "INT8", scale, zero)
        for scale, zero in zip(scales, zeros, strict=True)
    ]
    expected = litert.run("ADD", tensors, [a, b], options=options)
    exact = [float(np.float32(scale)) for scale in scales]
    act_min, act_max = activation_range(activation, exact[2], zeros[2])
    got = add(
        a, b, AddParameters.from_scales(*exact), a_zero_point=-7, b_zero_point=3, zero_point=-20,
        act_min=act_min, act_max=act_max,
    )  # fmt: skip
    assert np.array_equal(got, expected)


def test_add_is_within_one_unit_of_the_real_sum() -> None:
    a, b = np.meshgrid(EVERY, EVERY)
    got = add(
        a, b, AddParameters.from_scales(0.04, 0.07, 0.11), a_zero_point=5, b_zero_point=-9,
        zero_point=2,
    )  # fmt: skip
    exact = ((a.astype(float) - 5) * 0.04 + (b.astype(float) + 9) * 0.07) / 0.11 + 2
    assert np.abs(got - exact.clip(-128, 127)).max() <= 0.5 + 1e-4


def test_activation_ranges_are_rounded_and_kept_inside_the_format() -> None:
    assert activation_range(Activation.NONE, 0.1, 0) == (-128, 127)
    assert activation_range(Activation.RELU, 0.1, -128) == (-128, 127)
    assert activation_range(Activation.RELU6, 0.1, -128) == (-128, -68)
    assert activation_range(Activation.RELU6, 0.01, -128) == (-128, 127)
    assert activation_range(Activation.RELU_N1_TO_1, 0.4, 0) == (-3, 3)  # 2.5 goes away from zero
    assert activation_range(Activation.RELU6, 0.0235, 0, UINT8) == (0, 255)


def test_clamp_and_relu() -> None:
    x = np.array([-128, -5, 0, 7, 127], np.int8)
    assert clamp(x, -5, 6).tolist() == [-5, -5, 0, 6, 6]
    assert relu(x, -3).tolist() == [-3, -3, 0, 7, 127]
    assert relu(x.view(np.uint8), 200).dtype == np.uint8


F32 = np.zeros(3, np.float32)
PARAMETERS = AddParameters.from_scales(1.0, 1.0, 1.0)
MESSAGES = [
    (lambda: quantize(F32.astype(np.float64), 1.0, 0, EVEN), TypeError,
     "x must be an array of float32, not float64"),
    (lambda: quantize(F32, 1.0, 128, EVEN), ValueError,
     "zero_point must be from -128 to 127, not 128"),
    (lambda: quantize(F32, -1.0, 0, EVEN), ValueError,
     "scale must be positive and finite, not -1.0"),
    (lambda: quantize(F32 + np.float32(np.nan), 1.0, 0, EVEN), ValueError, "x must hold no NaN"),
    (lambda: dequantize(EVERY, 0.0, 0), ValueError, "scale must be positive and finite, not 0.0"),
    (lambda: dequantize(EVERY, 1.0, -129), ValueError,
     "zero_point must be from -128 to 127, not -129"),
    (lambda: rescale(EVERY, 1 << 30, 0, input_zero_point=200, zero_point=0), ValueError,
     "input_zero_point must be from -128 to 127, not 200"),
    (lambda: clamp(EVERY, 3, 2), ValueError, "act_min must be at most act_max = 2, not 3"),
    (lambda: clamp(EVERY, 0, 128), ValueError, "act_max must be from -128 to 127, not 128"),
    (lambda: relu(F32, 0), TypeError, "x must be an array of int8 or uint8, not float32"),
    (lambda: AddParameters.from_scales(1.0, np.inf, 1.0), ValueError,
     "scale must be positive and finite, not inf"),
    (lambda: add(F32, EVERY, PARAMETERS, a_zero_point=0, b_zero_point=0, zero_point=0), TypeError,
     "a must be an array of int8, not float32"),
    (lambda: add(EVERY, EVERY, PARAMETERS, a_zero_point=0, b_zero_point=128, zero_point=0),
     ValueError, "b_zero_point must be from -128 to 127, not 128"),
    (lambda: activation_range(Activation.RELU, 1.0, -129), ValueError,
     "zero_point must be from -128 to 127, not -129"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), MESSAGES)
def test_bad_arguments_are_named(call, error, message) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()


def test_int8_is_the_default_output() -> None:
    assert quantize(F32, 1.0, INT8.min, EVEN).tolist() == [-128] * 3
