"""``npulse flavours``: which NPUs there are, and every parameter of one."""

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from npulse.hw.spec.flavours import FLAVOURS, Npu
from npulse.sw.cli.options import JsonOption, SetOption, find_npu, screen, write_json

__all__ = ["flavours"]

NameArgument = Annotated[
    str | None,
    typer.Argument(metavar="[FLAVOUR[:SIZE]]", help="Show every parameter of this one."),
]


def flavours(
    name: NameArgument = None, overrides: SetOption = None, json_file: JsonOption = None
) -> None:
    """List the NPUs, or the parameters of one."""
    console = screen(json_file)
    if name is not None:
        npu = find_npu(name, overrides)
        console.print(_parameter_table(npu))
        write_json(json_file, {"name": npu.name, "parameters": asdict(npu.config)})
        return
    rows = [_row(flavour, size) for flavour in FLAVOURS for size in FLAVOURS[flavour].presets]
    table = Table(box=None, pad_edge=False)
    for heading in ("npu", "array", "multiply-adds/cycle", "buffer", "clock"):
        table.add_column(heading, justify="left" if heading == "npu" else "right")
    for row in rows:
        table.add_row(
            row["name"],
            f"{row['array'][0]} x {row['array'][1]}",
            f"{row['macs_per_cycle']:,}",
            f"{row['unified_buffer_bytes'] // 1024:,} KiB",
            f"{row['clock_mhz']} MHz",
        )
    console.print(table)
    for flavour, entry in FLAVOURS.items():
        console.print(f"{flavour}: {entry.summary}; a style rebuilt from public information.")
    write_json(json_file, rows)


def _row(flavour: str, size: str) -> dict[str, Any]:
    npu = find_npu(f"{flavour}:{size}", None)
    config = npu.config
    return {
        "name": npu.name,
        "family": npu.family,
        "summary": FLAVOURS[flavour].summary,
        "array": [config.array.rows, config.array.cols],
        "macs_per_cycle": config.peak_macs_per_cycle,
        "unified_buffer_bytes": config.unified_buffer_bytes,
        "clock_mhz": config.clock_mhz,
    }


def _parameter_table(npu: Npu) -> Table:
    table = Table("parameter", "value", title=npu.name, title_justify="left", box=None)
    for name, value in asdict(npu.config).items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for part, number in parts:
            table.add_row(f"{name}.{part}".rstrip("."), str(number))
    return table
