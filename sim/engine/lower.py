"""How a design's grids reach the engine: as black boxes with a key."""

from typing import Any

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal, Value
from amaranth.lib import wiring

from npulse.hw.grid import Flow, Grid

__all__ = ["EnginePlatform"]


class EnginePlatform:
    """Platform that elaborates a `Grid` as an instance ``npulse_grid``.

    Attributes
    ----------
    grids : dict of str to Grid
        By the ``key`` of the instance.
    """

    def __init__(self) -> None:
        self.grids: dict[str, Grid] = {}

    def lower_grid(self, grid: Grid) -> Module:
        """Make the black box; its clock is that of ``sync`` where it stands."""
        key = f"grid{len(self.grids)}"
        self.grids[key] = grid
        ports: dict[str, Any] = {
            "p_key": key,
            "i_clk": ClockSignal("sync"),
            "i_rst": ResetSignal("sync", allow_reset_less=True),
        }
        for name, role in grid.roles.items():
            for port in (f"{name}_i", f"{name}_o") if isinstance(role, Flow) else (name,):
                flow = grid.prototype.signature.members[port].flow
                prefix = "i" if flow == wiring.In else "o"
                ports[f"{prefix}_{port}"] = Value.cast(getattr(grid, port))
        m = Module()
        m.submodules.box = Instance("npulse_grid", **ports)
        return m
