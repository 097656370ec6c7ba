"""What slows a channel of a simulated memory: a byte rate, and random stalls."""

from dataclasses import dataclass
from fractions import Fraction

from amaranth.hdl import Const, Module, Mux, Signal, Value

#: Multiplier and increment of the 64-bit congruential generator of MMIX (Knuth, The Art of
#: Computer Programming, volume 2, 3.3.4, table 1, line 26). A multiply and an add are two netlist
#: cells, where a shift register that yields 8 fresh bits a cycle is dozens.
_MULTIPLIER = 6364136223846793005
_INCREMENT = 1442695040888963407


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """Random withholding of every channel, independently and reproducibly.

    Attributes
    ----------
    seed : int
        Start of the pseudo-random sequence.
    probability : int
        Chance that a channel is withheld in a cycle, in 1/256, at most 255.
    """

    seed: int
    probability: int

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 255:
            raise ValueError(f"probability must be 0 to 255 (of 256), not {self.probability!r}")


def pace(m: Module, beat_bytes: int, rate: Fraction, spend: Value) -> Value:
    """Tell whether the byte rate permits a beat in this cycle.

    Credit grows by ``rate`` bytes a cycle up to the cost of one beat, and ``spend`` takes that
    cost away. Under steady demand the rate is exact; an idle channel saves up for one beat only.

    Parameters
    ----------
    beat_bytes : int
        Cost of a beat.
    rate : Fraction
        Bytes a cycle.
    spend : Value
        A beat moves in this cycle; must imply the result.

    Returns
    -------
    Value
        One bit; constant 1 if ``rate`` is at least a beat a cycle.
    """
    if rate >= beat_bytes:
        return Const(1, 1)
    gain, cost = rate.numerator, beat_bytes * rate.denominator
    credit, enough = Signal(range(cost + gain), init=cost), Signal()
    m.d.comb += enough.eq(credit >= cost)
    with m.If(spend | ~enough):
        m.d.sync += credit.eq(credit + gain - Mux(spend, cost, 0))
    return enough


def stall(m: Module, stalls: Stalls | None, channel: int) -> Value:
    """Tell whether channel number ``channel`` is withheld in this cycle; 0 without ``stalls``."""
    if stalls is None:
        return Const(0, 1)
    seed = (stalls.seed * _MULTIPLIER + (channel + 1) * 0x9E3779B97F4A7C15) % 2**64
    state, withheld = Signal(64, init=seed), Signal()
    m.d.sync += state.eq(state * _MULTIPLIER + _INCREMENT)
    m.d.comb += withheld.eq(state[-8:] < stalls.probability)
    return withheld
