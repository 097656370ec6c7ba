"""``npulse explain``: where each operator runs, and why."""

from dataclasses import asdict

from rich.markup import escape
from rich.table import Table

from npulse.sw.cli.options import (
    JsonOption,
    ModelArgument,
    NpuOption,
    SetOption,
    StrictOption,
    compiled,
    find_npu,
    screen,
    write_json,
)
from npulse.sw.targets.executable import Executable

__all__ = ["explain"]


def explain(
    model: ModelArgument,
    npu_name: NpuOption,
    overrides: SetOption = None,
    strict: StrictOption = False,
    json_file: JsonOption = None,
) -> None:
    """Say for each operator of a model where it runs and which rule decided."""
    npu = find_npu(npu_name, overrides)
    _, executable = compiled(model, npu, strict=strict)
    console = screen(json_file)
    console.print(_table(executable))
    fallbacks = sum(placement.fallback for placement in executable.reasons)
    console.print(
        f"{len(executable.reasons)} operators on {npu.name}, {fallbacks} fall back to the host"
    )
    for note in executable.notes:
        console.print(f"note: {escape(note)}")
    write_json(
        json_file,
        {
            "npu": npu.name,
            "placements": [asdict(placement) for placement in executable.reasons],
            "notes": list(executable.notes),
        },
    )


def _table(executable: Executable) -> Table:
    table = Table("node", "operator", "where", "rule", "decided by", "remedy", box=None)
    for placement in executable.reasons:
        table.add_row(
            *(
                escape(text)
                for text in (
                    placement.node,
                    placement.op.removeprefix("graph."),
                    placement.placed + (" (fallback)" if placement.fallback else ""),
                    placement.rule,
                    placement.attribute,
                    placement.remedy,
                )
            )
        )
    return table
