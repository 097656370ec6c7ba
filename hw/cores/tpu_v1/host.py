"""Host unit: moves rows between DRAM and the unified buffer, a beat a cycle."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from npulse.hw.common.struct import struct
from npulse.hw.common.walk import Level, walk
from npulse.hw.cores.tpu_v1.ports import Order, UnitError
from npulse.hw.dma.descriptor import TransferDescriptor
from npulse.hw.memory.buffer_lane import Packet
from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_isa import READ_HOST, WRITE_HOST, ErrorCode

__all__ = ["BeatPlace", "HostUnit"]


class BeatPlace(data.StructLayout):
    """A beat's row of the unified buffer, and its number in the row."""

    def __init__(self, config: TpuV1Config) -> None:
        super().__init__(
            {
                "addr": range(config.memory.unified_buffer_rows),
                "beat": range(max(2, config.host_row_beats)),
            }
        )


class HostUnit(wiring.Component):
    """Carry out `ReadHostMemory` and `WriteHostMemory` in order, one at a time.

    Timing
    ------
    A beat a cycle while the memory and the buffer's port keep up. A beat on its way out of the
    buffer always has room in the queue before the writer, so nothing in the lanes ever stops.
    """

    orders: stream.Interface  #: Instructions (`Order` of `ReadHostMemory` or `WriteHostMemory`).
    read_desc: stream.Interface  #: To the reader of the host port.
    read_beats: stream.Interface  #: From it.
    reader_idle: Signal
    write_desc: stream.Interface  #: To the writer of the host port.
    write_beats: stream.Interface  #: To it.
    writer_idle: Signal
    store: stream.Interface  #: Beats for the buffer: `place` and `octets`.
    collect: stream.Interface  #: Beats wanted from the buffer (`BeatPlace`).
    fetched: data.View  #: Beats from the buffer, in order (`Packet`).
    idle: Signal  #: Nothing to move, and all that was moved has arrived.
    error: data.View

    def __init__(self, config: TpuV1Config) -> None:
        self.config = config
        place, width = BeatPlace(config), 8 * config.bus.host_bytes
        descriptor = stream.Signature(TransferDescriptor())
        super().__init__(
            {
                "orders": In(stream.Signature(Order(READ_HOST))),
                "read_desc": Out(descriptor),
                "read_beats": In(stream.Signature(width)),
                "reader_idle": In(1),
                "write_desc": Out(descriptor),
                "write_beats": Out(stream.Signature(width)),
                "writer_idle": In(1),
                "store": Out(
                    stream.Signature(data.StructLayout({"place": place, "octets": width}))
                ),
                "collect": Out(stream.Signature(place)),
                "fetched": In(Packet(beat_bytes=config.bus.host_bytes)),
                "idle": Out(1),
                "error": Out(UnitError()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        order = struct(Order(READ_HOST), name="order", reset_less=True)
        f = order.fields
        busy, asked, moving = Signal(), Signal(), Signal()
        load, step, end, finish = Signal(), Signal(), Signal(), Signal()
        writes = f.opcode == WRITE_HOST.opcode
        place, addr = self._place(m, load, step, end, f)
        wanted = self._move(m, place, moving & asked, writes, step)
        m.d.comb += [
            self.orders.ready.eq(~busy),
            load.eq(self.orders.valid & ~busy),
            finish.eq(asked & ~moving & (wanted == 0) & self.reader_idle & self.writer_idle),
            self.idle.eq(~busy & (self._drain(m) == 0)),
            self.error.pc.eq(order.pc),
        ]
        with m.If(load):
            m.d.sync += [order.eq(self.orders.p), busy.eq(1), asked.eq(0), moving.eq(1)]
        with m.Elif(step & end):
            m.d.sync += moving.eq(0)
        with m.Elif(finish):
            m.d.sync += busy.eq(0)
        self._request(m, f, busy & ~asked, writes, asked)
        with m.If(step & (addr >= self.config.memory.unified_buffer_rows)):
            m.d.comb += self.error.code.eq(ErrorCode.BUFFER_RANGE)
        return m

    def _drain(self, m: Module) -> Signal:
        """Cycles until the last beat stored may be read from the buffer."""
        cycles = self.config.lanes + 4
        drain = Signal(range(cycles + 1))
        with m.If(self.store.valid & self.store.ready):
            m.d.sync += drain.eq(cycles)
        with m.Elif(drain != 0):
            m.d.sync += drain.eq(drain - 1)
        return drain

    def _request(self, m: Module, f: data.View, ask: Value, writes: Value, asked: Signal) -> None:
        """Hand the whole transfer to the reader or the writer; a run is a row of its block."""
        for desc, mine in ((self.read_desc, ~writes), (self.write_desc, writes)):
            m.d.comb += [
                desc.valid.eq(ask & mine),
                desc.p.addr.eq(f.dram_addr),
                desc.p.beats.eq(f.rows * self.config.host_row_beats),
                desc.p.rows.eq(f.runs),
                desc.p.stride.eq(f.dram_stride),
            ]
            with m.If(desc.valid & desc.ready):
                m.d.sync += asked.eq(1)

    def _place(
        self, m: Module, load: Signal, step: Signal, end: Signal, f: data.View
    ) -> tuple[data.View, Signal]:
        """Walk over beats, rows and runs, which begins one cycle behind `load`."""
        config = self.config
        place, begin = struct(BeatPlace(config), name="place"), Signal()
        addr, beat = Signal(17), Signal(range(max(2, config.host_row_beats)))
        m.d.sync += begin.eq(load)
        lasts = walk(
            m,
            load=begin,
            step=step,
            start={"addr": (addr, f.ub_addr), "beat": (beat, Value.cast(0))},
            levels=[
                Level("beat", config.host_row_beats, {"beat": 1}),
                Level("row", f.rows, {"addr": 1}),
                Level("run", f.runs, {"addr": f.ub_stride}),
            ],
        )
        m.d.comb += [place.addr.eq(addr), place.beat.eq(beat), end.eq(lasts[-1])]
        return place, addr

    def _move(
        self, m: Module, place: data.View, moving: Value, writes: Value, step: Signal
    ) -> Signal:
        """Pass beats to and from the buffer; return how many are wanted and not yet written."""
        config = self.config
        # Room for every beat that can be in the lanes at once.
        slots = 1 << (config.lanes + 7).bit_length()
        m.submodules.fetched = queue = SyncFIFOBuffered(
            width=8 * config.bus.host_bytes, depth=slots
        )
        wanted = Signal(range(slots + 1))  # asked for and not yet handed to the writer
        collects = self.collect.valid & self.collect.ready
        leaves = self.write_beats.valid & self.write_beats.ready
        m.d.sync += wanted.eq(wanted + collects - leaves)
        m.d.comb += [
            self.store.valid.eq(moving & ~writes & self.read_beats.valid),
            self.store.p.place.eq(place),
            self.store.p.octets.eq(self.read_beats.p),
            self.read_beats.ready.eq(moving & ~writes & self.store.ready),
            self.collect.valid.eq(moving & writes & (wanted != slots)),
            self.collect.p.eq(place),
            queue.w_en.eq(self.fetched.valid),
            queue.w_data.eq(self.fetched.octets.as_value()),
            self.write_beats.valid.eq(queue.r_rdy),
            self.write_beats.p.eq(queue.r_data),
            queue.r_en.eq(self.write_beats.ready),
            step.eq((self.store.valid & self.store.ready) | collects),
        ]
        return wanted
