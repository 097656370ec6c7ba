"""`Compiled`: a design as native code, driven without Python in the loop."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from amaranth.hdl import Shape, ShapeCastable, Signal, Value, ValueCastable, ValueLike
from amaranth.sim._pyeval import eval_value  # pyright: ignore[reportMissingImports]
from numpy.typing import NDArray

from npulse.sim.engine.access import Field, State
from npulse.sim.engine.build import Built, build
from npulse.sim.engine.cache import ObjectCache
from npulse.sim.engine.checks import report_checks
from npulse.sim.engine.clocks import calendar, refuse_driven_clocks
from npulse.sim.engine.gridplan import GridPlan
from npulse.sim.engine.layout import Control
from npulse.sim.engine.probes import Probes
from npulse.sim.engine.program import CHUNK
from npulse.sim.engine.speed import check_speed

__all__ = ["Compiled", "Snapshot"]

#: Seconds that native code runs before Python may take a Ctrl-C.
SLICE_SECONDS = 0.05

_KEPT = (Control.CYCLE, Control.CALENDAR_AT, Control.PARITY)


@dataclass(frozen=True)
class Snapshot:
    """Whole state of a `Compiled` at one moment, opaque."""

    block: bytes
    memories: tuple[bytes, ...]


class Compiled:
    """Compile a design, and advance it by cycles.

    Parameters
    ----------
    design : Elaboratable
        Any Amaranth design; undriven signals and clock resets are inputs.
    clocks : mapping of str to number, optional
        Period of each clock by the name of its signal (``clk``, ``fast_clk``); the first one is
        the reference, whose cycles `step` counts. Left out: all clocks are equal.
    cache : ObjectCache, optional
        Where compiled code is kept; the user's cache folder by default.

    Raises
    ------
    Unsupported
        For formal-only values, foreign instances, I/O buffers, and clocks that the design drives.

    Notes
    -----
    `get` and probes see the settled values before the next clock edge. A signal is named by the
    object itself (a `Signal`, a `data.View`, any expression for `get`) or by its hierarchical
    name, such as ``"fifo.level"``.
    """

    def __init__(
        self,
        design: Any,
        *,
        clocks: Mapping[str, float] | None = None,
        cache: ObjectCache | None = None,
        chunk: int = CHUNK,
        level: int = 1,
    ) -> None:
        self._built: Built = build(design, cache=cache, chunk=chunk, level=level)
        program = self._built.program
        self.netlist = program.netlist
        self.report = self._built.report
        self._refuse_clocks()
        self.state = State(program)
        self._calendar = np.array(calendar(self.netlist.events, clocks), np.uint64)
        self._fields: dict[int, tuple[Any, Field]] = {}
        self._dirty = True
        self._until: dict[int, Any] = {}
        self._probes: Probes | None = None
        self._has_async_reset = -1 in program.layout.groups
        self._rate = 10_000.0
        words = self.state.control()
        words[Control.CALENDAR // 8] = self._calendar.ctypes.data
        words[Control.CALENDAR_LENGTH // 8] = len(self._calendar)
        check_speed(self._built, self.state)
        self._built.start(self.state)

    def _refuse_clocks(self) -> None:
        program = self._built.program
        clock_units = [program.units.of_run(event.clock)[0] for event in self.netlist.events]
        read: set[int] = set()
        for kind, index in program.cycle_order:
            values = program.sink_values[program.sinks[index]] if kind else None
            read.update(
                program.units.deps(index) if values is None else program.units.of_values(values)
            )
        refuse_driven_clocks(self.netlist, read, clock_units)

    # Values

    @property
    def cycle(self) -> int:
        """Cycles of the reference clock since power-on."""
        return int(self.state.control()[Control.CYCLE // 8])

    def field(self, signal: str | ValueLike) -> Field:
        """Where `signal` is in the state."""
        target = self.signal(signal)
        found = self._fields.get(id(target))
        if found is None:
            if target not in self.netlist.signals:
                raise KeyError(f"signal {target.name!r} is not in the design")
            place = Field(self.state, self.netlist.signals[target], signed=target.shape().signed)
            found = self._fields[id(target)] = (target, place)
        return found[1]

    def signal(self, signal: str | ValueLike) -> Signal:
        """Find the signal that a name or a view stands for."""
        if isinstance(signal, str):
            if signal not in self.netlist.names:
                raise KeyError(f"signal must be the name of a signal of the design, not {signal!r}")
            return self.netlist.names[signal]
        value = Value.cast(signal)
        if not isinstance(value, Signal):
            raise TypeError(f"signal must be a signal or its name, not {signal!r}")
        return value

    def get(self, signal: str | ValueLike) -> Any:
        """Return the settled value, as the signal's shape has it if that is a `ShapeCastable`."""
        if isinstance(signal, str):
            return self._settled(self.field(signal)).read()
        value = Value.cast(signal)
        if isinstance(value, Signal):
            number = self._settled(self.field(value)).read()
        else:
            number = eval_value(_Reader(self), value)
        if isinstance(signal, ValueCastable):
            shape = signal.shape()
            if isinstance(shape, ShapeCastable):
                return shape.from_bits(number & (1 << Shape.cast(shape).width) - 1)
        return number

    def _settled(self, field: Field) -> Field:
        if field.combinational and self._dirty:
            self.evaluate()
        return field

    def evaluate(self) -> None:
        """Compute all combinational nets from the present state and inputs."""
        self._built.eval(*self.state.pointers)
        self._dirty = False

    def set(self, signal: str | ValueLike, value: Any) -> None:
        """Write an input or a register.

        Raises
        ------
        ValueError
            If the signal is driven by combinational logic.
        """
        target = self.signal(signal)
        field = self.field(target)
        if not field.writable or target in self.netlist.driven:
            name = target.name
            raise ValueError(f"signal {name!r} must be an input or a register, not combinational")
        if not isinstance(value, int):
            value = _as_integer(signal, value)
        field.write(value)
        self._dirty = True
        if self._has_async_reset:
            self._built.cycle(*self.state.pointers, 0)

    def memory(self, name: Any) -> NDArray[Any]:
        """View the rows of a memory, without copying.

        Parameters
        ----------
        name : str, Memory or MemoryData
            The hierarchical name, or the object. A memory of a grid's cells has the name of the
            grid and that in the cell: ``"banks.words"``.

        Returns
        -------
        (depth,) uint8, uint16, uint32 or uint64, or (depth, bytes) uint8 above 64 bits
            Bits as stored, also for signed shapes. Writing to it writes the memory. For a grid,
            its shape follows the depth: ``(depth, *shape)``.
        """
        self._dirty = True  # the caller may write
        if isinstance(name, str):
            if name in self.netlist.memories:
                return self.state.rows(self.netlist.memories[name])
            if name in self._grid_memories:
                plan, index = self._grid_memories[name]
                return plan.memory_view(self.state.buffers[plan.memories[index][0]], index)
            known = sorted([*self.netlist.memories, *self._grid_memories])
            raise KeyError(f"memory must be one of {known}, not {name!r}")
        data = getattr(name, "data", name)
        if id(data) not in self.netlist.memory_data:
            raise KeyError(f"memory {name!r} is not in the design")
        return self.state.rows(self.netlist.memory_data[id(data)])

    @cached_property
    def _grid_memories(self) -> dict[str, tuple[GridPlan, int]]:
        return {
            ".".join(filter(None, (path, name))): (plan, index)
            for path, plan in self._grids.items()
            for name, index in plan.info.net.memories.items()
        }

    @cached_property
    def _grids(self) -> dict[str, GridPlan]:
        plans = self._built.program.grids.plans
        return {self.netlist.path_of(index): plan for index, plan in plans.items()}

    def registers(self, grid: str) -> dict[str, NDArray[Any]]:
        """View the registers of all cells of a grid: arrays of the grid's shape, by signal name.

        Parameters
        ----------
        grid : str
            Hierarchical name of the grid; ``""`` if it is the whole design.

        Notes
        -----
        A register that flows along the last axis has two copies: take the view again after a step.
        """
        if grid not in self._grids:
            raise KeyError(f"grid must be one of {sorted(self._grids)}, not {grid!r}")
        plan = self._grids[grid]
        return {
            name: plan.view(self.state.block, plan.registers[value[0].cell])
            for name, signal in plan.info.net.names.items()
            if (value := plan.info.net.signals[signal])
            and value[0].cell in plan.registers
            and len(value) == 1
            and value[0].width == plan.registers[value[0].cell].width
        }

    # Time

    def step(
        self,
        cycles: int = 1,
        *,
        progress: Callable[[int], None] | None = None,
        every: int = 1_000_000,
    ) -> None:
        """Advance by `cycles` of the reference clock.

        Parameters
        ----------
        progress : callable, optional
            Called with the cycles done so far, about every `every` cycles.

        Raises
        ------
        AssertionError
            If a clocked assertion fails; the state is that after the failing edge.
        """
        if cycles < 0:
            raise ValueError(f"cycles must be at least 0, not {cycles!r}")
        self._advance(cycles, progress, every)

    def step_edges(self, mask: int) -> None:
        """Take one step of the clock edges in `mask`, by index in ``netlist.events``."""
        self._built.cycle(*self.state.pointers, mask)
        self._dirty = True
        if self.state.typed[8][Control.STOP // 8]:
            self._halted()

    def run_until(
        self,
        signal: str | ValueLike,
        max_cycles: int,
        *,
        progress: Callable[[int], None] | None = None,
        every: int = 1_000_000,
    ) -> int:
        """Advance until `signal` is not zero, and return the cycles that took (0 if it is now).

        Raises
        ------
        TimeoutError
            If it is still zero after `max_cycles`.
        """
        target = self.signal(signal)
        words = self.state.control()
        words[Control.UNTIL // 8] = self._until_address(target)
        try:
            done = self._advance(max_cycles, progress, every)
        finally:
            words[Control.UNTIL // 8] = 0
        if done == max_cycles and not self.get(target):
            raise TimeoutError(f"{target.name!r} must become true within {max_cycles} cycles")
        return done

    def _until_address(self, signal: Signal) -> int:
        if id(signal) not in self._until:
            module = self._built.until(self.netlist.signals[signal])
            self._until[id(signal)] = (signal, module)
        return self._until[id(signal)][1].address("until")

    def _advance(self, cycles: int, progress: Callable[[int], None] | None, every: int) -> int:
        """Run in slices short enough for signals, events and progress."""
        done, reported = 0, 0
        stop = self.state.typed[8]
        while done < cycles:
            most = min(cycles - done, max(1, int(self._rate * SLICE_SECONDS)))
            if progress is not None:
                most = min(most, every)
            started = time.perf_counter()
            ran = int(self._built.run(*self.state.pointers, most))
            self._note_rate(ran, time.perf_counter() - started)
            done += ran
            self._dirty = True
            if stop[Control.STOP // 8]:
                self._halted()
            elif ran < most:
                break
            if progress is not None and done - reported >= every:
                reported = done
                progress(done)
        return done

    def _note_rate(self, ran: int, seconds: float) -> None:
        if ran > 100 and seconds > 0:
            self._rate = ran / seconds
        elif ran:
            self._rate = min(self._rate * 2, max(ran / max(seconds, 1e-6), 1_000.0))

    def _halted(self) -> None:
        if self._probes is not None:
            self._probes.drain()
        report_checks(self.state)

    def reset(self) -> None:
        """Return to power-on: registers, memories, inputs and the cycle count."""
        self._built.start(self.state)
        self._dirty = True

    def snapshot(self) -> Snapshot:
        """Copy the whole state."""
        memories = tuple(array.tobytes() for array in self.state.buffers)
        return Snapshot(self.state.block.tobytes(), memories)

    def restore(self, snapshot: Snapshot) -> None:
        """Return to a state taken by `snapshot` of the same design."""
        words = self.state.control()
        kept = words.copy()
        saved = np.frombuffer(snapshot.block, np.uint8)
        if saved.shape != self.state.block.shape:
            raise ValueError("snapshot must be of the same design")
        self.state.block[:] = saved
        for offset in range(0, Control.SIZE, 8):
            if offset not in _KEPT:
                words[offset // 8] = kept[offset // 8]
        for array, content in zip(self.state.buffers, snapshot.memories, strict=True):
            array[:] = np.frombuffer(content, np.uint8)
        self._dirty = True

    # Probes

    def probe(
        self,
        signals: Mapping[str, str | ValueLike] | list[str],
        *,
        every: int = 1,
        on_change: bool = False,
        rows: int = 65_536,
    ) -> Probes:
        """Sample signals natively while the design runs; see `Probes`."""
        if self._probes is not None:
            self._probes.close()
        named = signals if isinstance(signals, Mapping) else {name: name for name in signals}
        targets = {name: self.signal(signal) for name, signal in named.items()}
        self._probes = Probes(
            self._built, self.state, targets, every=every, on_change=on_change, rows=rows
        )
        return self._probes


class _Reader:
    """The part of a simulation state that `eval_value` reads."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self.slots: list[Any] = []

    def get_signal(self, signal: Signal) -> int:
        field = self.compiled._settled(self.compiled.field(signal))
        self.slots.append(_Slot(field.read()))
        return len(self.slots) - 1

    def get_memory(self, memory: Any) -> int:
        self.slots.append(_Rows(self.compiled, memory))
        return len(self.slots) - 1


@dataclass
class _Slot:
    curr: int


@dataclass
class _Rows:
    compiled: Compiled
    memory: Any

    def read(self, addr: int) -> int:
        row = self.compiled.memory(self.memory)[addr]
        value = int(row) if row.ndim == 0 else int.from_bytes(row.tobytes(), "little")
        shape = Shape.cast(self.memory.shape)
        if shape.signed and value >> shape.width - 1:
            value -= 1 << shape.width
        return value


def _as_integer(signal: Any, value: Any) -> int:
    shape = signal.shape() if isinstance(signal, ValueCastable) else None
    if isinstance(shape, ShapeCastable):
        return int(Value.cast(shape.const(value)).value)  # type: ignore[attr-defined]
    return int(value)
