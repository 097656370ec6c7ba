"""Vector lane behind one accumulator column: requantise, clamp, keep the largest of a window."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.arith.requantiser import Parameters, Requantiser
from npulse.hw.grid import Broadcast, Flow, Grid, PerCell
from npulse.hw.memory.sram import Sram

__all__ = ["ParameterWrite", "VectorCommand", "VectorLane", "vector_lanes"]


class VectorCommand(data.StructLayout):
    """What to do with the accumulator that arrives beside the command.

    ``first`` starts a window, ``en`` lets the value count, ``entry`` names the parameters, and
    ``retire`` says that all earlier entries are no longer needed.
    """

    def __init__(self, *, entries: int) -> None:
        super().__init__({"en": 1, "first": 1, "retire": 1, "entry": range(entries)})


class ParameterWrite(data.StructLayout):
    """Write command for one byte of an entry, in the lanes of one beat of the weight port."""

    def __init__(self, *, entries: int, beats: int) -> None:
        super().__init__(
            {"en": 1, "beat": range(max(2, beats)), "octet": range(12), "entry": range(entries)}
        )


class VectorLane(wiring.Component):
    """One column's parameters, requantiser and running maximum.

    Timing
    ------
    With s = `sram_latency` and q = `requantiser_latency`: for a command in cycle *t* the
    accumulator is ``value[t+s]``; ``result[t+s+q+1]`` is the largest value that counted since the
    window's first, or -128. Commands leave one cycle after they entered.
    """

    command_i: data.View
    command_o: data.View
    write: data.View  #: The same byte number for all lanes.
    octet: Signal  #: This lane's part of the beat.
    beat: Signal  #: Beat to which this lane belongs, a constant.
    value: Signal
    result: Signal

    def __init__(
        self, *, entries: int, beats: int, sram_latency: int, requantiser_latency: int
    ) -> None:
        self.entries = entries
        self.sram_latency = sram_latency
        self.requantiser_latency = requantiser_latency
        command = VectorCommand(entries=entries)
        super().__init__(
            {
                "command_i": In(command),
                "command_o": Out(command),
                "write": In(ParameterWrite(entries=entries, beats=beats)),
                "octet": In(8),
                "beat": In(range(max(2, beats))),
                "value": In(signed(32)),
                "result": Out(signed(8)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.requantiser = requantiser = Requantiser(latency=self.requantiser_latency)
        m.d.sync += self.command_o.eq(self.command_i)
        self._parameters(m, requantiser)
        m.d.comb += requantiser.acc.eq(self.value)
        en, first = self.command_i.en, self.command_i.first
        for stage in range(self.sram_latency + self.requantiser_latency):
            later_en, later_first = Signal(name=f"en_{stage}"), Signal(name=f"first_{stage}")
            m.d.sync += [later_en.eq(en), later_first.eq(first)]
            en, first = later_en, later_first
        value, kept = Signal(signed(8)), Signal(signed(8))
        m.d.comb += value.eq(Mux(en, requantiser.out, -128))
        m.d.comb += kept.eq(Mux(first, -128, self.result))
        m.d.sync += self.result.eq(Mux(value > kept, value, kept))
        return m

    def _parameters(self, m: Module, requantiser: Requantiser) -> None:
        """Read each parameter when it is due, from one bank for each of its bytes.

        Only the number of the entry waits in registers.
        """
        mine = self.write.en & (self.write.beat == self.beat)
        entries = [self.command_i.entry]
        for stage in range(max(requantiser.due.values())):
            later = Signal.like(entries[-1], name=f"entry_{stage}", reset_less=True)
            m.d.sync += later.eq(entries[-1])
            entries.append(later)
        layout = Parameters()
        for index in range(layout.size // 8):
            bank = Sram(depth=self.entries, shape=8, latency=self.sram_latency)
            m.submodules[f"octet_{index}"] = bank
            name = next(n for n, field in layout if field.offset + field.width > 8 * index)
            m.d.comb += [
                bank.w_addr.eq(self.write.entry),
                bank.w_data.eq(self.octet),
                bank.w_en.eq(mine & (self.write.octet == index)),
                bank.r_addr.eq(entries[requantiser.due[name]]),
                requantiser.parameters.as_value()[8 * index : 8 * index + 8].eq(bank.r_data),
            ]


def vector_lanes(
    *, cols: int, entries: int, beats: int, sram_latency: int, requantiser_latency: int
) -> Grid:
    """Grid of one `VectorLane` a column; the command wave gives the columns their skew."""
    return Grid(
        lambda: VectorLane(
            entries=entries,
            beats=beats,
            sram_latency=sram_latency,
            requantiser_latency=requantiser_latency,
        ),
        (cols,),
        {
            "command": Flow(),
            "write": Broadcast(),
            "octet": PerCell(),
            "beat": PerCell(),
            "value": PerCell(),
            "result": PerCell(),
        },
    )
