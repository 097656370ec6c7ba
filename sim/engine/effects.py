"""What happens on a clock edge: next values of registers, memory reads and writes, checks."""

from collections.abc import Callable
from typing import Any

from npulse.sim.engine import cells
from npulse.sim.engine.cells import CONST, Value, slice_value, value_width
from npulse.sim.engine.layout import Control, slot_bytes
from npulse.sim.engine.scalar import Emitter
from npulse.sim.engine.schedule import check_values
from npulse.sim.engine.text import Body

__all__ = ["Effects"]


class Effects:
    """Emits the sinks of one netlist through an `Emitter`.

    Only if `masked`, effects depend on the edges of the step. `grids` are the `Grids` of the
    netlist.
    """

    def __init__(self, emitter: Emitter, masked: bool, grids: Any = None) -> None:
        self.emitter = emitter
        self.grids = grids
        self.cells = emitter.cells
        self.layout = emitter.layout
        self.masked = masked

    @property
    def body(self) -> Body:
        """The function being written."""
        return self.emitter.body

    def emit(self, index: int) -> None:
        """Emit the effect of cell `index`."""
        match self.cells[index]:
            case cells.Register() as cell:
                self._register(index, cell)
            case cells.SyncRead() as cell:
                self._sync_read(index, cell)
            case cells.WritePort() as cell:
                self._write(index, cell)
            case cells.Check() as cell:
                self._check(index, cell)
            case cells.GridCell():
                self.grids.store_inputs(index, self)
            case cell:
                raise AssertionError(f"{type(cell).__name__} has no effect")

    def fires(self, event: int) -> str:
        """Emit whether `event` is among the edges of this step."""
        if event < 0:
            return "0"
        if not self.masked:
            return "1"
        bit = self.body.op(f"lshr i64 %mask, {event}")
        return self.body.op(f"trunc i64 {bit} to i1")

    def _next(self, index: int, name: str, width: int) -> None:
        offset = self.layout.state[index] + self.layout.shadow
        self.body.store(name, "%s", offset, slot_bytes(width), width)

    def _current(self, index: int, width: int) -> str:
        return self.body.load("%s", self.layout.state[index], slot_bytes(width), width)

    def _register(self, index: int, cell: cells.Register) -> None:
        if cell.width == 0:
            return
        name, width = self.emitter.value(cell.data), cell.width
        if cell.arst is not None:
            fires = self.fires(cell.event)
            stored = self._current(index, width)
            name = self.body.op(f"select i1 {fires}, i{width} {name}, i{width} {stored}")
            reset = self.emitter.value(cell.arst)
            name = self.body.op(f"select i1 {reset}, i{width} {cell.init}, i{width} {name}")
        self._next(index, name, width)

    def _sync_read(self, index: int, cell: cells.SyncRead) -> None:
        if cell.width == 0:
            return
        width, body = cell.width, self.body
        name, _ = self.emitter.read_row(cell.memory, cell.addr)
        for port in cell.transparent:
            name = self._bypass(name, cell, port)
        enable = self.emitter.value(cell.enable)
        if enable != "1":
            stored = self._current(index, width)
            name = body.op(f"select i1 {enable}, i{width} {name}, i{width} {stored}")
        self._next(index, name, width)

    def _bypass(self, name: str, cell: cells.SyncRead, index: int) -> str:
        """Replace the bits that `index` writes to the same address on this edge."""
        port = self.cells[index]
        assert isinstance(port, cells.WritePort)
        width, body, value = cell.width, self.body, self.emitter.value
        bits = max(value_width(cell.addr), value_width(port.addr))
        same = "1"
        if bits:
            left, right = (
                body.resize(value(addr), value_width(addr), bits) for addr in (cell.addr, port.addr)
            )
            same = body.op(f"icmp eq i{bits} {left}, {right}")
        mask = body.op(f"select i1 {same}, i{width} {value(port.enable)}, i{width} 0")
        kept = body.op(f"xor i{width} {mask}, -1")
        kept = body.op(f"and i{width} {name}, {kept}")
        written = body.op(f"and i{width} {value(port.data)}, {mask}")
        return body.op(f"or i{width} {kept}, {written}")

    def _write(self, index: int, cell: cells.WritePort) -> None:
        memory = self.cells[cell.memory]
        assert isinstance(memory, cells.Memory)
        groups = enable_groups(cell.enable)
        if not groups or memory.depth == 0:
            return
        go = self._any(groups)
        if self.masked:
            go = self.body.op(f"and i1 {go}, {self.fires(cell.event)}")
        self._guarded(go, lambda: self._write_row(cell, memory, groups))

    def _any(self, groups: list[tuple[int, int, Value]]) -> str:
        name = ""
        for _, _, bit in groups:
            one = self.emitter.value(bit)
            name = self.body.op(f"or i1 {name}, {one}") if name else one
        return name

    def _guarded(self, cond: str, emit: Callable[[], None]) -> None:
        """Emit a block that runs if `cond`; what is first named inside stays inside."""
        if cond == "0":
            return
        if cond == "1":
            emit()
            return
        body = self.body
        inside, after = body.label("do"), body.label("end")
        body.do(f"br i1 {cond}, label %{inside}, label %{after}")
        body.block(inside)
        saved = [dict(d) for d in self._caches()]
        emit()
        for cache, old in zip(self._caches(), saved, strict=True):
            cache.clear()
            cache.update(old)
        body.do(f"br label %{after}")
        body.block(after)

    def _caches(self) -> list[dict]:
        emitter = self.emitter
        return [emitter.known, emitter.extracts, emitter.pointers, emitter.chains]

    def _write_row(
        self, cell: cells.WritePort, memory: cells.Memory, groups: list[tuple[int, int, Value]]
    ) -> None:
        pointer, inside = self.emitter.row_pointer(cell.memory, cell.addr)
        slot, width = self.layout.stride[cell.memory], memory.width

        def store() -> None:
            if len(groups) == 1 and groups[0][1] == width:
                self.body.store(self.emitter.value(cell.data), pointer, 0, slot, width)
            elif len(groups) <= 8 and _by_bytes(groups, slot):
                self._write_bytes(cell, groups, pointer)
            else:
                self._write_masked(cell, pointer, slot, width)

        self._guarded(inside, store)

    def _write_bytes(
        self, cell: cells.WritePort, groups: list[tuple[int, int, Value]], pointer: str
    ) -> None:
        for lo, width, enable in groups:
            data = slice_value(cell.data, lo, width)

            def store(lo: int = lo, width: int = width, data: Value = data) -> None:
                at = self.body.address(pointer, lo // 8)
                self.body.do(f"store i{width} {self.emitter.value(data)}, ptr {at}, align 1")

            self._guarded(self.emitter.value(enable), store)

    def _write_masked(self, cell: cells.WritePort, pointer: str, slot: int, width: int) -> None:
        body = self.body
        old = body.load(pointer, 0, slot, width)
        mask = self.emitter.value(cell.enable)
        data = body.op(f"and i{width} {self.emitter.value(cell.data)}, {mask}")
        kept = body.op(f"xor i{width} {mask}, -1")
        kept = body.op(f"and i{width} {old}, {kept}")
        name = body.op(f"or i{width} {data}, {kept}")
        body.store(name, pointer, 0, slot, width)

    def _check(self, index: int, cell: cells.Check) -> None:
        cond = self.emitter.value(cell.enable)
        if cell.kind != "print":
            test = self.emitter.value(cell.test)
            if cell.kind != "cover":
                test = self.body.op(f"xor i1 {test}, 1")
            cond = self.body.op(f"and i1 {cond}, {test}")
        if cell.event >= 0 and self.masked:
            cond = self.body.op(f"and i1 {cond}, {self.fires(cell.event)}")
        arguments = [(v, self.emitter.value(v)) for v in check_values(cell)[2:]]
        self._guarded(cond, lambda: self._record(index, arguments))

    def _record(self, index: int, arguments: list[tuple[Value, str]]) -> None:
        flag, *places = self.layout.checks[index]
        one = self.body.address("%s", flag)
        self.body.do(f"store i64 1, ptr {one}, align 8")
        for (value, name), offset in zip(arguments, places, strict=True):
            width = value_width(value)
            if width:
                self.body.store(name, "%s", offset, slot_bytes(width), width)
        stop = self.body.address("%s", Control.STOP)
        self.body.do(f"store i64 1, ptr {stop}, align 8")


def enable_groups(enable: Value) -> list[tuple[int, int, Value]]:
    """Ranges of data bits that share an enable that may be 1: ``(lo, width, enable bit)``."""
    groups: list[tuple[int, int, Value]] = []
    at = 0
    for run in enable:
        for bit in range(1 if run.repeat else run.width):
            width = run.width if run.repeat else 1
            one = slice_value((run,), bit, 1)
            if groups and groups[-1][2] == one and sum(groups[-1][:2]) == at:
                lo, old, _ = groups.pop()
                groups.append((lo, old + width, one))
            else:
                groups.append((at, width, one))
            at += width
    off = ((CONST, 0, 1, False),)
    return [group for group in groups if group[2] != off]


def _by_bytes(groups: list[tuple[int, int, Value]], slot: int) -> bool:
    return slot * 8 == sum(width for _, width, _ in groups) and all(
        lo % 8 == 0 and width % 8 == 0 for lo, width, _ in groups
    )
