"""The requantiser against golden numpy on a million values a scheme, without Python in between."""

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import memory, wiring

from npulse.hw.arith.requantiser import Parameters, Requantiser
from npulse.hw.spec.tpu_v1_layout import ROUNDING_CODES
from npulse.sim.engine.bulk import Compiled
from npulse.sim.golden.requant import requantize

ROWS = 1 << 16
ENDS = [2**31 - 1, 2**31 - 2, -(2**31), 1 - 2**31]
EDGES = np.array([0, 1, -1, 2, -2, 3, 2**15, 2**30, -(2**30), *ENDS], np.int64)


class Sweep(wiring.Component):
    """Requantises row after row of a memory into another."""

    def __init__(self, latency):
        self.requantiser = Requantiser(latency=latency)
        layout = Parameters()
        shapes = {"acc": 32} | {name: field.shape for name, field in layout}
        self.inputs = {n: memory.Memory(shape=s, depth=ROWS, init=[]) for n, s in shapes.items()}
        self.outputs = memory.Memory(shape=8, depth=ROWS, init=[])
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.requantiser = dut = self.requantiser
        row = Signal(range(ROWS))
        m.d.sync += row.eq(row + 1)
        for name, bank in self.inputs.items():
            m.submodules[f"in_{name}"] = bank
            port = bank.read_port()
            m.d.comb += port.addr.eq(row)
            m.d.comb += (dut.acc if name == "acc" else dut.parameters[name]).eq(port.data)
        m.submodules.outputs = self.outputs
        write = self.outputs.write_port()
        m.d.comb += [write.addr.eq(row - 1 - dut.latency), write.data.eq(dut.out), write.en.eq(1)]
        return m


def integers(rng):
    """int32 over all magnitudes, with each kind of boundary among them."""
    wide = rng.integers(-(2**31), 2**31, ROWS) >> rng.integers(0, 31, ROWS)
    return np.where(rng.random(ROWS) < 0.2, rng.choice(EDGES, ROWS), wide).astype(np.int32)


@pytest.mark.parametrize("latency", [1, 8])
def test_equals_golden_on_a_million_values_of_each_scheme(latency):
    sweep = Sweep(latency)
    compiled = Compiled(sweep)
    rng = np.random.default_rng(latency)
    views = {name: compiled.memory(bank) for name, bank in sweep.inputs.items()}
    for scheme, code in ROUNDING_CODES.items():
        for _ in range(16):
            bounds = np.sort(rng.integers(-128, 128, 2))
            values = {
                "acc": integers(rng),
                "bias": np.where(rng.random(ROWS) < 0.5, 0, integers(rng)).astype(np.int32),
                "multiplier": rng.integers(2**30, 2**31, ROWS).astype(np.int32),
                "shift": rng.integers(-31, 31, ROWS).astype(np.int8),
                "zero_point": np.full(ROWS, rng.integers(-128, 128), np.int8),
                "act_min": np.full(ROWS, bounds[0], np.int8),
                "act_max": np.full(ROWS, bounds[1], np.int8),
                "rounding": np.full(ROWS, code, np.int8),
            }
            values["multiplier"][::1000] = rng.choice([0, 1, 2**30, 2**31 - 1])
            for name, view in views.items():
                mask = (1 << (6 if name == "shift" else 2 if name == "rounding" else 32)) - 1
                late = np.roll(values[name], sweep.requantiser.due.get(name, 0)).astype(np.int64)
                view[:] = (late & mask).astype(np.uint64).astype(view.dtype)
            compiled.step(2 * ROWS)
            with np.errstate(over="ignore"):
                acc = values["acc"] + values["bias"]
            golden = requantize(
                acc[None],
                values["multiplier"],
                values["shift"],
                zero_point=int(values["zero_point"][0]),
                act_min=int(bounds[0]),
                act_max=int(bounds[1]),
                scheme=scheme,
            )
            np.testing.assert_array_equal(compiled.memory(sweep.outputs).view(np.int8), golden[0])
