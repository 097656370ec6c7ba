"""``npulse explain``: where each operator runs, and why."""

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
from npulse.sw.report import explain as report
from npulse.sw.report import explain_lines

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
    for line in (*explain_lines(executable), *(f"note: {note}" for note in executable.notes)):
        console.print(line, markup=False, soft_wrap=True)
    write_json(json_file, report(executable))
