"""Bench of the requantiser: a new accumulator each cycle, against golden numpy.

Settings (environment): NPULSE_LATENCY, its registers from input to output; NPULSE_DUE, the cycles
from an accumulator to each of its parameters as JSON.
"""

import json
import os
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge
from streams import reset

from npulse.hw.arith.requantiser import Parameters
from npulse.hw.spec.tpu_v1_layout import ROUNDING_CODES
from npulse.sim.golden.requant import requantize

#: Accumulators and multipliers where rounding and saturation change.
EDGES = [0, 1, -1, 2**30, -(2**30), 2**31 - 1, -(2**31), 2**31 - 2, 1 - 2**31]
MULTIPLIERS = [0, 1, 2**30, 2**31 - 1]


def random_case(rng: np.random.Generator) -> tuple[int, dict[str, int], int]:
    """Accumulator, parameters and what they give."""
    acc, bias = (
        int(rng.choice(EDGES))
        if rng.random() < 0.3
        else int(rng.integers(-(2**31), 2**31)) >> int(rng.integers(0, 31))
        for _ in range(2)
    )
    scheme = list(ROUNDING_CODES)[rng.integers(len(ROUNDING_CODES))]
    low, high = sorted(int(value) for value in rng.integers(-128, 128, 2))
    common = {
        "multiplier": int(rng.choice([*MULTIPLIERS, int(rng.integers(2**30, 2**31))])),
        "shift": int(rng.integers(-31, 31)),
        "zero_point": int(rng.integers(-128, 128)),
        "act_min": low,
        "act_max": high,
    }
    with_bias = np.array([acc + bias], np.int64).astype(np.int32)  # wraps
    due = int(requantize(with_bias, **common, scheme=scheme)[0])
    return acc, {"bias": bias, "rounding": ROUNDING_CODES[scheme], **common}, due


@cocotb.test()
async def outputs_equal_golden(dut: Any) -> None:
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    latency = int(os.environ["NPULSE_LATENCY"])
    dues: dict[str, int] = json.loads(os.environ["NPULSE_DUE"])
    Clock(dut.clk, 10, unit="ns").start()
    await reset(dut, acc=0, parameters=0)
    cases = [random_case(rng) for _ in range(3000)]
    for cycle in range(len(cases) + latency):
        if cycle >= latency:
            got, (acc, parameters, output) = dut.out.value.to_signed(), cases[cycle - latency]
            assert got == output, f"{got} instead of {output} for {acc} by {parameters}"
        # Each parameter is that of another accumulator; those at both ends stand for no one.
        ages = {name: min(max(cycle - due, 0), len(cases) - 1) for name, due in dues.items()}
        now = {name: cases[age][1][name] for name, age in ages.items()}
        dut.acc.value = cases[min(cycle, len(cases) - 1)][0]
        dut.parameters.value = Parameters().const(now).as_bits()
        await FallingEdge(dut.clk)
