"""The requantiser against its contract, which golden numpy is tested against as well."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from npulse.hw.arith.requantiser import CUTS, Requantiser
from npulse.hw.spec.numerics import requantize_scalar
from npulse.hw.spec.tpu_v1_layout import ROUNDING_CODES

SCHEMES = list(ROUNDING_CODES)
EDGES = [0, 1, -1, 2, 3, 2**30, -(2**30), 2**31 - 1, -(2**31), 2**31 - 2, 1 - 2**31, 12345, -777]


def cases(count, seed):
    """Random parameters over many magnitudes, with every kind of boundary among them."""
    rng = np.random.default_rng(seed)

    def integer():
        if rng.random() < 0.3:
            return int(rng.choice(EDGES))
        return int(rng.integers(-(2**31), 2**31)) >> int(rng.integers(0, 31))

    for _ in range(count):
        low, high = sorted(int(v) for v in rng.integers(-128, 128, 2))
        yield dict(
            acc=integer(),
            bias=integer() if rng.random() < 0.5 else 0,
            multiplier=int(rng.choice([0, 1, 2**30, 2**31 - 1, rng.integers(2**30, 2**31)])),
            shift=int(rng.integers(-31, 31)),
            zero_point=int(rng.integers(-128, 128)),
            act_min=low,
            act_max=high,
            scheme=SCHEMES[rng.integers(3)],
        )


def parameter(case, name):
    return ROUNDING_CODES[case["scheme"]] if name == "rounding" else case[name]


@pytest.mark.parametrize("latency", CUTS)
def test_equals_the_contract_one_a_cycle(latency):
    dut = Requantiser(latency=latency)
    todo = list(cases(400, latency))
    outputs = []

    async def bench(ctx):
        for step in range(len(todo) + latency):
            if step >= latency:
                outputs.append(ctx.get(dut.out))
            if step < len(todo):
                ctx.set(dut.acc, todo[step]["acc"])
            for name, due in dut.due.items():
                if 0 <= step - due < len(todo):
                    ctx.set(dut.parameters[name], parameter(todo[step - due], name))
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    assert outputs == [requantize_scalar(**case) for case in todo]


def test_refuses_a_latency_without_cuts():
    with pytest.raises(ValueError, match="^latency must be from 1 to 8 cycles, not 9$"):
        Requantiser(latency=9)
