"""Processing element of the weight-stationary array.

Three waves pass through. *Activations* go east, *partial sums* go south, and *weights* go south on
their way to the row that keeps them. A weight is kept by the `load` token, which enters with the
first weight and moves at half the speed of the weights, so that it meets the k-th weight in the
k-th row. The kept (shadow) weight becomes the active one by `swap`, which goes east one cycle
ahead of the first activation that it is for. So a new tile slides in while the old one works, and
nothing is broadcast.
"""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.arith.mul import Multiplier

__all__ = ["Pe", "psum_width"]

ACT_WIDTH = WEIGHT_WIDTH = 8  #: int8 operands; ISCA17 section 2.


def psum_width(rows: int) -> int:
    """Bits of two's complement that hold any sum of `rows` int8 products: 16 + log2(rows)."""
    return ACT_WIDTH + WEIGHT_WIDTH + (rows - 1).bit_length()


class Pe(wiring.Component):
    """Multiply the passing activation by the active weight and add it to the passing sum.

    Parameters
    ----------
    psum_width : int
        Bits of a partial sum; the sum wraps beyond.
    multiplier_latency : int
        Registers in the product, D below.

    Timing
    ------
    Every cycle, without enable: ``act_o[t+1] = act_i[t]``, ``weight_o[t+1] = weight_i[t]``,
    ``swap_o[t+1] = swap_i[t]``, ``load_o[t+2] = load_i[t]``, and
    ``psum_o[t+1] = psum_i[t] + act_i[t-D] * active[t-D]``. ``shadow[t+1] = weight_i[t]`` if
    ``load_i[t]``; ``active[t+1] = shadow[t]`` if ``swap_i[t]``.
    """

    act_i: Signal  #: Activation from the west.
    act_o: Signal  #: Activation to the east.
    swap_i: Signal  #: Make the shadow weight active.
    swap_o: Signal
    psum_i: Signal  #: Partial sum from the north.
    psum_o: Signal  #: Partial sum to the south.
    weight_i: Signal  #: Passing weight from the north.
    weight_o: Signal  #: Passing weight to the south.
    load_i: Signal  #: Keep the passing weight as shadow weight.
    load_o: Signal

    def __init__(self, *, psum_width: int, multiplier_latency: int = 0) -> None:
        self.multiplier_latency = multiplier_latency
        act, weight, psum = signed(ACT_WIDTH), signed(WEIGHT_WIDTH), signed(psum_width)
        super().__init__(
            {
                "act_i": In(act),
                "act_o": Out(act),
                "swap_i": In(1),
                "swap_o": Out(1),
                "psum_i": In(psum),
                "psum_o": Out(psum),
                "weight_i": In(weight),
                "weight_o": Out(weight),
                "load_i": In(1),
                "load_o": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shadow = Signal(signed(WEIGHT_WIDTH), reset_less=True)
        active = Signal(signed(WEIGHT_WIDTH), reset_less=True)
        halfway = Signal()
        m.submodules.multiplier = multiplier = Multiplier(
            a_width=ACT_WIDTH, b_width=WEIGHT_WIDTH, latency=self.multiplier_latency
        )
        m.d.comb += [multiplier.a.eq(self.act_i), multiplier.b.eq(active)]
        m.d.sync += [
            self.act_o.eq(self.act_i),
            self.swap_o.eq(self.swap_i),
            self.psum_o.eq(self.psum_i + multiplier.product),
            self.weight_o.eq(self.weight_i),
            halfway.eq(self.load_i),
            self.load_o.eq(halfway),
        ]
        with m.If(self.load_i):
            m.d.sync += shadow.eq(self.weight_i)
        with m.If(self.swap_i):
            m.d.sync += active.eq(shadow)
        return m
