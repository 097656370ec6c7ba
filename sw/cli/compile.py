"""``npulse compile``: from a model to an image."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from npulse.sw import image
from npulse.sw.cli.figures import compiled_lines
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
from npulse.sw.report import summary
from npulse.sw.targets.executable import Executable

__all__ = ["compile", "executable_report"]

OutputOption = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Image to write; MODEL.npulse if absent."),
]


def compile(
    model: ModelArgument,
    npu_name: NpuOption,
    overrides: SetOption = None,
    output: OutputOption = None,
    strict: StrictOption = False,
    json_file: JsonOption = None,
) -> None:
    """Compile a model into an image that runs anywhere."""
    npu = find_npu(npu_name, overrides)
    _, executable = compiled(model, npu, strict=strict)
    path = output or Path(Path(model).with_suffix(".npulse").name)
    image.save(executable, path)
    console = screen(json_file)
    for line in compiled_lines(executable):
        console.print(line)
    console.print(f"written: {path} ({path.stat().st_size:,} bytes)")
    write_json(json_file, {**executable_report(executable), "image": str(path)})


def executable_report(executable: Executable) -> dict[str, Any]:
    """What was compiled, as JSON values."""
    return {
        "model": {
            "source": executable.source,
            "sha256": executable.sha256,
            "inputs": [_tensor(info) for info in executable.inputs],
            "outputs": [_tensor(info) for info in executable.outputs],
        },
        "npu": {
            "name": executable.npu.name,
            "overrides": list(executable.npu.overrides),
            "parameters": asdict(executable.npu.config),
            "digest": executable.npu.config.digest,
        },
        "compiled": summary(executable),
        "placements": [asdict(placement) for placement in executable.reasons],
        "notes": list(executable.notes),
    }


def _tensor(info: Any) -> dict[str, Any]:
    return {
        "name": info.name,
        "shape": list(info.shape),
        "dtype": info.dtype.name,
        "layout": info.layout,
    }
