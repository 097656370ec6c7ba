"""``npulse run``: a model or an image on the RTL of an NPU."""

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from npulse.sw import image
from npulse.sw.cli.arrays import Arrays, write_outputs
from npulse.sw.cli.figures import compiled_lines
from npulse.sw.cli.job import Job, read_job
from npulse.sw.cli.options import JsonOption, SetOption, screen, write_json
from npulse.sw.cli.report import inline_outputs, run_report, totals
from npulse.sw.cli.show import show_check, show_cycles, show_digits, show_outputs
from npulse.sw.driver.devices import DEFAULT_ENGINE, ENGINES, check_engine, open_device
from npulse.sw.driver.runtime import RunResult, Runtime
from npulse.sw.driver.verilog import core_verilog, write_verilog
from npulse.sw.errors import UserError
from npulse.sw.files import need_folder
from npulse.sw.targets.executable import NpuSegment

__all__ = ["run"]

#: Test images of the bundled model that run at RTL.
_IMAGES = 4

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


def run(
    model: ThingArgument,
    npu_name: NpuChoice = None,
    overrides: SetOption = None,
    input_file: InputOption = None,
    output: OutputOption = None,
    engine: EngineOption = DEFAULT_ENGINE,
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
    job = read_job(model, npu_name, overrides, input_file, images)
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
        show_digits(console, runtime, results, report)
    else:
        show_outputs(console, results)
    show_cycles(console, total, npu.config.peak_macs_per_cycle, engine, seconds)
    show_check(console, total, results)
    for path in _write(job, report, results, output, keep, json_file):
        console.print(f"written: {_short(path)}", soft_wrap=True)
    return 1 if total.wrong else 0


def _run_all(job: Job, engine: str, check: bool) -> tuple[Runtime, list[RunResult], float]:
    """Results of all runs, and the seconds that they took."""
    executable = job.executable
    device = None
    if any(isinstance(segment, NpuSegment) for segment in executable.segments):
        device = open_device(executable.npu, executable.memory.total_bytes, engine)
    runtime = Runtime(executable, device)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    start, results = time.monotonic(), []
    stderr = Console(stderr=True)
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        task = bar.add_task("RTL", total=len(job.inputs) * executable.summary.estimated_cycles)
        for number, inputs in enumerate(job.inputs, 1):
            before = sum(result.stats.cycles for result in results)

            def show(cycles: int, before: int = before, number: int = number) -> None:
                text = f"RTL run {number} of {len(job.inputs)}, {before + cycles:,} cycles"
                bar.update(task, completed=before + cycles, description=text)

            results.append(runtime.run(inputs, check=check, progress=show))
    return runtime, results, time.monotonic() - start


def _short(path: Path) -> Path:
    """The path from the current folder, if it is below it."""
    absolute = path.absolute()
    return absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else path


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
