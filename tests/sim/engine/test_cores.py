"""Whole cores under random inputs: the engine equals pysim in every output of every cycle."""

import random
from typing import Any

import pytest
from amaranth.hdl import Value
from amaranth.lib.wiring import In

from npulse.hw.cores.tpu_v1.core import TpuV1Core
from npulse.hw.spec.flavours import resolve
from npulse.sim.engine.bulk import Compiled
from npulse.sim.simulator import Simulator


def core() -> TpuV1Core:
    return TpuV1Core(resolve("tpu-v1:sim").config)  # type: ignore[arg-type]


def ports(dut: Any, flow: Any) -> list[Value]:
    return [
        Value.cast(value)
        for _, member, value in dut.signature.flatten(dut)
        if (member.flow == In) == (flow == In)
    ]


def trace(dut: Any, engine: str, cycles: int) -> list[tuple[int, ...]]:
    """Outputs in each cycle; handshakes are mostly willing, so that things move."""
    rng, seen = random.Random(5), []
    inputs, outputs = ports(dut, In), ports(dut, None)
    simulator = Simulator(dut, engine=engine)
    simulator.add_clock(1e-6)

    async def bench(ctx: Any) -> None:
        for _ in range(cycles):
            for signal in inputs:
                narrow = len(signal) == 1
                ctx.set(signal, int(rng.random() < 0.8) if narrow else rng.getrandbits(len(signal)))
            await ctx.tick()
            seen.append(tuple(ctx.get(signal) for signal in outputs))

    simulator.add_testbench(bench)
    simulator.run()
    return seen


@pytest.mark.parametrize("cycles", [80])
def test_tpu_v1_equals_pysim(cycles: int) -> None:
    expected = trace(core(), "pysim", cycles)
    assert trace(core(), "compiled", cycles) == expected
    assert len(set(expected)) > 10


def test_tpu_v1_has_its_arrays_in_loops_joined_by_pointers() -> None:
    compiled = Compiled(core())
    assert compiled.report.notes == []
    plans = {compiled.netlist.path_of(i): p for i, p in compiled._built.program.grids.plans.items()}
    array = plans["array"]
    assert not set(array.staged), "an edge of the array is packed by scalar logic"
    assert compiled.report.scalar_cells < 3_000
