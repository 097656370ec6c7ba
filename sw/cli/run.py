"""``npulse run``: a model or an image on the RTL of an NPU."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from npulse.hw.spec.flavours import Npu
from npulse.sw import image
from npulse.sw.cli import digits
from npulse.sw.cli.arrays import Arrays, bind, random_inputs, read_arrays, write_outputs
from npulse.sw.cli.figures import compiled_lines, cycle_lines
from npulse.sw.cli.options import (
    JsonOption,
    SetOption,
    compiled,
    find_npu,
    model_path,
    screen,
    write_json,
)
from npulse.sw.cli.report import inline_outputs, run_report, totals
from npulse.sw.driver.devices import ENGINES, check_engine, open_device
from npulse.sw.driver.runtime import RunResult, Runtime
from npulse.sw.driver.verilog import core_verilog, write_verilog
from npulse.sw.errors import UserError
from npulse.sw.files import need_folder
from npulse.sw.targets.executable import Executable

__all__ = ["run"]

#: Seed of the inputs that are made up when there are none.
_SEED = 0
#: Test images of the bundled model that run at RTL.
_IMAGES = 2

ThingArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="An .onnx, .tflite or .npulse file, or digits (bundled)."),
]
NpuChoice = Annotated[
    str | None,
    typer.Option("--npu", metavar="FLAVOUR[:SIZE]", help="Which NPU; an image knows its own."),
]
InputOption = Annotated[
    Path | None,
    typer.Option(
        "--input",
        metavar="FILE",
        help="Arrays as .npz, by input name or in the model's order, or one as .npy.",
    ),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="Write the outputs as .npz or .npy.")
]
EngineOption = Annotated[
    str, typer.Option("--engine", metavar="|".join(ENGINES), help="What carries out the RTL.")
]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Compare every value with golden, bit by bit.")
]
ImagesOption = Annotated[
    int, typer.Option("--images", min=1, max=360, help="Test images at RTL, without --input.")
]
KeepOption = Annotated[
    Path | None,
    typer.Option("--keep", metavar="DIR", help="Write image, Verilog and report into a folder."),
]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to run."""

    executable: Executable
    inputs: list[Arrays]  #: One set a run.
    origin: str  #: Where the inputs came from.
    is_digits: bool  #: The inputs are bundled test images.


def run(
    model: ThingArgument,
    npu_name: NpuChoice = None,
    overrides: SetOption = None,
    input_file: InputOption = None,
    output: OutputOption = None,
    engine: EngineOption = "pysim",
    check: CheckOption = False,
    images: ImagesOption = _IMAGES,
    keep: KeepOption = None,
    json_file: JsonOption = None,
) -> int:
    """Compile a model and run it at RTL; an image runs as it is.

    Without --input the bundled model runs on its test images and any other on random numbers.
    Exit status 1 means that --check found a difference.
    """
    check_engine(engine)
    for path in (output, None if json_file in (None, "-") else Path(str(json_file))):
        if path is not None:
            need_folder(path)
    job = _job(model, npu_name, overrides, input_file, images)
    console = screen(json_file)
    npu = job.executable.npu
    console.print(f"[bold]npulse[/] {escape(model)} on {npu.name}, engine {engine}; {job.origin}")
    for line in compiled_lines(job.executable):
        console.print(line)
    runtime, results, seconds = _run_all(job, engine, check)
    total = totals(job.executable, results)
    report = run_report(job.executable, results, engine=engine, inputs=job.origin)
    report["seconds"] = round(seconds, 3)
    if job.is_digits:
        _show_digits(console, job, runtime, results, report)
    else:
        _show_outputs(console, results)
    for line in cycle_lines(total.stats, total.macs, npu.config.peak_macs_per_cycle):
        console.print(line)
    runs = "1 run" if total.runs == 1 else f"{total.runs} runs"
    console.print(
        f"  {runs} in {seconds:.1f} s of {engine}, {total.stats.cycles / seconds:,.0f} cycles/s"
    )
    _show_check(console, total.checked, total.wrong, results)
    for path in _write(job, report, results, output, keep, json_file):
        console.print(f"written: {path}")
    return 1 if total.wrong else 0


def _job(
    model: str,
    npu_name: str | None,
    overrides: list[str] | None,
    input_file: Path | None,
    images: int,
) -> Job:
    """Read everything that the command names, before anything runs."""
    arrays = None if input_file is None else read_arrays(input_file)
    executable = _executable(model, npu_name, overrides, arrays)
    is_digits = arrays is None and digits.is_bundled(executable)
    if arrays is not None and input_file is not None:
        inputs, origin = [bind(arrays, executable.inputs, input_file)], f"inputs of {input_file}"
    elif is_digits:
        pictures, _ = digits.images(images)
        name = executable.inputs[0].name
        inputs = [{name: picture[None]} for picture in pictures]
        origin = f"bundled test images: {len(inputs)}"
    else:
        inputs = [random_inputs(executable.inputs, _SEED)]
        origin = f"random inputs, seed {_SEED}"
    return Job(executable=executable, inputs=inputs, origin=origin, is_digits=is_digits)


def _executable(
    model: str, npu_name: str | None, overrides: list[str] | None, arrays: Arrays | None
) -> Executable:
    """Executable of an image, or of a model that is compiled now."""
    path = model_path(model)
    if image.is_image(path):
        return _image(path, npu_name, overrides)
    if npu_name is None:
        raise UserError(f"{model}: a model needs --npu, for example --npu tpu-v1:sim")
    npu = find_npu(npu_name, overrides)
    given = {name: array.shape for name, array in (arrays or {}).items()}
    loaded, executable = compiled(model, npu, shapes=given)
    names = [info.name for info in loaded.inputs]
    if arrays and not set(given) & set(names) and len(given) == len(names):
        # Arrays in the order of the model decide dynamic dimensions too, once the names are known.
        shapes = dict(zip(names, given.values(), strict=True))
        if any(info.shape != shapes[info.name] for info in loaded.inputs):
            _, executable = compiled(model, npu, shapes=shapes)
    return executable


def _image(path: Path, npu_name: str | None, overrides: list[str] | None) -> Executable:
    """Executable of an image, refused if it is for another NPU than the one that is named."""
    executable = image.load(path)
    if npu_name is None and overrides is None:
        return executable
    npu: Npu = find_npu(npu_name or executable.npu.name, overrides)
    if npu.config.digest != executable.npu.config.digest:
        raise UserError(
            f"{path} was made for {_named(executable.npu)}, not {_named(npu)}; leave --npu and "
            f"--set out, or compile the model for {_named(npu)}"
        )
    return executable


def _named(npu: Npu) -> str:
    return " ".join((npu.name, *(f"--set {override}" for override in npu.overrides)))


def _run_all(job: Job, engine: str, check: bool) -> tuple[Runtime, list[RunResult], float]:
    """Results of all runs, and the seconds that they took."""
    executable = job.executable
    device = open_device(executable.npu, executable.memory.total_bytes, engine)
    runtime = Runtime(executable, device)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    start, results = time.monotonic(), []
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("RTL", total=len(job.inputs) * executable.summary.estimated_cycles)
        for number, inputs in enumerate(job.inputs, 1):
            before = sum(result.stats.cycles for result in results)

            def show(cycles: int, before: int = before, number: int = number) -> None:
                text = f"RTL run {number} of {len(job.inputs)}, {before + cycles:,} cycles"
                bar.update(task, completed=before + cycles, description=text)

            results.append(runtime.run(inputs, check=check, progress=show))
    return runtime, results, time.monotonic() - start


def _show_digits(
    console: Console,
    job: Job,
    runtime: Runtime,
    results: list[RunResult],
    report: dict[str, Any],
) -> None:
    pictures, labels = digits.images(len(results))
    outputs = [result.outputs for result in results]
    for line in digits.drawing(pictures, [int(label) for label in labels], outputs):
        console.print(line, markup=False)
    found = digits.accuracy(runtime)
    console.print(
        f"[bold]accuracy[/] int8 {found.int8 / found.images:.1%} by golden, "
        f"float {found.float32 / found.images:.1%}, on {found.images} bundled test images"
    )
    report["accuracy"] = asdict(found)


def _show_outputs(console: Console, results: list[RunResult]) -> None:
    for name, array in results[0].outputs.items():
        values = ", ".join(f"{value:g}" for value in array.reshape(-1)[:8])
        more = ", ..." if array.size > 8 else ""
        shape = " x ".join(map(str, array.shape)) or "scalar"
        console.print(
            f"[bold]output[/] {escape(name)}: {array.dtype} {shape} = {values}{more}", style=None
        )


def _show_check(console: Console, checked: int, wrong: int, results: list[RunResult]) -> None:
    if not checked:
        console.print("output == golden: not checked; add --check")
        return
    verdict = "no" if wrong else "yes"
    console.print(
        f"[bold]output == golden: {verdict}, {checked - wrong:,} of {checked:,} values[/]"
    )
    for mismatch in [m for result in results for m in result.mismatches][:5]:
        console.print(f"  {mismatch}", markup=False)


def _write(
    job: Job,
    report: dict[str, Any],
    results: list[RunResult],
    output: Path | None,
    keep: Path | None,
    json_file: str | None,
) -> list[Path]:
    """Write what was asked for, the report last, since it names the others."""
    files: list[Path] = []
    outputs = _stacked(results)
    if output is not None:
        write_outputs(output, outputs)
        files.append(output)
        report["outputs_file"] = str(output.resolve())
    if keep is not None:
        files += _keep(job, keep)
    inline = inline_outputs(outputs)
    if inline is not None:
        report["outputs"] = inline
    elif output is None and json_file not in (None, "-"):
        beside = Path(str(json_file)).with_suffix(".outputs.npz")
        write_outputs(beside, outputs)
        files.append(beside)
        report["outputs_file"] = str(beside.resolve())
    reports = [json_file] if json_file is not None else []
    if keep is not None:
        reports.append(str(keep / "report.json"))
    files += [Path(name) for name in reports if name != "-"]
    report["files"] = [str(path) for path in files]
    for name in reports:
        write_json(name, report)
    return files


def _stacked(results: list[RunResult]) -> Arrays:
    """Outputs of one run as they are; of several runs stacked along a new first axis."""
    if len(results) == 1:
        return results[0].outputs
    return {name: np.stack([r.outputs[name] for r in results]) for name in results[0].outputs}


def _keep(job: Job, folder: Path) -> list[Path]:
    """Write image and Verilog into a folder, which is made if absent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made: {error.strerror}; name another folder") from None
    path = folder / f"{Path(job.executable.source).stem}.npulse"
    image.save(job.executable, path)
    return [path, *write_verilog(core_verilog(job.executable.npu), folder)]
