"""Wires that are no logic: assignment lists whose every bit is assigned unconditionally.

Ports of submodules and connections of slices arrive as such lists. Reading through them saves
copies, and lets a grid see that its input is another grid's output.
"""

from npulse.sim.engine import cells
from npulse.sim.engine.cells import CONST, Run, Value, concat, slice_value
from npulse.sim.engine.netlist import Netlist
from npulse.sim.engine.schedule import Loop

__all__ = ["simplify"]


def simplify(netlist: Netlist) -> None:
    """Replace, in place, each use of a plain wire by what the wire carries.

    Raises
    ------
    Loop
        If a wire carries itself.
    """
    wires = _Wires(netlist)
    for cell in netlist.cells:
        if cell is not None:
            _rewrite(cell, wires)
    for signal, value in list(netlist.signals.items()):
        netlist.signals[signal] = wires.through(value)
    netlist.ports = {name: wires.through(value) for name, value in netlist.ports.items()}
    for index in wires.carried:
        netlist.cells[index] = None
    netlist.events = [
        event._replace(clock=wires.through((event.clock,))[0]) for event in netlist.events
    ]
    _cut_inputs_of_grids(netlist)


class _Wires:
    def __init__(self, netlist: Netlist) -> None:
        self.carried: dict[int, Value] = {}
        for index, cell in enumerate(netlist.cells):
            if isinstance(cell, cells.Select) and (value := _carried(cell)) is not None:
                self.carried[index] = value
        self.known: dict[Run, Value] = {}
        self.values: dict[Value, Value] = {}
        self.active: set[Run] = set()

    def through(self, value: Value) -> Value:
        """What `value` is without wires."""
        found = self.values.get(value)
        if found is None:
            if any(run.cell in self.carried for run in value):
                found = concat(self._run(run) for run in value)
            else:
                found = value
            self.values[value] = found
        return found

    def _run(self, run: Run) -> Value:
        if run.cell not in self.carried:
            return (run,)
        if run not in self.known:
            if run in self.active:
                raise Loop
            self.active.add(run)
            self.known[run] = self._look(run)
            self.active.discard(run)
        return self.known[run]

    def _look(self, run: Run) -> Value:
        carried = self.carried[run.cell]
        if not run.repeat:
            return concat(self._run(part) for part in slice_value(carried, run.lo, run.width))
        (bit,) = concat(self._run(part) for part in slice_value(carried, run.lo, 1))
        if bit.cell == CONST:
            return (Run(CONST, ((1 << run.width) - 1) * bit.lo, run.width),)
        return (Run(bit.cell, bit.lo, run.width, True),)


def _carried(cell: cells.Select) -> Value | None:
    """Value of a list whose conditions are constants; None if one is not."""
    value = cell.default
    for arm in cell.arms:
        if arm.cond[0].cell != CONST:
            return None
        if arm.cond[0].lo:
            end = arm.start + arm.width
            value = concat(
                (
                    slice_value(value, 0, arm.start),
                    arm.value,
                    slice_value(value, end, cell.width - end),
                )
            )
    return value


def _rewrite(cell: cells.Cell, wires: _Wires) -> None:
    """Rewrite the operands of one cell."""
    through = wires.through
    for name in ("value", "offset", "enable", "default", "data", "addr", "test", "arst"):
        old = getattr(cell, name, None)
        if old:
            setattr(cell, name, through(old))
    match cell:
        case cells.Operator() | cells.Priority():
            cell.inputs = tuple(through(value) for value in cell.inputs)
        case cells.GridCell():
            cell.inputs = {port: through(value) for port, value in cell.inputs.items()}
        case cells.Select():
            cell.arms = tuple(
                arm._replace(cond=through(arm.cond), value=through(arm.value)) for arm in cell.arms
            )
        case cells.Check() if cell.chunks is not None:
            cell.chunks = tuple(
                chunk if isinstance(chunk, str) else (through(chunk[0]), *chunk[1:])
                for chunk in cell.chunks
            )


def _cut_inputs_of_grids(netlist: Netlist) -> None:
    """Cut inputs that are vectors of a grid into its elements, which the grid then reads there."""
    for cell in netlist.cells:
        if not isinstance(cell, cells.GridCell):
            continue
        for port, value in cell.inputs.items():
            source = netlist.cells[value[0].cell] if len(value) == 1 else None
            if port == "clk" or not isinstance(source, cells.Input) or value[0].repeat:
                continue
            run, lanes = value[0], cell.grid.lanes_of(port)
            if lanes > 1:
                step = run.width // lanes
                cuts = {*source.cuts, *range(run.lo, run.lo + run.width, step), run.lo + run.width}
                source.cuts = tuple(sorted(cut for cut in cuts if cut < source.width))
