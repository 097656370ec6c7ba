"""Prints, assertions and covers that native code has noticed: their text, as pysim writes it."""

from npulse.sim.engine import cells
from npulse.sim.engine.access import State
from npulse.sim.engine.cells import value_width
from npulse.sim.engine.layout import Control

__all__ = ["report_checks"]

_KINDS = {"assert": "Assertion", "assume": "Assumption"}


def report_checks(state: State, shown: dict[int, str | None] | None = None) -> None:
    """Act on the checks that fired, in the order of the netlist, and clear them.

    Parameters
    ----------
    shown : dict of int to str, optional
        What the combinational prints and covers showed last, by cell; such a one acts again only
        when its text changes or after it was off. Updated.

    Raises
    ------
    AssertionError
        For the first violated assertion or assumption.
    """
    state.control()[Control.STOP // 8] = 0
    fired = []
    for index, (flag, *places) in state.program.layout.checks.items():
        if state.typed[8][flag // 8]:
            state.typed[8][flag // 8] = 0
            cell = state.program.netlist.cells[index]
            assert isinstance(cell, cells.Check)
            text = message(state, cell, places)
            if shown is not None and cell.event < 0 and cell.kind in ("print", "cover"):
                if index in shown and shown[index] == text:
                    continue
                shown[index] = text
            fired.append((cell, text))
        elif shown is not None:
            shown.pop(index, None)
    for cell, text in fired:
        _act(cell, text)


def _act(cell: cells.Check, text: str | None) -> None:
    if cell.kind == "print":
        print(text, end="")
    elif cell.kind == "cover":
        if text is not None:
            print(f"Coverage hit at {cell.line[0]}:{cell.line[1]}:", text)
    else:
        violated = f"{_KINDS[cell.kind]} violated"
        raise AssertionError(violated if text is None else f"{violated}: {text}")


def message(state: State, cell: cells.Check, places: list[int]) -> str | None:
    """Format the arguments that were stored at `places`; None without a format."""
    if cell.chunks is None:
        return None
    parts, at = [], 0
    for chunk in cell.chunks:
        if isinstance(chunk, str):
            parts.append(chunk)
            continue
        value, spec, signed = chunk
        width = value_width(value)
        number = state.read(places[at], max(width, 1))
        at += 1
        if signed and width and number >> width - 1:
            number -= 1 << width
        if spec.endswith("s"):
            parts.append(format(_as_text(number), spec[:-1]))
        else:
            parts.append(format(number, spec))
    return "".join(parts)


def _as_text(number: int) -> str:
    """Characters of a Verilog-like string, first one in the low byte, zeros left out."""
    size = (number.bit_length() + 7) // 8
    return bytes(byte for byte in number.to_bytes(size, "little") if byte).decode()
