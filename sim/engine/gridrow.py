"""Loops over one row of a grid: the cell's logic for each column, then its memory ports.

The first loop computes the next state of all registers, and what the memory ports take. It has no
memory writes to its own inputs, so that it is vectorised. Reads and writes of memories follow in
loops of their own, reads first. Values that depend on shared inputs only are computed once.
"""

from collections.abc import Callable

from npulse.hw.grid import Broadcast
from npulse.sim.engine import cells
from npulse.sim.engine.cells import Value, value_width
from npulse.sim.engine.effects import enable_groups
from npulse.sim.engine.gridplan import Array, GridPlan
from npulse.sim.engine.layout import Layout, slot_bytes
from npulse.sim.engine.scalar import Emitter
from npulse.sim.engine.text import Body, ModuleText

__all__ = ["INLINE_COLUMNS", "RowEmitter"]

#: Rows up to here are inlined into the loop over rows: the call would cost more than it hides.
INLINE_COLUMNS = 64
#: Bytes of a vector register; 32 also measures well where the machine has 64.
VECTOR_BYTES = 32


class RowEmitter(Emitter):
    """Writes the functions that walk one row."""

    def __init__(self, plan: GridPlan) -> None:
        self.plan = plan
        self.info = plan.info
        self.ports = {unit: port for port, unit in self.info.inputs.items()}
        self.column = ""
        self.arguments: dict[str, None] = {}
        self.fixed: set[int] = set()
        empty = Layout(self.info.net.cells, self.info.units)
        super().__init__(self.info.net.cells, self.info.units, empty)

    def begin(self, module: ModuleText) -> Body:
        """Start a function whose pointer arguments are noted as they are used."""
        self.arguments = {}
        return super().begin(module)

    def argument(self, name: str) -> str:
        """Pointer argument `name`; the caller of the function supplies it."""
        self.arguments[name] = None
        return f"%{name}"

    # Where state is

    def element(self, pointer: str, size: int) -> str:
        """Address of this column in a row."""
        if size <= 8:
            return self.body.op(
                f"getelementptr inbounds i{8 * size}, ptr {pointer}, i64 {self.column}"
            )
        return self.body.op(
            f"getelementptr inbounds [{size} x i8], ptr {pointer}, i64 {self.column}"
        )

    def load_unit(self, unit: int) -> str:
        """Read a register of this cell, or one of its inputs."""
        index = self.units.cell[unit]
        if index in self.plan.registers:
            return self._load_element(self.argument(f"q{index}"), self.plan.registers[index])
        port = self.ports.get(unit)
        if port is None or not self.plan.is_connected(port):
            return self._unconnected(unit)
        array = self.plan.entry(port) if self.plan.enters_row(port) else self.plan.inputs[port]
        pointer = self.argument(f"i_{port}")
        if self.is_scalar(port):
            return self.body.load(pointer, 0, array.size, array.width)
        return self._load_element(pointer, array)

    def _unconnected(self, unit: int) -> str:
        """Value of an undriven signal inside the cell: its initial value."""
        cell = self.cells[self.units.cell[unit]]
        assert isinstance(cell, cells.Input)
        return str(cell.init >> self.units.lo[unit] & (1 << self.units.width[unit]) - 1)

    def _load_element(self, pointer: str, array: Array) -> str:
        return self.body.load(self.element(pointer, array.size), 0, array.size, array.width)

    def is_scalar(self, port: str) -> bool:
        """Whether all columns of a row share the input."""
        role = self.info.role(port)
        shared = len(self.plan.shape) - 1 not in self.plan.axes_of(port)
        return role is None or (isinstance(role, Broadcast) and shared)

    def memory_pointer(self, memory: int) -> str:
        """Pointer to row 0 of a memory of the cells, at column 0."""
        return self.argument(f"m{memory}")

    def row_address(self, index: int, base: str, row: str) -> str:
        """Emit the address of a word in the column's own memory."""
        array = self.plan.memories[index][1]
        scaled = self.body.op(f"mul i64 {row}, {array.pitch * self.plan.rows}")
        word = self.body.op(f"getelementptr i8, ptr {base}, i64 {scaled}")
        return self.element(word, array.size)

    def row_pointer(self, index: int, addr: Value) -> tuple[str, str]:
        """As `Emitter.row_pointer`; address width 0 still needs the column."""
        if value_width(addr) == 0:
            base = self.row_address(index, self.memory_pointer(index), "0")
            memory = self.cells[index]
            assert isinstance(memory, cells.Memory)
            return base, "1" if memory.depth else "0"
        return super().row_pointer(index, addr)

    # Loops

    def loop(self, count: int, emit: Callable[[], None], lanes: int = 0) -> None:
        """Emit `emit` for each column; what it names does not outlive it.

        With `lanes`, have the loop vectorised by that many elements.
        """
        body = self.body
        body.count += 1
        n = body.count
        body.do(f"br label %pre{n}")
        body.block(f"pre{n}")
        body.do(f"br label %loop{n}")
        body.block(f"loop{n}")
        body.do(f"%c{n} = phi i64 [ 0, %pre{n} ], [ %d{n}, %latch{n} ]")
        caches = (self.known, self.extracts, self.pointers, self.chains)
        saved = [dict(cache) for cache in caches]
        self.column = f"%c{n}"
        emit()
        for cache, old in zip(caches, saved, strict=True):
            cache.clear()
            cache.update(old)  # type: ignore[arg-type]
        body.do(f"br label %latch{n}")
        body.block(f"latch{n}")
        body.do(f"%d{n} = add nuw nsw i64 %c{n}, 1")
        body.do(f"%e{n} = icmp eq i64 %d{n}, {count}")
        hint = body.module.lanes_hint(lanes) if lanes > 1 else ""
        body.do(f"br i1 %e{n}, label %done{n}, label %loop{n}{hint}")
        body.block(f"done{n}")

    def cycle_row(self, module: ModuleText, name: str) -> list[str]:
        """Emit the function of one cycle of one row; returns its arguments."""
        body = self.begin(module)
        self._emit_uniform()
        self.loop(self.plan.columns, self._logic, self._lanes())
        for index, cell in enumerate(self.cells):
            if isinstance(cell, cells.SyncRead) and cell.width:
                self.loop(self.plan.columns, lambda i=index, c=cell: self._read(i, c))
        for index, cell in enumerate(self.cells):
            if isinstance(cell, cells.WritePort):
                self.loop(self.plan.columns, lambda i=index, c=cell: self._write(i, c))
        return self._finish(module, body, name)

    def output_row(self, module: ModuleText, name: str, port: str, columns: int) -> list[str]:
        """Emit the function that computes an output for `columns` cells of a row."""
        body = self.begin(module)
        value = self.info.outputs[port]
        array = self.plan.outputs[port]
        order = self.units.order([self.units.of_values([value])])

        def emit() -> None:
            for kind, unit in order:
                if not kind:
                    self.compute(unit)
            if array.width:
                self._store(self.argument("out"), array, self.value(value))

        self.loop(columns, emit)
        return self._finish(module, body, name)

    def _finish(self, module: ModuleText, body: Body, name: str) -> list[str]:
        arguments = list(self.arguments)
        text = ", ".join(f"ptr noalias %{argument}" for argument in arguments)
        hint = "alwaysinline" if self.plan.columns <= INLINE_COLUMNS else "noinline"
        lines = "\n".join(body.lines)
        module.functions.append(
            f"define internal void @{name}({text}) {hint} {{\nentry:\n{lines}\n  ret void\n}}"
        )
        return arguments

    def _lanes(self) -> int:
        """Elements at once: as many of the widest as fill two vectors, measured best; 0 if wide."""
        widths = [array.width for array in self.plan.registers.values()]
        for cell in self.cells:
            if isinstance(cell, cells.Operator) and cell.op in ("+", "-", "*"):
                widths.append(cell.width - (cell.op != "*"))  # a carry is seldom kept
        widest = slot_bytes(max(widths, default=1))
        if widest > 8:
            return 0
        most = min(VECTOR_BYTES, 2 * VECTOR_BYTES // widest, self.plan.columns)
        return 1 << most.bit_length() - 1

    def _emit_uniform(self) -> None:
        """Emit what is the same in all columns, before the loops."""
        self.fixed = {
            unit
            for unit, port in self.ports.items()
            if self.plan.is_connected(port) and self.is_scalar(port)
        }
        for unit in self.fixed:
            self.of_unit(unit)
        for kind, unit in self.info.order:
            if kind or isinstance(self.cells[self.units.cell[unit]], cells.AsyncRead):
                continue
            deps = self.units.deps(unit)
            if deps and all(dep in self.fixed for dep in deps):
                self.fixed.add(unit)
                self.compute(unit)

    def _store(self, pointer: str, array: Array, name: str) -> None:
        self.body.store(name, self.element(pointer, array.size), 0, array.size, array.width)

    def _logic(self) -> None:
        """Emit the next state of one cell: all loads and arithmetic, then all stores."""
        for kind, unit in self.info.order:
            if not kind and unit not in self.fixed:
                self.compute(unit)
        stores: list[tuple[str, Array, str]] = []
        for index, cell in enumerate(self.cells):
            if isinstance(cell, cells.Register) and cell.width:
                array = self.plan.registers[index]
                target = self.argument(f"n{index}" if array.other else f"q{index}")
                stores.append((target, array, self.value(cell.data)))
            elif isinstance(cell, (cells.SyncRead, cells.WritePort)):
                stores += self._port_operands(index, cell)
        for target, array, name in stores:
            self._store(target, array, name)

    def _port_operands(
        self, index: int, cell: cells.SyncRead | cells.WritePort
    ) -> list[tuple[str, Array, str]]:
        stores = []
        for name in ("addr", "data", "enable"):
            value = getattr(cell, name, None)
            if value and not self._is_constant(value):
                array = self.plan.temps[index, name]
                stores.append((self.argument(f"t{index}_{name}"), array, self.value(value)))
        return stores

    def _is_constant(self, value: Value) -> bool:
        """Whether the operand is known before the loops."""
        return all(unit in self.fixed for unit in self.units.of_values([value]))

    def _operand(self, index: int, name: str, value: Value) -> str:
        """Operand of a memory port inside its own loop."""
        if self._is_constant(value):
            return self.value(value)
        array = self.plan.temps[index, name]
        return self._load_element(self.argument(f"t{index}_{name}"), array)

    # Memory ports

    def _address(self, index: int, cell: cells.SyncRead | cells.WritePort) -> tuple[str, str]:
        """Emit the pointer to the addressed word, word 0 if out of range, and whether in range."""
        memory = self.cells[cell.memory]
        assert isinstance(memory, cells.Memory)
        bits = value_width(cell.addr)
        if bits == 0:
            return self.row_pointer(cell.memory, cell.addr)
        name, inside = self._operand(index, "addr", cell.addr), "1"
        if memory.depth < 1 << bits:
            inside = self.body.op(f"icmp ult i{bits} {name}, {memory.depth}")
            name = self.body.op(f"select i1 {inside}, i{bits} {name}, i{bits} 0")
        row = self.body.resize(name, bits, 64)
        return self.row_address(cell.memory, self.memory_pointer(cell.memory), row), inside

    def _read(self, index: int, cell: cells.SyncRead) -> None:
        body, width = self.body, cell.width
        array = self.plan.registers[index]
        pointer, inside = self._address(index, cell)
        name = body.load(pointer, 0, array.size, width) if inside != "0" else "0"
        if inside not in ("0", "1"):
            name = body.op(f"select i1 {inside}, i{width} {name}, i{width} 0")
        for port in cell.transparent:
            name = self._bypass(name, index, cell, port)
        enable = self._operand(index, "enable", cell.enable)
        if enable != "1":
            old = self._load_element(self.argument(f"q{index}"), array)
            name = body.op(f"select i1 {enable}, i{width} {name}, i{width} {old}")
        self._store(self.argument(f"q{index}"), array, name)

    def _bypass(self, name: str, index: int, cell: cells.SyncRead, port: int) -> str:
        write = self.cells[port]
        assert isinstance(write, cells.WritePort)
        body, width, bits = self.body, cell.width, value_width(cell.addr)
        same = "1"
        if bits:
            left = self._operand(index, "addr", cell.addr)
            right = self._operand(port, "addr", write.addr)
            same = body.op(f"icmp eq i{bits} {left}, {right}")
        mask = self._operand(port, "enable", write.enable)
        mask = body.op(f"select i1 {same}, i{width} {mask}, i{width} 0")
        kept = body.op(f"and i{width} {name}, {body.op(f'xor i{width} {mask}, -1')}")
        written = body.op(f"and i{width} {self._operand(port, 'data', write.data)}, {mask}")
        return body.op(f"or i{width} {kept}, {written}")

    def _write(self, index: int, cell: cells.WritePort) -> None:
        memory = self.cells[cell.memory]
        assert isinstance(memory, cells.Memory)
        body, width = self.body, memory.width
        if not width or not memory.depth or not (groups := enable_groups(cell.enable)):
            return
        mask = self._operand(index, "enable", cell.enable)
        go = body.op(f"icmp ne i{width} {mask}, 0")
        inside, after = body.label("put"), body.label("past")
        body.do(f"br i1 {go}, label %{inside}, label %{after}")
        body.block(inside)
        pointer, in_range = self._address(index, cell)
        data = self._operand(index, "data", cell.data)
        size = slot_bytes(width)
        if len(groups) > 1 or groups[0][1] != width or in_range != "1":
            old = body.load(pointer, 0, size, width)
            if in_range != "1":
                mask = body.op(f"select i1 {in_range}, i{width} {mask}, i{width} 0")
            kept = body.op(f"and i{width} {old}, {body.op(f'xor i{width} {mask}, -1')}")
            data = body.op(f"or i{width} {kept}, {body.op(f'and i{width} {data}, {mask}')}")
        body.store(data, pointer, 0, size, width)
        body.do(f"br label %{after}")
        body.block(after)
