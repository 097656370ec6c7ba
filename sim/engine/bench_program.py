"""The benchmark as a program: ``python -m npulse.sim.engine.bench_program``.

A process of its own measures nothing but the engine and its peers, and needs nothing of whoever
starts it: machines are named as ``NAME=MODULE:FUNCTION`` and made by ``FUNCTION(NAME)``. It writes
one JSON object a line: ``{"progress": text}`` before each part, ``{"result": ...}`` at the end.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pkgutil import resolve_name
from typing import Any

from npulse.sim.engine.bench import bench_engine

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the arguments ask for.

    Raises
    ------
    SystemExit
        An argument is wrong: status 2, the reason on stderr.
    """
    options = _parser().parse_args(arguments)
    result = bench_engine(
        arrays=options.array or (),
        clusters=options.clusters,
        machines=dict(options.machine or ()),
        verilator=options.verilator,
        progress=lambda text: _write(progress=text),
    )
    _write(result=result)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench_program", description=__doc__)
    parser.add_argument("--array", type=_shape, action="append", metavar="ROWSxCOLS")
    parser.add_argument("--clusters", type=_count, default=1, metavar="N")
    parser.add_argument("--machine", type=_machine, action="append", metavar="NAME=MODULE:FUNCTION")
    parser.add_argument("--verilator", action=argparse.BooleanOptionalAction, default=True)
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a size must be at least 1, not {text!r}")
    return int(text)


def _shape(text: str) -> tuple[int, int]:
    rows, _, cols = text.partition("x")
    return _count(rows), _count(cols)


def _machine(text: str) -> tuple[str, Callable[[], Any]]:
    name, _, place = text.partition("=")
    try:
        return name, partial(resolve_name(place), name)
    except (ValueError, ImportError, AttributeError) as error:
        raise argparse.ArgumentTypeError(
            f"a machine must be NAME=MODULE:FUNCTION, not {text!r} ({error})"
        ) from None


def _write(**content: Any) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # whoever started it says so
        sys.exit(130)
