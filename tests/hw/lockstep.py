"""Drives a design one cycle at a time from a list of inputs, as often as a property test likes."""

from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Elaboratable, Module, Signal

from npulse.sim.simulator import Simulator

__all__ = ["Lockstep"]

#: Value of each named port.
Cycle = Mapping[str, Any]


class Lockstep:
    """One simulation of a design, started anew for each schedule.

    Parameters
    ----------
    dut : Component
        Its ports are named by their path, such as ``store.valid``.
    idle : mapping
        Every input, with its value in a cycle that does not name it: junk where it must not count.
    outputs : sequence of str
        What `play` returns of each cycle.
    """

    def __init__(
        self, dut: Elaboratable, idle: Cycle, outputs: Sequence[str], *, engine: str = "pysim"
    ) -> None:
        self._schedule: Sequence[Cycle] = ()
        self._seen: list[dict[str, Any]] = []
        self._first = True
        ports = {name: _port(dut, name) for name in (*idle, *outputs)}

        async def bench(ctx: Any) -> None:
            now: dict[str, Any] = {}
            for inputs in self._schedule:
                for name, value in {**idle, **inputs}.items():
                    if name not in now or now[name] != value:
                        ctx.set(ports[name], value)
                        now[name] = value
                self._seen.append({name: ctx.get(ports[name]) for name in outputs})
                await ctx.tick()

        top, cycle = Module(), Signal()
        top.submodules.dut = dut
        top.d.sync += cycle.eq(~cycle)  # a clock even for a design without registers
        self._sim = Simulator(top, engine=engine)
        self._sim.add_clock(1e-6)
        self._sim.add_testbench(bench)

    def play(self, schedule: Sequence[Cycle]) -> list[dict[str, Any]]:
        """Apply the inputs of each cycle to the design fresh from reset; return its outputs.

        Outputs are seen in the cycle of the inputs, before its clock edge.
        """
        self._schedule, self._seen = schedule, []
        if not self._first:
            self._sim.reset()
        self._first = False
        self._sim.run()
        return self._seen


def _port(dut: Any, path: str) -> Any:
    for name in path.split("."):
        dut = getattr(dut, name)
    return dut
