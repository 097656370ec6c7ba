"""Integer LSTM layer of TFLite: int8 input, output and weights, int16 cell state and gates.

Without peephole connections, layer normalisation, projection and coupled gates. Gates are Q3.12
before and Q0.15 after their activation; the cell state is int16 with a power-of-two scale. Ref:
TensorFlow Lite ``kernels/lstm_eval.cc`` (LstmStepInteger8x8_16) and ``kernels/
unidirectional_sequence_lstm.cc`` (PopulateQuantizedLstmParams8x8_16).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.numerics import INT8, INT16, RequantScheme, quantize_multiplier
from npulse.sim.golden.check import require_axes, require_dtype
from npulse.sim.golden.fixed16 import logistic16, tanh16
from npulse.sim.golden.matmul import fully_connected
from npulse.sim.golden.requant import scale_q31

Array = NDArray[Any]

GATES = ("input", "forget", "cell", "output")  #: Order of weights, biases and scales.
_SCHEME = RequantScheme.TFLITE_Q31_DOUBLE


Factor = tuple[int, int]  #: Q31 multiplier and shift.
Factors = tuple[Factor, Factor, Factor, Factor]  #: One a gate, in the order of `GATES`.


@dataclass(frozen=True, kw_only=True)
class LstmParameters:
    """Zero points and requantisation factors."""

    input_zero_point: int
    state_zero_point: int  #: of the output state
    input_factors: Factors  #: from the product with the input to Q3.12
    recurrent_factors: Factors  #: from the product with the output state to Q3.12
    cell_scale_log2: int  #: -15 to -9; the cell state has 15 more integer bits
    hidden_factor: Factor  #: from a product of two Q0.15 to the output state
    hidden_zero_point: int
    cell_clip: int = 0  #: in steps of the cell state; 0 for none


def gate_factors(scale: float, weight_scales: Sequence[float]) -> Factors:
    """Factors of the four gates from scales, which are multiplied in float32 as TFLite does."""
    gate = np.float32(2.0**-12)
    one, two, three, four = (
        quantize_multiplier(float(np.float32(w) * np.float32(scale) / gate)) for w in weight_scales
    )
    return one, two, three, four


def hidden_factor(hidden_scale: float) -> Factor:
    """Factor from a product of two Q0.15 to codes of a scale, formed in float32."""
    return quantize_multiplier(float(np.float32(2.0**-30 / float(hidden_scale))))


@dataclass(frozen=True, kw_only=True)
class LstmWeights:
    """Arrays of the four gates in the order of `GATES`: C cells, I inputs."""

    inputs: tuple[Array, ...]  #: (C, I) int8 each
    recurrent: tuple[Array, ...]  #: (C, C) int8 each
    bias: tuple[Array, ...]  #: (C,) int32 each


def lstm(
    x: Array, state: Array, cell: Array, weights: LstmWeights, parameters: LstmParameters
) -> tuple[NDArray[np.int8], NDArray[np.int8], NDArray[np.int16]]:
    """Run a sequence.

    Parameters
    ----------
    x : (T, N, I) int8
        T steps of N independent sequences.
    state : (N, C) int8
        Output of the step before the first.
    cell : (N, C) int16

    Returns
    -------
    outputs (T, N, C) int8, last state (N, C) int8, last cell state (N, C) int16
    """
    require_dtype("x", x, np.int8)
    require_axes("x", x, "T, N, I")
    require_dtype("state", state, np.int8)
    require_dtype("cell", cell, np.int16)
    outputs = []
    for step in x:
        state, cell = _step(step, state, cell, weights, parameters)
        outputs.append(state)
    return np.array(outputs, np.int8).reshape(len(x), *state.shape), state, cell


def _step(
    x: Array, state: Array, cell: Array, weights: LstmWeights, parameters: LstmParameters
) -> tuple[NDArray[np.int8], NDArray[np.int16]]:
    gates = [_gate(x, state, number, weights, parameters) for number in range(len(GATES))]
    opened = [
        tanh16(g, 3) if name == "cell" else logistic16(g)
        for name, g in zip(GATES, gates, strict=True)
    ]
    fresh, kept, candidate, shown = (g.astype(np.int64) for g in opened)
    memory = _halve(kept * cell, 15)
    added = _halve(fresh * candidate, 30 + parameters.cell_scale_log2)
    cell = (memory + added).clip(INT16.min, INT16.max).astype(np.int16)
    if parameters.cell_clip > 0:
        cell = cell.clip(-parameters.cell_clip, parameters.cell_clip)
    squashed = tanh16(cell, 15 + parameters.cell_scale_log2)
    product = (shown * squashed).astype(np.int32)
    hidden = scale_q31(product, *parameters.hidden_factor, _SCHEME) + parameters.hidden_zero_point
    return hidden.clip(INT8.min, INT8.max).astype(np.int8), cell


def _gate(
    x: Array, state: Array, number: int, weights: LstmWeights, parameters: LstmParameters
) -> NDArray[np.int16]:
    """Sum of both products of a gate in Q3.12, saturated after each."""
    p = parameters
    total = np.int64(0)
    for values, matrix, bias, zero_point, factor in (
        (
            x,
            weights.inputs[number],
            weights.bias[number],
            p.input_zero_point,
            p.input_factors[number],
        ),
        (
            state,
            weights.recurrent[number],
            None,
            p.state_zero_point,
            p.recurrent_factors[number],
        ),
    ):
        acc = fully_connected(values, matrix, bias, input_zero_point=zero_point)
        scaled = scale_q31(acc, *factor, _SCHEME)
        total = (total + scaled).clip(INT16.min, INT16.max)
    return np.asarray(total, np.int16)


def _halve(values: NDArray[np.int64], places: int) -> NDArray[np.int64]:
    """Divide by ``2**places`` to nearest with ties away from zero, kept to 16 bits."""
    half = np.int64(1) << (places - 1)
    quotient = np.sign(values) * ((np.abs(values) + half) >> places)
    return quotient.astype(np.int16).astype(np.int64)
