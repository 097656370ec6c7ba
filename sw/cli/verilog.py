"""``npulse verilog``: the core of an NPU for other simulators and for synthesis."""

from pathlib import Path
from typing import Annotated

import typer

from npulse.sw.cli.options import (
    JsonOption,
    NpuOption,
    SetOption,
    find_npu,
    screen,
    write_json,
)
from npulse.sw.driver.verilog import core_verilog, write_verilog

__all__ = ["verilog"]

FolderOption = Annotated[
    Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for Verilog and metadata.")
]


def verilog(
    npu_name: NpuOption,
    folder: FolderOption,
    overrides: SetOption = None,
    json_file: JsonOption = None,
) -> None:
    """Write the Verilog of a core, its port list and its parameters."""
    npu = find_npu(npu_name, overrides)
    emitted = core_verilog(npu)
    files = write_verilog(emitted, folder)
    console = screen(json_file)
    ports = emitted.metadata["ports"]
    console.print(
        f"module {emitted.top}: {len(ports)} ports, {emitted.metadata['grid_cells']:,} grid cells, "
        f"{len(emitted.verilog) / 1024:,.0f} KiB of Verilog"
    )
    for path in files:
        console.print(f"written: {path}")
    write_json(json_file, {**emitted.metadata, "files": [str(path) for path in files]})
