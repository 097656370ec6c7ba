"""The engine's own netlist: cells whose operands are runs of bits, not tuples of single nets.

Amaranth's netlist names every bit of every bus by an integer. Here an operand is a tuple of
`Run`, so a 2,048-bit bus that comes from one register is one object. `netlist` makes these
cells, everything after it reads only them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = [
    "AsyncRead",
    "Arm",
    "Cell",
    "Check",
    "Event",
    "GridCell",
    "Input",
    "Matches",
    "Memory",
    "Operator",
    "Part",
    "Priority",
    "Register",
    "Run",
    "Select",
    "SyncRead",
    "Value",
    "WritePort",
    "CONST",
    "concat",
    "slice_value",
    "value_width",
]

#: The `cell` of a constant run; its `lo` is then the unsigned value.
CONST = -1


class Run(NamedTuple):
    """Consecutive bits ``lo .. lo + width - 1`` of a cell's output, or a constant.

    With ``repeat`` set, bit ``lo`` alone, `width` times: that is how the netlist extends signs.
    """

    cell: int
    lo: int
    width: int
    repeat: bool = False


Value = tuple[Run, ...]


def value_width(value: Value) -> int:
    """Bits of `value`."""
    return sum(run.width for run in value)


def slice_value(value: Value, lo: int, width: int) -> Value:
    """Bits ``lo .. lo + width - 1`` of `value`."""
    runs = []
    for run in value:
        start, stop = max(lo, 0), min(lo + width, run.width)
        if start < stop:
            runs.append(_slice_run(run, start, stop - start))
        lo -= run.width
    return tuple(runs)


def _slice_run(run: Run, lo: int, width: int) -> Run:
    if run.cell == CONST:
        return Run(CONST, run.lo >> lo & (1 << width) - 1, width)
    if run.repeat:
        return Run(run.cell, run.lo, width, width > 1)
    return Run(run.cell, run.lo + lo, width)


def concat(values: Iterable[Value]) -> Value:
    """Join `values`, first one lowest, merging runs that continue each other."""
    runs: list[Run] = []
    for run in (run for value in values for run in value):
        last = runs[-1] if runs else None
        if last is None or run.repeat or last.repeat or last.cell != run.cell:
            runs.append(run)
        elif run.cell == CONST:
            runs[-1] = Run(CONST, last.lo | run.lo << last.width, last.width + run.width)
        elif last.lo + last.width == run.lo:
            runs[-1] = Run(run.cell, last.lo, last.width + run.width)
        else:
            runs.append(run)
    return tuple(runs)


class Event(NamedTuple):
    """An edge (``"pos"`` or ``"neg"``) of a clock, which is one bit of a cell."""

    clock: Run
    edge: str
    name: str


@dataclass(slots=True)
class Cell:
    """What every cell has: output `width` in bits, the `module` it lies in, its source line."""

    width: int
    module: int
    source: str


@dataclass(slots=True)
class Input(Cell):
    """Storage that only the outside writes: ports of the top, undriven signals."""

    init: int = 0
    cuts: tuple[int, ...] = ()


@dataclass(slots=True)
class Operator(Cell):
    """Unary, binary or multiplexing operator, in the spelling of Amaranth's netlist."""

    op: str = ""
    inputs: tuple[Value, ...] = ()


@dataclass(slots=True)
class Part(Cell):
    """``value >> offset * stride``; past the end zeros, or the sign if `signed`."""

    value: Value = ()
    signed: bool = False
    offset: Value = ()
    stride: int = 1


@dataclass(slots=True)
class Matches(Cell):
    """One bit: whether `value` fits any of the patterns of ``0``, ``1`` and ``-`` (MSB first)."""

    value: Value = ()
    patterns: tuple[str, ...] = ()


@dataclass(slots=True)
class Priority(Cell):
    """One-hot: the lowest of `inputs` that is 1, if `enable`."""

    enable: Value = ()
    inputs: tuple[Value, ...] = ()


class Arm(NamedTuple):
    """Assignment of `value` at bit `start`, if the one-bit `cond`."""

    cond: Value
    start: int
    value: Value
    width: int


@dataclass(slots=True)
class Select(Cell):
    """`default` overwritten by each arm in turn: the later wins."""

    default: Value = ()
    arms: tuple[Arm, ...] = ()


@dataclass(slots=True)
class Register(Cell):
    """Flip-flops on one event; with `arst`, asynchronously set to `init`."""

    data: Value = ()
    init: int = 0
    event: int = 0
    arst: Value | None = None


@dataclass(slots=True)
class Memory(Cell):
    """Storage of `depth` rows of `width` bits; the ports are cells of their own.

    `init` is empty if all rows start as zero, or else has all of them.
    """

    depth: int = 0
    init: tuple[int, ...] = ()
    name: str = ""


@dataclass(slots=True)
class WritePort(Cell):
    """Writes the bits of `data` whose bit of `enable` is 1, on the event."""

    memory: int = 0
    addr: Value = ()
    data: Value = ()
    enable: Value = ()
    event: int = 0


@dataclass(slots=True)
class AsyncRead(Cell):
    """Combinational read port."""

    memory: int = 0
    addr: Value = ()


@dataclass(slots=True)
class SyncRead(Cell):
    """Registered read port; sees same-edge writes of the ports it is transparent for."""

    memory: int = 0
    addr: Value = ()
    enable: Value = ()
    event: int = 0
    transparent: tuple[int, ...] = ()
    init: int = 0


@dataclass(slots=True)
class Check(Cell):
    """Print, assertion, assumption or cover; `event` -1 means combinational.

    `chunks` holds text and ``(value, format description, signed)``, or is None.
    """

    kind: str = ""
    test: Value = ()
    enable: Value = ()
    event: int = -1
    chunks: tuple[Any, ...] | None = None
    line: tuple[str, int] = ("", 0)


@dataclass(slots=True)
class GridCell(Cell):
    """A whole `Grid` as one black box with registered outputs."""

    grid: Any = None
    key: str = ""
    inputs: dict[str, Value] = field(default_factory=dict)
    #: Bit where each output port starts, and its width.
    outputs: dict[str, tuple[int, int]] = field(default_factory=dict)
    event: int = -1
    #: First bits of the lanes of all outputs.
    cuts: tuple[int, ...] = (0,)
