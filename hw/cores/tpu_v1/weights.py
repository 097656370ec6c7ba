"""Weight unit: fills the two FIFOs from DRAM; weight feeder: slides tiles into the array."""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.common.decode import format_layout
from npulse.hw.common.queue import Queue
from npulse.hw.common.struct import struct
from npulse.hw.dma.descriptor import TransferDescriptor
from npulse.hw.memory.weight_fifo import BeatWrite, TileRead
from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_isa import ISA, READ_PARAMETERS, READ_WEIGHTS
from npulse.hw.spec.tpu_v1_layout import PARAMETER_BYTES
from npulse.hw.vector.lane import ParameterWrite

__all__ = ["Credit", "WeightFeeder", "WeightUnit"]

AHEAD = 4  #: Instructions whose transfers may be under way; a choice.


class Credit(wiring.Component):
    """Count the slots of a ring: `put` fills one, `get` takes it into use, `free` gives it back.

    ``available`` says that a filled slot waits for use, ``room`` that a slot may be filled. All
    counts change one cycle after their cause.
    """

    put: Signal
    get: Signal
    free: Signal
    available: Signal
    room: Signal

    def __init__(self, slots: int) -> None:
        self.slots = slots
        super().__init__(
            {"put": In(1), "get": In(1), "free": In(1), "available": Out(1), "room": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        waiting, filled = Signal(range(self.slots + 1)), Signal(range(self.slots + 1))
        m.d.sync += [
            waiting.eq(waiting + self.put - self.get),
            filled.eq(filled + self.put - self.free),
        ]
        m.d.comb += [self.available.eq(waiting != 0), self.room.eq(filled != self.slots)]
        return m


class WeightUnit(wiring.Component):
    """Carry out `ReadWeights` and `ReadParameters` in order.

    Timing
    ------
    Beats are written one cycle after they were taken; a tile or entry counts as filled from the
    cycle after its last beat was taken. A beat waits only for a free slot.
    """

    orders: stream.Interface  #: Used bits of `ReadWeights` or `ReadParameters`.
    desc: stream.Interface  #: To the reader of the weight port.
    beats: stream.Interface  #: From it.
    tile_write: data.View  #: To the weight lanes.
    parameter_write: data.View  #: To the vector lanes.
    octets: Signal  #: Beat for either.
    tile_room: Signal
    tile_put: Signal
    entry_room: Signal
    entry_put: Signal
    idle: Signal  #: Nothing to read and everything read is written.

    def __init__(self, config: TpuV1Config) -> None:
        self.config = config
        beats, entries = config.weight_row_beats, config.memory.parameter_entries
        depth = config.memory.weight_fifo_tiles * config.array.rows
        width = 8 * config.bus.weight_bytes
        super().__init__(
            {
                "orders": In(stream.Signature(format_layout(ISA, READ_WEIGHTS))),
                "desc": Out(stream.Signature(TransferDescriptor())),
                "beats": In(stream.Signature(width)),
                "tile_write": Out(BeatWrite(depth=depth, beats=beats)),
                "parameter_write": Out(ParameterWrite(entries=entries, beats=beats)),
                "octets": Out(width),
                "tile_room": In(1),
                "tile_put": Out(1),
                "entry_room": In(1),
                "entry_put": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        job = data.StructLayout({"parameters": 1, "count": 16})
        tile_rows = config.memory.weight_fifo_tiles * config.array.rows
        m.submodules.jobs = jobs = Queue(job, depth=AHEAD)
        self._request(m, jobs)

        current, active = struct(job, name="current", reset_less=True), Signal()
        # Place of the next beat: beat of a row, row of a unit (tile or entry), slot of each ring.
        beat = Signal(range(max(2, config.weight_row_beats)))
        row = Signal(range(max(config.array.rows, PARAMETER_BYTES)))
        tile_addr = Signal(range(tile_rows))
        entry = Signal(range(config.memory.parameter_entries))
        take, row_end, unit_end, finish = Signal(), Signal(), Signal(), Signal()
        last_row = Mux(current.parameters, PARAMETER_BYTES - 1, config.array.rows - 1)
        m.d.comb += [
            self.beats.ready.eq(active & Mux(current.parameters, self.entry_room, self.tile_room)),
            take.eq(self.beats.valid & self.beats.ready),
            row_end.eq(take & (beat == config.weight_row_beats - 1)),
            unit_end.eq(row_end & (row == last_row)),
            finish.eq(unit_end & (current.count == 1)),
            self.tile_put.eq(unit_end & ~current.parameters),
            self.entry_put.eq(unit_end & current.parameters),
            jobs.o.ready.eq(~active | finish),
            self.idle.eq(~active & ~jobs.o.valid),
        ]
        with m.If(jobs.o.ready):
            m.d.sync += [current.eq(jobs.o.p), active.eq(jobs.o.valid)]
        with m.Elif(unit_end):
            m.d.sync += current.count.eq(current.count - 1)
        with m.If(take):
            m.d.sync += beat.eq(Mux(row_end, 0, beat + 1))
        with m.If(row_end):
            m.d.sync += row.eq(Mux(unit_end, 0, row + 1))
            with m.If(~current.parameters):
                m.d.sync += tile_addr.eq(Mux(tile_addr == tile_rows - 1, 0, tile_addr + 1))
        with m.If(self.entry_put):
            m.d.sync += entry.eq(entry + 1)
        m.d.sync += [
            self.octets.eq(self.beats.p),
            self.tile_write.en.eq(take & ~current.parameters),
            self.tile_write.beat.eq(beat),
            self.tile_write.addr.eq(tile_addr),
            self.parameter_write.en.eq(take & current.parameters),
            self.parameter_write.beat.eq(beat),
            self.parameter_write.octet.eq(row),
            self.parameter_write.entry.eq(entry),
        ]
        return m

    def _request(self, m: Module, jobs: Queue) -> None:
        """Pass each instruction on as a transfer and as a job for its beats."""
        config = self.config
        f = self.orders.p
        parameters = f.opcode == READ_PARAMETERS.opcode
        tile_beats = config.array.rows * config.weight_row_beats
        entry_beats = PARAMETER_BYTES * config.weight_row_beats
        unit_beats = Mux(parameters, entry_beats, tile_beats)
        desc = self.desc.p
        m.d.comb += [
            self.desc.valid.eq(self.orders.valid & jobs.i.ready),
            self.orders.ready.eq(self.desc.ready & jobs.i.ready),
            desc.addr.eq(f.dram_addr),
            desc.beats.eq(unit_beats),
            desc.rows.eq(f.tiles),
            desc.stride.eq(
                Mux(
                    parameters,
                    entry_beats * config.bus.weight_bytes,
                    tile_beats * config.bus.weight_bytes,
                )
            ),
            jobs.i.valid.eq(self.orders.valid & self.desc.ready),
            jobs.i.p.eq(Cat(parameters, f.tiles)),
        ]


class WeightFeeder(wiring.Component):
    """Slide the next tile of the FIFO into the shadow weights as soon as they are free.

    Timing
    ------
    A tile takes ``rows`` cycles; it may start in the cycle of `take`. ``ready`` rises ``rows``
    cycles after its first row was read.
    """

    available: Signal  #: A filled tile waits.
    get: Signal  #: It is on its way.
    take: Signal  #: The shadow weights become active.
    ready: Signal  #: The shadow weights hold a tile.
    empty: Signal  #: No tile is in the shadow weights or on its way there.
    read: data.View  #: To the weight lanes, registered.

    def __init__(self, config: TpuV1Config) -> None:
        self.config = config
        self.depth = config.memory.weight_fifo_tiles * config.array.rows
        super().__init__(
            {
                "available": In(1),
                "get": Out(1),
                "take": In(1),
                "ready": Out(1),
                "empty": Out(1),
                "read": Out(TileRead(depth=self.depth)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows = self.config.array.rows
        loading, left = Signal(), Signal(range(rows + 1))
        addr = Signal(range(self.depth))
        start, go, last = Signal(), Signal(), Signal()
        m.d.comb += [
            start.eq(self.available & ~loading & (~self.ready | self.take)),
            go.eq(start | loading),
            last.eq(Mux(start, rows == 1, left == 1)),
            self.get.eq(start),
            self.empty.eq(~loading & ~self.ready),
        ]
        m.d.sync += [
            self.read.load.eq(start),
            self.read.last.eq(go & last),
            self.read.addr.eq(addr),
        ]
        with m.If(go):
            m.d.sync += [
                addr.eq(Mux(addr == self.depth - 1, 0, addr + 1)),
                left.eq(Mux(start, rows - 1, left - 1)),
                loading.eq(~last),
            ]
        # The period of tiles is max(rows streamed, array rows): less, and weights would mix.
        with m.If(self.take):
            m.d.sync += Assert(self.ready, "a tile was used before it was in the array")
        with m.If(go & last):
            m.d.sync += self.ready.eq(1)
        with m.Elif(self.take):
            m.d.sync += self.ready.eq(0)
        return m
