"""Which clock edges happen together, and in what order: the calendar of a design's clocks."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm

from npulse.sim.engine import cells
from npulse.sim.engine.cells import Event
from npulse.sim.engine.netlist import Netlist, Unsupported

__all__ = ["LAST", "calendar", "refuse_driven_clocks"]

#: Bit of a mask that marks the last instant of a reference cycle.
LAST = 1 << 63


def refuse_driven_clocks(netlist: Netlist, read_units: set[int], clock_units: list[int]) -> None:
    """Refuse clocks that the design drives, or reads as data: both need delta cycles.

    Parameters
    ----------
    read_units : set of int
        Units that are operands of something.
    clock_units : list of int
        Unit of the clock of each event.
    """
    for event, unit in zip(netlist.events, clock_units, strict=True):
        if not isinstance(netlist.cells[event.clock.cell], cells.Input):
            raise Unsupported(
                f"clock {event.name!r} must come from outside the design in bulk mode, "
                "not from its logic; simulate it with the drop-in engine"
            )
        if unit in read_units:
            raise Unsupported(
                f"clock {event.name!r} must not be read as data in bulk mode; "
                "simulate it with the drop-in engine"
            )


def calendar(events: Sequence[Event], periods: Mapping[str, float] | None = None) -> list[int]:
    """Masks of the instants of one hyperperiod.

    Rising edges are at multiples of the period, falling ones half a period later. The first
    entry of `periods`, or else the first event's clock, is the reference: a cycle lasts from one
    of its active edges to the next.

    Parameters
    ----------
    periods : mapping of str to number
        Period by name of the clock signal, in any one unit; clocks left out take the reference's.
    """
    if len(events) <= 1:
        return [LAST | 1]
    known = {event.name for event in events}
    for name, period in (periods or {}).items():
        if name not in known:
            raise ValueError(f"clocks must name clocks of the design {sorted(known)}, not {name!r}")
        if period <= 0:
            raise ValueError(f"period of {name!r} must be positive, not {period!r}")
    reference = next(iter(periods)) if periods else events[0].name
    ticks = _in_ticks(events, periods or {}, reference)
    return _instants(events, ticks, reference)


def _in_ticks(
    events: Sequence[Event], periods: Mapping[str, float], reference: str
) -> dict[str, int]:
    """Half periods as integers of one unit."""
    base = periods.get(reference, 1)
    exact = {
        event.name: Fraction(periods.get(event.name, base)).limit_denominator(10**6) / 2
        for event in events
    }
    scale = lcm(*(half.denominator for half in exact.values()))
    return {name: int(half * scale) for name, half in exact.items()}


def _instants(events: Sequence[Event], ticks: dict[str, int], reference: str) -> list[int]:
    length = 2 * lcm(*ticks.values())
    edges = sum(length // (2 * ticks[event.name]) for event in events)
    if edges > 1_000_000:
        raise ValueError(f"clocks must repeat within 1000000 edges, not {edges}")
    masks: dict[int, int] = {}
    for number, event in enumerate(events):
        half = ticks[event.name]
        for time in range(0 if event.edge == "pos" else half, length, 2 * half):
            masks[time] = masks.get(time, 0) | 1 << number
    active = next(e for e in events if e.name == reference)
    half = ticks[reference]
    first = 0 if active.edge == "pos" else half
    starts = {time for time in range(first, length, 2 * half)}
    times = sorted(masks)
    times = [t for t in times if t >= first] + [t for t in times if t < first]
    result = []
    for at, time in enumerate(times):
        following = times[(at + 1) % len(times)]
        result.append(masks[time] | (LAST if following in starts else 0))
    return result
