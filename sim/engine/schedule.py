"""Order of evaluation: units, the cuts that break false loops, and what is alive.

A unit is a range of bits of one cell's output that is computed at once. Cells start whole, but
for assignment lists (cut where assignments start and end) and priority matches (one bit a unit).
A depth-first walk from the sinks orders them. Where it closes a loop, the strongly connected
units are cut to bits; the netlist's own rule is per bit, so a legal design always converges.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence

from npulse.sim.engine import cells
from npulse.sim.engine.cells import CONST, Cell, Run, Value, slice_value

__all__ = ["Loop", "Units", "sinks_of"]

#: Operators whose bit n depends on bit n of the operands only.
BITWISE = frozenset({"~", "&", "|", "^", "m"})


class Loop(Exception):
    """Some bit of the design depends combinationally on itself."""


class Units:
    """Ranges of bits, numbered, of all the cells of a netlist.

    Attributes
    ----------
    cell, lo, width : list of int
        By unit.
    """

    def __init__(self, netlist_cells: Sequence[Cell | None]) -> None:
        self.cells = netlist_cells
        self.cuts: dict[int, list[int]] = {}
        for index, cell in enumerate(netlist_cells):
            if cell is not None and cell.width:
                self.cuts[index] = _initial_cuts(cell)
        self._number()

    def _number(self) -> None:
        self.cell: list[int] = []
        self.lo: list[int] = []
        self.width: list[int] = []
        self.first: dict[int, int] = {}
        for index, cuts in self.cuts.items():
            self.first[index] = len(self.cell)
            ends = [*cuts[1:], self.cells[index].width]  # type: ignore[union-attr]
            for lo, end in zip(cuts, ends, strict=True):
                self.cell.append(index)
                self.lo.append(lo)
                self.width.append(end - lo)
        self._deps: list[list[int] | None] = [None] * len(self.cell)

    def of_run(self, run: Run) -> range:
        """Units that hold the bits of `run`."""
        cuts, first = self.cuts[run.cell], self.first[run.cell]
        if len(cuts) == 1:
            return range(first, first + 1)
        last = run.lo if run.repeat else run.lo + run.width - 1
        return range(first + bisect_right(cuts, run.lo) - 1, first + bisect_right(cuts, last))

    def of_values(self, values: Iterator[Value] | Sequence[Value]) -> list[int]:
        """Units, each once, that hold the bits of `values`, in order."""
        found = dict.fromkeys(
            unit
            for value in values
            for run in value
            if run.cell != CONST and run.width
            for unit in self.of_run(run)
        )
        return list(found)

    def deps(self, unit: int) -> list[int]:
        """Units that `unit` is computed from; none for state."""
        known = self._deps[unit]
        if known is None:
            known = self._deps[unit] = self.of_values(self.operands(unit))
        return known

    def operands(self, unit: int) -> list[Value]:
        """Values that `unit` reads combinationally."""
        cell, lo, width = self.cells[self.cell[unit]], self.lo[unit], self.width[unit]
        match cell:
            case cells.Operator(op="m"):
                return [cell.inputs[0], *(slice_value(v, lo, width) for v in cell.inputs[1:])]
            case cells.Operator(op="~" | "&" | "|" | "^"):
                return [slice_value(value, lo, width) for value in cell.inputs]
            case cells.Operator():
                return list(cell.inputs)
            case cells.Part():
                return [cell.value, cell.offset]
            case cells.Matches():
                return [cell.value]
            case cells.Priority():
                return [cell.enable, *cell.inputs[: lo + width]]
            case cells.Select():
                return _select_operands(cell, lo, width)
            case cells.Register(arst=arst) if arst is not None:
                return [arst]
            case cells.AsyncRead():
                return [cell.addr]
        return []

    def is_state(self, unit: int) -> bool:
        """Whether `unit` is read from the state block instead of being computed."""
        cell = self.cells[self.cell[unit]]
        if isinstance(cell, cells.Register):
            return cell.arst is None
        return isinstance(cell, (cells.Input, cells.SyncRead, cells.GridCell))

    def order(
        self, roots: Sequence[Sequence[int]], late: Collection[int] = ()
    ) -> list[tuple[int, int]]:
        """Post-order of what the roots need.

        Parameters
        ----------
        roots : sequence of sequence of int
            Units that each sink reads.
        late : collection of int
            Roots to put after all units and other roots: those that change what units read.

        Returns
        -------
        list of (int, int)
            ``(0, unit)`` to compute, ``(1, index of the root)`` once its units are ready.

        Raises
        ------
        Cut
            Units of a loop have been cut; unit numbers have changed, so start again.
        """
        result: list[tuple[int, int]] = []
        done = bytearray(len(self.cell))  # 1 on the path, 2 finished
        for index, root in enumerate(roots):
            for unit in root:
                self._visit(unit, done, result)
            if index not in late:
                result.append((1, index))
        return result + [(1, index) for index in sorted(late)]

    def _visit(self, start: int, done: bytearray, result: list[tuple[int, int]]) -> None:
        if done[start]:
            return
        done[start] = 1
        stack = [(start, iter(self.deps(start)))]
        while stack:
            unit, rest = stack[-1]
            for dep in rest:
                if done[dep] == 1:
                    self._cut_loop(dep)
                    raise Cut
                if not done[dep]:
                    done[dep] = 1
                    stack.append((dep, iter(self.deps(dep))))
                    break
            else:
                stack.pop()
                done[unit] = 2
                if not self.is_state(unit):
                    result.append((0, unit))

    def _cut_loop(self, start: int) -> None:
        cut = False
        for unit in _component(start, self.deps):
            index = self.cell[unit]
            cell = self.cells[index]
            bitwise = isinstance(cell, cells.Operator) and cell.op in BITWISE
            if self.width[unit] > 1 and (bitwise or isinstance(cell, cells.Select)):
                lo = self.lo[unit]
                bits = range(lo, lo + self.width[unit])
                self.cuts[index] = sorted({*self.cuts[index], *bits})
                cut = True
        if not cut:
            raise Loop
        self._number()


class Cut(Exception):
    """Raised by `Units.order` when it has renumbered the units."""


def _initial_cuts(cell: Cell) -> list[int]:
    if isinstance(cell, (cells.Input, cells.GridCell)) and cell.cuts:
        return list(cell.cuts)
    if isinstance(cell, cells.Priority):
        return list(range(cell.width))
    if isinstance(cell, cells.Select):
        ends = {0}
        for arm in cell.arms:
            ends |= {arm.start, arm.start + arm.width}
        return sorted(end for end in ends if 0 <= end < cell.width)
    return [0]


def _select_operands(cell: cells.Select, lo: int, width: int) -> list[Value]:
    values = [slice_value(cell.default, lo, width)]
    for arm in cell.arms:
        if arm.start < lo + width and lo < arm.start + arm.width:
            values += [arm.cond, slice_value(arm.value, lo - arm.start, width)]
    return values


def _component(start: int, deps) -> list[int]:  # type: ignore[no-untyped-def]
    """Units that both reach `start` and are reached from it."""
    reached = _reach(start, deps)
    back: dict[int, list[int]] = {}
    for unit in reached:
        for dep in deps(unit):
            back.setdefault(dep, []).append(unit)
    return list(_reach(start, lambda unit: back.get(unit, ())))


def _reach(start: int, edges) -> dict[int, None]:  # type: ignore[no-untyped-def]
    seen, stack = {start: None}, [start]
    while stack:
        for unit in edges(stack.pop()):
            if unit not in seen:
                seen[unit] = None
                stack.append(unit)
    return seen


def sinks_of(netlist_cells: Sequence[Cell | None]) -> list[tuple[int, list[Value]]]:
    """Cells with an effect on a clock edge, and what they read, in the order to perform them.

    Registers and grids first, then synchronous reads, then writes: a read sees old data.
    """
    groups: list[list[tuple[int, list[Value]]]] = [[], [], [], []]
    for index, cell in enumerate(netlist_cells):
        match cell:
            case cells.Register():
                extra = [cell.arst] if cell.arst is not None else []
                groups[0].append((index, [cell.data, *extra]))
            case cells.GridCell():
                values = [value for port, value in cell.inputs.items() if port != "clk"]
                groups[0].append((index, values))
            case cells.Check():
                groups[1].append((index, check_values(cell)))
            case cells.SyncRead():
                groups[2].append((index, _read_values(cell, netlist_cells)))
            case cells.WritePort():
                groups[3].append((index, [cell.addr, cell.data, cell.enable]))
    return [sink for group in groups for sink in group]


def check_values(cell: cells.Check) -> list[Value]:
    """What a print or property reads: enable, test, then its arguments."""
    values = [chunk[0] for chunk in cell.chunks or () if not isinstance(chunk, str)]
    return [cell.enable, cell.test, *values]


def _read_values(cell: cells.SyncRead, netlist_cells: Sequence[Cell | None]) -> list[Value]:
    values = [cell.addr, cell.enable]
    for index in cell.transparent:
        port = netlist_cells[index]
        assert isinstance(port, cells.WritePort)
        values += [port.addr, port.data, port.enable]
    return values
