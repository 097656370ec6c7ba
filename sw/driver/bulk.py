"""The core on the compiled engine's bulk interface: no Python between the cycles of a program."""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

import numpy as np

from npulse.hw.spec.flavours import Npu
from npulse.sim.engine.bulk import Compiled
from npulse.sim.rtl.dram import WriteOrder
from npulse.sim.rtl.throttle import Stalls
from npulse.sw.driver.rtl import RtlDevice, make_system

__all__ = ["BulkDevice"]

#: Cycles between two looks at the progress of a program, about a tenth of a second.
_SLICE_CYCLES = 50_000

_Result = TypeVar("_Result")


class _Tick:
    """One clock cycle, with values sampled just before its edge."""

    def __init__(self, compiled: Compiled, signals: tuple[Any, ...] = ()) -> None:
        self.compiled = compiled
        self.signals = signals

    def sample(self, *signals: Any) -> "_Tick":
        return _Tick(self.compiled, signals)

    def __await__(self) -> Generator[None, None, tuple[Any, ...]]:
        values = tuple(self.compiled.get(signal) for signal in self.signals)
        self.compiled.step(1)
        return (True, False, *values)
        yield  # makes this a generator; a cycle passes at once, so nobody is ever waited for


class _Context:
    """As much of a testbench's context as register accesses use, on the bulk interface."""

    def __init__(self, compiled: Compiled) -> None:
        self.get = compiled.get
        self.set = compiled.set
        self.tick = lambda: _Tick(compiled)


class BulkDevice(RtlDevice):
    """Core and DRAM as native code; memory is filled and read in place.

    Parameters are those of `RtlDevice`, but for the engine.
    """

    def __init__(
        self,
        npu: Npu,
        *,
        memory_bytes: int,
        stalls: Stalls | None = None,
        write_order: WriteOrder = "address_first",
        poll: bool = False,
    ) -> None:
        self._prepare(npu, poll, make_system(npu, memory_bytes, stalls, write_order))
        self.compiled = Compiled(self._system)

    def reset(self) -> None:
        """Return to the state after power-up; memory is zero."""
        self.compiled.reset()

    def write(self, address: int, content: bytes) -> None:
        """Put bytes into DRAM without simulated time."""
        self._check_range(address, len(content))
        self._memory()[address : address + len(content)] = np.frombuffer(content, np.uint8)

    def read(self, address: int, count: int) -> bytes:
        """Get bytes of DRAM without simulated time."""
        self._check_range(address, count)
        return self._memory()[address : address + count].tobytes()

    def _memory(self) -> np.ndarray:
        """All bytes of DRAM; its rows are powers of two wide, so there are none between them."""
        return self.compiled.memory(self._system.dram.memory).view(np.uint8).reshape(-1)

    @property
    def _slice_cycles(self) -> int:
        return _SLICE_CYCLES

    def _pass(self, cycles: int) -> bool:
        try:
            self.compiled.run_until(self._system.interrupt, cycles)
        except TimeoutError:
            return False
        return True

    def _do(self, command: Callable[[Any], Awaitable[_Result]]) -> _Result:
        """Carry out a command at once."""
        steps = command(_Context(self.compiled)).__await__()
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        raise RuntimeError("a command of the bulk device must not wait")
