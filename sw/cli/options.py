"""Options that several commands share, and what becomes of them."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from npulse.hw.spec.flavours import Npu, resolve
from npulse.sw import models
from npulse.sw.compile import compile_model
from npulse.sw.errors import UserError
from npulse.sw.files import write_whole
from npulse.sw.frontends.load import load_model
from npulse.sw.frontends.model import GivenShapes, Model
from npulse.sw.targets.executable import Executable

__all__ = [
    "ImageArgument",
    "JsonOption",
    "ModelArgument",
    "NpuOption",
    "SetOption",
    "StrictOption",
    "compiled",
    "find_npu",
    "model_path",
    "screen",
    "write_json",
]

ModelArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="An .onnx or .tflite file, or a bundled model: digits."),
]
ImageArgument = Annotated[
    Path, typer.Argument(metavar="IMAGE", help="An .npulse file that npulse compile made.")
]
NpuOption = Annotated[
    str,
    typer.Option("--npu", metavar="FLAVOUR[:SIZE]", help="Which NPU; npulse flavours lists them."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Change one parameter: array.rows=32; may be repeated."
    ),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Refuse a model that needs the host for an operator.")
]
JsonOption = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON; - is the screen."),
]


def find_npu(name: str, overrides: Sequence[str] | None) -> Npu:
    """Resolve ``--npu`` and ``--set``.

    Raises
    ------
    UserError
        Unknown flavour, size or parameter, or an illegal value.
    """
    try:
        return resolve(name, overrides or ())
    except (TypeError, ValueError) as error:
        raise UserError(f"{error}; npulse flavours lists names, sizes and parameters") from None


def model_path(model: str) -> Path:
    """File of a model; a file of that name goes before a bundled model."""
    if model in models.BUNDLED and not Path(model).exists():
        return models.path(model)
    if not Path(model).exists():
        raise UserError(
            f"{model}: no such file, and no bundled model of this name "
            f"({', '.join(models.BUNDLED)}); check the path"
        )
    return Path(model)


def compiled(
    model: str, npu: Npu, *, strict: bool = False, shapes: GivenShapes | None = None
) -> tuple[Model, Executable]:
    """Load and compile a model."""
    loaded = load_model(model_path(model), shapes)
    return loaded, compile_model(loaded, npu, strict=strict)


def screen(json_file: str | None = None) -> Console:
    """Console for people; goes to stderr when the JSON goes to stdout."""
    return Console(highlight=False, soft_wrap=False, stderr=json_file == "-")


def write_json(json_file: str | None, content: Any) -> None:
    """Write what ``--json`` asks for."""
    if json_file is None:
        return
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    if json_file == "-":
        sys.stdout.write(text)
    else:
        write_whole(Path(json_file), text.encode())
