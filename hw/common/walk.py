"""A walk over nested counts that moves coordinates along: the heart of repeat instructions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amaranth.hdl import Module, Signal, Value

__all__ = ["Level", "walk"]


@dataclass(frozen=True)
class Level:
    """One loop of a walk."""

    name: str
    count: Value | int  #: Iterations, at least 1.
    moves: Mapping[str, Value | int]  #: How far each coordinate goes from iteration to iteration.


def walk(
    m: Module,
    *,
    load: Value,
    step: Value,
    start: Mapping[str, tuple[Signal, Value]],
    levels: Sequence[Level],
) -> list[Signal]:
    """Add the registers and next-state logic of a walk to a module.

    When a level goes on to its next iteration, a coordinate that it moves goes that far from
    where the last iteration began; one that it does not move goes back to there. Every input but
    `load` and `step` stays stable from `load` until the last point is done.

    Parameters
    ----------
    load : Value
        Go to the first point.
    step : Value
        Go to the next point.
    start : mapping of str to (Signal, Value)
        For each coordinate the register that holds it, and where it starts. Coordinates wrap.
    levels : sequence of Level
        Innermost first.

    Returns
    -------
    list of Signal
        For each level: the point is in the last iteration of this level and of all within.
    """
    lasts = _counters(m, load, step, levels)
    advances = []
    for index, last in enumerate(lasts):
        advances.append(step & ~last & (lasts[index - 1] if index else 1))
    for name, (register, value) in start.items():
        _coordinate(m, name, register, value, load, advances, levels)
    return lasts


def _counters(m: Module, load: Value, step: Value, levels: Sequence[Level]) -> list[Signal]:
    """Iterations left at each level, counted down to 1 so that the end needs no subtraction."""
    lasts: list[Signal] = []
    for level in levels:
        left = Signal.like(Value.cast(level.count), name=f"{level.name}_left", reset_less=True)
        last = Signal(name=f"{level.name}_last")
        within = lasts[-1] if lasts else Value.cast(1)
        m.d.comb += last.eq(within & (left == 1))
        with m.If(load | (step & last)):
            m.d.sync += left.eq(level.count)
        with m.Elif(step & within):
            m.d.sync += left.eq(left - 1)
        lasts.append(last)
    return lasts


def _coordinate(
    m: Module,
    name: str,
    register: Signal,
    value: Value,
    load: Value,
    advances: Sequence[Value],
    levels: Sequence[Level],
) -> None:
    """Where the current iteration of each level that moves the coordinate began."""
    moving = [index for index, level in enumerate(levels) if name in level.moves]
    bases = {}
    for index in moving:
        like = Signal.like(register, name=f"{name}_{levels[index].name}", reset_less=True)
        bases[index] = like if bases else register
    with m.If(load):
        m.d.sync += [base.eq(value) for base in bases.values()]
    for index, advance in enumerate(advances):
        if index in bases:
            target = bases[index] + levels[index].moves[name]
        else:
            target = next((bases[above] for above in moving if above > index), value)
        inner = [base for at, base in bases.items() if at <= index]
        with m.Elif(advance):
            m.d.sync += [base.eq(target) for base in inner if base is not target]
