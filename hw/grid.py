"""One cell, an index space, a wiring rule: the combinator behind arrays, lanes and banks.

A row of SRAM lanes, an array of processing elements and a row of accumulators are the same thing:
many copies of one cell, and a rule for how neighbours connect. `Grid` states that once. How the
copies come to life is a *lowering*, chosen by the platform that elaborates the design:

- no platform: real submodules, for pysim and small sizes (this module);
- a platform with a method ``lower_grid(grid)``: whatever that returns. The Verilog writer makes
  generate loops of it, the compiled engine one vectorised loop. Both read `Grid.cell`,
  `Grid.shape` and `Grid.roles`, so the three cannot differ in what they describe.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from amaranth.hdl import Fragment, Module, ShapeLike, Signal, Value, ValueCastable
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Broadcast", "Edge", "Flow", "Grid", "PerCell", "Role"]


@dataclass(frozen=True)
class Flow:
    """Ports ``<name>_i`` and ``<name>_o`` of the cell, linked neighbour to neighbour along `axis`.

    The cell at the start of the axis takes ``<name>_i`` of the grid; ``<name>_o`` of the cell at
    its end is ``<name>_o`` of the grid. The output must be a register of the cell.
    """

    axis: int = 0


@dataclass(frozen=True)
class Broadcast:
    """An input that all cells share, or those along `axes` only (None: along every axis)."""

    axes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class PerCell:
    """A port that each cell has for itself, input or output; outputs depend on state alone."""


@dataclass(frozen=True)
class Edge:
    """An output that only the last cell along `axis` shows."""

    axis: int = 0


Role = Flow | Broadcast | PerCell | Edge


class Grid(wiring.Component):
    """Make ``prod(shape)`` copies of a cell and wire them by the role of each port.

    Parameters
    ----------
    cell : callable without arguments that returns a new `wiring.Component`
        Every call must describe the same hardware.
    shape : tuple of int
        Cells along each axis, all at least 1.
    roles : mapping of str to Role
        One entry for each port of the cell; a `Flow` entry names its pair of ports without the
        ``_i`` and ``_o``.

    A port of the grid is a `data.ArrayLayout` of the cell's port, with its index row-major over
    the axes that the role leaves (all for `PerCell`; all but `axis` for `Flow` and `Edge`; all but
    `axes` for `Broadcast`), or the cell's own shape where no axis is left.

    Timing
    ------
    A flow advances one cell a cycle, since its output is a register: no combinational path
    crosses cells. Everything else is the cell's.
    """

    def __init__(
        self,
        cell: Callable[[], wiring.Component],
        shape: tuple[int, ...],
        roles: Mapping[str, Role],
    ) -> None:
        if not shape or any(not isinstance(n, int) or n < 1 for n in shape):
            raise ValueError(f"shape must have at least one axis of at least 1 cell, not {shape!r}")
        self.cell = cell
        self.shape = shape
        self.roles = dict(roles)
        self.prototype = cell()
        _check_roles(self.prototype.signature, shape, self.roles)
        _check_flows(self.prototype, self.roles)
        super().__init__(dict(self._members()))

    def _members(self) -> Iterator[tuple[str, wiring.Member]]:
        members = dict(self.prototype.signature.members.items())
        for name, role in self.roles.items():
            ports = (f"{name}_i", f"{name}_o") if isinstance(role, Flow) else (name,)
            for port in ports:
                member = members[port]
                direction = In if member.flow == wiring.In else Out
                yield port, direction(self.port_shape(member.shape, role))

    def port_axes(self, role: Role) -> tuple[int, ...]:
        """Axes over which a grid port of this role is an array."""
        axes = range(len(self.shape))
        match role:
            case Flow(axis) | Edge(axis):
                return tuple(a for a in axes if a != axis)
            case Broadcast(shared):
                return () if shared is None else tuple(a for a in axes if a not in shared)
            case PerCell():
                return tuple(axes)

    def port_shape(self, shape: ShapeLike, role: Role) -> ShapeLike:
        """Shape of the grid port whose cell port has `shape`."""
        axes = self.port_axes(role)
        return data.ArrayLayout(shape, prod(self.shape[a] for a in axes)) if axes else shape

    def element(self, port: str, role: Role, index: tuple[int, ...]) -> Value | ValueCastable:
        """Part of grid port `port` that belongs to the cell at `index`."""
        axes = self.port_axes(role)
        view = getattr(self, port)
        if not axes:
            return view
        flat = 0
        for axis in axes:
            flat = flat * self.shape[axis] + index[axis]
        return view[flat]

    if TYPE_CHECKING:  # ports are made from the cell's

        def __getattr__(self, name: str) -> Any: ...

    def elaborate(self, platform: object) -> Any:
        """Build the cells as submodules, unless the platform has a lowering of its own."""
        lower = getattr(platform, "lower_grid", None)
        if lower is not None:
            return lower(self)
        m = Module()
        cells = {}
        for index in product(*map(range, self.shape)):
            cells[index] = self.cell()
            m.submodules["cell_" + "_".join(map(str, index))] = cells[index]
        for index, cell in cells.items():
            for name, role in self.roles.items():
                m.d.comb += self._wire(cells, index, cell, name, role)
        return m

    def _wire(
        self,
        cells: Mapping[tuple[int, ...], wiring.Component],
        index: tuple[int, ...],
        cell: wiring.Component,
        name: str,
        role: Role,
    ) -> list:
        if isinstance(role, Flow):
            axis = role.axis
            before = (*index[:axis], index[axis] - 1, *index[axis + 1 :])
            first, last = index[axis] == 0, index[axis] == self.shape[axis] - 1
            source = (
                self.element(f"{name}_i", role, index)
                if first
                else getattr(cells[before], f"{name}_o")
            )
            wires = [_eq(getattr(cell, f"{name}_i"), source)]
            if last:
                wires.append(
                    _eq(self.element(f"{name}_o", role, index), getattr(cell, f"{name}_o"))
                )
            return wires
        if isinstance(role, Edge) and index[role.axis] != self.shape[role.axis] - 1:
            return []
        outer, inner = self.element(name, role, index), getattr(cell, name)
        is_input = self.prototype.signature.members[name].flow == wiring.In
        return [_eq(inner, outer) if is_input else _eq(outer, inner)]


def _eq(target: object, source: object) -> object:
    return Value.cast(target).eq(Value.cast(source))  # type: ignore[arg-type]


def _check_roles(
    signature: wiring.Signature, shape: tuple[int, ...], roles: dict[str, Role]
) -> None:
    ports = {name: member for name, member in signature.members.items()}
    claimed: set[str] = set()
    for name, role in roles.items():
        pair = (f"{name}_i", f"{name}_o") if isinstance(role, Flow) else (name,)
        for port in pair:
            if port not in ports:
                raise ValueError(f"roles must name ports of the cell, which has no {port!r}")
        claimed.update(pair)
        _check_axes(name, role, len(shape))
        _check_directions(name, role, [ports[port] for port in pair])
    if left := sorted(set(ports) - claimed):
        raise ValueError(f"roles must cover every port of the cell, but leave out {left}")


def _check_axes(name: str, role: Role, rank: int) -> None:
    axes = {Flow: lambda r: (r.axis,), Edge: lambda r: (r.axis,)}.get(type(role), lambda r: ())(
        role
    )
    if isinstance(role, Broadcast) and role.axes is not None:
        axes = role.axes
    for axis in axes:
        if not 0 <= axis < rank:
            raise ValueError(f"axis of {name!r} must be in 0..{rank - 1}, not {axis!r}")


def _check_directions(name: str, role: Role, members: list[wiring.Member]) -> None:
    flows = [member.flow for member in members]
    if isinstance(role, Flow):
        if flows != [wiring.In, wiring.Out]:
            raise ValueError(f"flow {name!r} must have an input {name}_i and an output {name}_o")
        if members[0].shape != members[1].shape:
            raise ValueError(
                f"flow {name!r} must have one shape at both ends, "
                f"not {members[0].shape!r} and {members[1].shape!r}"
            )
    if isinstance(role, Broadcast) and flows != [wiring.In]:
        raise ValueError(f"broadcast {name!r} must be an input of the cell")
    if isinstance(role, Edge) and flows != [wiring.Out]:
        raise ValueError(f"edge {name!r} must be an output of the cell")


def _check_flows(cell: wiring.Component, roles: Mapping[str, Role]) -> None:
    """Refuse a flow output that is not a register, or another name of one, of the cell itself."""
    fragment = Fragment.get(cell, None)
    registers: set[int] = set()
    aliases: dict[int, Value] = {}
    for domain, statements in fragment.statements.items():
        for statement in statements:
            if domain != "comb":
                registers.update(id(signal) for signal in statement._lhs_signals())
            elif isinstance(getattr(statement, "lhs", None), Signal):
                aliases[id(statement.lhs)] = statement.rhs
    for name, role in roles.items():
        if not isinstance(role, Flow):
            continue
        driver: object = Value.cast(getattr(cell, f"{name}_o"))
        while id(driver) in aliases:
            driver = aliases[id(driver)]
        if id(driver) not in registers:
            raise ValueError(
                f"flow output {name}_o must be a register of the cell, "
                "since no combinational path may cross cells"
            )
