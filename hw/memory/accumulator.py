"""Accumulators: one 32-bit lane a column, in two halves, one filled while the other is read."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.common.struct import struct
from npulse.hw.grid import Flow, Grid, PerCell
from npulse.hw.memory.sram import Sram

__all__ = ["AccumulatorLane", "AccumulatorRead", "AccumulatorWrite", "accumulator_lanes"]

ACCUMULATOR_WIDTH = 32  #: ISCA17 section 2; the sum wraps, which the source leaves open.


class AccumulatorWrite(data.StructLayout):
    """Add the passing sum to a row, or set the row to it."""

    def __init__(self, *, half_rows: int) -> None:
        super().__init__({"en": 1, "accumulate": 1, "row": range(half_rows), "half": 1})


class AccumulatorRead(data.StructLayout):
    """Give a row to the vector lanes."""

    def __init__(self, *, half_rows: int) -> None:
        super().__init__({"row": range(half_rows), "half": 1})


class AccumulatorLane(wiring.Component):
    """Two banks of `half_rows` sums with flowing commands.

    Timing
    ------
    With s = `latency`: a write command in cycle *t* takes ``psum[t+s]``; a command from
    ``t + s + 2`` on sees the row (`turnaround`). A read command in cycle *t* gives
    ``value[t+s+1]``. Commands leave one cycle after they entered. In one cycle, a write command
    and a read command must not name the same half: each half has one read port, and the write
    command has it.
    """

    write_i: data.View
    write_o: data.View
    read_i: data.View
    read_o: data.View
    psum: Signal
    value: Signal

    def __init__(self, *, half_rows: int, psum_width: int, latency: int) -> None:
        self.half_rows = half_rows
        self.latency = latency
        write, read = AccumulatorWrite(half_rows=half_rows), AccumulatorRead(half_rows=half_rows)
        super().__init__(
            {
                "write_i": In(write),
                "write_o": Out(write),
                "read_i": In(read),
                "read_o": Out(read),
                "psum": In(signed(psum_width)),
                "value": Out(signed(ACCUMULATOR_WIDTH)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += [self.write_o.eq(self.write_i), self.read_o.eq(self.read_i)]
        commands = [self.write_i]
        for stage in range(self.latency + 1):
            later = struct(self.write_i.shape(), name=f"write_{stage}")
            m.d.sync += later.eq(commands[-1])
            commands.append(later)
        add, store = commands[self.latency], commands[-1]
        total = Signal(signed(ACCUMULATOR_WIDTH), reset_less=True)
        words = [self._half(m, half, store, total) for half in (0, 1)]

        old = Mux(add.half, words[1], words[0])
        m.d.sync += total.eq(self.psum + Mux(add.accumulate, old, 0))
        half = self.read_i.half
        for stage in range(self.latency):
            later = Signal(name=f"half_{stage}")
            m.d.sync += later.eq(half)
            half = later
        m.d.sync += self.value.eq(Mux(half, words[1], words[0]))
        return m

    def _half(self, m: Module, half: int, store: data.View, total: Signal) -> Signal:
        """Bank of one half; its read port serves the write command before the read command."""
        bank = Sram(depth=self.half_rows, shape=signed(ACCUMULATOR_WIDTH), latency=self.latency)
        m.submodules[f"half_{half}"] = bank
        adds = self.write_i.en & (self.write_i.half == half)
        m.d.comb += [
            bank.r_addr.eq(Mux(adds, self.write_i.row, self.read_i.row)),
            bank.w_addr.eq(store.row),
            bank.w_data.eq(total),
            bank.w_en.eq(store.en & (store.half == half)),
        ]
        return bank.r_data


def accumulator_lanes(*, cols: int, half_rows: int, psum_width: int, latency: int) -> Grid:
    """Grid of one `AccumulatorLane` a column; the waves give the columns their skew."""
    return Grid(
        lambda: AccumulatorLane(half_rows=half_rows, psum_width=psum_width, latency=latency),
        (cols,),
        {"write": Flow(), "read": Flow(), "psum": PerCell(), "value": PerCell()},
    )
