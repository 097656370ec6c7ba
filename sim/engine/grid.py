"""Grids of a design: joining them edge to edge, their order in a cycle, the loops over rows.

A grid input whose elements are those of another grid's output is a pointer into that grid's
arrays; nothing is copied or packed. State is updated in place, so a grid that reads another's
must run before it; where that is circular, the elements are copied before any grid runs. Inputs
that come from scalar logic are written element by element.
"""

from collections.abc import Callable, Sequence
from math import prod

from npulse.hw.grid import Edge, Flow
from npulse.sim.engine import cells
from npulse.sim.engine.cells import CONST, Cell, Value, value_width
from npulse.sim.engine.effects import Effects
from npulse.sim.engine.gridcell import CellInfo
from npulse.sim.engine.gridplan import Array, GridPlan, lanes_of_value
from npulse.sim.engine.gridrow import RowEmitter
from npulse.sim.engine.layout import LINE, Layout, align, slot_bytes
from npulse.sim.engine.text import Body, ModuleText

__all__ = ["Grids"]


class Grids:
    """All grids of one netlist.

    Attributes
    ----------
    plans : dict of int to GridPlan
        By cell of the outer netlist.
    order : list of int
        Cells, in the order in which a cycle runs them.
    copies : list of (Array, Array, int, int)
        Source, target, rows, columns: what is copied before any grid runs.
    """

    def __init__(self, netlist_cells: Sequence[Cell | None], layout: Layout) -> None:
        self.cells = netlist_cells
        self.layout = layout
        self.plans: dict[int, GridPlan] = {}
        self.copies: list[tuple[Array, Array, int, int]] = []
        for index, cell in enumerate(netlist_cells):
            if isinstance(cell, cells.GridCell):
                info = cell.grid
                assert isinstance(info, CellInfo)
                self.plans[index] = GridPlan(index, info, cell.key)
        for index, plan in self.plans.items():
            plan.place(layout)
            self._show_outputs(index, plan)
        for index, plan in self.plans.items():
            self._bind_inputs(index, plan)
        self.order = self._order()

    def _cell(self, index: int) -> cells.GridCell:
        cell = self.cells[index]
        assert isinstance(cell, cells.GridCell)
        return cell

    def _show_outputs(self, index: int, plan: GridPlan) -> None:
        """Tell the layout where each element of each output lies."""
        units = self.layout.units
        for port, (start, width) in self._cell(index).outputs.items():
            lanes = plan.lanes_of(port)
            for lane in range(lanes if width else 0):
                run = cells.Run(index, start + lane * (width // lanes), width // lanes)
                self.layout.unit[units.of_run(run)[0]] = plan.lane_offset(port, lane)

    # Joining

    def _bind_inputs(self, index: int, plan: GridPlan) -> None:
        for port, value in self._cell(index).inputs.items():
            if port not in plan.info.inputs or not value:
                continue
            lanes = lanes_of_value(
                value, plan.lanes_of(port), value_width(value) // plan.lanes_of(port)
            )
            joined = self._joined(plan, port, lanes)
            if all(run.cell == CONST for run in value):
                plan.stage(self.layout, port, value)
                plan.constants[port] = plan.staged.pop(port)
            elif joined is None:
                plan.stage(self.layout, port, value)
            else:
                plan.inputs[port], plan.bound[port] = joined

    def _joined(self, plan: GridPlan, port: str, lanes: list[Value]) -> tuple[Array, int] | None:
        """Array in another grid that the elements are, and that grid; None if they are not."""
        offsets, source = [], -1
        for lane in lanes:
            if len(lane) != 1 or lane[0].cell == CONST or lane[0].repeat:
                return None
            run = lane[0]
            kinds = (cells.GridCell, cells.Input)
            if not isinstance(self.cells[run.cell], kinds) or source not in (-1, run.cell):
                return None
            found = self.layout.units.of_run(run)
            if len(found) != 1 or self.layout.units.width[found[0]] != run.width:
                return None
            source = run.cell
            offsets.append(self.layout.unit[found[0]])
        array = self._affine(plan, port, offsets, value_width(lanes[0]))
        return None if array is None else (array, source)

    def _affine(self, plan: GridPlan, port: str, offsets: list[int], width: int) -> Array | None:
        columns = plan.columns if len(plan.shape) - 1 in plan.axes_of(port) else 1
        size = slot_bytes(max(width, 1))
        starts = offsets[::columns]
        pitch = starts[1] - starts[0] if len(starts) > 1 else 0
        array = Array(offsets[0], pitch, size, width)
        expected = [array.at(*divmod(lane, columns)) for lane in range(len(offsets))]
        return array if expected == offsets else None

    def _order(self) -> list[int]:
        """Readers before what they read; a circle is broken by copying."""
        waiting = dict.fromkeys(self.plans)
        order: list[int] = []
        while waiting:
            ready = [i for i in waiting if not self._readers(i, waiting)]
            if not ready:
                self._copy_inputs(min(waiting, key=lambda i: self._copy_cost(i, waiting)), waiting)
                continue
            for index in ready:
                order.append(index)
                del waiting[index]
        return order

    def _readers(self, index: int, waiting: dict[int, None]) -> list[int]:
        """Grids that have yet to run and read `index`."""
        return [i for i in waiting if index in self.plans[i].bound.values()]

    def _copy_cost(self, index: int, waiting: dict[int, None]) -> int:
        """Copies that would be needed a cycle to let `index` run now."""
        plans = [self.plans[reader] for reader in self._readers(index, waiting)]
        return sum(
            _blocks(plan, port)[0]
            for plan in plans
            for port, source in plan.bound.items()
            if source == index
        )

    def _copy_inputs(self, index: int, waiting: dict[int, None]) -> None:
        """Make all readers of `index` that still wait read copies."""
        for reader in self._readers(index, waiting):
            plan = self.plans[reader]
            for port in [p for p, source in plan.bound.items() if source == index]:
                source = plan.inputs[port]
                rows, columns = _blocks(plan, port)
                single = rows == 1 or columns == 1
                pitch = source.size if single else align(columns * source.size, LINE)
                self.layout.size = align(self.layout.size, LINE)
                target = Array(self.layout.size, pitch, source.size, source.width)
                self.layout.size = align(
                    self.layout.size + (rows * columns if single else rows) * pitch, LINE
                )
                self.copies.append((source, target, rows, columns))
                plan.inputs[port] = target
                del plan.bound[port]

    # Emission

    def store_inputs(self, index: int, effects: Effects) -> None:
        """Emit the stores of those inputs that scalar logic drives."""
        plan = self.plans[index]
        for port in plan.staged:
            array = plan.entry(port) if plan.enters_row(port) else plan.inputs[port]
            if array.width == 0:
                continue
            for lane, value in enumerate(plan.lane_values(port)):
                name = effects.emitter.value(value)
                offset = plan.input_offset(port, lane)
                effects.body.store(name, "%s", offset, array.size, array.width)
                if array.other:  # cheaper than to ask which copy is current
                    offset += array.other
                    effects.body.store(name, "%s", offset, array.size, array.width)

    def calls(self, module: ModuleText, masked: bool) -> list[str]:
        """Lines that run all grids in a cycle; they are declared in `module`."""
        lines = [line for n, copy in enumerate(self.copies) for line in _copy_lines(n, copy)]
        for number, index in enumerate(self.order):
            module.declare(f"declare void @grid{number}(ptr, ptr)")
            lines += _guarded_call(number, self._cell(index).event, masked)
        return lines

    def text(self) -> str:
        """Module of the functions of all grids."""
        module = ModuleText()
        for number, index in enumerate(self.order):
            GridEmitter(self.plans[index], number, module).emit()
        shows = [f"  call void @show{number}(ptr %s, ptr %m)" for number in range(len(self.order))]
        text = "\n".join(shows)
        module.functions.append(f"define void @show(ptr %s, ptr %m) {{\n{text}\n  ret void\n}}")
        return module.text()


def _blocks(plan: GridPlan, port: str) -> tuple[int, int]:
    """Rows and columns in which the elements of a joined input are contiguous."""
    lanes, array = plan.lanes_of(port), plan.inputs[port]
    columns = plan.columns if len(plan.shape) - 1 in plan.axes_of(port) else 1
    if columns == 1 and array.pitch == array.size:
        return 1, lanes
    return lanes // columns, columns


def _copy_lines(number: int, copy: tuple[Array, Array, int, int]) -> list[str]:
    source, target, rows, columns = copy
    lines = []
    for row in range(rows):
        name = f"%j{number}.{row}"
        lines += [
            f"  {name}.s = getelementptr i8, ptr %s, i64 {source.at(row, 0)}",
            f"  {name}.d = getelementptr i8, ptr %s, i64 {target.at(row, 0)}",
            f"  call void @llvm.memcpy.p0.p0.i64(ptr {name}.d, ptr {name}.s, "
            f"i64 {columns * source.size}, i1 false)",
        ]
    return lines


def _guarded_call(number: int, event: int, masked: bool) -> list[str]:
    call = f"  call void @grid{number}(ptr %s, ptr %m)"
    if event < 0:
        return []
    if not masked:
        return [call]
    return [
        f"  %g{number}.b = lshr i64 %mask, {event}",
        f"  %g{number}.t = trunc i64 %g{number}.b to i1",
        f"  br i1 %g{number}.t, label %g{number}.do, label %g{number}.end",
        f"g{number}.do:",
        call,
        f"  br label %g{number}.end",
        f"g{number}.end:",
    ]


class GridEmitter:
    """Writes ``grid<n>``, a cycle of one grid, and ``show<n>``, its computed outputs."""

    def __init__(self, plan: GridPlan, number: int, module: ModuleText) -> None:
        self.plan = plan
        self.number = number
        self.module = module
        self.rows = RowEmitter(plan)
        self.last = len(plan.shape) - 1

    def emit(self) -> None:
        """Emit both functions."""
        name = f"row{self.number}"
        arguments = self.rows.cycle_row(self.module, name)
        body = Body(self.module)
        self._open(body)
        self._for_parity(body, lambda: self._cycle(body, name, arguments))
        body.do(f"call void @show{self.number}(ptr %s, ptr %m)")
        self._close(body, f"grid{self.number}")
        self._emit_show()

    def _cycle(self, body: Body, name: str, arguments: list[str]) -> None:
        for port in self.plan.inputs:  # joined ones only: others are written there by themselves
            if self.plan.enters_row(port):
                self._walk(body, lambda row, port=port: self._enter(body, port, row))
        self._walk(body, lambda row: self._call_row(body, name, arguments, row))
        if self.plan.parity >= 0:
            at = body.address("%s", self.plan.parity)
            body.do(f"store i64 {1 - self.odd}, ptr {at}, align 8")

    def _close(self, body: Body, name: str) -> None:
        lines = "\n".join(body.lines)
        self.module.functions.append(
            f"define void @{name}(ptr noalias %s, ptr noalias %m) noinline {{\n"
            f"entry:\n{lines}\n  ret void\n}}"
        )

    def _open(self, body: Body) -> None:
        """Load the pointers of memories."""
        self.odd = 0
        self.first = True
        self.memories = {}
        for index, (number, _) in self.plan.memories.items():
            slot = body.address("%m", 8 * number)
            self.memories[index] = body.op(f"load ptr, ptr {slot}, align 8")

    def _for_parity(self, body: Body, emit: Callable[[], None]) -> None:
        """Emit for both values of the parity, so that every address is a constant from its row."""
        if self.plan.parity < 0:
            emit()
            return
        at = body.address("%s", self.plan.parity)
        parity = body.op(f"load i64, ptr {at}, align 8")
        odd = body.op(f"icmp ne i64 {parity}, 0")
        labels = [body.label("even"), body.label("odd")]
        after = body.label("both")
        body.do(f"br i1 {odd}, label %{labels[1]}, label %{labels[0]}")
        for self.odd, label in enumerate(labels):
            body.block(label)
            emit()
            body.do(f"br label %{after}")
        body.block(after)

    def _walk(self, body: Body, emit: Callable[[str], None]) -> None:
        """Emit a loop over the rows, last one first, so that flows move in place.

        Row 0 of a matrix is apart: its neighbours are the edge.
        """
        stop = 1 if self.last == 1 else 0
        if self.plan.rows > 1:
            body.count += 1
            n = body.count
            body.do(f"br label %pre{n}")
            body.block(f"pre{n}")
            body.do(f"br label %loop{n}")
            body.block(f"loop{n}")
            body.do(f"%r{n} = phi i64 [ {self.plan.rows - 1}, %pre{n} ], [ %s{n}, %latch{n} ]")
            self.first = False
            self._row(body, f"%r{n}", emit)
            body.do(f"br label %latch{n}")
            body.block(f"latch{n}")
            body.do(f"%s{n} = sub nsw i64 %r{n}, 1")
            body.do(f"%e{n} = icmp eq i64 %r{n}, {stop}")
            body.do(f"br i1 %e{n}, label %done{n}, label %loop{n}")
            body.block(f"done{n}")
        if self.plan.rows == 1 or stop:
            self.first = True
            self._row(body, "0", emit)

    def _row(self, body: Body, row: str, emit: Callable[[str], None]) -> None:
        """Emit one row, with the pointer from which its registers are constants."""
        self.base = "%s"
        if row != "0":
            offset = body.op(f"mul i64 {row}, {self.plan.pitch}")
            self.base = body.op(f"getelementptr i8, ptr %s, i64 {offset}")
        emit(row)

    # Pointers of one row

    def _row_pointer(self, body: Body, array: Array, row: str) -> str:
        """Pointer to element 0 of a row of an array that is not a register's."""
        pointer = body.address("%s", array.base)
        if row == "0":
            return pointer
        offset = body.op(f"mul i64 {row}, {array.pitch}")
        return body.op(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def _register(self, body: Body, array: Array, *, next_copy: bool = False, back: int = 0) -> str:
        """Pointer to column 0 of a register in this row, or `back` bytes before."""
        copy = array.other if self.odd != next_copy else 0
        return body.address(self.base, array.base + copy - back)

    def _coordinate(self, body: Body, row: str, axis: int) -> str:
        """Index along an outer axis of the cells of a row."""
        outer = self.plan.shape[:-1]
        inner = prod(outer[axis + 1 :])
        name = body.op(f"udiv i64 {row}, {inner}") if inner > 1 else row
        return body.op(f"urem i64 {name}, {outer[axis]}") if axis else name

    def _port_row(self, body: Body, port: str, row: str) -> str:
        """Row of a port's array that belongs to a row of cells."""
        if row == "0":
            return "0"
        axes = [axis for axis in self.plan.axes_of(port) if axis != self.last]
        if axes == list(range(self.last)):
            return row
        result = "0"
        for axis in axes:
            scaled = body.op(f"mul i64 {result}, {self.plan.shape[axis]}")
            result = body.op(f"add i64 {scaled}, {self._coordinate(body, row, axis)}")
        return result

    def _input_pointer(self, body: Body, port: str, row: str) -> str:
        role = self.plan.info.role(port)
        if self.plan.enters_row(port):
            return self._register(body, self.plan.entry(port))
        edge = self._row_pointer(body, self.plan.inputs[port], self._port_row(body, port, row))
        if not isinstance(role, Flow):
            return edge
        array = self.plan.registers[self.plan.info.flows[port[:-2]]]
        if self.plan.shape[role.axis] == 1:
            return edge
        back = self.plan.pitch * prod(self.plan.shape[role.axis + 1 : -1])
        if self.last == 1:
            return edge if self.first else self._register(body, array, back=back)
        neighbour = self._register(body, array, back=back)
        first = body.op(f"icmp eq i64 {self._coordinate(body, row, role.axis)}, 0")
        return body.op(f"select i1 {first}, ptr {edge}, ptr {neighbour}")

    def _enter(self, body: Body, port: str, row: str) -> None:
        """Copy the edge of another grid into column -1, well before the row is read."""
        source, target = self.plan.inputs[port], self.plan.entry(port)
        edge = self._row_pointer(body, source, self._port_row(body, port, row))
        bits, step = 8 * target.size, min(target.size, 8)
        value = body.op(f"load i{bits}, ptr {edge}, align {step}")
        body.do(f"store i{bits} {value}, ptr {self._register(body, target)}, align {step}")

    def _pointer(self, body: Body, argument: str, row: str) -> str:
        kind, rest = argument[0], argument[1:]
        if kind == "i":
            return self._input_pointer(body, rest[1:], row)
        if kind in "qn":
            return self._register(body, self.plan.registers[int(rest)], next_copy=kind == "n")
        if kind == "m":
            array = self.plan.memories[int(rest)][1]
            if row == "0":
                return self.memories[int(rest)]
            offset = body.op(f"mul i64 {row}, {array.pitch}")
            return body.op(f"getelementptr i8, ptr {self.memories[int(rest)]}, i64 {offset}")
        index, name = rest.split("_", 1)
        return body.address("%s", self.plan.temps[int(index), name].base)

    def _call_row(self, body: Body, name: str, arguments: list[str], row: str) -> None:
        given = [f"ptr {self._pointer(body, argument, row)}" for argument in arguments]
        body.do(f"call void @{name}({', '.join(given)})")

    # Outputs that are not plain registers

    def _emit_show(self) -> None:
        body = Body(self.module)
        self._open(body)
        shown = [port for port in self.plan.computed if self.plan.outputs[port].width]
        walks = [self._show(port) for port in shown]

        def emit() -> None:
            for walk in walks:
                walk(body)

        self._for_parity(body, emit)
        self._close(body, f"show{self.number}")

    def _show(self, port: str) -> Callable[[Body], None]:
        """Emit the function of one row of an output; returns what emits the walk over the rows."""
        role = self.plan.info.role(port)
        axis = role.axis if isinstance(role, (Flow, Edge)) else None
        columns = 1 if axis == self.last else self.plan.columns
        name = f"show{self.number}_{port}"
        arguments = self.rows.output_row(self.module, name, port, columns)

        def emit(body: Body, row: str) -> None:
            if axis is None or axis == self.last or self.plan.shape[axis] == 1:
                self._call_show(body, name, port, arguments, row, axis)
                return
            if row == "0":
                return
            at = self._coordinate(body, row, axis)
            last = body.op(f"icmp eq i64 {at}, {self.plan.shape[axis] - 1}")
            inside, after = body.label("edge"), body.label("next")
            body.do(f"br i1 {last}, label %{inside}, label %{after}")
            body.block(inside)
            self._call_show(body, name, port, arguments, row, axis)
            body.do(f"br label %{after}")
            body.block(after)

        return lambda body: self._walk(body, lambda row: emit(body, row))

    def _call_show(
        self, body: Body, name: str, port: str, arguments: list[str], row: str, axis: int | None
    ) -> None:
        given = []
        for argument in arguments:
            if argument == "out":
                where = self._port_row(body, port, row)
                pointer = self._row_pointer(body, self.plan.outputs[port], where)
            else:
                pointer = self._pointer(body, argument, row)
                if axis == self.last and argument[0] in "qm":
                    pointer = self._last_column(body, argument, pointer)
            given.append(f"ptr {pointer}")
        body.do(f"call void @{name}({', '.join(given)})")

    def _last_column(self, body: Body, argument: str, pointer: str) -> str:
        index = int(argument[1:])
        array = self.plan.memories[index][1] if argument[0] == "m" else self.plan.registers[index]
        return body.op(
            f"getelementptr i8, ptr {pointer}, i64 {(self.plan.columns - 1) * array.size}"
        )
