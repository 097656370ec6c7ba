"""Arrays of a grid: where each register, input and output of all its cells lies.

The state is a struct of arrays. One row is the last axis of the grid, contiguous, so that one
loop over it is vectorised; the other axes, flattened, are the rows. A register that flows along
the last axis has two copies (ping-pong): shifting in place would stall on store forwarding. One
that flows along another axis is updated in place, rows walked against the flow.
"""

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.hw.grid import Edge, Flow
from npulse.sim.engine import cells
from npulse.sim.engine.cells import CONST, Run, Value, concat, slice_value, value_width
from npulse.sim.engine.gridcell import CellInfo
from npulse.sim.engine.layout import LINE, Layout, align, slot_bytes

__all__ = ["Array", "GridPlan"]


@dataclass
class Array:
    """One value of every cell, that of a cell at ``base + row * pitch + column * size``.

    `other` is the distance to the second copy, 0 if there is none.
    """

    base: int
    pitch: int
    size: int
    width: int
    other: int = 0

    def at(self, row: int, column: int) -> int:
        """Byte offset of an element."""
        return self.base + row * self.pitch + column * self.size


@dataclass
class GridPlan:
    """Placement of one grid in the state block.

    Attributes
    ----------
    rows, columns : int
        The last axis is the columns.
    pitch : int
        Bytes from the registers of one row to those of the next.
    parity : int
        Offset of the word that says which copy of the moving registers is current; -1 without.
    registers : dict of int to Array
        Registers and synchronous read ports, by cell of the cell's netlist.
    inputs : dict of str to Array
        As the grid's loop reads them: own staging arrays, or another grid's state.
    staged : dict of str to Value
        Inputs that scalar logic writes, lane by lane.
    constants : dict of str to Value
        Inputs that are constant, written once.
    outputs : dict of str to Array
    computed : list of str
        Outputs that are not plain registers; a loop after the cycle computes them.
    memories : dict of int to (int, Array)
        Number in the table of buffers, and the layout in that buffer of row 0 of the memory.
    temps : dict of (int, str) to Array
        One row for each operand of a memory port.
    """

    index: int
    info: CellInfo
    key: str
    rows: int = 1
    columns: int = 1
    pitch: int = 0
    parity: int = -1
    registers: dict[int, Array] = field(default_factory=dict)
    inputs: dict[str, Array] = field(default_factory=dict)
    staged: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Value] = field(default_factory=dict)
    outputs: dict[str, Array] = field(default_factory=dict)
    computed: list[str] = field(default_factory=list)
    memories: dict[int, tuple[int, Array]] = field(default_factory=dict)
    temps: dict[tuple[int, str], Array] = field(default_factory=dict)
    bound: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = self.info.grid.shape
        self.columns = shape[-1]
        self.rows = prod(shape[:-1])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the grid."""
        return self.info.grid.shape

    def axes_of(self, port: str) -> tuple[int, ...]:
        """Axes of the grid port; none for ``rst``."""
        role = self.info.role(port)
        return () if role is None else self.info.grid.port_axes(role)

    def lanes_of(self, port: str) -> int:
        """Elements of the grid port."""
        return self.info.lanes_of(port)

    def place(self, layout: Layout) -> None:
        """Give a place to registers, outputs, temporaries and memories."""
        moving = {self.info.flows[n] for n, r in self._flows() if r.axis == len(self.shape) - 1}
        self._place_registers(layout, moving)
        for index, cell in enumerate(self.info.net.cells):
            if isinstance(cell, (cells.SyncRead, cells.WritePort)):
                for name, width in _operands(cell):
                    self.temps[index, name] = self._row(layout, width)
        if moving:
            layout.size = align(layout.size, LINE)
            self.parity = layout.take(64)
        for index, cell in enumerate(self.info.net.cells):
            if isinstance(cell, cells.Memory):
                self._place_memory(layout, index, cell)
        for port, value in self.info.outputs.items():
            self.outputs[port] = self._output(layout, port, value)

    def _flows(self) -> list[tuple[str, Flow]]:
        roles = self.info.grid.roles.items()
        return [(name, role) for name, role in roles if isinstance(role, Flow)]

    def _place_registers(self, layout: Layout, moving: set[int]) -> None:
        """Lay out one record a row, with the arrays of all registers in it.

        A row is then one stream of memory and one pointer, and each array a constant from it.
        """
        at = 0
        for index, cell in enumerate(self.info.net.cells):
            if isinstance(cell, (cells.Register, cells.SyncRead)) and cell.width:
                at, array = self._array(at, cell.width, moving=index in moving)
                self.registers[index] = array
        self.pitch = align(at, LINE)
        layout.size = align(layout.size, LINE) + LINE
        for array in self.registers.values():
            array.base += layout.size
            array.pitch = self.pitch
        layout.size += self.rows * self.pitch

    def _array(self, at: int, width: int, *, moving: bool) -> tuple[int, Array]:
        """Take a place in the record; a moving array has a margin for column -1, and a copy."""
        size = slot_bytes(width)
        unit = min(LINE, 1 << (self.columns * size - 1).bit_length())
        margin = max(unit, size) if moving else 0
        at = align(at, unit) + margin
        end = at + self.columns * size
        if not moving:
            return end, Array(at, 0, size, width)
        other = align(end, unit) + margin - at
        return at + other + self.columns * size, Array(at, 0, size, width, other)

    def _row(self, layout: Layout, width: int) -> Array:
        size = slot_bytes(max(width, 1))
        layout.size = align(layout.size, LINE)
        start = layout.size
        layout.size += align(self.columns * size, LINE)
        return Array(start, 0, size, width)

    def _place_memory(self, layout: Layout, index: int, cell: cells.Memory) -> None:
        size = slot_bytes(cell.width)
        pitch = align(self.columns * size, LINE)
        number = len(layout.memories)
        layout.memories.append(-1)
        layout.grid_memories[number] = (self, index)
        self.memories[index] = (number, Array(0, pitch, size, cell.width))

    def memory_bytes(self, index: int) -> int:
        """Size of the buffer of a memory of the cells."""
        cell = self.info.net.cells[index]
        assert isinstance(cell, cells.Memory)
        return cell.depth * self.rows * self.memories[index][1].pitch

    # Outputs

    def _output(self, layout: Layout, port: str, value: Value) -> Array:
        register = self._plain(value)
        if register is not None and self._is_regular(self.info.role(port)):
            return self._shown(port, register)
        self.computed.append(port)
        lanes = self.lanes_of(port)
        layout.size = align(layout.size, LINE)
        size = slot_bytes(max(value_width(value), 1))
        last = len(self.shape) - 1
        if last in self.axes_of(port):
            rows, pitch = lanes // self.columns, align(self.columns * size, LINE)
        else:
            rows, pitch = lanes, size
        array = Array(layout.size, pitch, size, value_width(value))
        layout.size = align(layout.size + rows * pitch, LINE)
        return array

    def _is_regular(self, role: Any) -> bool:
        """Whether the rows that the grid port shows are equally far apart."""
        if not isinstance(role, (Flow, Edge)) or role.axis == len(self.shape) - 1:
            return True
        return len(set(np.diff(self.rows_where_last(role.axis)))) <= 1

    def _plain(self, value: Value) -> Array | None:
        """Register array that `value` is, if it is all of one that stays in place."""
        if len(value) != 1 or value[0].cell == CONST or value[0].repeat:
            return None
        array = self.registers.get(value[0].cell)
        if array is None or array.other or value[0].lo or value[0].width != array.width:
            return None
        return array

    def _shown(self, port: str, array: Array) -> Array:
        """Elements of a register array that the grid port shows."""
        role = self.info.role(port)
        if not isinstance(role, (Flow, Edge)):
            return array
        last = len(self.shape) - 1
        if role.axis == last:
            return Array(array.at(0, self.columns - 1), array.pitch, array.size, array.width)
        rows = self.rows_where_last(role.axis)
        step = rows[1] - rows[0] if len(rows) > 1 else 1
        return Array(array.at(rows[0], 0), array.pitch * step, array.size, array.width)

    def rows_where_last(self, axis: int) -> list[int]:
        """Rows of the cells at the end of `axis`, which is not the last one."""
        outer = np.arange(self.rows).reshape(self.shape[:-1] or (1,))
        return [int(row) for row in np.take(outer, -1, axis=axis).reshape(-1)]

    def lane_offset(self, port: str, lane: int) -> int:
        """Byte offset in the block of one element of an output."""
        array = self.outputs[port]
        if len(self.shape) - 1 in self.axes_of(port):
            return array.at(lane // self.columns, lane % self.columns)
        return array.at(lane, 0)

    # Inputs

    def stage(self, layout: Layout, port: str, value: Value) -> None:
        """Give an input an array of its own, that scalar logic fills."""
        self.staged[port] = value
        if self.enters_row(port):
            return
        lanes = self.lanes_of(port)
        width = value_width(value) // lanes
        size = slot_bytes(max(width, 1))
        layout.size = align(layout.size, LINE)
        if len(self.shape) - 1 in self.axes_of(port):
            rows, pitch = lanes // self.columns, align(self.columns * size, LINE)
        else:
            rows, pitch = lanes, size
        self.inputs[port] = Array(layout.size, pitch, size, width)
        layout.size = align(layout.size + rows * pitch, LINE)

    def is_connected(self, port: str) -> bool:
        """Whether something drives the input."""
        return any(port in known for known in (self.inputs, self.staged, self.constants))

    def enters_row(self, port: str) -> bool:
        """Whether a flow enters the rows there: it is then written into column -1."""
        role = self.info.role(port)
        return isinstance(role, Flow) and role.axis == len(self.shape) - 1

    def entry(self, port: str) -> Array:
        """Column -1 of the register behind a flow that enters the rows."""
        array = self.registers[self.info.flows[port[:-2]]]
        return Array(array.base - array.size, array.pitch, array.size, array.width, array.other)

    def input_offset(self, port: str, lane: int) -> int:
        """Byte offset in the block of one element of a staged input."""
        if self.enters_row(port):
            return self.entry(port).at(lane, 0)
        array = self.inputs[port]
        if len(self.shape) - 1 in self.axes_of(port):
            return array.at(lane // self.columns, lane % self.columns)
        return array.at(lane, 0)

    def lane_values(self, port: str) -> list[Value]:
        """Values of the elements of a staged input."""
        value, lanes = self.staged.get(port) or self.constants[port], self.lanes_of(port)
        width = value_width(value) // lanes
        return lanes_of_value(value, lanes, width)

    # Python's side

    def view(self, block: NDArray[np.uint8], array: Array) -> NDArray[Any]:
        """View of an array over all cells, shaped as the grid; bytes above 64 bits."""
        base = array.base
        if array.other and block[self.parity]:
            base += array.other
        wide = array.size > 8
        dtype = np.dtype("u1" if wide else f"u{array.size}")
        strides = (*_row_strides(self.shape[:-1], array.pitch), array.size, *((1,) if wide else ()))
        shape = (*self.shape, *((array.size,) if wide else ()))
        return np.ndarray(shape, dtype, block.data, base, strides)

    def memory_view(self, buffer: NDArray[np.uint8], index: int) -> NDArray[Any]:
        """View of a memory of the cells: ``(depth, *shape)``, with bytes last above 64 bits."""
        cell = self.info.net.cells[index]
        assert isinstance(cell, cells.Memory)
        array = self.memories[index][1]
        wide = array.size > 8
        dtype = np.dtype("u1" if wide else f"u{array.size}")
        inner = (*_row_strides(self.shape[:-1], array.pitch), array.size, *((1,) if wide else ()))
        shape = (cell.depth, *self.shape, *((array.size,) if wide else ()))
        return np.ndarray(shape, dtype, buffer.data, 0, (self.rows * array.pitch, *inner))

    def initialise(self, block: NDArray[np.uint8], buffers: list[NDArray[np.uint8]]) -> None:
        """Set registers and memories of all cells to their initial values."""
        for index, array in self.registers.items():
            cell = self.info.net.cells[index]
            assert isinstance(cell, (cells.Register, cells.SyncRead))
            for parity in (0, 1) if array.other else (0,):
                if array.other:
                    block[self.parity] = parity
                _fill(self.view(block, array), cell.init, array.size)
        if self.parity >= 0:
            block[self.parity] = 0
        for port in self.constants:
            self._write_constant(block, port)
        for index, (number, array) in self.memories.items():
            cell = self.info.net.cells[index]
            assert isinstance(cell, cells.Memory)
            view = self.memory_view(buffers[number], index)
            view[...] = 0
            for row, content in enumerate(cell.init):
                if content:
                    _fill(view[row], content, array.size)

    def _write_constant(self, block: NDArray[np.uint8], port: str) -> None:
        array = self.entry(port) if self.enters_row(port) else self.inputs[port]
        for lane, value in enumerate(self.lane_values(port)):
            number = concat([value])[0].lo if value else 0
            content = np.frombuffer(number.to_bytes(array.size, "little"), np.uint8)
            for copy in {0, array.other}:
                offset = self.input_offset(port, lane) + copy
                block[offset : offset + array.size] = content


def _fill(view: NDArray[Any], value: int, size: int) -> None:
    view[...] = value if size <= 8 else list(value.to_bytes(size, "little"))


def _row_strides(outer: tuple[int, ...], pitch: int) -> tuple[int, ...]:
    return tuple(pitch * prod(outer[axis + 1 :]) for axis in range(len(outer)))


def _operands(cell: cells.SyncRead | cells.WritePort) -> list[tuple[str, int]]:
    """Operands of a memory port that its loop takes from the main loop."""
    if isinstance(cell, cells.SyncRead):
        return [("addr", value_width(cell.addr)), ("enable", 1)]
    return [
        ("addr", value_width(cell.addr)),
        ("data", value_width(cell.data)),
        ("enable", value_width(cell.enable)),
    ]


def lanes_of_value(value: Value, lanes: int, width: int) -> list[Value]:
    """Cut a vector into its elements, in one pass over its runs."""
    result: list[list[Run]] = [[] for _ in range(lanes)]
    at = 0
    for run in value:
        done = 0
        while done < run.width:
            lane, inside = divmod(at + done, width)
            take = min(width - inside, run.width - done)
            result[lane] += slice_value((run,), done, take)
            done += take
        at += run.width
    return [tuple(runs) for runs in result]
