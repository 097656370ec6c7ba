"""Estimates when each instruction of a program ends, from the closed forms of the machine.

An estimate for reports, never a result: cycles come from the RTL. Each unit is a clock that moves
on by closed forms (`npulse.hw.spec.timing`); units wait for dispatch, for FIFOs, for the halves of
the accumulators and at Syncs as the ISA says. Left out are ports of the buffer that two units want
at once, bursts that end at page borders, and refills of queues.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from npulse.hw.spec.timing import activate_delay, matrix_drain
from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_isa import ISA, UNITS
from npulse.sw.ir.tpu import (
    ActivateOp,
    HaltOp,
    InstructionOp,
    MatrixMultiplyOp,
    ProgramOp,
    ReadHostOp,
    ReadParametersOp,
    ReadWeightsOp,
    SyncOp,
    WriteHostOp,
)
from npulse.sw.targets.tpu_v1.constants import entry_bytes

__all__ = ["Timeline", "layer_cycles"]

#: Cycles from one state of a unit to the next that closed forms do not have: decode, queue, done.
HANDOVER = 4


@dataclass
class Timeline:
    """Clocks of all units, in cycles from the start of a program."""

    config: TpuV1Config
    dispatch: float = 0
    ends: dict[str, float] = field(default_factory=lambda: dict.fromkeys(UNITS, 0.0))
    starts: dict[str, list[float]] = field(default_factory=lambda: {u: [] for u in UNITS})
    arrivals: list[float] = field(default_factory=list)  #: Of weight tiles in their FIFO.
    taken: list[float] = field(default_factory=list)  #: When each tile left it.
    entries: list[float] = field(default_factory=list)
    entries_used: int = 0
    port: float = 0  #: When the weight port is free.
    array: float = 0  #: When the next row may enter the array.
    filled: list[float] = field(default_factory=lambda: [0.0, 0.0])
    emptied: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def add(self, op: InstructionOp) -> float:
        """Carry out the next instruction and return the cycle of its end."""
        config = self.config
        rate = min(Fraction(config.bus.instruction_bytes), config.dram.weight_bytes_per_cycle)
        self.dispatch += float(ISA.word_bytes / rate)
        if isinstance(op, SyncOp | HaltOp):
            mask = op.fields["units"] if isinstance(op, SyncOp) else sum(UNITS.values())
            waits = [self.ends[unit] for unit, bit in UNITS.items() if mask & bit]
            self.dispatch = max([self.dispatch, *(end + HANDOVER for end in waits)])
            return self.dispatch
        started = self.starts[op.unit]
        if len(started) > config.queue_depth:
            self.dispatch = max(self.dispatch, started[-config.queue_depth])
        start = self.dispatch + HANDOVER
        if isinstance(op, ReadHostOp | WriteHostOp):
            begin, end = self._move(op.fields, start)
        elif isinstance(op, ReadWeightsOp | ReadParametersOp):
            begin, end = self._read(op, start)
        elif isinstance(op, MatrixMultiplyOp):
            begin, end = self._multiply(op.fields, start)
        else:
            assert isinstance(op, ActivateOp)
            begin, end = self._activate(op.fields, start)
        started.append(begin)
        self.ends[op.unit] = max(self.ends[op.unit], end)
        return end

    def _move(self, f: dict[str, int], start: float) -> tuple[float, float]:
        config = self.config
        begin = max(start, self.ends["host"])
        rate = min(Fraction(config.bus.host_bytes), config.dram.host_bytes_per_cycle)
        cycles = float(f["rows"] * f["runs"] * config.host_row_bytes / rate)
        return begin, begin + config.dram.latency_cycles + cycles + config.lanes + HANDOVER

    def _read(self, op: ReadWeightsOp | ReadParametersOp, start: float) -> tuple[float, float]:
        config = self.config
        rate = min(Fraction(config.bus.weight_bytes), config.dram.weight_bytes_per_cycle)
        self.port = max(self.port, start + config.dram.latency_cycles)
        begin = max(start, self.ends["weights"])
        if isinstance(op, ReadParametersOp):
            self.port += float(op.fields["entries"] * entry_bytes(config) / rate)
            self.entries += [self.port] * op.fields["entries"]
            return begin, self.port
        depth = config.memory.weight_fifo_tiles
        for _ in range(op.fields["tiles"]):
            room = len(self.arrivals) - depth
            if 0 <= room < len(self.taken):
                self.port = max(self.port, self.taken[room])
            self.port += float(config.tile_bytes / rate)
            self.arrivals.append(self.port)
        return begin, self.port

    def _multiply(self, f: dict[str, int], start: float) -> tuple[float, float]:
        config = self.config
        half = f["acc_addr"] // config.half_rows
        begin = at = max(start, self.array, self.emptied[half])
        rows = f["rows_y"] * f["rows_x"]
        passes = f["blocks"] * config.read_groups * f["kernel_y"] * f["kernel_x"]
        again = max(rows, config.memory.sram_latency + 2)
        for index in range(passes):
            if f["switch"] or index:
                tile = len(self.taken)
                arrival = self.arrivals[tile] if tile < len(self.arrivals) else at
                # The tile slides in while the one before it works.
                slid = max(arrival, self.taken[-1] if self.taken else 0) + config.array.rows
                at = max(at, slid)
                self.taken.append(at)
            at += again if index + 1 < passes else rows
        self.array = at
        self.filled[half] = at + matrix_drain(config)
        return begin, self.filled[half]

    def _activate(self, f: dict[str, int], start: float) -> tuple[float, float]:
        config = self.config
        half = f["acc_addr"] // config.half_rows
        begin = max(start, self.ends["activate"] - activate_delay(config), self.filled[half])
        if f["switch"] and self.entries_used < len(self.entries):
            begin = max(begin, self.entries[self.entries_used] + config.array.cols)
        self.entries_used += f["switch"]
        rows = f["rows_y"] * f["rows_x"] * f["window_y"] * f["window_x"]
        end = begin + rows + activate_delay(config) + config.array.cols
        self.emptied[half] = begin + rows
        return begin, end


def layer_cycles(
    config: TpuV1Config, program: ProgramOp, owner: Mapping[InstructionOp, int], layers: int
) -> tuple[int, ...]:
    """Cycles of each layer: from the end of those before it to its own, moves included.

    The last one's end is that of the program, so the sum is the whole program.

    Parameters
    ----------
    owner : mapping
        Index of the layer that an instruction is for.
    """
    timeline, ends = Timeline(config), [0.0] * layers
    for op in program.instructions:
        end, index = timeline.add(op), owner.get(op)
        if index is not None:
            ends[index] = max(ends[index], end)
    ends[-1] = max(ends[-1], timeline.dispatch)
    found, before = [], 0
    for end in ends:
        now = max(before, round(end))
        found.append(now - before)
        before = now
    return tuple(found)
