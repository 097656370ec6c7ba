"""Verilog of a component, with its port list and its metadata as JSON.

The Verilog is Amaranth's. A port of a member `host` reads ``host__araddr`` in it; clock and reset
are the plain ports ``clk`` and ``rst``. Until grids are written as generate loops, each cell of a
`Grid` becomes an instance of its own, so `emit` counts them first.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

from amaranth.back import verilog
from amaranth.hdl import Fragment, Module, Shape, Value
from amaranth.lib import wiring

from npulse.hw.grid import Grid

__all__ = ["MAX_GRID_CELLS", "Emitted", "Port", "emit", "grid_cells", "port_list", "save"]

#: Grid cells up to which a design is unrolled: 64 x 64 processing elements take about a minute and
#: 16 MB of Verilog (32 x 32 measured: 9 s and 4 MB), 256 x 256 would not end.
MAX_GRID_CELLS = 5120

#: Version of the metadata.
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Port:
    """One port of a Verilog module."""

    name: str
    direction: str  #: ``input`` or ``output``.
    width: int  #: Bits.
    signed: bool = False


@dataclass(frozen=True, kw_only=True)
class Emitted:
    """One design as text."""

    top: str  #: Name of the top module.
    verilog: str
    metadata: dict[str, Any]  #: Ports, hash of the Verilog, and what the caller added.


class _GridCounter:
    """Platform that counts grid cells instead of building them."""

    def __init__(self) -> None:
        self.cells = 0

    def lower_grid(self, grid: Grid) -> Module:
        inner = _GridCounter()
        Fragment.get(grid.cell(), inner)
        self.cells += prod(grid.shape) * (1 + inner.cells)
        return Module()


def grid_cells(component: wiring.Component) -> int:
    """Count the grid cells that a component has when all its grids are unrolled."""
    counter = _GridCounter()
    Fragment.get(component, counter)
    return counter.cells


def port_list(component: wiring.Component) -> list[Port]:
    """List the ports in the order of the signature, after clock and reset."""
    ports = [Port(name=name, direction="input", width=1) for name in ("clk", "rst")]
    for path, member, value in component.signature.flatten(component):
        shape = Shape.cast(Value.cast(value).shape())
        direction = "input" if member.flow == wiring.In else "output"
        name = "__".join(map(str, path))
        ports.append(Port(name=name, direction=direction, width=shape.width, signed=shape.signed))
    return ports


def emit(
    make: Callable[[], wiring.Component],
    *,
    top: str,
    about: Mapping[str, Any] | None = None,
) -> Emitted:
    """Write the Verilog of a component.

    Parameters
    ----------
    make : callable that returns a new component
        Called twice with the same result, once to count and once to write.
    top : str
        Name of the top module.
    about : mapping or None
        JSON values that the metadata shall have too.

    Raises
    ------
    ValueError
        More than `MAX_GRID_CELLS` grid cells.
    """
    cells = grid_cells(make())
    if cells > MAX_GRID_CELLS:
        raise ValueError(
            f"grid cells of {top} must be at most {MAX_GRID_CELLS} for Verilog, since each becomes "
            f"an instance of its own, not {cells}"
        )
    component = make()
    text = verilog.convert(component, name=top, emit_src=False)
    metadata = {
        "format": FORMAT,
        "top": top,
        "clock": "clk",
        "reset": "rst",
        "grid_cells": cells,
        "verilog_sha256": sha256(text.encode()).hexdigest(),
        "ports": [asdict(port) for port in port_list(component)],
        **(about or {}),
    }
    return Emitted(top=top, verilog=text, metadata=metadata)


def save(emitted: Emitted, folder: Path) -> list[Path]:
    """Write ``<top>.v`` and ``<top>.json`` into a folder, both whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        folder / f"{emitted.top}.v": emitted.verilog,
        folder / f"{emitted.top}.json": json.dumps(emitted.metadata, indent=2) + "\n",
    }
    parts = {path: path.with_name(path.name + ".part") for path in contents}
    try:
        for path, text in contents.items():
            parts[path].write_text(text, encoding="utf-8")
        for path, part in parts.items():
            part.replace(path)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    return list(contents)
