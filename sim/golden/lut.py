"""Functions of one byte as tables of 256 entries, and their lookup.

Each function is tabulated as LiteRT's BUILTIN_REF computes it: logistic, tanh and GELU in float32,
leaky ReLU and hard-swish in fixed point, so a table holds the bits of the kernel.

Ref: TensorFlow Lite ``kernels/internal/common.h`` (LUTPopulateInt8), ``kernels/activations.cc``,
``kernels/internal/reference/leaky_relu.h``, ``reference/hard_swish.h``, ``reference/gelu.h``;
gemmlowp ``fixedpoint/fixedpoint.h`` (SaturatingRoundingDoublingHighMul of int16).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.hw.spec.numerics import INT8, IntFormat, RequantScheme, quantize_multiplier
from npulse.sim.golden.check import BYTE_FORMATS, require_dtype
from npulse.sim.golden.requant import OUTPUT_DTYPES, scale_q31

Array = NDArray[Any]

ENTRIES = 256  #: One for each code of a byte, the smallest code first.


@dataclass(frozen=True, kw_only=True)
class LutParameters:
    """Scales and zero points of input and output, and the format of both."""

    input_scale: float  #: float32
    input_zero_point: int
    scale: float  #: float32
    zero_point: int
    fmt: IntFormat = INT8

    def __post_init__(self) -> None:
        for name in ("input_scale", "scale"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be positive and finite, not {value}")
        self.fmt.check("input_zero_point", self.input_zero_point)
        self.fmt.check("zero_point", self.zero_point)

    @property
    def centred(self) -> NDArray[np.int32]:
        """Every code less the zero point of the input, (256,) int32."""
        return np.arange(self.fmt.min, self.fmt.max + 1, dtype=np.int32) - self.input_zero_point

    def finish(self, steps: Array) -> Array:
        """Add the zero point of the output to whole numbers of its steps, and saturate."""
        codes = (steps + self.zero_point).clip(self.fmt.min, self.fmt.max)
        return codes.astype(OUTPUT_DTYPES[self.fmt])


def lookup(x: Array, table: Array) -> Array:
    """Replace each code of ``x`` by the entry of ``table (256,)`` at ``code - smallest code``."""
    require_dtype("x", x, np.int8, np.uint8)
    if table.shape != (ENTRIES,):
        raise ValueError(f"table must have shape ({ENTRIES},), not {table.shape}")
    return table[x.astype(np.int32) - BYTE_FORMATS[x.dtype].min]


def float_table(function: Callable[[float], float], parameters: LutParameters) -> Array:
    """Tabulate a function of real numbers as LUTPopulateInt8 does, all steps in float32.

    ``function`` is evaluated in double precision and rounded, which is what a float32 function of
    the C library gives but for rare cases of one unit in the last place.
    """
    real = np.float32(parameters.input_scale) * parameters.centred.astype(np.float32)
    values = np.array([np.float32(function(float(value))) for value in real], np.float32)
    steps = values * (np.float32(1) / np.float32(parameters.scale))
    return parameters.finish(_round_away(steps))


def _round_away(steps: NDArray[np.float32]) -> NDArray[np.int64]:
    """Round to nearest with ties away from zero; what is far outside a byte is limited."""
    whole = np.trunc(steps)
    away = np.where(np.abs(steps - whole) >= 0.5, whole + np.sign(steps), whole)
    return away.clip(-(1 << 24), 1 << 24).astype(np.int64)


def logistic(x: float) -> float:
    """Compute ``1 / (1 + exp(-x))``, each step in float32."""
    # Beyond 88, where exp leaves float32, the result is below any step of an output.
    growth = np.float32(math.exp(min(-x, 88.0)))
    return float(np.float32(1) / (np.float32(1) + growth))


def gelu(x: float) -> float:
    """Compute ``x * P(X <= x)`` of a standard normal X."""
    return 0.5 * x * math.erfc(-x * math.sqrt(0.5))


def gelu_tanh(x: float) -> float:
    """Approximate `gelu` by tanh."""
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


#: Functions of `float_table` by name.
FLOAT_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "logistic": logistic,
    "tanh": math.tanh,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}


def leaky_relu_table(alpha: float, parameters: LutParameters) -> Array:
    """Tabulate ``x`` above zero and ``alpha * x`` below, with TFLITE_Q31_DOUBLE for both."""
    x, y = np.float32(parameters.input_scale), np.float32(parameters.scale)
    above = _scaled(parameters.centred, float(x / y))
    below = _scaled(parameters.centred, float(x * np.float32(alpha) / y))
    return parameters.finish(np.where(parameters.centred >= 0, above, below))


def _scaled(values: NDArray[np.int32], real: float) -> NDArray[np.int64]:
    """Scale by a factor of either sign."""
    multiplier, shift = quantize_multiplier(abs(real))
    scheme = RequantScheme.TFLITE_Q31_DOUBLE
    # A negative multiplier of gemmlowp gives the product of the negated value.
    return scale_q31(values if real >= 0 else -values, multiplier, shift, scheme)


def float_rescale_table(parameters: LutParameters) -> Array:
    """Tabulate a change of scale as CONCATENATION of uint8 does it, in float32.

    Ref: TensorFlow Lite ``kernels/internal/reference/concatenation.h``, ConcatenationWithScaling.
    """
    fmt = parameters.fmt
    scale = np.float32(parameters.input_scale) * (np.float32(1) / np.float32(parameters.scale))
    bias = np.float32(-parameters.input_zero_point) * scale
    codes = np.arange(fmt.min, fmt.max + 1).astype(np.float32)
    steps = codes * scale + bias
    return parameters.finish(_round_away(steps))


_HIRES_BITS = 7  #: Fraction bits that hard-swish adds to its input.
_RELUISH_SCALE = np.float32(3) / np.float32(32768)


def hard_swish_table(parameters: LutParameters) -> Array:
    """Tabulate ``x * clamp(x + 3, 0, 6) / 6`` in 16-bit fixed point.

    Raises
    ------
    ValueError
        For an output scale below 1/128 of the input scale, which the kernel refuses.
    """
    hires = np.float32(1 / 128) * np.float32(parameters.input_scale)
    out_multiplier, out_exponent = _int16_multiplier(float(hires / np.float32(parameters.scale)))
    if out_exponent > 0:
        raise ValueError(
            "scale must be at least input_scale / 128 for hard-swish, not "
            f"{parameters.scale} with input_scale {parameters.input_scale}"
        )
    multiplier, exponent = _int16_multiplier(float(hires / _RELUISH_SCALE))
    x = parameters.centred.astype(np.int64) << _HIRES_BITS
    preshift = _high_mul16(x, out_multiplier)
    reluish = _saturate16(x << (exponent - 1)) if exponent > 0 else x
    reluish = _high_mul16(reluish, multiplier)
    if exponent > 0:
        reluish = _saturate16(reluish << 1)
    elif exponent < 0:
        reluish = _divide_by_pot(reluish, -exponent)
    reluish = (reluish + (1 << 15)) >> 1
    product = reluish * preshift
    truncated = np.sign(product) * (np.abs(product) >> 15)
    return parameters.finish(_divide_by_pot(truncated, -out_exponent))


def _int16_multiplier(real: float) -> tuple[int, int]:
    """Write a factor as ``multiplier * 2**(exponent - 15)`` with 16 bits for the multiplier."""
    multiplier, exponent = quantize_multiplier(real)
    return min((multiplier + (1 << 15)) >> 16, (1 << 15) - 1), exponent


def _high_mul16(a: NDArray[np.int64], b: int) -> NDArray[np.int64]:
    """Compute ``a * b / 2**15`` to nearest, ties up, for int16 values and a positive ``b``."""
    return (a * b + (1 << 14)) >> 15


def _saturate16(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return values.clip(-(1 << 15), (1 << 15) - 1)


def _divide_by_pot(values: NDArray[np.int64], exponent: int) -> NDArray[np.int64]:
    """Divide by ``2**exponent`` to nearest with ties away from zero."""
    if exponent == 0:
        return values
    half = 1 << (exponent - 1)
    return np.sign(values) * ((np.abs(values) + half) >> exponent)
