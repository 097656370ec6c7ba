"""Matrix unit: streams rows of the unified buffer through the array into the accumulators."""

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.common.delay import delayed
from npulse.hw.common.struct import struct
from npulse.hw.common.walk import Level, walk
from npulse.hw.cores.tpu_v1.ports import Order, UnitError
from npulse.hw.memory.accumulator import AccumulatorWrite
from npulse.hw.spec.timing import accumulate_delay, matrix_drain
from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_isa import MATRIX_MULTIPLY, ErrorCode

__all__ = ["MatrixRead", "MatrixState", "MatrixUnit"]


class MatrixRead(data.StructLayout):
    """A row that the matrix unit wants from the unified buffer."""

    def __init__(self, config: TpuV1Config) -> None:
        super().__init__(
            {
                "swap": 1,
                "pad": 1,
                "fill": signed(8),
                "addr": range(config.memory.unified_buffer_rows),
                "group": range(max(2, config.read_groups)),
            }
        )


class MatrixState(data.StructLayout):
    """What the unit does in a cycle; at most one bit is set, and none when it has no work."""

    def __init__(self) -> None:
        super().__init__(
            {
                "busy": 1,  # a row goes
                "wait_weights": 1,
                "wait_accumulators": 1,
                "wait_port": 1,  # the buffer's read port serves DRAM
                "drain": 1,  # no instruction, but rows are still in the array
            }
        )


class MatrixUnit(wiring.Component):
    """Carry out `MatrixMultiply` in order, a row a cycle.

    A pass (block, group, kernel row, kernel column) starts when its tile is in the shadow weights.
    The instruction starts when earlier `Activate` instructions on its half are done. A row waits
    while the sum that it adds to is still on its way into the accumulators.

    Timing
    ------
    A row that is granted in cycle *t* enters the array in cycle ``t + s + 2`` and reaches the
    accumulators of column 0 in cycle ``t + accumulate_delay`` (`npulse.hw.spec.timing`). The next
    instruction follows without a gap if it waits in the queue.
    """

    orders: stream.Interface  #: Instructions (`Order`).
    read: data.View  #: The row wanted (`MatrixRead`).
    request: Signal  #: `read` is wanted now.
    grant: Signal  #: `read` is taken now; combinational from `request`.
    tile_ready: Signal  #: The shadow weights hold the next tile.
    tile_take: Signal  #: They become active with this row.
    activated: data.View  #: `Activate` instructions done on each half, modulo 2^8.
    write: data.View  #: Accumulator command, in step with the sums at column 0.
    multiplied: data.View  #: `MatrixMultiply` instructions done on each half, modulo 2^8.
    state: data.View  #: `MatrixState`.
    idle: Signal  #: No instruction, and no row in the array.
    error: data.View

    def __init__(self, config: TpuV1Config) -> None:
        self.config = config
        order = Order(MATRIX_MULTIPLY)
        done = data.ArrayLayout(8, 2)
        super().__init__(
            {
                "orders": In(stream.Signature(order)),
                "read": Out(MatrixRead(config)),
                "request": Out(1),
                "grant": In(1),
                "tile_ready": In(1),
                "tile_take": Out(1),
                "activated": In(done),
                "write": Out(AccumulatorWrite(half_rows=config.half_rows)),
                "multiplied": Out(done),
                "state": Out(MatrixState()),
                "idle": Out(1),
                "error": Out(UnitError()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        order, active, load = self._instruction(m)
        f = order.fields
        addr, y, x = Signal(17), Signal(signed(14)), Signal(signed(14))
        row = Signal(range(self.config.half_rows))
        group = Signal(range(max(2, self.config.read_groups)))
        end = Signal()  # the row is the last of its instruction
        step, fresh, first_pass = Signal(), Signal(), Signal()
        # The instruction that the walk is in from the next cycle on.
        following = struct(f.shape(), name="following")
        m.d.comb += following.eq(Mux(load, self.orders.p.fields.as_value(), f.as_value()))
        lasts = walk(
            m,
            load=load,
            step=step,
            start={
                "addr": (addr, following.ub_addr),
                "y": (y, following.origin_y),
                "x": (x, following.origin_x),
                "row": (row, following.acc_addr[: len(row)]),
                "group": (group, Value.cast(0)),
            },
            levels=self._levels(following),
        )
        pass_end = lasts[1]
        m.d.comb += end.eq(lasts[-1])
        # `fresh` marks the first row of a pass, `first_pass` the first pass of an instruction.
        with m.If(load):
            m.d.sync += [fresh.eq(1), first_pass.eq(1)]
        with m.Elif(step):
            m.d.sync += [fresh.eq(pass_end), first_pass.eq(first_pass & ~pass_end)]
        takes = Signal()
        m.d.comb += takes.eq(fresh & (f.switch | ~first_pass))

        half = self._half(f.acc_addr)
        self._waits(m, order, active, takes, half, row, step)
        self._read(m, f, addr, y, x, group, takes, step)
        self._accumulate(m, f, active, half, row, first_pass, end, step)
        self._errors(m, order, active, addr, row, lasts, step)
        return m

    def _half(self, acc_addr: Value) -> Value:
        return acc_addr[(self.config.half_rows - 1).bit_length()]

    def _instruction(self, m: Module) -> tuple[data.View, Signal, Signal]:
        """Register of the current instruction; the next one replaces it behind its last row."""
        order = struct(Order(MATRIX_MULTIPLY), name="order", reset_less=True)
        active, load, self._finish = Signal(), Signal(), Signal()
        m.d.comb += [
            self.orders.ready.eq(~active | self._finish),
            load.eq(self.orders.valid & self.orders.ready),
        ]
        with m.If(load):
            m.d.sync += [order.eq(self.orders.p), active.eq(1)]
        with m.Elif(self._finish):
            m.d.sync += active.eq(0)
        return order, active, load

    def _levels(self, f: data.View) -> list[Level]:
        return [
            Level("column", f.rows_x, {"addr": f.step_x, "x": f.step_x, "row": 1}),
            Level("line", f.rows_y, {"addr": f.step_y_rows, "y": f.step_y, "row": f.rows_x}),
            Level("kernel_x", f.kernel_x, {"addr": f.dilate_x, "x": f.dilate_x}),
            Level("kernel_y", f.kernel_y, {"addr": f.dilate_y_rows, "y": f.dilate_y}),
            Level("group", self.config.read_groups, {"group": 1}),
            Level("block", f.blocks, {"addr": f.block_stride}),
        ]

    def _waits(
        self,
        m: Module,
        order: data.View,
        active: Signal,
        takes: Signal,
        half: Value,
        row: Signal,
        step: Signal,
    ) -> None:
        """Say why a row waits, in this order: accumulators, weights, the buffer's port."""
        accumulators, weights = Signal(), Signal()
        conflict = self._turnaround(m, half, row, step)
        m.d.comb += [
            accumulators.eq((self.activated[half] != order.ticket) | conflict),
            weights.eq(takes & ~self.tile_ready),
            self.request.eq(active & ~accumulators & ~weights),
            step.eq(self.request & self.grant),
            self.state.busy.eq(step),
            self.state.wait_accumulators.eq(active & accumulators),
            self.state.wait_weights.eq(active & ~accumulators & weights),
            self.state.wait_port.eq(self.request & ~self.grant),
        ]

    def _turnaround(self, m: Module, half: Value, row: Signal, step: Signal) -> Value:
        """1 while the last rows granted include this accumulator row."""
        conflict: Value = Value.cast(0)
        valid, name = step, (half, row)
        for stage in range(self.config.memory.sram_latency + 1):
            later = Signal(name=f"recent_{stage}")
            later_half = Signal(name=f"recent_half_{stage}", reset_less=True)
            later_row = Signal.like(row, name=f"recent_row_{stage}", reset_less=True)
            m.d.sync += [later.eq(valid), later_half.eq(name[0]), later_row.eq(name[1])]
            conflict = conflict | (later & (later_half == half) & (later_row == row))
            valid, name = later, (later_half, later_row)
        return conflict

    def _read(
        self,
        m: Module,
        f: data.View,
        addr: Signal,
        y: Signal,
        x: Signal,
        group: Signal,
        takes: Signal,
        step: Signal,
    ) -> None:
        outside = (y < 0) | (y >= f.limit_y) | (x < 0) | (x >= f.limit_x)
        m.d.comb += [
            self.read.swap.eq(takes),
            self.read.pad.eq(outside),
            self.read.fill.eq(f.fill),
            self.read.addr.eq(addr),
            self.read.group.eq(group),
            self.tile_take.eq(step & takes),
        ]

    def _accumulate(
        self,
        m: Module,
        f: data.View,
        active: Signal,
        half: Value,
        row: Signal,
        first_pass: Signal,
        end: Signal,
        step: Signal,
    ) -> None:
        """Send the accumulator command after the row, and count instructions as they arrive."""
        config = self.config
        layout = data.StructLayout({"write": self.write.shape(), "end": 1})
        issued = struct(layout, name="issued")
        m.d.comb += [
            issued.write.en.eq(step),
            issued.write.accumulate.eq(f.accumulate | ~first_pass),
            issued.write.row.eq(row),
            issued.write.half.eq(half),
            issued.end.eq(step & end),
            self._finish.eq(step & end),
        ]
        arriving = delayed(m, issued, accumulate_delay(config), "in_array")
        m.d.comb += self.write.eq(arriving.write)
        settled = delayed(
            m, data.View(layout, arriving.as_value()), config.memory.sram_latency, "settled"
        )
        with m.If(settled.end):
            done = self.multiplied[settled.write.half]
            m.d.sync += done.eq(done + 1)

        drain = Signal(range(matrix_drain(config) + 1))
        with m.If(step):
            m.d.sync += drain.eq(matrix_drain(config))
        with m.Elif(drain != 0):
            m.d.sync += drain.eq(drain - 1)
        m.d.comb += [
            self.state.drain.eq(~active & (drain != 0)),
            self.idle.eq(~active & (drain == 0)),
        ]

    def _errors(
        self,
        m: Module,
        order: data.View,
        active: Signal,
        addr: Signal,
        row: Signal,
        lasts: list[Signal],
        step: Signal,
    ) -> None:
        depth = self.config.memory.unified_buffer_rows
        m.d.comb += self.error.pc.eq(order.pc)
        with m.If(step & ~self.read.pad & (addr >= depth)):
            m.d.comb += self.error.code.eq(ErrorCode.BUFFER_RANGE)
        with m.If(step & ~lasts[1] & (row == self.config.half_rows - 1)):
            m.d.comb += self.error.code.eq(ErrorCode.ACCUMULATOR_RANGE)
