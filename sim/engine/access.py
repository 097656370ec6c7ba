"""State of a running design: its buffers, and fields that read and write values in them."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.sim.engine import cells
from npulse.sim.engine.cells import CONST, Value
from npulse.sim.engine.layout import LINE, Control, align, slot_bytes
from npulse.sim.engine.program import Program

__all__ = ["Field", "State", "aligned"]

_CODES: dict[int, Any] = {1: "B", 2: "H", 4: "I", 8: "Q"}


def aligned(size: int) -> NDArray[np.uint8]:
    """Zeroed bytes that start on a cache line."""
    raw = np.zeros(size + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size]


class State:
    """The block and the memories of one design.

    Attributes
    ----------
    block : (size,) uint8
    memory : dict of int to (rows * stride,) uint8
        By memory cell.
    buffers : list of (bytes,) uint8
        All memories, those of grids too, in the order of the table.
    table : (memories,) uint64
        Addresses of the memories, as native code takes them.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        layout = program.layout
        self.block = aligned(align(layout.size, LINE))
        self.bytes = memoryview(self.block)  # type: ignore[arg-type]
        self.typed = {size: self.bytes.cast(code) for size, code in _CODES.items()}
        self.memory: dict[int, NDArray[np.uint8]] = {}
        self.buffers: list[NDArray[np.uint8]] = []
        for number, index in enumerate(layout.memories):
            self.buffers.append(aligned(max(self._memory_bytes(number, index), 8)))
            if index >= 0:
                self.memory[index] = self.buffers[-1]
        addresses = [array.ctypes.data for array in self.buffers]
        self.table = np.array(addresses or [0], np.uint64)
        self.pointers = (
            ctypes.c_void_p(self.block.ctypes.data),
            ctypes.c_void_p(self.table.ctypes.data),
        )
        self.initialise()

    def _memory_bytes(self, number: int, index: int) -> int:
        if index < 0:
            plan, inner = self.program.layout.grid_memories[number]
            return int(plan.memory_bytes(inner))
        cell = self.program.netlist.cells[index]
        assert isinstance(cell, cells.Memory)
        return cell.depth * self.program.layout.stride[index]

    def initialise(self) -> None:
        """Set everything to its value at power-on, but for the computed outputs of grids."""
        words = self.control()
        kept = words.copy()
        self.block[:] = 0
        words[:] = kept
        for offset in (Control.CYCLE, Control.STOP, Control.CALENDAR_AT, Control.PARITY):
            words[offset // 8] = 0
        self._initialise_fields()
        for index in self.memory:
            self._initialise_memory(index)
        for plan in self.program.grids.plans.values():
            plan.initialise(self.block, self.buffers)

    def control(self) -> NDArray[np.uint64]:
        """Return the control words."""
        return self.block[: Control.SIZE].view(np.uint64)

    def _initialise_fields(self) -> None:
        layout, units = self.program.layout, self.program.units
        for index, cell in enumerate(self.program.netlist.cells):
            if isinstance(cell, cells.Input) and cell.width and cell.init:
                first = units.first[index]
                for unit in range(first, first + len(units.cuts[index])):
                    value = cell.init >> units.lo[unit] & (1 << units.width[unit]) - 1
                    self.write(layout.unit[unit], units.width[unit], value)
            elif isinstance(cell, (cells.Register, cells.SyncRead)) and cell.width and cell.init:
                for offset in (layout.state[index], layout.state[index] + layout.shadow):
                    self.write(offset, cell.width, cell.init)

    def _initialise_memory(self, index: int) -> None:
        cell = self.program.netlist.cells[index]
        assert isinstance(cell, cells.Memory)
        stride = self.program.layout.stride[index]
        self.memory[index][:] = 0
        if not cell.init:
            return
        if stride <= 8:
            rows = self.memory[index].view(f"u{stride}")
            rows[: len(cell.init)] = np.array(cell.init, f"u{stride}")
            return
        content = b"".join(row.to_bytes(stride, "little") for row in cell.init)
        self.memory[index][: len(content)] = np.frombuffer(content, np.uint8)

    def read(self, offset: int, width: int) -> int:
        """Read the unsigned value of a slot."""
        size = slot_bytes(width)
        if size <= 8:
            return self.typed[size][offset // size]
        return int.from_bytes(self.bytes[offset : offset + size], "little")

    def write(self, offset: int, width: int, value: int) -> None:
        """Write an unsigned value below ``2**width`` into a slot."""
        size = slot_bytes(width)
        if size <= 8:
            self.typed[size][offset // size] = value
        else:
            self.bytes[offset : offset + size] = value.to_bytes(size, "little")

    def rows(self, index: int) -> NDArray[Any]:
        """View of a memory: ``(depth,)`` unsigned, or ``(depth, bytes)`` uint8 above 64 bits."""
        cell = self.program.netlist.cells[index]
        assert isinstance(cell, cells.Memory)
        stride = self.program.layout.stride[index]
        raw = self.memory[index][: cell.depth * stride]
        if stride <= 8:
            return raw.view(f"u{stride}")
        return raw.reshape(cell.depth, stride)[:, : (cell.width + 7) // 8]


class Field:
    """A value somewhere in the state: the pieces of a signal.

    Attributes
    ----------
    combinational : bool
        Whether part of it is computed, and so stale until the nets are evaluated.
    writable : bool
        Whether all of it is storage.
    """

    def __init__(self, state: State, value: Value, *, signed: bool = False) -> None:
        self.state = state
        self.width = sum(run.width for run in value)
        self.signed = signed
        self.pieces: list[tuple[int, int, int, int, int]] = []
        self.constant = 0
        self.combinational = False
        self.writable = True
        self._collect(value)
        self._reader = self._fast_reader()

    def _collect(self, value: Value) -> None:
        """Note ``(offset, slot width, low bit, width, position)`` of each piece."""
        units, layout = self.state.program.units, self.state.program.layout
        at = 0
        for run in value:
            if run.cell == CONST:
                self.constant |= run.lo << at
                self.writable = False
            else:
                for unit in units.of_run(run):
                    lo = max(run.lo, units.lo[unit])
                    stop = run.lo + (1 if run.repeat else run.width)
                    width = min(stop, units.lo[unit] + units.width[unit]) - lo
                    for copy in range(run.width if run.repeat else 1):
                        place = at + lo - run.lo + copy
                        self.pieces.append(
                            (
                                layout.unit[unit],
                                units.width[unit],
                                lo - units.lo[unit],
                                width,
                                place,
                            )
                        )
                    is_state = units.is_state(unit)
                    self.combinational |= not is_state
                    self.writable &= is_state and not run.repeat
            at += run.width

    def _fast_reader(self) -> Callable[[], int] | None:
        if len(self.pieces) != 1 or self.signed or self.constant:
            return None
        offset, slot_width, lo, width, place = self.pieces[0]
        size = slot_bytes(slot_width)
        if size > 8 or lo or place or width != slot_width:
            return None
        typed, index = self.state.typed[size], offset // size
        return lambda: typed[index]

    def read(self) -> int:
        """Read as it stands in the block, signed if the field is."""
        if self._reader is not None:
            return self._reader()
        value = self.constant
        for offset, slot_width, lo, width, place in self.pieces:
            bits = self.state.read(offset, slot_width) >> lo & (1 << width) - 1
            value |= bits << place
        if self.signed and self.width and value >> self.width - 1:
            value -= 1 << self.width
        return value

    def write(self, value: int) -> None:
        """Write the low bits of `value`."""
        for offset, slot_width, lo, width, place in self.pieces:
            bits = value >> place & (1 << width) - 1
            if width != slot_width:
                old = self.state.read(offset, slot_width)
                bits = old & ~((1 << width) - 1 << lo) | bits << lo
            self.state.write(offset, slot_width, bits)
