"""Front end: fetches the program, checks each instruction and hands it to its unit, in order."""

from collections.abc import Iterable

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.common.decode import format_layout, is_legal
from npulse.hw.common.queue import Queue
from npulse.hw.common.struct import struct
from npulse.hw.cores.tpu_v1.ports import PC_WIDTH, TICKET_WIDTH, Order, UnitError
from npulse.hw.dma.descriptor import TransferDescriptor
from npulse.hw.spec.isa import Format
from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_isa import (
    ACTIVATE,
    HALT,
    ISA,
    MATRIX_MULTIPLY,
    READ_HOST,
    READ_PARAMETERS,
    READ_WEIGHTS,
    SYNC,
    WRITE_HOST,
    ErrorCode,
)

__all__ = ["Dispatcher"]

WORD_WIDTH = 8 * ISA.word_bytes
COUNT_WIDTH = 16  #: Bits of the number of instructions in a program.
FETCHED_WORDS = 4  #: Instructions fetched ahead; a choice.


class Dispatcher(wiring.Component):
    """Run one program from `start` to `Halt`, or to the first error.

    An instruction leaves as soon as its unit's queue has room. `Sync` holds back all that follow
    until its units are idle, `Halt` until all are.

    Timing
    ------
    One instruction a cycle from those fetched ahead. ``done`` or ``failed`` rises once and stays
    until the next start.
    """

    start: Signal
    clear: Signal  #: Lower `done` and `failed`.
    program_addr: Signal
    program_count: Signal
    desc: stream.Interface  #: To the reader of the instruction port.
    beats: stream.Interface  #: From it.
    host: stream.Interface  #: Orders for each unit.
    weights: stream.Interface
    matrix: stream.Interface
    activate: stream.Interface
    idle: Signal  #: Bit of each unit in the order of `UNITS`.
    leftover: Signal  #: The FIFOs are not empty, which is an error at `Halt`.
    unit_error: data.View  #: An error of any unit.
    running: Signal
    done: Signal
    failed: Signal
    error: data.View  #: The first error; `code` 0 while there is none.
    retired: Signal  #: An instruction was handed on or carried out.
    syncing: Signal  #: `Sync` waits for the buffer's writers (host or activate).

    def __init__(self, config: TpuV1Config) -> None:
        self.config = config
        super().__init__(
            {
                "start": In(1),
                "clear": In(1),
                "program_addr": In(32),
                "program_count": In(32),
                "desc": Out(stream.Signature(TransferDescriptor())),
                "beats": In(stream.Signature(8 * config.bus.instruction_bytes)),
                "host": Out(stream.Signature(Order(READ_HOST))),
                "weights": Out(stream.Signature(format_layout(ISA, READ_WEIGHTS))),
                "matrix": Out(stream.Signature(Order(MATRIX_MULTIPLY))),
                "activate": Out(stream.Signature(Order(ACTIVATE))),
                "idle": In(4),
                "leftover": In(1),
                "unit_error": In(UnitError()),
                "running": Out(1),
                "done": Out(1),
                "failed": Out(1),
                "error": Out(UnitError()),
                "retired": Out(1),
                "syncing": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words = self._fetch(m)
        word, pc = words.o.p, Signal(PC_WIDTH)
        go, take = Signal(), Signal()
        m.d.comb += [go.eq(self.running & words.o.valid), words.o.ready.eq(take)]
        legal = Signal()
        m.d.comb += legal.eq(is_legal(ISA, word))

        # Done counts advance in order on each half, so a ticket is only ever compared for equality.
        counts = data.ArrayLayout(TICKET_WIDTH, 2)
        issued = {
            MATRIX_MULTIPLY: struct(counts, name="multiplies_issued"),
            ACTIVATE: struct(counts, name="activates_issued"),
        }
        accepted: Value = Value.cast(0)
        for port, formats in (
            (self.host, (READ_HOST, WRITE_HOST)),
            (self.weights, (READ_WEIGHTS, READ_PARAMETERS)),
            (self.matrix, (MATRIX_MULTIPLY,)),
            (self.activate, (ACTIVATE,)),
        ):
            mine = go & legal & _is_one_of(word, formats)
            m.d.comb += port.valid.eq(mine)
            accepted = accepted | (mine & port.ready)
            self._order(m, port, formats[0], word, pc, issued)

        units = data.View(format_layout(ISA, SYNC), word[: ISA.used_bits(SYNC)]).units
        synced = (units & ~self.idle) == 0
        is_sync, is_halt = (go & legal & _is_one_of(word, (f,)) for f in (SYNC, HALT))
        halted = is_halt & self.idle.all()
        m.d.comb += [
            take.eq(accepted | (is_sync & synced) | halted),
            self.retired.eq(take),
            self.syncing.eq(is_sync & (units[0] | units[3]) & ~synced),
        ]
        with m.If(self.start):
            m.d.sync += pc.eq(0)
        with m.Elif(take):
            m.d.sync += pc.eq(pc + 1)
        count, beyond = self.program_count[:PC_WIDTH], self.program_count[PC_WIDTH:]
        starved = self.running & ((~words.o.valid & (pc == count)) | beyond.any())
        trailing = halted & (pc + 1 != count)
        self._finish(m, pc, halted, go & ~legal, starved, trailing)
        return m

    def _fetch(self, m: Module) -> Queue:
        """Read the program from its start, and put beats together to words."""
        count = ISA.word_bytes // self.config.bus.instruction_bytes
        m.submodules.words = words = Queue(WORD_WIDTH, depth=FETCHED_WORDS)
        asking = Signal()
        with m.If(self.start):
            m.d.sync += asking.eq(self.program_count.any())
        with m.Elif(self.desc.ready):
            m.d.sync += asking.eq(0)
        m.d.comb += [
            self.desc.valid.eq(asking),
            self.desc.p.addr.eq(self.program_addr),
            self.desc.p.beats.eq(self.program_count[:COUNT_WIDTH] * count),
            self.desc.p.rows.eq(1),
        ]
        if count == 1:
            m.d.comb += [
                words.i.p.eq(self.beats.p),
                words.i.valid.eq(self.beats.valid),
                self.beats.ready.eq(words.i.ready),
            ]
            return words
        width = len(self.beats.p)
        word, filled, full = Signal(WORD_WIDTH), Signal(range(count)), Signal()
        m.d.comb += [
            words.i.p.eq(word),
            words.i.valid.eq(full),
            self.beats.ready.eq(~full | words.i.ready),
        ]
        with m.If(self.beats.ready):
            m.d.sync += full.eq(self.beats.valid & (filled == count - 1))
        with m.If(self.beats.ready & self.beats.valid):
            m.d.sync += [
                word.eq(Cat(word[width:], self.beats.p)),
                filled.eq(Mux(filled == count - 1, 0, filled + 1)),
            ]
        return words

    def _order(
        self,
        m: Module,
        port: stream.Interface,
        f: Format,
        word: Value,
        pc: Signal,
        issued: dict[Format, data.View],
    ) -> None:
        """Fill in a port's payload; give accumulator instructions their tickets."""
        bits = word[: ISA.used_bits(f)]
        if f is READ_WEIGHTS:
            m.d.comb += port.p.as_value().eq(bits)
            return
        m.d.comb += [port.p.fields.as_value().eq(bits), port.p.pc.eq(pc)]
        if f not in issued:
            return
        half = port.p.fields.acc_addr[(self.config.half_rows - 1).bit_length()]
        other = issued[ACTIVATE if f is MATRIX_MULTIPLY else MATRIX_MULTIPLY]
        m.d.comb += port.p.ticket.eq(other[half])
        with m.If(port.valid & port.ready):
            m.d.sync += issued[f][half].eq(issued[f][half] + 1)

    def _finish(
        self,
        m: Module,
        pc: Signal,
        halted: Value,
        illegal: Value,
        starved: Value,
        trailing: Value,
    ) -> None:
        """Keep the first error, and say how the program ended."""
        found = struct(UnitError(), name="found")
        m.d.comb += found.pc.eq(pc)
        with m.If(self.unit_error.code != 0):
            m.d.comb += found.eq(self.unit_error)
        with m.Elif(illegal):
            m.d.comb += found.code.eq(ErrorCode.ILLEGAL_INSTRUCTION)
        with m.Elif(starved):
            m.d.comb += found.code.eq(ErrorCode.NO_HALT)
        with m.Elif(trailing):
            m.d.comb += found.code.eq(ErrorCode.TRAILING)
        with m.Elif(halted & self.leftover):
            m.d.comb += found.code.eq(ErrorCode.LEFTOVER)
        with m.If(self.start):
            m.d.sync += [self.running.eq(1), self.done.eq(0), self.failed.eq(0), self.error.eq(0)]
        with m.Elif(self.running & (found.code != 0)):
            m.d.sync += [self.running.eq(0), self.failed.eq(1), self.error.eq(found)]
        with m.Elif(halted):
            m.d.sync += [self.running.eq(0), self.done.eq(1)]
        with m.Elif(self.clear):
            m.d.sync += [self.done.eq(0), self.failed.eq(0), self.error.eq(0)]


def _is_one_of(word: Value, formats: Iterable[Format]) -> Value:
    opcode = word[: ISA.opcode_width]
    return Cat(opcode == f.opcode for f in formats).any()
