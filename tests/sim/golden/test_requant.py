"""Vectorised requantisation against the scalar definition, ONNX and LiteRT."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npulse.hw.spec.numerics import (
    INT16,
    INT32,
    Q31_SCHEMES,
    UINT8,
    RequantScheme,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    requantize_scalar,
)
from npulse.sim.golden.requant import (
    quantize_multipliers,
    requantize,
    requantize_f32,
    scale_q31,
)

DOUBLE = RequantScheme.TFLITE_Q31_DOUBLE
WINDOW = dict(zero_point=3, act_min=-128, act_max=127)


def scalars(acc, multiplier, shift, scheme):
    triples = zip(acc.tolist(), multiplier.tolist(), shift.tolist(), strict=True)
    return [multiply_by_quantized_multiplier(x, m, s, scheme) for x, m, s in triples]


@pytest.mark.parametrize("scheme", Q31_SCHEMES)
def test_equals_the_scalar_definition_at_every_edge(scheme) -> None:
    powers = [sign * (1 << bit) + step for bit in (0, 7, 15, 16, 30) for sign in (-1, 1)
              for step in (-1, 0, 1)]  # fmt: skip
    values = [*powers, INT32.min, INT32.min + 1, INT32.max - 1, INT32.max]
    multipliers = (0, 1, (1 << 30) - 1, 1 << 30, (1 << 30) + 1, 3 << 29, (1 << 31) - 1)
    table = np.array(list(itertools.product(values, multipliers, range(-31, 31))))
    acc, multiplier, shift = table.T
    got = scale_q31(acc.astype(np.int32)[None], multiplier, shift, scheme)[0]
    assert got.tolist() == scalars(acc, multiplier, shift, scheme)


@pytest.mark.parametrize("scheme", Q31_SCHEMES)
def test_equals_the_scalar_definition_on_a_million_values(scheme) -> None:
    count = 1_000_000
    rng = np.random.default_rng(1)
    # All magnitudes equally often: a uniform int32 would hardly ever be small.
    acc = (rng.integers(INT32.min, INT32.max + 1, count) >> rng.integers(0, 32, count)).astype(
        np.int32
    )
    multiplier = rng.integers(0, 1 << 31, count)
    shift = rng.integers(-31, 31, count)
    got = scale_q31(acc[None], multiplier, shift, scheme)[0]
    assert got.tolist() == scalars(acc, multiplier, shift, scheme)


@given(
    st.integers(INT32.min, INT32.max),
    st.integers(0, (1 << 31) - 1),
    st.integers(-31, 30),
    st.integers(-128, 127),
    st.tuples(st.integers(-128, 127), st.integers(-128, 127)).map(sorted),
    st.sampled_from(Q31_SCHEMES),
)
def test_output_equals_the_scalar_definition(acc, multiplier, shift, zero, window, scheme) -> None:
    arguments = dict(zero_point=zero, act_min=window[0], act_max=window[1], scheme=scheme)
    got = requantize(np.array([acc], np.int32), multiplier, shift, **arguments)
    assert got.dtype == np.int8
    assert got[0] == requantize_scalar(acc, multiplier, shift, **arguments)


def test_channels_have_their_own_multiplier_and_outputs_their_own_format() -> None:
    acc = np.array([[100, 100, 100], [-100, -100, -100]], np.int32)
    multiplier, shift = quantize_multipliers(np.array([0.5, 1.0, 4.0]))
    assert multiplier.dtype == shift.dtype == np.int32
    wide = requantize(acc, multiplier, shift, zero_point=0, act_min=-32768, act_max=32767,
                      scheme=DOUBLE, out=INT16)  # fmt: skip
    assert wide.tolist() == [[50, 100, 400], [-50, -100, -400]]
    byte = requantize(acc, multiplier, shift, zero_point=128, act_min=0, act_max=255,
                      scheme=DOUBLE, out=UINT8)  # fmt: skip
    assert byte.tolist() == [[178, 228, 255], [78, 28, 0]]


def test_f32_rounds_half_to_even() -> None:
    acc = np.array([1, 3, 5, -1, -3, -5], np.int32)[:, None]
    got = requantize_f32(acc, 0.5, **WINDOW)[:, 0]
    assert got.tolist() == [3, 5, 5, 3, 1, 1]
    # 2**24 + 1 has no float32: it becomes 2**24 before the product.
    big = np.array([[(1 << 24) + 1]], np.int32)
    assert requantize_f32(big, 2.0**-20, zero_point=0, act_min=-128, act_max=127)[0, 0] == 16
    assert requantize_f32(big, np.float32(3e38), **WINDOW)[0, 0] == 127


def test_f32_equals_the_reference_of_qlinear_matmul(onnx_ref) -> None:
    rng = np.random.default_rng(2)
    a = rng.integers(-128, 128, (64, 96)).astype(np.int8)
    b = rng.integers(-128, 128, (96, 64)).astype(np.int8)
    a_scale, b_scale, y_scale = (np.array(v, np.float32) for v in (0.021, 0.0063, 0.31))
    # An even zero point: the reference adds it before it rounds half to even.
    none, zero = np.array(0, np.int8), np.array(-14, np.int8)
    expected = onnx_ref("QLinearMatMul", [a, a_scale, none, b, b_scale, none, y_scale, zero])
    acc = a.astype(np.int32) @ b.astype(np.int32)
    scale = a_scale * b_scale / y_scale
    got = requantize_f32(acc, scale, zero_point=-14, act_min=-128, act_max=127)
    assert np.array_equal(got, expected)
    assert np.unique(got).size > 100


def accumulators(rng, real: float, count: int) -> np.ndarray:
    """Values whose result is near the output range, anywhere, and near a wrap of the left shift."""
    near = np.rint(rng.integers(-140, 140, count) / real) + rng.integers(-2, 3, count)
    left = max(quantize_multiplier(real)[1], 0)
    wrapped = rng.integers(-2, 3, count) * 2.0 ** (32 - left) + near
    everywhere = rng.integers(INT32.min, INT32.max + 1, count)
    ends = [INT32.min, INT32.min + 1, INT32.max - 1, INT32.max]
    values = np.concatenate([near, wrapped, everywhere, ends])
    return values.clip(INT32.min, INT32.max).astype(np.int64).astype(np.int32)


REALS = (2.0**-12, 0.00123, 0.25, 0.37, 0.5, 0.9999, 1.0, 1.7, 3.3, 1000.3, 1.1e8)


@pytest.mark.parametrize("real", REALS)
def test_double_equals_litert_convolution_of_any_accumulator(litert, real) -> None:
    """The bias carries the accumulator: one 1x1 convolution has one output channel for each."""
    acc = accumulators(np.random.default_rng(3), real, 400)
    options = litert.schema.Conv2DOptionsT()
    options.strideW = options.strideH = options.dilationWFactor = options.dilationHFactor = 1
    scale = np.full(acc.size, real, np.float32)
    tensors = [
        litert.tensor((1, 1, 1, 1), "INT8", 1.0),
        litert.tensor((acc.size, 1, 1, 1), "INT8", scale, data=np.ones(acc.size, np.int8)),
        litert.tensor((acc.size,), "INT32", scale, data=acc),
        litert.tensor((1, 1, 1, acc.size), "INT8", 1.0),
    ]
    expected = litert.run("CONV_2D", tensors, [np.zeros((1, 1, 1, 1), np.int8)], options=options)
    multiplier, shift = quantize_multiplier(float(np.float32(real)))
    got = requantize(acc, multiplier, shift, zero_point=0, act_min=-128, act_max=127, scheme=DOUBLE)
    assert np.array_equal(got, expected[0, 0, 0])


@pytest.mark.parametrize("real", REALS)
def test_away_equals_litert_fully_connected_inside_int32(litert, real) -> None:
    acc = accumulators(np.random.default_rng(4), real, 400)
    acc = acc[np.abs(acc * np.float64(real)) < 2.0**31]  # beyond, the C++ is undefined
    assert acc.size > 400
    expected = fully_connected_of_bias(litert, acc, real)
    multiplier, shift = quantize_multiplier(float(np.float32(real)))
    got = requantize(acc, multiplier, shift, zero_point=0, act_min=-128, act_max=127,
                     scheme=RequantScheme.TFLITE_Q31_AWAY)  # fmt: skip
    assert np.array_equal(got, expected)


def test_neither_other_scheme_is_litert_fully_connected(litert) -> None:
    acc = np.arange(-200, 200, dtype=np.int32)
    expected = fully_connected_of_bias(litert, acc, 0.5)
    differences = {}
    for scheme in Q31_SCHEMES:
        got = requantize(acc, 1 << 30, 0, zero_point=0, act_min=-128, act_max=127, scheme=scheme)
        differences[scheme.name] = int((got != expected).sum())
    assert differences == {
        "TFLITE_Q31_DOUBLE": 100,
        "TFLITE_Q31_SINGLE": 100,
        "TFLITE_Q31_AWAY": 0,
    }


def fully_connected_of_bias(litert, acc: np.ndarray, real: float) -> np.ndarray:
    options = litert.schema.FullyConnectedOptionsT()
    tensors = [
        litert.tensor((1, 1), "INT8", 1.0),
        litert.tensor((acc.size, 1), "INT8", real, data=np.ones(acc.size, np.int8)),
        litert.tensor((acc.size,), "INT32", real, data=acc),
        litert.tensor((1, acc.size), "INT8", 1.0),
    ]
    x = np.zeros((1, 1), np.int8)
    return litert.run("FULLY_CONNECTED", tensors, [x], options=options, version=4)[0]


ACC = np.zeros((2, 3), np.int32)
GOOD = dict(zero_point=0, act_min=-128, act_max=127, scheme=DOUBLE)
F32 = dict(zero_point=0, act_min=-128, act_max=127)
MESSAGES = [
    (
        lambda: requantize(ACC.astype(np.int64), 1 << 30, 0, **GOOD),
        TypeError,
        "acc must be an array of int32, not int64",
    ),
    (
        lambda: requantize(np.int32(3)[...], 1 << 30, 0, **GOOD),
        ValueError,
        "acc must have at least one axis, the channels, not shape ()",
    ),
    (
        lambda: requantize(ACC, np.array([1, 2]), 0, **GOOD),
        ValueError,
        "multiplier must be a scalar or have shape (3,), not (2,)",
    ),
    (lambda: requantize(ACC, 0.5, 0, **GOOD), TypeError, "multiplier must be integer, not float64"),
    (
        lambda: requantize(ACC, np.array([0, 1 << 31, 0]), 0, **GOOD),
        ValueError,
        "multiplier must be from 0 to 2147483647, not 2147483648",
    ),
    (lambda: requantize(ACC, -1, 0, **GOOD), ValueError,
     "multiplier must be from 0 to 2147483647, not -1"),
    (lambda: requantize(ACC, 0, 31, **GOOD), ValueError, "shift must be from -31 to 30, not 31"),
    (lambda: requantize(ACC, 0, np.array([0, -32, 0]), **GOOD), ValueError,
     "shift must be from -31 to 30, not -32"),
    (lambda: requantize(ACC, 0, 0, **{**GOOD, "zero_point": 128}), ValueError,
     "zero_point must be from -128 to 127, not 128"),
    (lambda: requantize(ACC, 0, 0, **{**GOOD, "act_min": -129}), ValueError,
     "act_min must be from -128 to 127, not -129"),
    (lambda: requantize(ACC, 0, 0, **{**GOOD, "act_max": 200}), ValueError,
     "act_max must be from -128 to 127, not 200"),
    (lambda: requantize(ACC, 0, 0, **{**GOOD, "act_min": 5, "act_max": 4}), ValueError,
     "act_min must be at most act_max = 4, not 5"),
    (lambda: requantize(ACC, 0, 0, out=INT32, **GOOD), ValueError,
     "out must be int8, uint8 or int16, not int32"),
    (lambda: requantize(ACC, 0, 0, **{**GOOD, "scheme": RequantScheme.ONNX_F32_RNE}), ValueError,
     "scheme must be one of TFLITE_Q31_DOUBLE, TFLITE_Q31_SINGLE, TFLITE_Q31_AWAY, "
     "not ONNX_F32_RNE"),
    (lambda: requantize_f32(ACC, np.ones(2), **F32), ValueError,
     "scale must be a scalar or have shape (3,), not (2,)"),
    (lambda: requantize_f32(ACC, 0.0, **F32), ValueError,
     "scale must be positive and finite in every channel"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), MESSAGES)
def test_bad_arguments_are_named(call, error, message) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()
