"""Bench of the emitted core: the runtime runs an image on it through AXI and checks with golden.

Settings (environment): NPULSE_IMAGE, the compiled `digits` model.
"""

import os
from pathlib import Path
from typing import Any

import cocotb
from axi_device import AxiDevice
from cocotb.task import bridge

from npulse.hw.spec.tpu_v1_isa import ErrorCode
from npulse.sw import image, models
from npulse.sw.driver.device import DeviceError
from npulse.sw.driver.runtime import Runtime
from npulse.sw.targets.executable import Executable, NpuSegment


async def power_up(dut: Any, pauses: float = 0) -> tuple[Executable, AxiDevice]:
    """Image, and the core with as much memory as the image needs."""
    executable = image.load(Path(os.environ["NPULSE_IMAGE"]))
    bytes_ = executable.memory.total_bytes
    device = AxiDevice(dut, executable.npu, memory_bytes=bytes_, pauses=pauses)
    await device.power_up()
    return executable, device


async def run_digits(dut: Any, images: range, pauses: float) -> None:
    """Run images of the test set; each value that the core makes must be as golden has it."""
    executable, device = await power_up(dut, pauses)
    instructions = sum(s.instructions for s in executable.segments if isinstance(s, NpuSegment))
    pictures, _ = models.test_set()
    (entry,) = executable.inputs

    def run() -> None:
        runtime = Runtime(executable, device)
        for index in images:
            result = runtime.run({entry.name: pictures[index : index + 1]}, check=True)
            assert result.checked > 0, "nothing was compared"
            assert result.mismatches == (), f"image {index}: {result.mismatches[0]}"
            assert result.stats.instructions == instructions, result.stats
            assert sum(result.stats.breakdown.values()) == result.stats.cycles, result.stats
            cocotb.log.info("image %d: %d cycles", index, result.stats.cycles)

    await bridge(run)()


@cocotb.test()
async def digits_equal_golden(dut: Any) -> None:
    await run_digits(dut, range(0, 8), pauses=0)


@cocotb.test()
async def digits_equal_golden_with_random_pauses(dut: Any) -> None:
    await run_digits(dut, range(8, 11), pauses=0.3)


@cocotb.test()
async def a_fetch_outside_of_memory_stops_with_a_bus_error(dut: Any) -> None:
    executable, device = await power_up(dut)

    def run() -> None:
        device.start(executable.memory.total_bytes + 4096, 1)
        try:
            device.wait(10_000)
        except DeviceError as error:
            assert str(error).endswith(f"with error {ErrorCode.BUS.value}"), error
        else:
            raise AssertionError("the core must stop")

    await bridge(run)()
