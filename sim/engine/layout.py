"""Where everything lies: one state block, and a buffer for each memory.

The block holds, in this order and each part on a cache line: control words, inputs, registers by
clock event, registers with asynchronous reset, the shadow of all registers (their next values),
the slots of checks, values that cross functions or are visible from outside, arrays of grids.
A field has a slot of 1, 2, 4 or 8 bytes, or a multiple of 8; the bits above its width are zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from npulse.sim.engine import cells
from npulse.sim.engine.cells import Cell, Value, value_width
from npulse.sim.engine.schedule import Units, check_values

__all__ = ["Control", "Layout", "Region", "align", "slot_bytes"]

LINE = 64


class Control:
    """Byte offsets of the control words, all i64."""

    CYCLE = 0  #: Cycles since power-on.
    STOP = 8  #: Set by native code: 1 a check fired, 2 a ring is full.
    UNTIL = 16  #: Function that ends a run, or 0.
    PROBE = 24  #: Function that samples probes, or 0.
    CALENDAR = 32  #: Table of edge masks, bit 63 marks the end of a reference cycle.
    CALENDAR_LENGTH = 40
    CALENDAR_AT = 48
    PARITY = 56  #: Which half of the ping-pong arrays is current.
    RING = 64  #: Base of the probe ring.
    RING_ROWS = 72
    RING_USED = 80
    PROBE_EVERY = 88
    SIZE = 128


@dataclass
class Region:
    """Bytes ``start .. start + size - 1`` of the block."""

    start: int
    size: int = 0


def slot_bytes(width: int) -> int:
    """Bytes of the slot of a value of `width` bits."""
    for size in (1, 2, 4, 8):
        if width <= 8 * size:
            return size
    return (width + 63) // 64 * 8


def align(offset: int, to: int) -> int:
    """Least multiple of `to` that is at least `offset`."""
    return (offset + to - 1) // to * to


@dataclass
class Layout:
    """Offsets of the state of one netlist.

    Attributes
    ----------
    state : dict of int to int
        Registers and read ports, by cell.
    shadow : int
        Distance from a register to its next value.
    groups : dict of int to Region
        Registers by event; -1 holds those with asynchronous reset.
    unit : dict of int to int
        Units that have a place in the block.
    checks : dict of int to list of int
        Flag, then arguments, by cell.
    memories : list of int
        Cells of the memories, in the order of the table of buffers; -1 for those of grids.
    stride : dict of int to int
        Bytes from row to row, by memory cell.
    """

    netlist_cells: Sequence[Cell | None]
    units: Units
    size: int = Control.SIZE
    state: dict[int, int] = field(default_factory=dict)
    unit: dict[int, int] = field(default_factory=dict)
    groups: dict[int, Region] = field(default_factory=dict)
    shadow: int = 0
    checks: dict[int, list[int]] = field(default_factory=dict)
    memories: list[int] = field(default_factory=list)
    stride: dict[int, int] = field(default_factory=dict)
    inputs: Region = field(default_factory=lambda: Region(0))
    #: Memories of grids, with the cell in the grid's own netlist, by number in `memories`.
    grid_memories: dict[int, tuple[Any, int]] = field(default_factory=dict)

    def place(self) -> "Layout":
        """Give a place to all that lives from cycle to cycle."""
        self._place_inputs()
        self._place_registers()
        self._place_checks()
        self._place_memories()
        self.size = align(self.size, LINE)
        return self

    def take(self, width: int) -> int:
        """Offset of a new slot for `width` bits."""
        size = slot_bytes(width)
        self.size = align(self.size, min(size, 8))
        offset = self.size
        self.size += size
        return offset

    def place_unit(self, unit: int) -> int:
        """Offset of `unit`, which gets a place if it has none."""
        if unit not in self.unit:
            self.unit[unit] = self.take(self.units.width[unit])
        return self.unit[unit]

    def _place_inputs(self) -> None:
        self.size = align(self.size, LINE)
        self.inputs = Region(self.size)
        for index, cell in enumerate(self.netlist_cells):
            if isinstance(cell, cells.Input) and cell.width:
                first = self.units.first[index]
                for unit in range(first, first + len(self.units.cuts[index])):
                    self.place_unit(unit)
        self.inputs.size = self.size - self.inputs.start

    def _place_registers(self) -> None:
        members: dict[int, list[int]] = {}
        for index, cell in enumerate(self.netlist_cells):
            if isinstance(cell, (cells.Register, cells.SyncRead)) and cell.width:
                own = isinstance(cell, cells.Register) and cell.arst is not None
                members.setdefault(-1 if own else cell.event, []).append(index)
        start = self.size = align(self.size, LINE)
        for event in sorted(members):
            self.size = align(self.size, LINE)
            region = self.groups[event] = Region(self.size)
            for index in members[event]:
                self._place_register(index)
            region.size = self.size - region.start
        self.size = align(self.size, LINE)
        self.shadow = self.size - start
        self.size += self.shadow

    def _place_register(self, index: int) -> None:
        cell = self.netlist_cells[index]
        assert cell is not None
        self.state[index] = self.take(cell.width)
        unit = self.units.first[index]
        if self.units.is_state(unit):
            self.unit[unit] = self.state[index]

    def _place_checks(self) -> None:
        for index, cell in enumerate(self.netlist_cells):
            if isinstance(cell, cells.Check):
                values: list[Value] = check_values(cell)[2:]
                self.checks[index] = [
                    self.take(64),
                    *(self.take(max(value_width(v), 1)) for v in values),
                ]

    def _place_memories(self) -> None:
        for index, cell in enumerate(self.netlist_cells):
            if isinstance(cell, cells.Memory):
                self.memories.append(index)
                self.stride[index] = slot_bytes(cell.width)
