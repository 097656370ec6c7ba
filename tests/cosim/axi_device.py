"""The core in a cocotb bench, behind the `Device` protocol, so that the runtime drives it.

`cocotbext.axi` plays the memory and the host. One memory stands behind all ports of the core; an
access outside of it is answered with SLVERR, which stops the core. The runtime is not made of
coroutines, so it runs in the thread of a `cocotb.task.bridge`.
"""

import logging
import random
from collections.abc import Iterator
from typing import Any

from cocotb.clock import Clock
from cocotb.task import resume
from cocotb.triggers import ClockCycles, SimTimeoutError, with_timeout
from cocotbext.axi import (
    AxiBus,
    AxiLiteBus,
    AxiLiteMaster,
    AxiReadBus,
    AxiResp,
    AxiSlave,
    AxiSlaveRead,
    MemoryRegion,
)

from npulse.hw.spec.flavours import Npu
from npulse.hw.spec.regmap import WORD_BYTES, core_regmap
from npulse.sw.driver.device import DeviceError, Progress, RunStats

__all__ = ["AxiDevice", "pause_at_random"]

#: Nanoseconds in a clock cycle.
PERIOD = 10


class AxiDevice:
    """Core `dut` with a memory of `memory_bytes` from address 0.

    With `pauses`, a number of 0 to 1, each channel of each port withholds its ready or its valid
    in that share of the cycles, at random.
    """

    def __init__(self, dut: Any, npu: Npu, *, memory_bytes: int, pauses: float = 0) -> None:
        logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.WARNING)
        self.npu = npu
        self.dut = dut
        self.memory = MemoryRegion(memory_bytes)
        self._registers = core_regmap()
        Clock(dut.clk, PERIOD, unit="ns").start()
        common = (dut.clk, dut.rst)
        reads = [
            AxiSlaveRead(AxiReadBus.from_prefix(dut, f"{name}_"), *common, target=self.memory)
            for name in ("instructions", "weights")
        ]
        host = AxiSlave(AxiBus.from_prefix(dut, "host_"), *common, target=self.memory)
        self._csr = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "csr_"), *common)
        if pauses:
            for part in (*reads, host.read_if, self._csr.read_if):
                pause_at_random(pauses, part.ar_channel, part.r_channel)
            for part in (host.write_if, self._csr.write_if):
                pause_at_random(pauses, part.aw_channel, part.w_channel, part.b_channel)

    async def power_up(self) -> None:
        """Hold reset for some cycles."""
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        await ClockCycles(self.dut.clk, 2)

    @property
    def config_hash(self) -> int:
        """Fingerprint that the hardware states."""
        return self.read_register("CONFIG_HASH")

    def reset(self) -> None:
        """Return to the state after power-up; memory is zero."""
        self.memory[:] = bytes(self.memory.size)
        resume(self.power_up)()

    def write(self, address: int, content: bytes) -> None:
        """Put bytes into memory."""
        self.memory[address : address + len(content)] = content

    def read(self, address: int, count: int) -> bytes:
        """Get bytes of memory."""
        return self.memory[address : address + count]

    def start(self, program_address: int, count: int) -> None:
        """Start a program."""
        self.write_register("PROGRAM_ADDR", program_address)
        self.write_register("PROGRAM_COUNT", count)
        self.write_register("CTRL", self._registers["CTRL"].pack(start=1))

    def wait(self, limit: int, progress: Progress | None = None) -> RunStats:
        """Wait for the interrupt, read the counters and lower the interrupt."""
        resume(self._interrupt)(limit)
        status = self._registers["STATUS"].unpack(self.read_register("STATUS"))
        if status["error"]:
            code, index = self.read_register("ERROR_CODE"), self.read_register("ERROR_PC")
            raise DeviceError(f"stopped at instruction {index} with error {code}")
        names = RunStats.__dataclass_fields__
        stats = RunStats(**{name: self.read_register(name.upper()) for name in names})
        self.write_register("CTRL", self._registers["CTRL"].pack(clear=1))
        resume(self._quiet)()
        return stats

    async def _interrupt(self, limit: int) -> None:
        if self.dut.interrupt.value == 0:
            try:
                await with_timeout(self.dut.interrupt.rising_edge, limit * PERIOD, "ns")
            except SimTimeoutError:
                raise DeviceError(f"the program must end within {limit} cycles") from None

    async def _quiet(self) -> None:
        """The interrupt falls a cycle after CTRL.clear, which the write response comes with."""
        await ClockCycles(self.dut.clk, 2)
        assert self.dut.interrupt.value == 0, "interrupt stays after CTRL.clear"

    def read_register(self, name: str) -> int:
        """Read a register by an AXI4-Lite transaction."""
        got = resume(self._csr.read)(self._registers[name].offset, WORD_BYTES)
        assert got.resp == AxiResp.OKAY, f"register {name} answers {got.resp!r} to a read"
        return int.from_bytes(got.data, "little")

    def write_register(self, name: str, word: int) -> None:
        """Write a register by an AXI4-Lite transaction."""
        content = word.to_bytes(WORD_BYTES, "little")
        got = resume(self._csr.write)(self._registers[name].offset, content)
        assert got.resp == AxiResp.OKAY, f"register {name} answers {got.resp!r} to a write"


def pause_at_random(share: float, *channels: Any) -> None:
    """Pause channels of `cocotbext.axi` in a share of the cycles, each by itself."""

    def pauses(seed: int) -> Iterator[bool]:
        rng = random.Random(seed)
        while True:
            yield rng.random() < share

    for channel in channels:
        channel.set_pause_generator(pauses(random.getrandbits(32)))  # cocotb seeds `random`
