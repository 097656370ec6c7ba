"""What the engine must know of a grid's cell: its own netlist, the registers behind its flows.

The cell is read alone. It must be one clock domain without asynchronous reset, prints or
assertions; its flow outputs must be whole registers, and its other outputs must not depend on an
input of the same cycle. What breaks this is refused by name.
"""

from dataclasses import dataclass, field
from math import prod

from amaranth.hdl import Fragment, Signal, Value
from amaranth.lib import wiring

from npulse.hw.grid import Edge, Flow, Grid, PerCell, Role
from npulse.sim.engine import cells
from npulse.sim.engine.cells import Run
from npulse.sim.engine.netlist import Netlist, Unsupported, netlist_of
from npulse.sim.engine.schedule import Cut, Units, sinks_of
from npulse.sim.engine.simplify import simplify

__all__ = ["CellInfo", "read_cell"]


@dataclass
class CellInfo:
    """Netlist of the cell of one grid, with its ports found in it.

    Attributes
    ----------
    domain : str or None
        Name of the clock domain, None if the cell has no state.
    order : list of (int, int)
        As of `Units.order`, for the sinks of the cell.
    inputs : dict of str to int
        Unit of each input port that the cell reads; ``rst`` is the reset of the domain.
    outputs : dict of str to cells.Value
    flows : dict of str to int
        Register behind each flow.
    """

    grid: Grid
    net: Netlist
    units: Units
    order: list[tuple[int, int]]
    domain: str | None
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, cells.Value] = field(default_factory=dict)
    flows: dict[str, int] = field(default_factory=dict)

    def role(self, port: str) -> Role | None:
        """Role of a port of the cell; None for ``rst``."""
        roles = self.grid.roles
        if port in roles:
            return roles[port]
        return roles.get(port[:-2])

    def lanes_of(self, port: str) -> int:
        """Elements of a port of the grid."""
        role = self.role(port)
        if role is None:
            return 1
        return prod(self.grid.shape[axis] for axis in self.grid.port_axes(role))

    @property
    def where(self) -> str:
        """Name of the cell, for messages."""
        return type(self.grid.prototype).__name__


def read_cell(grid: Grid) -> CellInfo:
    """Read the cell of `grid`.

    Raises
    ------
    Unsupported
        If the cell cannot be one of many in a loop; the grid is then built as real submodules.
    """
    cell = grid.cell()
    design = Fragment.get(cell, None).prepare()
    net = netlist_of(design)
    simplify(net)
    names = list(design.fragment.domains)
    units, order = _settle(net)
    info = CellInfo(grid, net, units, order, names[0] if names else None)
    _refuse(info, len(names))
    _find_ports(info, cell)
    if names and (rst := design.fragment.domains[names[0]].rst) is not None:
        _find_input(info, "rst", rst)
    for name, role in grid.roles.items():
        if isinstance(role, Flow):
            info.flows[name] = _register(info, f"{name}_o")
    _refuse_late_outputs(info)
    return info


def _refuse(info: CellInfo, domains: int) -> None:
    if domains > 1 or len(info.net.events) > 1:
        raise Unsupported(f"cell {info.where} must have one clock domain, not {domains}")
    for cell in info.net.cells:
        if isinstance(cell, cells.Check):
            raise Unsupported(f"cell {info.where} must not have a {cell.kind} ({cell.source})")
        if isinstance(cell, cells.Register) and cell.arst is not None:
            raise Unsupported(f"cell {info.where} must not have an asynchronous reset")


def _find_ports(info: CellInfo, cell: wiring.Component) -> None:
    for port, member in cell.signature.members.items():
        signal = Value.cast(getattr(cell, port))
        assert isinstance(signal, Signal)
        if member.flow == wiring.In:
            _find_input(info, port, signal)
        elif signal in info.net.signals:
            info.outputs[port] = info.net.signals[signal]
        else:
            mask = (1 << len(signal)) - 1
            info.outputs[port] = (Run(cells.CONST, signal.init & mask, len(signal)),)


def _find_input(info: CellInfo, port: str, signal: Signal) -> None:
    value = info.net.signals.get(signal, ())
    if not value:
        return  # not used by the cell
    if len(value) != 1 or not isinstance(info.net.cells[value[0].cell], cells.Input):
        raise Unsupported(f"input {port} of cell {info.where} must not be driven by the cell")
    info.inputs[port] = info.units.of_run(value[0])[0]


def _register(info: CellInfo, port: str) -> int:
    value = info.outputs[port]
    if len(value) == 1 and not value[0].repeat and value[0].lo == 0:
        cell = info.net.cells[value[0].cell]
        if isinstance(cell, cells.Register) and cell.width == value[0].width:
            return value[0].cell
    raise Unsupported(f"flow output {port} of cell {info.where} must be one whole register")


def _refuse_late_outputs(info: CellInfo) -> None:
    inputs = set(info.inputs.values())
    for port, value in info.outputs.items():
        if isinstance(info.role(port), (PerCell, Edge)):
            seen = set(info.units.of_values([value]))
            stack = list(seen)
            while stack:
                for unit in info.units.deps(stack.pop()):
                    if unit not in seen:
                        seen.add(unit)
                        stack.append(unit)
            if seen & inputs:
                raise Unsupported(
                    f"output {port} of cell {info.where} must depend on state alone, "
                    "not on an input of the same cycle"
                )


def _settle(net: Netlist) -> tuple[Units, list[tuple[int, int]]]:
    """Number the units for good, and order what the sinks need."""
    units = Units(net.cells)
    while True:
        try:
            roots = [units.of_values(values) for _, values in sinks_of(net.cells)]
            order = units.order(roots)
            units.order([units.of_values(list(net.signals.values()))])
            return units, order
        except Cut:
            continue
