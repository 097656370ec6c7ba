"""The command as a whole: its subcommands, and one sentence for everything that goes wrong."""

import os
import sys
import traceback
from typing import Any, NoReturn

import typer

from npulse.sw.cli import bench, compile, disasm, explain, flavours, run, verilog
from npulse.sw.errors import UserError

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help=(
        "Workshop for neural processing units: RTL, compiler, simulation and Verilog.\n\n"
        "Start with: npulse run digits --npu tpu-v1:sim --check"
    ),
)
for name, command in {
    "run": run.run,
    "compile": compile.compile,
    "explain": explain.explain,
    "disasm": disasm.disasm,
    "verilog": verilog.verilog,
    "flavours": flavours.flavours,
}.items():
    app.command(name)(command)
app.add_typer(bench.bench, name="bench")

#: ClickException, which typer has from click, or since 0.26 in a copy of its own.
_UsageError: type[Exception] = typer.BadParameter.__mro__[2]

#: Exit status when the user can mend it, as for a wrong option.
USER_ERROR = 2
#: EX_SOFTWARE of sysexits.h: a fault of npulse itself.
FAULT = 70


def main() -> NoReturn:
    """Run the command of the process's arguments and exit."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a terminal without these letters gets question marks
            reconfigure(errors="replace")
    sys.exit(_status())


def _status() -> int:
    """Exit status of the command."""
    try:
        return app(sys.argv[1:] or ["--help"], prog_name="npulse", standalone_mode=False) or 0
    except UserError as error:
        return _say(str(error), USER_ERROR)
    except _UsageError as error:
        text = error.format_message()  # type: ignore[attr-defined]
        return _say(f"{text.rstrip('.')}; try npulse --help", USER_ERROR)
    except (typer.Abort, KeyboardInterrupt):
        return _say("stopped", 130)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _fault(error)


def _fault(error: Exception) -> int:
    if os.environ.get("NPULSE_TRACEBACK"):
        traceback.print_exc()
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)} line {frame.lineno}"
    text = " ".join(str(error).split())
    return _say(
        f"fault of npulse: {type(error).__name__} at {place} ({text}); please report it with the "
        "output that NPULSE_TRACEBACK=1 gives",
        FAULT,
    )


def _say(message: str, status: int) -> int:
    print(f"npulse: {message}", file=sys.stderr)
    return status
