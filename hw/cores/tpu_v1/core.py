"""The TPU v1 style core: four overlapped units around buffer, array and accumulators.

Ref: block diagram and overlap of ISCA17 (figure 1 and section 2); see `hw/README.md` for ours.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.array.pe import psum_width
from npulse.hw.array.weight_stationary import weight_stationary_array
from npulse.hw.bus.axi4 import Axi4Interface, Axi4Signature
from npulse.hw.bus.axi4lite import Axi4LiteInterface
from npulse.hw.bus.csr import CsrBank
from npulse.hw.common.queue import Queue
from npulse.hw.cores.tpu_v1.activate import ActivateUnit
from npulse.hw.cores.tpu_v1.counters import NAMES, Counters
from npulse.hw.cores.tpu_v1.dispatch import Dispatcher
from npulse.hw.cores.tpu_v1.host import HostUnit
from npulse.hw.cores.tpu_v1.matrix import MatrixUnit
from npulse.hw.cores.tpu_v1.weights import Credit, WeightFeeder, WeightUnit
from npulse.hw.dma.reader import ReadMaster
from npulse.hw.dma.writer import WriteMaster
from npulse.hw.grid import Grid
from npulse.hw.memory.accumulator import accumulator_lanes
from npulse.hw.memory.unified_buffer import UnifiedBuffer
from npulse.hw.memory.weight_fifo import weight_lanes
from npulse.hw.spec.regmap import CORE_ID, core_regmap
from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_isa import ErrorCode
from npulse.hw.vector.lane import vector_lanes

__all__ = ["TpuV1Core"]


class TpuV1Core(wiring.Component):
    """One NPU: registers in, three memory ports and an interrupt out.

    The host writes a program and its data to memory, PROGRAM_ADDR and PROGRAM_COUNT, and starts.
    After an error the core wants a reset; after `Halt` it may be started again at once.
    """

    csr: Axi4LiteInterface  #: Registers of `npulse.hw.spec.regmap.core_regmap`.
    instructions: Axi4Interface  #: Program; read only.
    weights: Axi4Interface  #: Weight tiles and parameters; read only.
    host: Axi4Interface  #: Activations; read and write.
    interrupt: Signal  #: A program has ended and its end was not cleared.

    def __init__(self, config: TpuV1Config) -> None:
        self.config = config
        bus = config.bus
        self.bank = CsrBank(core_regmap())
        super().__init__(
            {
                "csr": In(self.bank.bus.signature.flip()),
                "instructions": Out(
                    Axi4Signature(data_width=8 * bus.instruction_bytes, write=False)
                ),
                "weights": Out(Axi4Signature(data_width=8 * bus.weight_bytes, write=False)),
                "host": Out(Axi4Signature(data_width=8 * bus.host_bytes)),
                "interrupt": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.csr = self.bank
        m.submodules.dispatch = self.dispatch = Dispatcher(config)
        m.submodules.counters = self.counters = Counters()
        m.submodules.matrix = self.matrix = MatrixUnit(config)
        m.submodules.activate = self.activate = ActivateUnit(config)
        m.submodules.weight_unit = self.weight_unit = WeightUnit(config)
        m.submodules.host_unit = self.host_unit = HostUnit(config)
        m.submodules.buffer = self.buffer = UnifiedBuffer(config)
        self._queues(m)
        self._masters(m)
        self._read_port(m)
        self._write_port(m)
        self._datapath(m)
        self._registers(m)
        self._count(m)
        return m

    def _queues(self, m: Module) -> None:
        """Put a queue before each unit, which counts as idle only if its queue is empty."""
        idle = []
        for name, unit in (
            ("host", self.host_unit),
            ("weights", self.weight_unit),
            ("matrix", self.matrix),
            ("activate", self.activate),
        ):
            source: stream.Interface = getattr(self.dispatch, name)
            queue = Queue(source.p.shape(), depth=self.config.queue_depth)
            m.submodules[f"{name}_queue"] = queue
            wiring.connect(m, source, queue.i)
            wiring.connect(m, queue.o, unit.orders)
            idle.append(unit.idle & ~queue.o.valid)
        m.d.comb += self.dispatch.idle.eq(Cat(idle))

    def _masters(self, m: Module) -> None:
        """Join the units to the memory ports."""
        bus = self.config.bus
        connect = wiring.connect
        m.submodules.fetch = self.fetch = ReadMaster(data_width=8 * bus.instruction_bytes)
        m.submodules.weight_reader = self.weight_reader = ReadMaster(
            data_width=8 * bus.weight_bytes
        )
        m.submodules.host_reader = self.host_reader = ReadMaster(data_width=8 * bus.host_bytes)
        m.submodules.host_writer = self.host_writer = WriteMaster(data_width=8 * bus.host_bytes)
        for reader, desc, beats, port in (
            (self.fetch, self.dispatch.desc, self.dispatch.beats, self.instructions),
            (self.weight_reader, self.weight_unit.desc, self.weight_unit.beats, self.weights),
            (self.host_reader, self.host_unit.read_desc, self.host_unit.read_beats, self.host),
        ):
            connect(m, desc, reader.desc)
            connect(m, reader.data, beats)
            _forward(m, reader.bus, port)
        connect(m, self.host_unit.write_desc, self.host_writer.desc)
        connect(m, self.host_unit.write_beats, self.host_writer.data)
        _forward(m, self.host_writer.bus, self.host)
        m.d.comb += [
            self.host_unit.reader_idle.eq(self.host_reader.idle),
            self.host_unit.writer_idle.eq(self.host_writer.idle),
        ]

    def _read_port(self, m: Module) -> None:
        """Share the buffer's read port between the array and DRAM, turn and turn about."""
        matrix, collect, read = self.matrix, self.host_unit.collect, self.buffer.read
        turn = Signal()
        m.d.comb += [
            matrix.grant.eq(~collect.valid | turn),
            collect.ready.eq(~matrix.request | ~turn),
        ]
        with m.If(matrix.request & collect.valid):
            m.d.sync += turn.eq(~turn)
        rows = matrix.request & matrix.grant
        m.d.sync += [
            read.en.eq(rows),
            read.swap.eq(matrix.read.swap),
            read.pad.eq(matrix.read.pad),
            read.fill.eq(matrix.read.fill),
            read.collect.eq(collect.valid & collect.ready),
            read.beat.eq(collect.p.beat),
            self.buffer.read_group.eq(matrix.read.group),
        ]
        with m.If(rows):
            m.d.sync += read.addr.eq(matrix.read.addr)
        with m.Else():
            m.d.sync += read.addr.eq(collect.p.addr)

    def _write_port(self, m: Module) -> None:
        """Results enter the buffer when they are there; beats from DRAM in between."""
        result, store, write = self.activate.write, self.host_unit.store, self.buffer.write
        m.d.comb += [
            store.ready.eq(~result.en),
            write.result.eq(result.en),
            write.store.eq(store.valid & store.ready),
            write.beat.eq(store.p.place.beat),
            self.buffer.write_group.eq(result.group),
            self.buffer.store.as_value().eq(store.p.octets),
            self.host_unit.fetched.eq(self.buffer.fetch),
        ]
        with m.If(result.en):
            m.d.comb += write.addr.eq(result.addr)
        with m.Else():
            m.d.comb += write.addr.eq(store.p.place.addr)

    def _datapath(self, m: Module) -> None:
        """Join the grids edge to edge: weights, array, accumulators, vector lanes, buffer."""
        config = self.config
        array, memory = config.array, config.memory
        m.submodules.weight_lanes = tiles = weight_lanes(
            cols=array.cols,
            depth=memory.weight_fifo_tiles * array.rows,
            beats=config.weight_row_beats,
            latency=memory.sram_latency,
        )
        m.submodules.array = grid = weight_stationary_array(
            rows=array.rows, cols=array.cols, multiplier_latency=array.multiplier_latency
        )
        m.submodules.accumulators = self.accumulators = sums = accumulator_lanes(
            cols=array.cols,
            half_rows=config.half_rows,
            psum_width=psum_width(array.rows),
            latency=memory.sram_latency,
        )
        m.submodules.vector = vector = vector_lanes(
            cols=array.cols,
            entries=memory.parameter_entries,
            beats=config.weight_row_beats,
            sram_latency=memory.sram_latency,
            requantiser_latency=config.requantiser_latency,
        )
        self._weights(m, tiles, vector)
        for target, source in (
            (grid.weight_i, tiles.weight),
            (grid.load_i, tiles.load),
            (grid.act_i, self.buffer.act),
            (grid.swap_i, self.buffer.swap),
            (sums.psum, grid.psum_o),
            (sums.write_i, self.matrix.write),
            (sums.read_i, self.activate.read),
            (vector.value, sums.value),
            (vector.command_i, self.activate.command),
            (self.buffer.result, vector.result),
            (self.matrix.activated, self.activate.activated),
            (self.activate.multiplied, self.matrix.multiplied),
        ):
            m.d.comb += Value.cast(target).eq(Value.cast(source))

    def _weights(self, m: Module, tiles: Grid, vector: Grid) -> None:
        """Fill and empty the FIFOs of tiles and parameters; a slot is free when its wave is out."""
        unit, memory = self.weight_unit, self.config.memory
        m.submodules.feeder = feeder = WeightFeeder(self.config)
        m.submodules.tile_credit = tile = Credit(memory.weight_fifo_tiles)
        m.submodules.entry_credit = entry = Credit(memory.parameter_entries)
        m.d.comb += [
            tile.put.eq(unit.tile_put),
            tile.get.eq(feeder.get),
            tile.free.eq(tiles.read_o.last),
            unit.tile_room.eq(tile.room),
            feeder.available.eq(tile.available),
            feeder.take.eq(self.matrix.tile_take),
            self.matrix.tile_ready.eq(feeder.ready),
            entry.put.eq(unit.entry_put),
            entry.get.eq(self.activate.entry_get),
            entry.free.eq(vector.command_o.retire),
            unit.entry_room.eq(entry.room),
            self.activate.entry_ready.eq(entry.available),
            self.dispatch.leftover.eq(tile.available | ~feeder.empty | entry.available),
            tiles.read_i.eq(feeder.read),
            tiles.write.eq(unit.tile_write),
            vector.write.eq(unit.parameter_write),
        ]
        width = self.config.bus.weight_bytes
        for grid in (tiles, vector):
            for lane in range(self.config.array.cols):
                m.d.comb += grid.beat[lane].eq(lane // width)
                m.d.comb += grid.octet[lane].eq(unit.octets.word_select(lane % width, 8))

    def _registers(self, m: Module) -> None:
        """Join registers, front end and errors."""
        dispatch, register = self.dispatch, self.bank.port
        wiring.connect(m, wiring.flipped(self.csr), self.bank.bus)
        masters = (self.fetch, self.weight_reader, self.host_reader, self.host_writer)
        bus_error = reduce(or_, (master.error for master in masters))
        start = register("CTRL").start & ~dispatch.running
        m.d.comb += [
            register("ID").eq(CORE_ID),
            register("CONFIG_HASH").eq(self.config.digest),
            dispatch.start.eq(start),
            dispatch.clear.eq(register("CTRL").clear),
            dispatch.program_addr.eq(register("PROGRAM_ADDR")),
            dispatch.program_count.eq(register("PROGRAM_COUNT")),
            register("STATUS").busy.eq(dispatch.running),
            register("STATUS").done.eq(dispatch.done | dispatch.failed),
            register("STATUS").error.eq(dispatch.failed),
            register("ERROR_CODE").eq(dispatch.error.code),
            register("ERROR_PC").eq(dispatch.error.pc),
            self.interrupt.eq(dispatch.done | dispatch.failed),
            *(master.clear.eq(start) for master in masters),
        ]
        error = dispatch.unit_error
        with m.If(self.matrix.error.code != 0):
            m.d.comb += error.eq(self.matrix.error)
        with m.Elif(self.activate.error.code != 0):
            m.d.comb += error.eq(self.activate.error)
        with m.Elif(self.host_unit.error.code != 0):
            m.d.comb += error.eq(self.host_unit.error)
        with m.Elif(bus_error):
            m.d.comb += [error.code.eq(ErrorCode.BUS), error.pc.eq(0)]

    def _count(self, m: Module) -> None:
        """Tell the counters what the matrix unit does; exactly one of six bits is set."""
        state, counters = self.matrix.state, self.counters
        events = dict.fromkeys(NAMES, Value.cast(0))
        working = state.busy | state.wait_weights | state.wait_accumulators | state.wait_port
        resting = ~working & ~state.drain
        events |= {
            "cycles": Value.cast(1),
            "busy": state.busy,
            "wait_weights": state.wait_weights,
            "wait_activations": state.wait_port | (resting & self.dispatch.syncing),
            "wait_accumulators": state.wait_accumulators,
            "fill_drain": state.drain,
            "idle": resting & ~self.dispatch.syncing,
            "instructions": self.dispatch.retired,
            "host_read_beats": self.host.rvalid & self.host.rready,
            "host_write_beats": self.host.wvalid & self.host.wready,
            "weight_beats": self.weights.rvalid & self.weights.rready,
        }
        m.d.comb += [
            counters.start.eq(self.dispatch.start),
            counters.running.eq(self.dispatch.running),
            counters.events.eq(Cat(events[name] for name in NAMES)),
        ]
        for name in NAMES:
            m.d.comb += self.bank.port(name.upper()).eq(counters.count(name))


def _forward(m: Module, inner: Axi4Interface, port: Axi4Interface) -> None:
    """Make those members of a port that a master has the master's."""
    for name, member in inner.signature.members.items():
        source, target = getattr(inner, name), getattr(port, name)
        m.d.comb += target.eq(source) if member.flow == wiring.Out else source.eq(target)
