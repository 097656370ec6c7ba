"""Cycles of the core in closed form against the cycles of its RTL."""

from dataclasses import replace

import numpy as np
import pytest

from npulse.hw.spec.flavours import Npu
from npulse.hw.spec.timing import matrix_cycles, pass_cycles
from npulse.hw.spec.tpu_v1 import PRESETS, ArrayConfig, BusConfig, DramConfig, MemoryConfig
from npulse.sw.driver.rtl import RtlDevice
from tests.hw.cores.conv_program import Program

SHAPES = [(1, 1), (1, 3), (2, 2), (3, 5), (4, 2), (5, 5), (6, 1), (7, 4), (8, 8), (9, 3)]
STREAMED = [1, 2, 3, 5, 8, 11]


class WatchedDevice(RtlDevice):
    """Notes when the first row of a program goes and when its last sum has settled."""

    def __init__(self, npu):
        super().__init__(npu, memory_bytes=1 << 14, engine="compiled")
        self.first = self.last = None
        self.cycle = 0

    def _ended(self, cycles):
        core, settle = self._system.core, self.npu.config.memory.sram_latency

        async def command(ctx):
            for _ in range(cycles):
                values = (core.matrix.state.busy, core.accumulators.write_o.en)
                _, _, busy, left = await ctx.tick().sample(*values)
                self.cycle += 1
                if busy and self.first is None:
                    self.first = self.cycle
                if left:  # the command leaves the last column one cycle after it entered
                    self.last = self.cycle - 1 + settle + 1
                if ctx.get(self._system.interrupt):
                    return True
            return False

        return self._do(command)


def ideal(rows, cols, *, latency=1, multiplier=0):
    """NPU whose weight FIFO is never empty for long: a row of a tile comes in each cycle."""
    config = replace(
        PRESETS["sim"],
        array=ArrayConfig(rows=rows, cols=cols, multiplier_latency=multiplier),
        memory=MemoryConfig(unified_buffer_rows=64, accumulator_rows=64, sram_latency=latency),
        bus=BusConfig(weight_bytes=16, host_bytes=4, instruction_bytes=32),
        dram=DramConfig(
            latency_cycles=2, weight_millibytes_per_cycle=16000, host_millibytes_per_cycle=4000
        ),
    )
    return Npu(name="ideal", flavour="tpu-v1", size="sim", overrides=(), config=config)


def measure(device, streamed, tiles):
    """Cycles from the first row of a product of `tiles` passes until its last sum has settled."""
    program = Program(device.npu.config)
    bytes_ = tiles * device.npu.config.tile_bytes
    address = program.place(bytes(max(bytes_, 1)))
    # The FIFO takes four tiles and the shadow weights a fifth before the first row goes.
    program.emit("ReadWeights", dram_addr=address, tiles=min(tiles, 4))
    program.sync("weights")
    if tiles > 4:
        rest = address + 4 * device.npu.config.tile_bytes
        program.emit("ReadWeights", dram_addr=rest, tiles=tiles - 4)
    program.emit(
        "MatrixMultiply",
        switch=1,
        blocks=tiles if device.npu.config.read_groups == 1 else 1,
        rows_x=streamed,
        limit_x=streamed,
        limit_y=1,
        step_x=1,
    )
    program.emit("Halt")
    start = program.place(program.words())
    device.write(0, bytes(program.memory))
    device.first = device.last = None
    device.start(start, len(program.lines))
    device.wait(20_000)
    return device.last - device.first + 1


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_closed_form_of_passes_equals_the_rtl(shape):
    registers = {"latency": 2, "multiplier": 3} if sum(shape) % 4 == 0 else {}
    device = WatchedDevice(ideal(*shape, **registers))
    config = device.npu.config
    for streamed in STREAMED:
        for tiles in (1, 3, 6) if config.read_groups == 1 else (config.read_groups,):
            expected = matrix_cycles(config, streamed, tiles)
            assert measure(device, streamed, tiles) == expected, (streamed, tiles)


def test_one_tile_takes_m_plus_k_plus_n_less_2_and_its_registers():
    config = ideal(8, 8).config
    registers = 0 + 1 + 4  # D + s + 4
    assert matrix_cycles(config, 5, 1) == 5 + 8 + 8 - 2 + registers
    assert pass_cycles(config, 5) == max(5, 8)


def test_formula_counts_k_cycles_more_for_each_tile():
    config = ideal(4, 4).config
    steps = np.diff([matrix_cycles(config, 9, tiles) for tiles in (1, 2, 3)])
    assert steps.tolist() == [9, 9]
