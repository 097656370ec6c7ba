"""The simulator of the library's benches: Amaranth's, on the compiled engine or on pysim."""

from typing import Any

from amaranth.hdl import Fragment, Signal
from amaranth.sim import Simulator as AmaranthSimulator
from amaranth.sim.pysim import PySimEngine

from npulse.sim.engine.dropin import CompiledEngine
from npulse.sim.engine.lower import EnginePlatform

__all__ = ["ENGINES", "Simulator"]

ENGINES = ("compiled", "pysim")


class Simulator(AmaranthSimulator):
    """`amaranth.sim.Simulator` with a choice of engine; every testbench runs on both.

    Parameters
    ----------
    toplevel : Elaboratable
    engine : {"compiled", "pysim"}
        pysim builds every cell of a `Grid`; the compiled engine makes one loop of a grid, whose
        cells' inner signals then cannot be reached by a testbench.
    """

    def __init__(self, toplevel: Any, *, engine: str = "compiled") -> None:
        if engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
        platform = EnginePlatform() if engine == "compiled" else None
        self._design = Fragment.get(toplevel, platform=platform).prepare()
        if platform is None:
            self._engine = PySimEngine(self._design)
        else:
            self._engine = CompiledEngine(self._design, grids=platform.grids)
        self._clocked: set[Any] = set()
        self._running = False

    @property
    def is_compiled(self) -> bool:
        """Whether the engine is the compiled one, which can `fast_forward`."""
        return isinstance(self._engine, CompiledEngine)

    def fast_forward(self, cycles: int, until: Signal | None = None) -> int:
        """Advance whole clock cycles at full speed, until `until` is not zero if given.

        No testbench or process runs in between; call it between two `advance`. Returns the cycles
        advanced. See `CompiledEngine.fast_forward`.
        """
        if not isinstance(self._engine, CompiledEngine):
            raise ValueError("engine must be 'compiled' to fast_forward, not 'pysim'")
        return self._engine.fast_forward(cycles, until)
