"""Integer formats and requantisation: the arithmetic that RTL, golden model and compiler share.

The requantiser contract
------------------------
A requantiser lane takes an accumulator and gives an output of at most 8 bits. Every line below is
exact integer arithmetic, ``>>`` is arithmetic (rounds down), and the definition covers **every**
int32 ``acc`` and ``bias``, ``multiplier`` in 0 .. 2**31 - 1 and ``shift`` in -31 .. 30; a positive
shift is a left shift. With ``c = rounding_constants(shift, scheme)``, which the host computes once
a channel::

    x    = wrap32(acc + bias)
    wide = x << c.left_shift                                   # 62 bits hold every case
    left = wrap32(wide)      in TFLITE_Q31_DOUBLE
    left = saturate32(wide)  in TFLITE_Q31_SINGLE and TFLITE_Q31_AWAY
    down = c.ties_away if left < 0 else 0
    high = (left * multiplier + c.product_round - down) >> 31  # fits int32, never saturates
    real = (high + (c.round_negative if high < 0 else c.round_positive)) >> c.right_shift
    out  = clamp(real + zero_point, act_min, act_max)          # the sum does not wrap

==================  ===============================================================
constant            value, with ``s = -shift``
==================  ===============================================================
``left_shift``      ``shift`` if ``shift > 0`` else 0
``right_shift``     ``s`` if ``s > 0`` else 0; so at least one of the two is 0
``product_round``   ``2**30``, but 0 in the two single schemes with ``s > 0``
``ties_away``       1 in TFLITE_Q31_AWAY, else 0
``round_positive``  ``2**(s - 1)`` if ``s > 0`` else 0
``round_negative``  as ``round_positive``, less 1 in TFLITE_Q31_DOUBLE with ``s > 0``
==================  ===============================================================

So one data path serves all three schemes: they differ in constants and in the overflow of the left
shift. Hardware for TFLITE_Q31_DOUBLE and TFLITE_Q31_SINGLE has no ``down``; hardware without left
shift (``shift <= 0``) has no wrapping and no saturation.

Widths: ``left * multiplier`` is signed 63 bits, ``high`` is signed 32 bits, the sum before the
second shift is signed 33 bits, ``real`` is signed 32 bits. Since the last sum does not wrap,
``real`` may be saturated to 10 bits (-512 .. 511) before the zero point is added: with
``zero_point``, ``act_min`` and ``act_max`` of 8 bits the output is the same. The left shift
overflows, and is then saturated, if and only if bits 31 down to ``31 - left_shift`` of ``x`` are
not all equal.

Why this equals TFLite
----------------------
TFLITE_Q31_DOUBLE is gemmlowp's pair of roundings, which TensorFlow Lite uses in convolution and
depthwise convolution: SaturatingRoundingDoublingHighMul (nearest, ties up) and then
RoundingDivideByPOT (nearest, ties away from zero). gemmlowp saturates ``-2**31 * -2**31`` only, and
a multiplier is never negative. TFLITE_Q31_SINGLE is ``(x * multiplier + 2**(t - 1)) >> t`` with
``t = 31 - shift`` (one rounding, ties up): TFLite built with TFLITE_SINGLE_ROUNDING.
TFLITE_Q31_AWAY is the same with ties away from zero. The tests compare the hardware formula with
these definitions.

Measured with ai-edge-litert 2.3.0, BUILTIN_REF, on x86-64:

- Convolution and depthwise convolution are TFLITE_Q31_DOUBLE, and ``x * (1 << shift)`` wraps (the
  C++ is undefined there).
- Fully connected is no integer scheme: it rounds ``acc * real`` once, half away from zero, in
  double precision. TFLITE_Q31_AWAY differs only where the error of the Q31 multiplier (2**-31 of
  the result) crosses a tie: 0 of 5,000,000 random cases of up to 24 bits, 40 of 131,040 cases next
  to ties of up to 31 bits. TFLITE_Q31_SINGLE also differs at every exact negative tie, which
  factors such as a power of two have.
- A fully connected result beyond int32 is undefined in C++ and becomes ``-2**31`` of either sign;
  here it saturates. Saturating before the product, not after, gives the same clamped output for
  each multiplier that `quantize_multiplier` makes (0, or at least ``2**30``).
- LiteRT adds the zero point in int32, so a result within 128 of the ends of int32 wraps to the far
  end, where this contract clamps.

Ref: gemmlowp ``fixedpoint/fixedpoint.h`` (both roundings); TensorFlow Lite
``kernels/internal/common.h`` (MultiplyByQuantizedMultiplier and TFLITE_SINGLE_ROUNDING) and
``kernels/internal/quantization_util.cc`` (QuantizeMultiplier).
"""

import enum
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class IntFormat:
    """Integer format in two's complement, or plain binary when unsigned."""

    name: str
    width: int  #: bits
    signed: bool

    def __post_init__(self) -> None:
        if not 1 <= self.width <= 64:
            raise ValueError(f"width must be from 1 to 64 bits, not {self.width!r}")

    @property
    def min(self) -> int:
        """Smallest value."""
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def max(self) -> int:
        """Largest value."""
        return (1 << (self.width - 1)) - 1 if self.signed else (1 << self.width) - 1

    def wrap(self, value: int) -> int:
        """Keep the low ``width`` bits of ``value``: addition and shifts in hardware."""
        low = value & ((1 << self.width) - 1)
        return low - (1 << self.width) if low > self.max else low

    def saturate(self, value: int) -> int:
        """Take the value of the format that is nearest to ``value``."""
        return max(self.min, min(self.max, value))

    def check(self, name: str, value: int) -> None:
        """Raise `ValueError`, which calls the value ``name``, unless the format holds it."""
        check_range(name, value, self.min, self.max)


INT4 = IntFormat("int4", 4, True)
INT8 = IntFormat("int8", 8, True)
UINT8 = IntFormat("uint8", 8, False)
INT16 = IntFormat("int16", 16, True)
INT32 = IntFormat("int32", 32, True)
#: Formats by name.
INT_FORMATS = {fmt.name: fmt for fmt in (INT4, INT8, UINT8, INT16, INT32)}

MULTIPLIER_MAX = (1 << 31) - 1  #: Largest Q31 multiplier; the smallest is 0.
SHIFT_MIN = -31  #: Most right shift of a requantiser.
SHIFT_MAX = 30  #: Most left shift of a requantiser.


class RequantScheme(enum.Enum):
    """Arithmetic that maps an int32 accumulator to an output; the value is its name in the IR."""

    #: Q31 multiplier, rounded after the product and after the shift: TFLite convolutions.
    TFLITE_Q31_DOUBLE = "tflite_q31_double"
    #: Q31 multiplier, rounded once with ties up: TFLite built with TFLITE_SINGLE_ROUNDING.
    TFLITE_Q31_SINGLE = "tflite_q31_single"
    #: Q31 multiplier, rounded once with ties away from zero: LiteRT fully connected.
    TFLITE_Q31_AWAY = "tflite_q31_away"
    #: float32 scale, rounded half to even: ONNX Runtime (`npulse.sim.golden.requant`).
    ONNX_F32_RNE = "onnx_f32_rne"


#: Schemes that multiply by a Q31 integer, in this order in messages.
Q31_SCHEMES = (
    RequantScheme.TFLITE_Q31_DOUBLE,
    RequantScheme.TFLITE_Q31_SINGLE,
    RequantScheme.TFLITE_Q31_AWAY,
)


class Rounding(enum.Enum):
    """How a real value becomes the nearest integer when it lies halfway between two."""

    HALF_EVEN = "half_even"  #: IEEE-754 default: ONNX QuantizeLinear.
    HALF_AWAY = "half_away"  #: Away from zero, as C's ``round``: TFLite QUANTIZE.


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Raise `ValueError`, which calls the value ``name``, unless ``low <= value <= high``."""
    if not low <= value <= high:
        raise ValueError(f"{name} must be from {low} to {high}, not {value}")


def check_q31(scheme: RequantScheme) -> None:
    """Raise `ValueError` unless ``scheme`` multiplies by a Q31 integer."""
    if scheme not in Q31_SCHEMES:
        names = ", ".join(known.name for known in Q31_SCHEMES)
        raise ValueError(f"scheme must be one of {names}, not {scheme.name}")


def quantize_multiplier(real: float) -> tuple[int, int]:
    """Write a real factor as ``multiplier * 2**(shift - 31)``.

    Parameters
    ----------
    real
        Factor from 0 to ``(2**31 - 1) / 2``. TFLite forms it in double precision, as
        ``input_scale * filter_scale / output_scale`` of scales that are float32.

    Returns
    -------
    multiplier, shift
        ``2**30 <= multiplier < 2**31`` and ``-31 <= shift <= 30``, or ``(0, 0)`` for a factor of
        zero or below ``2**-32``. Ties of the multiplier round up, as TfLiteRound does. TFLite
        leaves larger factors undefined in double rounding, so they are refused.
    """
    limit = MULTIPLIER_MAX / 2
    if not 0 <= real <= limit:
        raise ValueError(f"real must be from 0 to {limit}, not {real!r}")
    if real == 0:
        return 0, 0
    fraction, shift = math.frexp(real)
    multiplier = math.floor(fraction * (1 << 31) + 0.5)
    if multiplier == 1 << 31:
        multiplier, shift = 1 << 30, shift + 1
    return (multiplier, shift) if shift >= SHIFT_MIN else (0, 0)


@dataclass(frozen=True)
class RoundingConstants:
    """What the host loads beside the multiplier of a channel; the module has the formula."""

    left_shift: int  #: 0 .. 30
    right_shift: int  #: 0 .. 31
    product_round: int  #: Added to the product: 0 or ``2**30``.
    ties_away: int  #: Subtracted from the product if the accumulator is negative: 0 or 1.
    round_positive: int  #: Added before the right shift if the high product is >= 0: 0 .. 2**30.
    round_negative: int  #: As above, if it is negative.


def rounding_constants(shift: int, scheme: RequantScheme) -> RoundingConstants:
    """Derive the constants of the hardware formula from a TFLite ``shift``."""
    check_q31(scheme)
    check_range("shift", shift, SHIFT_MIN, SHIFT_MAX)
    double = scheme is RequantScheme.TFLITE_Q31_DOUBLE
    right = max(-shift, 0)
    half = 1 << (right - 1) if right else 0
    return RoundingConstants(
        left_shift=max(shift, 0),
        right_shift=right,
        product_round=1 << 30 if double or not right else 0,
        ties_away=1 if scheme is RequantScheme.TFLITE_Q31_AWAY else 0,
        round_positive=half,
        round_negative=half - 1 if double and right else half,
    )


def saturating_rounding_doubling_high_mul(a: int, b: int) -> int:
    """Compute the high 32 bits of ``2 * a * b``, rounded to nearest, for int32 ``a`` and ``b``.

    gemmlowp adds a nudge by the sign of the product and divides towards zero; together that is
    nearest with ties up.
    """
    if a == b == INT32.min:
        return INT32.max
    product = a * b
    nudged = product + (1 << 30 if product >= 0 else 1 - (1 << 30))
    return nudged // (1 << 31) if nudged >= 0 else -(-nudged // (1 << 31))


def rounding_divide_by_pot(x: int, exponent: int) -> int:
    """Divide int32 ``x`` by ``2**exponent``, 0 .. 31, to nearest with ties away from zero."""
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (1 if x < 0 else 0)
    return (x >> exponent) + (1 if x & mask > threshold else 0)


def multiply_by_quantized_multiplier(
    x: int, multiplier: int, shift: int, scheme: RequantScheme
) -> int:
    """Scale int32 ``x`` by ``multiplier * 2**(shift - 31)`` by the scheme's own formula, to int32.

    Double rounding wraps an overflow of the left shift and the single ones saturate it, as the
    module explains.
    """
    check_q31(scheme)
    INT32.check("x", x)
    check_range("multiplier", multiplier, 0, MULTIPLIER_MAX)
    check_range("shift", shift, SHIFT_MIN, SHIFT_MAX)
    left, right = max(shift, 0), max(-shift, 0)
    if scheme is RequantScheme.TFLITE_Q31_DOUBLE:
        high = saturating_rounding_doubling_high_mul(INT32.wrap(x << left), multiplier)
        return rounding_divide_by_pot(high, right)
    total_shift = 31 + right
    product = INT32.saturate(x << left) * multiplier
    half = 1 << (total_shift - 1)
    if scheme is RequantScheme.TFLITE_Q31_AWAY and product < 0:
        return -((-product + half) >> total_shift)
    return (product + half) >> total_shift


def requantize_scalar(
    acc: int,
    multiplier: int,
    shift: int,
    *,
    bias: int = 0,
    zero_point: int,
    act_min: int,
    act_max: int,
    scheme: RequantScheme,
) -> int:
    """Requantise one int32 accumulator: the definition that RTL and numpy must equal."""
    INT32.check("acc", acc)
    INT32.check("bias", bias)
    if act_min > act_max:
        raise ValueError(f"act_min must be at most act_max = {act_max}, not {act_min}")
    x = INT32.wrap(acc + bias)
    real = multiply_by_quantized_multiplier(x, multiplier, shift, scheme)
    return max(act_min, min(act_max, real + zero_point))
