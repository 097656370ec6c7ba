"""How a design's grids reach the engine: as black boxes with a key."""

from typing import Any

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal, Value
from amaranth.lib import wiring

from npulse.hw.grid import Flow, Grid
from npulse.sim.engine.gridcell import CellInfo, read_cell
from npulse.sim.engine.netlist import Unsupported

__all__ = ["EnginePlatform"]


class EnginePlatform:
    """Platform that elaborates a `Grid` as an instance ``npulse_grid``.

    Attributes
    ----------
    grids : dict of str to CellInfo
        By the ``key`` of the instance.
    notes : list of str
        Grids that are built as real submodules, and why.
    """

    def __init__(self) -> None:
        self.grids: dict[str, CellInfo] = {}
        self.notes: list[str] = []

    def lower_grid(self, grid: Grid) -> object:
        """Make the black box, or the submodules if a loop over the cells cannot be made."""
        try:
            info = read_cell(grid)
        except Unsupported as reason:
            self.notes.append(f"grid of {grid.shape} cells is built cell by cell: {reason}")
            return grid.elaborate(None)
        key = f"grid{len(self.grids)}"
        self.grids[key] = info
        ports: dict[str, Any] = {"p_key": key}
        if info.domain is not None:
            ports["i_clk"] = ClockSignal(info.domain)
            ports["i_rst"] = ResetSignal(info.domain, allow_reset_less=True)
        for name, role in grid.roles.items():
            for port in (f"{name}_i", f"{name}_o") if isinstance(role, Flow) else (name,):
                flow = grid.prototype.signature.members[port].flow
                prefix = "i" if flow == wiring.In else "o"
                ports[f"{prefix}_{port}"] = Value.cast(getattr(grid, port))
        m = Module()
        m.submodules.cells = Instance("npulse_grid", **ports)
        return m
