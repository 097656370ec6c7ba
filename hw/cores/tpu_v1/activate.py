"""Activate unit: takes accumulators through the vector lanes back into the unified buffer."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.common.delay import delayed
from npulse.hw.common.struct import struct
from npulse.hw.common.walk import Level, walk
from npulse.hw.cores.tpu_v1.ports import Order, UnitError
from npulse.hw.memory.accumulator import AccumulatorRead
from npulse.hw.spec.timing import activate_delay
from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_isa import ACTIVATE, ErrorCode
from npulse.hw.vector.lane import VectorCommand

__all__ = ["ActivateUnit", "ResultWrite"]


class ResultWrite(data.StructLayout):
    """A row of results on its way into the unified buffer."""

    def __init__(self, config: TpuV1Config) -> None:
        super().__init__(
            {
                "en": 1,
                "group": range(max(2, config.write_groups)),
                "addr": range(config.memory.unified_buffer_rows),
            }
        )


class ActivateUnit(wiring.Component):
    """Carry out `Activate` in order, an accumulator row a cycle.

    An instruction starts when earlier `MatrixMultiply` instructions on its half are done and, with
    ``switch``, a parameter entry waits.

    Timing
    ------
    For a row in cycle *t*: ``read`` in cycle ``t + 1``, ``command`` in ``t + 2``, and ``write`` in
    ``t + activate_delay`` (`npulse.hw.spec.timing`) if the row is the last of its window. There is
    one cycle without a row between instructions.
    """

    orders: stream.Interface  #: Instructions (`Order`).
    multiplied: data.View  #: `MatrixMultiply` instructions done on each half, modulo 2^8.
    activated: data.View  #: `Activate` instructions done on each half, modulo 2^8.
    entry_ready: Signal  #: A parameter entry waits.
    entry_get: Signal  #: It is taken into use.
    read: data.View  #: To the accumulators.
    command: data.View  #: To the vector lanes.
    write: data.View  #: To the unified buffer (`ResultWrite`), in step with the results.
    idle: Signal  #: No instruction, and no row on its way.
    error: data.View

    def __init__(self, config: TpuV1Config) -> None:
        self.config = config
        done = data.ArrayLayout(8, 2)
        super().__init__(
            {
                "orders": In(stream.Signature(Order(ACTIVATE))),
                "multiplied": In(done),
                "activated": Out(done),
                "entry_ready": In(1),
                "entry_get": Out(1),
                "read": Out(AccumulatorRead(half_rows=config.half_rows)),
                "command": Out(VectorCommand(entries=config.memory.parameter_entries)),
                "write": Out(ResultWrite(config)),
                "idle": Out(1),
                "error": Out(UnitError()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        order = struct(Order(ACTIVATE), name="order", reset_less=True)
        active, begun = Signal(), Signal()
        load, step, end = Signal(), Signal(), Signal()
        f = order.fields
        m.d.comb += [self.orders.ready.eq(~active), load.eq(self.orders.valid & ~active)]
        with m.If(load):
            m.d.sync += [order.eq(self.orders.p), active.eq(1), begun.eq(0)]
        with m.Elif(step):
            m.d.sync += [begun.eq(1), active.eq(~end)]

        half = f.acc_addr[(self.config.half_rows - 1).bit_length()]
        ready = (self.multiplied[half] == order.ticket) & (~f.switch | self.entry_ready)
        m.d.comb += step.eq(active & (begun | ready))
        with m.If(step & end):
            m.d.sync += self.activated[half].eq(self.activated[half] + 1)

        row, y, x, addr = self._walk(m, load, step, end)
        self._issue(m, order, half, row, y, x, addr, begun, step)
        drain = Signal(range(self._drain_cycles + 1))
        with m.If(step):
            m.d.sync += drain.eq(self._drain_cycles)
        with m.Elif(drain != 0):
            m.d.sync += drain.eq(drain - 1)
        m.d.comb += self.idle.eq(~active & (drain == 0))
        return m

    @property
    def _drain_cycles(self) -> int:
        """Cycles from a row until its result may be read from the unified buffer."""
        return activate_delay(self.config) + 2 + self.config.lanes

    def _walk(self, m: Module, load: Signal, step: Signal, end: Signal) -> tuple[Signal, ...]:
        """Row of the accumulators, y and x of it, and row of the buffer for its pixel."""
        row = Signal(range(self.config.half_rows))
        y, x, addr = Signal(signed(14)), Signal(signed(14)), Signal(17)
        layout = Order(ACTIVATE).members["fields"]
        held = struct(layout, name="held", reset_less=True)
        following = struct(layout, name="following")
        m.d.comb += following.eq(Mux(load, self.orders.p.fields.as_value(), held.as_value()))
        m.d.sync += held.eq(following)
        f = following
        lasts = walk(
            m,
            load=load,
            step=step,
            start={
                "row": (row, f.acc_addr[: len(row)]),
                "y": (y, f.origin_y),
                "x": (x, f.origin_x),
                "addr": (addr, f.ub_addr),
            },
            levels=[
                Level("window_x", f.window_x, {"row": 1, "x": 1}),
                Level("window_y", f.window_y, {"row": f.window_y_rows, "y": 1}),
                Level("column", f.rows_x, {"row": f.step_x, "x": f.step_x, "addr": 1}),
                Level(
                    "line", f.rows_y, {"row": f.step_y_rows, "y": f.step_y, "addr": f.ub_y_stride}
                ),
            ],
        )
        self._window_end = lasts[1]
        m.d.comb += end.eq(lasts[-1])
        return row, y, x, addr

    def _issue(
        self,
        m: Module,
        order: data.View,
        half: Signal,
        row: Signal,
        y: Signal,
        x: Signal,
        addr: Signal,
        begun: Signal,
        step: Signal,
    ) -> None:
        """Send the row to the accumulators, its command to the lanes, its address to the buffer."""
        config, f = self.config, order.fields
        inside = (y >= 0) & (y < f.limit_y) & (x >= 0) & (x < f.limit_x)
        window_start, window_end = Signal(init=1), self._window_end
        with m.If(step):
            m.d.sync += window_start.eq(window_end)

        entry, holds = Signal(range(config.memory.parameter_entries)), Signal()
        switch, entry_now = Signal(), Signal.like(entry)
        m.d.comb += [
            switch.eq(step & ~begun & f.switch),
            # The first entry ever taken is number 0, and there is none before it to retire.
            entry_now.eq(Mux(switch & holds, entry + 1, entry)),
            self.entry_get.eq(switch),
        ]
        with m.If(switch):
            m.d.sync += [entry.eq(entry_now), holds.eq(1)]

        command = struct(self.command.shape(), name="command_next")
        m.d.sync += [
            self.read.row.eq(row),
            self.read.half.eq(half),
            command.en.eq(inside),
            command.first.eq(window_start),
            command.retire.eq(switch & holds),
            command.entry.eq(entry_now),
            self.command.eq(command),
        ]
        write = struct(self.write.shape(), name="write_next")
        m.d.comb += [
            write.en.eq(step & window_end),
            write.group.eq(f.group),
            write.addr.eq(addr),
            self.write.eq(delayed(m, write, activate_delay(config), "in_lanes")),
            self.error.pc.eq(order.pc),
        ]
        too_far = (addr >= config.memory.unified_buffer_rows) | (f.group >= config.write_groups)
        with m.If(step & too_far):
            m.d.comb += self.error.code.eq(ErrorCode.BUFFER_RANGE)
