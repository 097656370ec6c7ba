"""Bench of the requantiser: a new accumulator each cycle, against golden numpy.

Settings (environment): NPULSE_LATENCY, its registers from input to output.
"""

import os
from collections import deque
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
    Clock(dut.clk, 10, unit="ns").start()
    await reset(dut, acc=0, parameters=0)
    due: deque[tuple[int, Any]] = deque()
    for _ in range(3000):
        acc, parameters, output = random_case(rng)
        dut.acc.value = acc
        dut.parameters.value = Parameters().const(parameters).as_bits()
        due.append((output, (acc, parameters)))
        await FallingEdge(dut.clk)
        if len(due) == latency:
            output, case = due.popleft()
            got = dut.out.value.to_signed()
            assert got == output, f"{got} instead of {output} for {case}"
