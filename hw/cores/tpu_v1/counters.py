"""Performance counters: what the matrix unit did in each cycle of a program."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["NAMES", "Counters"]

#: Registers in the order of `npulse.hw.spec.regmap.core_regmap`; the first is the sum of the next
#: six.
NAMES = (
    "cycles",
    "busy",
    "wait_weights",
    "wait_activations",
    "wait_accumulators",
    "fill_drain",
    "idle",
    "instructions",
    "host_read_beats",
    "host_write_beats",
    "weight_beats",
)


class Counters(wiring.Component):
    """Count events while `running`, from zero at each `start`.

    Timing
    ------
    A count includes the events of the cycle before.
    """

    start: Signal
    running: Signal
    events: Signal  #: One bit a counter, in the order of `NAMES`.

    def __init__(self) -> None:
        super().__init__(
            {"start": In(1), "running": In(1), "events": In(len(NAMES))}
            | {name: Out(32) for name in NAMES}
        )

    def count(self, name: str) -> Value:
        """Value of a counter."""
        return getattr(self, name)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        counting = Signal(len(NAMES))
        m.d.comb += counting.eq(self.events & Cat(self.running for _ in NAMES))
        for index, name in enumerate(NAMES):
            count = self.count(name)
            with m.If(self.start):
                m.d.sync += count.eq(0)
            with m.Elif(counting[index]):
                m.d.sync += count.eq(count + 1)
        return m
