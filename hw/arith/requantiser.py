"""Requantiser: int32 accumulator to int8, by the contract in `npulse.hw.spec.numerics`.

Ref: the formula, the widths and the three schemes are those of that module, step by step.
"""

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.arith.mul import Multiplier

__all__ = ["Parameters", "Requantiser"]

#: Steps after which a pipeline of each latency has its registers; a step named twice has two.
CUTS = {
    1: (6,),
    2: (2, 6),
    3: (1, 2, 6),
    4: (1, 2, 4, 6),
    5: (1, 2, 3, 4, 6),
    6: (1, 2, 3, 4, 5, 6),
    7: (0, 1, 2, 3, 4, 5, 6),
    8: (0, 1, 2, 2, 3, 4, 5, 6),
}

#: Values that later steps need, after each step. Parameters come in when their step does, so
#: that none of them waits in registers.
LIVE = (
    ("x",),
    ("left", "right", "rounding"),
    ("product", "negative", "right", "rounding"),
    ("high", "right", "rounding"),
    ("sum", "right"),
    ("real",),
    ("out",),
)

#: Step that each parameter is for.
STEPS = {
    "bias": 0,
    "shift": 1,
    "rounding": 1,
    "multiplier": 2,
    "zero_point": 6,
    "act_min": 6,
    "act_max": 6,
}


class Parameters(data.StructLayout):
    """Parameters of one column, in the byte order of `npulse.hw.spec.tpu_v1_layout`."""

    def __init__(self) -> None:
        super().__init__(
            {
                "bias": signed(32),
                "multiplier": signed(32),  # Q31, not negative
                "shift": signed(6),  # to the left if positive
                "rounding": 2,  # 0 double, 1 single, 2 single with ties away from zero
                "zero_point": signed(8),
                "act_min": signed(8),
                "act_max": signed(8),
            }
        )


class Requantiser(wiring.Component):
    """Scale, round, shift to the zero point and clamp one accumulator a cycle.

    Parameters
    ----------
    latency : int
        Registers from input to output, a key of `CUTS`.

    Timing
    ------
    ``out[t + latency] = requantize(acc[t], parameters)`` with parameter p taken in cycle
    ``t + due[p]``; nothing stalls.
    """

    acc: Signal
    parameters: data.View
    out: Signal

    def __init__(self, *, latency: int) -> None:
        if latency not in CUTS:
            raise ValueError(f"latency must be from 1 to {max(CUTS)} cycles, not {latency!r}")
        self.latency = latency
        #: Cycles from the accumulator to each of its parameters.
        self.due = {name: sum(cut < step for cut in CUTS[latency]) for name, step in STEPS.items()}
        super().__init__(
            {"acc": In(signed(32)), "parameters": In(Parameters()), "out": Out(signed(8))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cuts = CUTS[self.latency]
        m.submodules.multiplier = multiplier = Multiplier(
            a_width=32, b_width=32, latency=cuts.count(2)
        )
        values: dict[str, Value] = {"acc": self.acc}
        # Step 2 is the product, which has registers of its own.
        steps = (add_bias, shift_left, None, take_high, add_half, shift_right, clamp)
        for index, step in enumerate(steps):
            values |= {n: self.parameters[n] for n, due in STEPS.items() if due == index}
            if step is not None:
                values |= step(values)
            else:
                m.d.comb += [multiplier.a.eq(values["left"]), multiplier.b.eq(values["multiplier"])]
                values |= {"negative": values["left"] < 0, "product": Const(0)}
            values = {name: values[name] for name in LIVE[index]}
            for cut in range(cuts.count(index)):
                values = _hold(m, values, f"{index}_{cut}", "product" if step is None else "")
            if step is None:
                values["product"] = multiplier.product
        m.d.comb += self.out.eq(values["out"])
        return m


def _hold(m: Module, values: dict[str, Value], stage: str, skip: str) -> dict[str, Value]:
    """Registers that hold all values for a cycle; `skip` has registers of its own."""
    held: dict[str, Value] = {}
    for name, value in values.items():
        if name == skip:
            continue
        held[name] = Signal.like(Value.cast(value), name=f"{name}_{stage}", reset_less=True)
        m.d.sync += held[name].eq(value)
    return held


Values = dict[str, Value]


def add_bias(v: Values) -> Values:
    """Step 0: ``x = wrap32(acc + bias)``."""
    return {"x": (v["acc"] + v["bias"])[:32].as_signed()}


def shift_left(v: Values) -> Values:
    """Step 1: ``left = wrap32 or saturate32 of x << left_shift``."""
    shift = v["shift"]
    amount = Mux(shift > 0, shift[:5], 0)
    wide = (v["x"] << amount)[:63].as_signed()
    low = wide[:32].as_signed()
    limit = Mux(wide < 0, Const(-(1 << 31), signed(32)), Const((1 << 31) - 1, signed(32)))
    saturate = (v["rounding"] != 0) & (low != wide)
    right = Mux(shift < 0, (-shift)[:6], 0)
    return {"left": Mux(saturate, limit, low), "right": right[:5]}


def take_high(v: Values) -> Values:
    """Step 3: ``high = (product + product_round - down) >> 31``."""
    rounds = (v["rounding"] == 0) | (v["right"] == 0)
    down = (v["rounding"] == 2) & v["negative"]
    # 2^30 - down as one constant to choose, so that there is one adder.
    addend = Mux(rounds, Mux(down, (1 << 30) - 1, 1 << 30), Mux(down, -1, 0))
    return {"high": (v["product"] + addend)[31:63].as_signed()}


def add_half(v: Values) -> Values:
    """Step 4: add half of what the right shift drops, less one for a negative in double."""
    right, high = v["right"], v["high"]
    half = (Const(1, 32) << right)[1:32]
    less = (high < 0) & (v["rounding"] == 0) & (right != 0)
    return {"sum": (high + half - less)[:33].as_signed()}


def shift_right(v: Values) -> Values:
    """Step 5: drop `right_shift` bits and saturate to 10 bits, which the clamp cannot tell."""
    real = v["sum"] >> v["right"]
    high, low = Const(511, signed(10)), Const(-512, signed(10))
    return {"real": Mux(real > 511, high, Mux(real < -512, low, real[:10].as_signed()))}


def clamp(v: Values) -> Values:
    """Step 6: add the zero point and clamp."""
    total = v["real"] + v["zero_point"]
    least = Mux(total < v["act_min"], v["act_min"], total)
    return {"out": Mux(least > v["act_max"], v["act_max"], least)[:8].as_signed()}
