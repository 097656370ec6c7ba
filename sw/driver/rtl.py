"""The core in simulation, behind the `Device` protocol.

A test bench inside the simulation carries out one command at a time; between commands no simulated
time passes. Memory is filled and read without simulated time, as a loader would do it before the
start; registers are reached by AXI4-Lite transactions.
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from npulse.hw.spec.flavours import Npu
from npulse.hw.spec.regmap import CORE_ID, core_regmap
from npulse.sim.rtl.dram_channels import WriteOrder
from npulse.sim.rtl.system import System
from npulse.sim.rtl.throttle import Stalls
from npulse.sim.simulator import Simulator
from npulse.sw.driver.cores import make_core
from npulse.sw.driver.device import DeviceError, Progress, RunStats

__all__ = ["RtlDevice", "make_system"]

#: Cycles between two calls of `Progress`.
_PROGRESS_CYCLES = 200
#: Cycles in which a register access must end; the registers answer within a few.
_CSR_CYCLES = 1000

_Result = TypeVar("_Result")


class RtlDevice:
    """Core and DRAM on an engine of `npulse.sim.simulator`.

    Parameters
    ----------
    memory_bytes : int
        Bytes of DRAM, from address 0.
    stalls : Stalls or None
        Random stalls of the DRAM.
    write_order : str
        Whether the DRAM takes write addresses or write data first (`DramPort`).
    poll : bool
        Wait by reading STATUS instead of watching the interrupt.
    engine : str
        One of `npulse.sim.simulator.ENGINES`.
    """

    def __init__(
        self,
        npu: Npu,
        *,
        memory_bytes: int,
        stalls: Stalls | None = None,
        write_order: WriteOrder = "address_first",
        poll: bool = False,
        engine: str = "pysim",
    ) -> None:
        self._prepare(npu, poll, make_system(npu, memory_bytes, stalls, write_order))
        self._command: Callable[[Any], Awaitable[None]] | None = None
        self._simulator = Simulator(self._system, engine=engine)
        self._simulator.add_clock(1e-6)
        self._simulator.add_testbench(self._serve)
        self._simulator.advance()  # a bench that never began would be a warning at the end

    def _prepare(self, npu: Npu, poll: bool, system: System) -> None:
        self.npu = npu
        self.poll = poll
        self._registers = core_regmap()
        self._system = system

    @property
    def memory_bytes(self) -> int:
        """Bytes of DRAM."""
        return self._system.dram.depth_bytes

    @property
    def config_hash(self) -> int:
        """Fingerprint that the hardware states; `DeviceError` if it is no npulse core."""
        identity = self.read_register("ID")
        if identity != CORE_ID:
            raise DeviceError(f"register ID must be {CORE_ID:#x}, not {identity:#x}")
        return self.read_register("CONFIG_HASH")

    def reset(self) -> None:
        """Return to the state after power-up; memory is zero."""
        self._command = None
        self._simulator.reset()
        self._simulator.advance()

    def write(self, address: int, content: bytes) -> None:
        """Put bytes into DRAM without simulated time."""
        self._check_range(address, len(content))
        data = np.frombuffer(content, np.uint8)

        async def command(ctx: Any) -> None:
            self._system.dram.store(ctx, address, data)

        self._do(command)

    def read(self, address: int, count: int) -> bytes:
        """Get bytes of DRAM without simulated time."""
        self._check_range(address, count)

        async def command(ctx: Any) -> bytes:
            return self._system.dram.load(ctx, address, count).tobytes()

        return self._do(command)

    def start(self, program_address: int, count: int) -> None:
        """Start a program of `count` instructions at a byte address."""
        self.write_register("PROGRAM_ADDR", program_address)
        self.write_register("PROGRAM_COUNT", count)
        self.write_register("CTRL", self._registers["CTRL"].pack(start=1))

    def wait(self, limit: int, progress: Progress | None = None) -> RunStats:
        """Wait for the end, lower the interrupt and read the counters.

        Raises
        ------
        DeviceError
            The program did not end within `limit` cycles, or ended with an error. The device then
            wants a `reset`.
        """
        passed = 0
        while not self._ended(min(self._slice_cycles, limit - passed)):
            passed += self._slice_cycles
            if progress is not None:
                progress(passed)
            if passed >= limit:
                raise DeviceError(
                    f"the program must end within {limit} cycles, but still runs; "
                    "compile the model again, or report the program"
                )
        status = self._registers["STATUS"].unpack(self.read_register("STATUS"))
        code, index = self.read_register("ERROR_CODE"), self.read_register("ERROR_PC")
        names = RunStats.__dataclass_fields__
        stats = RunStats(**{name: self.read_register(name.upper()) for name in names})
        self.write_register("CTRL", self._registers["CTRL"].pack(clear=1))
        if progress is not None:
            progress(stats.cycles)
        if status["error"]:
            raise DeviceError(
                f"the core stopped at instruction {index} of the program with error {code} "
                f"({self._meaning(code)}); npulse disasm shows the instruction"
            )
        return stats

    def _meaning(self, code: int) -> str:
        """What an error code says, in words."""
        codes = import_module(f"npulse.hw.spec.{self.npu.family}_isa").ErrorCode
        return codes(code).text if code in set(codes) else "unknown"

    @property
    def _slice_cycles(self) -> int:
        """Cycles between two calls of `Progress`."""
        return _PROGRESS_CYCLES

    def _pass(self, cycles: int) -> bool:
        """Let up to `cycles` pass, fewer if the interrupt rises; say whether it did."""

        async def command(ctx: Any) -> bool:
            for _ in range(cycles):
                if ctx.get(self._system.interrupt):
                    return True
                await ctx.tick()
            return bool(ctx.get(self._system.interrupt))

        return self._do(command)

    def _ended(self, cycles: int) -> bool:
        """Let up to `cycles` pass and say whether the program has ended."""
        rose = self._pass(cycles)
        if rose and not self.poll:
            return True
        status = self._registers["STATUS"].unpack(self.read_register("STATUS"))
        return self.poll and bool(status["done"])

    def read_register(self, name: str) -> int:
        """Read a register by an AXI4-Lite transaction."""
        bus, address = self._system.csr, self._registers[name].offset

        async def command(ctx: Any) -> tuple[int, int]:
            ctx.set(bus.araddr, address)
            ctx.set(bus.arvalid, 1)
            ctx.set(bus.rready, 1)
            await _handshake(ctx, bus.arvalid, bus.arready)
            for _ in range(_CSR_CYCLES):
                _, _, valid, word, response = await ctx.tick().sample(
                    bus.rvalid, bus.rdata, bus.rresp
                )
                if valid:
                    ctx.set(bus.rready, 0)
                    return word, response
            raise DeviceError(f"register {name} must answer within {_CSR_CYCLES} cycles")

        word, response = self._do(command)
        _check_response(name, response)
        return word

    def write_register(self, name: str, word: int) -> None:
        """Write a register by an AXI4-Lite transaction."""
        bus, address = self._system.csr, self._registers[name].offset

        async def command(ctx: Any) -> int:
            ctx.set(bus.awaddr, address)
            ctx.set(bus.wdata, word)
            ctx.set(bus.wstrb, 0xF)
            waiting = {"aw": bus.awvalid, "w": bus.wvalid}
            for valid in waiting.values():
                ctx.set(valid, 1)
            ctx.set(bus.bready, 1)
            for _ in range(_CSR_CYCLES):
                _, _, aw, w, done, response = await ctx.tick().sample(
                    bus.awready, bus.wready, bus.bvalid, bus.bresp
                )
                for channel, ready in (("aw", aw), ("w", w)):
                    if ready and channel in waiting:
                        ctx.set(waiting.pop(channel), 0)
                if done:
                    ctx.set(bus.bready, 0)
                    return response
            raise DeviceError(f"register {name} must answer within {_CSR_CYCLES} cycles")

        _check_response(name, self._do(command))

    def _check_range(self, address: int, count: int) -> None:
        if address < 0 or address + count > self.memory_bytes:
            raise DeviceError(
                f"memory accesses must lie in bytes 0 to {self.memory_bytes - 1}, "
                f"not {address} to {address + count - 1}"
            )

    async def _serve(self, ctx: Any) -> None:
        """Carry out commands for ever; without one, let a cycle pass."""
        while True:
            if self._command is None:
                await ctx.tick()
            else:
                command, self._command = self._command, None
                await command(ctx)

    def _do(self, command: Callable[[Any], Awaitable[_Result]]) -> _Result:
        """Advance the simulation until a command has ended."""
        results: list[_Result] = []
        failures: list[DeviceError] = []

        async def wrapped(ctx: Any) -> None:
            try:
                results.append(await command(ctx))
            except DeviceError as error:  # the bench goes on, for the next command
                failures.append(error)

        self._command = wrapped
        while not results and not failures:
            self._simulator.advance()
        if failures:
            raise failures[0]
        return results[0]


async def _handshake(ctx: Any, valid: Any, ready: Any) -> None:
    """Hold `valid` until `ready`."""
    for _ in range(_CSR_CYCLES):
        _, _, taken = await ctx.tick().sample(ready)
        if taken:
            ctx.set(valid, 0)
            return
    raise DeviceError(f"a register access must be taken within {_CSR_CYCLES} cycles")


def _check_response(name: str, response: int) -> None:
    if response:
        raise DeviceError(f"register {name} must answer OKAY, not response {response}")


def make_system(
    npu: Npu, memory_bytes: int, stalls: Stalls | None, write_order: WriteOrder
) -> System:
    """Core and DRAM with the latency and the rates of the configuration."""
    dram = npu.config.dram
    weights = {
        "latency_cycles": dram.latency_cycles,
        "bytes_per_cycle": dram.weight_bytes_per_cycle,
        "write_order": write_order,
    }
    host = weights | {"bytes_per_cycle": dram.host_bytes_per_cycle}
    ports = {"instructions": weights, "weights": weights, "host": host}
    return System(make_core(npu), memory_bytes=memory_bytes, ports=ports, stalls=stalls)
