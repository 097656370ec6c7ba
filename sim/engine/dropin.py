"""The engine as an engine of `amaranth.sim.Simulator`, so that any testbench runs unchanged.

``Simulator(design, engine=CompiledEngine)``. Clocks, triggers, processes and testbenches are
Amaranth's own; the state of the design is native memory, and one call advances all its logic.
Within an instant the order is: triggers sample, Python processes run, the logic steps the clock
edges of the delta before, then changes are committed. Combinational nets settle at once instead
of delta by delta, and are computed when somebody looks.
"""

# The stubs of Amaranth leave out most of its private names.
# pyright: reportAttributeAccessIssue=false

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amaranth.hdl import MemoryData, Shape, Signal
from amaranth.sim._async import AsyncProcess
from amaranth.sim._pyclock import PyClockProcess  # pyright: ignore[reportMissingImports]
from amaranth.sim.pysim import (
    PySimEngine,
    _PyEngineState,
    _PyMemoryChange,
    _PyMemoryState,
    _PySignalState,
    _run_wakers,
)

from npulse.sim.engine import cells
from npulse.sim.engine.access import Field, State
from npulse.sim.engine.build import Built, build
from npulse.sim.engine.checks import report_checks
from npulse.sim.engine.layout import Control
from npulse.sim.engine.waves import WaveWriter

__all__ = ["CompiledEngine"]


class _Logic:
    """The compiled design, and what Python has to be told about it."""

    def __init__(self, built: Built) -> None:
        self.built = built
        program = built.program
        self.netlist = program.netlist
        self.state = State(program)
        self.edges = 0
        self.dirty = True
        self.watched: list[_NativeSignal] = []
        self.has_async_reset = -1 in program.layout.groups
        self.has_comb_checks = any(
            isinstance(cell, cells.Check) and cell.event < 0 for cell in self.netlist.cells
        )
        #: Whether nets are to be computed after every change: somebody waits for one.
        self.eager = self.has_comb_checks
        self.shown: dict[int, str | None] = {}
        built.start(self.state)

    def reset(self) -> None:
        self.built.start(self.state)
        self.edges, self.dirty = 0, True
        self.shown.clear()

    def evaluate(self) -> None:
        """Bring the combinational nets up to date."""
        if self.dirty:
            self.built.eval(*self.state.pointers)
            self.dirty = False
            if self.has_comb_checks:
                report_checks(self.state, self.shown)

    def run(self, look: bool) -> bool:
        """Step pending edges, wake who watches; return whether anything watched changed."""
        stepped = self.edges != 0
        if stepped or (self.dirty and self.has_async_reset):
            mask, self.edges = self.edges, 0
            self.built.cycle(*self.state.pointers, mask)
            self.dirty = True
            if self.state.typed[8][Control.STOP // 8]:
                report_checks(self.state, self.shown)
        if not self.dirty:
            return False
        if look or self.eager:
            self.evaluate()
        changed = False
        for signal in self.watched:
            changed |= signal.notice()
        return changed


class _NativeSignal:
    """State of one signal of the design, as the simulator's Python side sees it."""

    def __init__(self, logic: _Logic, signal: Signal, pending: set[Any]) -> None:
        self.logic = logic
        self.signal = signal
        self.pending = pending
        self.field = Field(logic.state, logic.netlist.signals[signal], signed=signal.shape().signed)
        self.is_comb = signal in logic.netlist.driven
        self.wakers: list[Any] = []
        self.events: list[tuple[int, bool]] = []
        self.seen: int | None = None
        self.pending_value: int | None = None

    @property
    def curr(self) -> int:
        if self.field.combinational:
            self.logic.evaluate()
        return self.field.read()

    @property
    def next(self) -> int:
        return self.curr if self.pending_value is None else self.pending_value

    def reset(self) -> None:
        self.pending_value = None
        if self.seen is not None:
            self.seen = self.curr

    def add_waker(self, waker: Any) -> None:
        assert waker not in self.wakers
        self.watch()
        self.wakers.append(waker)

    def watch(self) -> None:
        """Have changes noticed that the logic makes."""
        if self.seen is None:
            self.seen = self.curr
            self.logic.watched.append(self)
            self.logic.eager |= self.field.combinational

    def update(self, value: int, mask: int = ~0) -> None:
        value = self.next & ~mask | int(value) & mask
        if value != self.next:
            self.pending_value = value
            self.pending.add(self)

    def commit(self) -> bool:
        value, self.pending_value = self.pending_value, None
        if value is None or value == self.field.read():
            return False
        self.field.write(value)
        self.logic.dirty = True
        if self.seen is not None:
            self.notice()
        return True

    def notice(self) -> bool:
        """Run the wakers if the value is another one than last time."""
        value = self.curr
        before = self.seen
        if value == before or before is None:
            return False
        self.seen = value
        for event, rising in self.events:
            if bool(value) == rising:
                self.logic.edges |= 1 << event
        _run_wakers(self.wakers, before, value)
        return True


class _NativeMemory:
    """State of one memory of the design."""

    def __init__(self, logic: _Logic, memory: MemoryData, pending: set[Any]) -> None:
        self.logic = logic
        self.memory = memory
        self.pending = pending
        self.shape = Shape.cast(memory.shape)
        self.rows = logic.state.rows(logic.netlist.memory_data[id(memory)])
        self.write_queue: dict[int, int] = {}

    def reset(self) -> None:
        self.write_queue = {}

    def add_waker(self, waker: Any) -> None:
        raise NotImplementedError("memories of a compiled design do not wake Python processes")

    def read(self, addr: int) -> int:
        if addr not in range(self.memory.depth):
            return 0
        row = self.rows[addr]
        value = int(row) if row.ndim == 0 else int.from_bytes(row.tobytes(), "little")
        if self.shape.signed and self.shape.width and value >> self.shape.width - 1:
            value -= 1 << self.shape.width
        return value

    def write(self, addr: int, value: int, mask: int | None = None) -> None:
        if addr not in range(self.memory.depth):
            return
        old = self.write_queue.get(addr, self.read(addr))
        if mask is not None:
            value = value & mask | old & ~mask
        self.write_queue[addr] = value & (1 << self.shape.width) - 1
        self.pending.add(self)

    def commit(self) -> bool:
        changed = False
        for addr, value in self.write_queue.items():
            if value != self.read(addr) & (1 << self.shape.width) - 1:
                changed = True
                if self.rows.ndim == 1:
                    self.rows[addr] = value
                else:
                    self.rows[addr] = list(value.to_bytes(self.rows.shape[1], "little"))
        self.write_queue.clear()
        self.logic.dirty |= changed
        return changed


class _EngineState(_PyEngineState):
    """Slots of signals and memories: native for those of the design, plain for the others."""

    def __init__(self, logic: _Logic) -> None:
        super().__init__()
        self.logic = logic

    def get_signal(self, signal: Signal) -> int:
        index = self.signals.get(signal)
        if index is None:
            index = self.signals[signal] = len(self.slots)
            known = signal in self.logic.netlist.signals
            make = self._native if known else _PySignalState
            self.slots.append(make(signal, self.pending))
        return index

    def _native(self, signal: Signal, pending: set[Any]) -> _NativeSignal:
        return _NativeSignal(self.logic, signal, pending)

    def get_memory(self, memory: MemoryData) -> int:
        index = self.memories.get(memory)
        if index is None:
            index = self.memories[memory] = len(self.slots)
            if id(memory) in self.logic.netlist.memory_data:
                self.slots.append(_NativeMemory(self.logic, memory, self.pending))
            else:
                self.slots.append(_PyMemoryState(memory, self.pending))
        return index

    def reset(self) -> None:
        self.logic.reset()
        super().reset()

    def commit(self, changed: set[Any] | None = None) -> bool:
        converged = True
        pending = list(self.pending)
        self.pending.clear()
        for slot in pending:
            if changed is not None:
                if isinstance(slot, (_NativeMemory, _PyMemoryState)):
                    changed.update(_PyMemoryChange(slot, addr) for addr in slot.write_queue)
                else:
                    changed.add(slot)
            if slot.commit():
                converged = False
        return converged


class CompiledEngine(PySimEngine):
    """Engine of `amaranth.sim.Simulator` with compiled logic.

    Raises
    ------
    Unsupported
        For formal-only values, foreign instances and I/O buffers.
    """

    def __init__(self, design: Any, **options: Any) -> None:
        self._design = design
        self._built = build(design, eager_checks=True, **options)
        self._logic = _Logic(self._built)
        self._state = _EngineState(self._logic)
        self._processes: Any = {}  # ordered, so that runs repeat
        self._testbenches: list[Any] = []
        self._delta_cycles = 0
        self._vcd_writers: list[Any] = []
        self._active_triggers: Any = {}
        self._watch_clocks()

    @property
    def report(self) -> Any:
        """Account of the build."""
        return self._built.report

    def _watch_clocks(self) -> None:
        """Find the signal of each clock, and have its edges noticed."""
        netlist = self._logic.netlist
        for number, event in enumerate(netlist.events):
            for signal, value in netlist.signals.items():
                if value == (event.clock,):
                    slot = self._state.slots[self._state.get_signal(signal)]
                    slot.events.append((number, event.edge == "pos"))
                    slot.watch()
                    break

    def add_clock_process(self, clock: Signal, *, phase: int, period: int) -> None:
        processes, self._processes = self._processes, set()
        super().add_clock_process(clock, phase=phase, period=period)
        self._processes = {**processes, **dict.fromkeys(self._processes)}

    def add_async_process(self, simulator: Any, process: Any) -> None:
        made = AsyncProcess(self._design, self, process, testbench=False, background=True)
        self._processes[made] = None

    def add_trigger_combination(self, combination: Any, *, oneshot: bool) -> Any:
        from amaranth.sim.pysim import _PyTriggerState

        return _PyTriggerState(self, combination, _Ordered(self._active_triggers), oneshot=oneshot)

    def step_design(self) -> None:
        """Run deltas until nothing changes."""
        converged = False
        while not converged:
            changed: set[Any] | None = set() if self._vcd_writers else None
            triggers = list(self._active_triggers)
            self._active_triggers.clear()
            for trigger in triggers:
                trigger.run()
            self._run_processes()
            moved = self._logic.run(look=changed is not None)
            for writer in self._vcd_writers:
                writer.sample(self._now_plus_deltas(writer.fs_per_delta))
            converged = self._state.commit(changed) and not moved and not self._logic.edges
            for writer in self._vcd_writers:
                writer.note(self._now_plus_deltas(writer.fs_per_delta), changed or ())
            self._delta_cycles += 1

    def fast_forward(self, cycles: int, until: Signal | None = None) -> int:
        """Advance whole clock cycles natively; no testbench or process runs in between.

        Call it between two `advance`. Time moves along; who waits for a clock edge sees the first
        one after the skipped cycles, and pending delays are put off by as much.

        Parameters
        ----------
        until : Signal, optional
            Stop before the edge of the first cycle in which it is not zero.

        Returns
        -------
        int
            Cycles advanced.

        Raises
        ------
        ValueError
            If there is not exactly one clock edge and one clock process, or waves are written.
        """
        clocks = [p for p in self._processes if isinstance(p, PyClockProcess)]
        if len(self._logic.netlist.events) != 1 or len(clocks) != 1 or self._vcd_writers:
            raise ValueError(
                "fast_forward must have one clock, one edge of it and no waves, "
                f"not {len(clocks)} clocks, {len(self._logic.netlist.events)} edges "
                f"and {len(self._vcd_writers)} waves"
            )
        words = self._logic.state.control()
        if until is not None:
            module = self._built.until(self._logic.netlist.signals[until])
            words[Control.UNTIL // 8] = module.address("until")
        try:
            done = self._run_native(cycles)
        finally:
            words[Control.UNTIL // 8] = 0
        timeline, passed = self._state.timeline, done * clocks[0].period
        timeline.now += passed
        for waker in timeline.wakers:
            timeline.wakers[waker] += passed
        return done

    def _run_native(self, cycles: int) -> int:
        """Run in slices, so that Ctrl-C is taken."""
        logic, done, piece = self._logic, 0, 256
        while done < cycles:
            started = time.perf_counter()
            most = min(piece, cycles - done)
            ran = int(self._built.run(*logic.state.pointers, most))
            done += ran
            logic.dirty = True
            if logic.state.typed[8][Control.STOP // 8]:
                report_checks(logic.state, logic.shown)
            elif ran < most:
                break
            if time.perf_counter() - started < 0.02:
                piece *= 2
        return done

    def _run_processes(self) -> None:
        for process in self._processes:
            if process.runnable:
                process.runnable = False
                process.run()

    @contextmanager
    def write_vcd(  # type: ignore[override]
        self, *, vcd_file: Any, gtkw_file: Any, traces: Any, fs_per_delta: int
    ) -> Iterator[None]:
        writer = WaveWriter(
            self._logic.state,
            self._state,
            self._design,
            vcd_file=vcd_file,
            gtkw_file=gtkw_file,
            traces=traces,
            fs_per_delta=fs_per_delta,
        )
        try:
            self._vcd_writers.append(writer)
            yield
        finally:
            writer.close(self._now_plus_deltas(fs_per_delta))
            self._vcd_writers.remove(writer)


class _Ordered:
    """The `add` of a set, over the keys of a dict, which keep their order."""

    def __init__(self, target: dict[Any, None]) -> None:
        self.target = target

    def add(self, item: Any) -> None:
        self.target[item] = None
