"""VCD of a compiled design: what changed is found by comparing the state with its last copy."""

# The stubs of Amaranth leave out most of its private names.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable
from typing import Any

import numpy as np
from amaranth.hdl import Signal
from amaranth.sim.pysim import _PyMemoryChange, _VCDWriter

from npulse.sim.engine.access import State
from npulse.sim.engine.cells import CONST

__all__ = ["WaveWriter"]


class WaveWriter(_VCDWriter):
    """Amaranth's VCD writer, told of native changes.

    Parameters
    ----------
    native : State
        State of the design.
    state : engine state
        What values are read through.
    """

    def __init__(self, native: State, state: Any, design: Any, **options: Any) -> None:
        super().__init__(state, design, **options)
        self.native = native
        self.before = native.block.copy()
        self.owners: dict[int, list[Signal]] = {}
        self.rows_before: dict[int, Any] = {}
        self._find_owners()
        self._watch_memories()

    def _find_owners(self) -> None:
        """Map the bytes of each slot to the signals that show it."""
        program = self.native.program
        for signal in self.vcd_signal_vars:
            for run in program.netlist.signals.get(signal, ()):
                if run.cell == CONST:
                    continue
                for unit in program.units.of_run(run):
                    offset = program.layout.unit[unit]
                    for byte in range((program.units.width[unit] + 7) // 8):
                        self.owners.setdefault(offset + byte, []).append(signal)

    def _watch_memories(self) -> None:
        cells = self.native.program.netlist.memory_data
        self.watched = {
            memory: cells[id(memory)] for memory in self.vcd_memory_vars if id(memory) in cells
        }
        for memory, index in self.watched.items():
            self.rows_before[id(memory)] = self.native.rows(index).copy()

    def sample(self, timestamp: int) -> None:
        """Write what the logic has changed since the last call."""
        block = self.native.block
        places = np.flatnonzero(block != self.before)
        if len(places):
            self.before[:] = block
            changed = {id(s): s for place in places for s in self.owners.get(int(place), ())}
            for signal in changed.values():
                self.update_signal(timestamp, signal)
        for memory, index in self.watched.items():
            rows, old = self.native.rows(index), self.rows_before[id(memory)]
            different = rows != old
            if different.any():
                lines = different if different.ndim == 1 else different.any(axis=1)
                for addr in np.flatnonzero(lines):
                    self.update_memory(timestamp, memory, int(addr))
                old[:] = rows

    def note(self, timestamp: int, changed: Iterable[Any]) -> None:
        """Write what Python has committed."""
        for change in changed:
            if isinstance(change, _PyMemoryChange):
                self.update_memory(timestamp, change.state.memory, change.addr)
            else:
                self.update_signal(timestamp, change.signal)
        self.before[:] = self.native.block
