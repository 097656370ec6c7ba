"""The one multiplier primitive: a signed product with a declared number of registers.

Nothing else in the library names a multiplier cell of a vendor. Registers on both sides of the
product are what lets a DSP block reach its speed (input, output, and one in fabric after it).
"""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Multiplier"]


class Multiplier(wiring.Component):
    """Multiply two signed numbers.

    Timing
    ------
    ``product[t + latency] = a[t] * b[t]``, one product a cycle, no enable. From two cycles on the
    first register is before the product, all others behind it.
    """

    a: Signal
    b: Signal
    product: Signal

    def __init__(self, *, a_width: int, b_width: int, latency: int) -> None:
        if min(a_width, b_width) < 1:
            raise ValueError(f"widths must be at least 1 bit, not {a_width!r} and {b_width!r}")
        if latency < 0:
            raise ValueError(f"latency must be at least 0 cycles, not {latency!r}")
        self.latency = latency
        super().__init__(
            {
                "a": In(signed(a_width)),
                "b": In(signed(b_width)),
                "product": Out(signed(a_width + b_width)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, b = self.a, self.b
        if self.latency > 1:
            a_held, b_held = Signal.like(a, reset_less=True), Signal.like(b, reset_less=True)
            m.d.sync += [a_held.eq(a), b_held.eq(b)]
            a, b = a_held, b_held
        product = a * b
        for stage in range(min(self.latency, max(1, self.latency - 1))):
            held = Signal.like(self.product, reset_less=True, name=f"product_{stage}")
            m.d.sync += held.eq(product)
            product = held
        m.d.comb += self.product.eq(product)
        return m
