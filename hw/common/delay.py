"""A delay of many cycles without a chain of registers."""

from typing import Any

from amaranth.hdl import Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.memory.sram import Sram

__all__ = ["DelayLine"]


class DelayLine(wiring.Component):
    """Give each word back a fixed number of cycles later; zero for as long after a reset.

    A ring in a memory, so the cost in cells does not depend on the delay.

    Timing
    ------
    ``o[t + cycles] = i[t]``.
    """

    i: Signal
    o: Signal

    def __init__(self, shape: ShapeLike, *, cycles: int) -> None:
        if cycles < 2:
            raise ValueError(f"cycles must be at least 2, not {cycles!r}")
        self.cycles = cycles
        super().__init__({"i": In(shape), "o": Out(shape)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = len(Value.cast(self.i))
        m.submodules.ring = ring = Sram(depth=self.cycles, shape=width)
        at, ahead = Signal(range(self.cycles)), Signal(range(self.cycles))
        warm = Signal()  # each word of the ring has been written since the reset
        last = at == self.cycles - 1
        m.d.comb += [
            ahead.eq(Mux(last, 0, at + 1)),
            ring.r_addr.eq(ahead),
            ring.w_addr.eq(at),
            ring.w_data.eq(self.i),
            ring.w_en.eq(1),
            Value.cast(self.o).eq(Mux(warm, ring.r_data, 0)),
        ]
        m.d.sync += at.eq(ahead)
        with m.If(last):
            m.d.sync += warm.eq(1)
        return m


def delayed(m: Module, value: Any, cycles: int, name: str) -> Any:
    """The same value some cycles later, by registers up to four cycles and a `DelayLine` beyond."""
    if cycles > 4:
        m.submodules[name] = line = DelayLine(value.shape(), cycles=cycles)
        m.d.comb += line.i.eq(value)
        return line.o
    for stage in range(cycles):
        later = Signal(value.shape(), name=f"{name}_{stage}")
        m.d.sync += later.eq(value)
        value = later
    return value
