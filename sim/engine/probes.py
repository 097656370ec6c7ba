"""Probes: signals sampled by native code into a ring of records, drained to numpy."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from amaranth.hdl import Signal
from numpy.typing import NDArray

from npulse.sim.engine.access import State, aligned
from npulse.sim.engine.cells import value_width
from npulse.sim.engine.jit import compile_text
from npulse.sim.engine.layout import Control, slot_bytes
from npulse.sim.engine.sample import probe_offsets, probe_text

if TYPE_CHECKING:
    from npulse.sim.engine.build import Built

__all__ = ["Probes"]


class Probes:
    """Samples of some signals, taken before each clock edge, as `Compiled.probe` sets up.

    Parameters
    ----------
    every : int
        Sample when the cycle number is a multiple of it.
    on_change : bool
        Keep a sample only if some signal differs from the sample before.
    rows : int
        Records between two drains; the native loop pauses when they are full.
    """

    def __init__(
        self,
        built: "Built",
        state: State,
        targets: Mapping[str, Signal],
        *,
        every: int = 1,
        on_change: bool = False,
        rows: int = 65_536,
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1 cycle, not {every!r}")
        if rows < 2:
            raise ValueError(f"rows must be at least 2 records, not {rows!r}")
        if not targets:
            raise ValueError("signals must name at least one signal")
        self.state = state
        self.targets = dict(targets)
        values = [built.program.netlist.signals[signal] for signal in targets.values()]
        offsets, size = probe_offsets(values)
        self._dtype = _record(list(targets), [value_width(v) for v in values], offsets, size)
        text = probe_text(built.program, values, every, on_change)
        self._module = compile_text(text, level=built.level, cache=built.cache)
        self._raw = aligned(size * (rows + 1))
        self._ring = self._raw.view(self._dtype)
        self._rows = rows
        self._kept: list[NDArray[Any]] = []
        self._attach()

    def _attach(self) -> None:
        words = self.state.control()
        # Record 0 is the last one of the drain before; cycle -1 says that there is none.
        self._raw[: self._dtype.itemsize] = 0xFF
        words[Control.RING // 8] = self._raw.ctypes.data + self._dtype.itemsize
        words[Control.RING_ROWS // 8] = self._rows
        words[Control.RING_USED // 8] = 0
        words[Control.PROBE // 8] = self._module.address("probe")

    def close(self) -> None:
        """Stop sampling; what was taken stays readable."""
        self.drain()
        self.state.control()[Control.PROBE // 8] = 0

    def drain(self) -> None:
        """Move the ring's records to Python's side."""
        words = self.state.control()
        used = int(words[Control.RING_USED // 8])
        if used:
            self._kept.append(self._ring[1 : used + 1].copy())
            self._ring[0] = self._ring[used]
        words[Control.RING_USED // 8] = 0

    def records(self) -> NDArray[Any]:
        """All samples so far: a structured array with field ``cycle`` and one a signal.

        Signals above 64 bits are rows of bytes, low byte first; values are unsigned.
        """
        self.drain()
        if len(self._kept) > 1:
            self._kept = [np.concatenate(self._kept)]
        return self._kept[0] if self._kept else np.empty(0, self._dtype)

    def clear(self) -> None:
        """Forget the samples so far."""
        self.drain()
        self._kept = []


def _record(names: list[str], widths: list[int], offsets: list[int], size: int) -> np.dtype[Any]:
    formats: list[Any] = ["u8"]
    for width in widths:
        slot = slot_bytes(max(width, 1))
        formats.append(f"u{slot}" if slot <= 8 else ("u1", (slot,)))
    return np.dtype(
        {
            "names": ["cycle", *names],
            "formats": formats,
            "offsets": [0, *offsets],
            "itemsize": size,
        }
    )
