"""The device in simulation: memory, registers, start, end, and what it says when it goes wrong."""

import re

import pytest

from npulse.hw.spec.flavours import resolve
from npulse.hw.spec.tpu_v1_isa import ISA
from npulse.sw.driver.device import DeviceError, RunStats
from npulse.sw.driver.devices import open_device
from npulse.sw.driver.rtl import RtlDevice
from npulse.sw.errors import UserError

HALT = ISA.assemble("Halt")
#: Copies 8 rows of 2 bytes from byte 1024 to the buffer and back to byte 2048.
COPY = ISA.assemble(
    """
    ReadHostMemory dram_addr=1024 ub_addr=3 rows=8 runs=1
    Sync units=1
    WriteHostMemory dram_addr=2048 ub_addr=3 rows=8 runs=1
    Halt
    """
)
DATA = bytes(range(1, 17))


def run(device: RtlDevice, program: bytes, limit: int = 2000) -> RunStats:
    """Run a program that lies at byte 0."""
    device.write(0, program)
    device.start(0, len(program) // ISA.word_bytes)
    return device.wait(limit)


def refused(message: str):
    """Expect a `DeviceError` with this whole message."""
    return pytest.raises(DeviceError, match=f"^{re.escape(message)}$")


def test_memory_keeps_bytes_at_any_address(device: RtlDevice) -> None:
    device.write(5, DATA)
    device.write(9, b"\xff")
    assert device.read(4, 18) == b"\0" + DATA[:4] + b"\xff" + DATA[5:] + b"\0"


def test_states_what_it_is(device: RtlDevice) -> None:
    assert device.config_hash == device.npu.config.digest


def test_a_program_moves_data_and_counters_say_so(device: RtlDevice) -> None:
    device.write(1024, DATA)
    stats = run(device, COPY)
    assert device.read(2048, len(DATA)) == DATA
    assert device.read(2048 + len(DATA), 1) == b"\0"
    beats = len(DATA) // device.npu.config.bus.host_bytes
    assert (stats.host_read_beats, stats.host_write_beats) == (beats, beats)
    assert stats.instructions == 4
    assert sum(stats.breakdown.values()) == stats.cycles > 0


def test_the_same_program_takes_the_same_cycles_without_reset(device: RtlDevice) -> None:
    assert run(device, COPY) == run(device, COPY)


def test_polling_sees_the_same_end_as_the_interrupt(device: RtlDevice) -> None:
    by_interrupt = run(device, COPY)
    device.poll = True
    try:
        assert run(device, COPY) == by_interrupt
    finally:
        device.poll = False


def test_progress_counts_up_to_the_end(device: RtlDevice) -> None:
    long_copy = ISA.assemble("ReadHostMemory dram_addr=0 ub_addr=0 rows=1000 runs=1\nHalt")
    device.write(0, long_copy)
    device.start(0, 2)
    seen: list[int] = []
    stats = device.wait(5000, seen.append)
    assert seen == sorted(seen)
    assert stats.cycles - 300 < seen[-1] <= stats.cycles


def test_names_the_instruction_and_the_error(device: RtlDevice) -> None:
    with refused(
        "the core stopped at instruction 1 of the program with error 1 (unknown opcode, reserved "
        "bit set, or a zero count); npulse disasm shows the instruction"
    ):
        run(device, COPY[: ISA.word_bytes] + bytes(ISA.word_bytes) + HALT)


def test_runs_again_after_an_error_and_a_reset(device: RtlDevice) -> None:
    with pytest.raises(DeviceError):
        run(device, bytes(ISA.word_bytes))
    device.reset()
    assert run(device, HALT).instructions == 1


def test_says_that_a_program_does_not_end(device: RtlDevice) -> None:
    with refused(
        "the program must end within 10 cycles, but still runs; compile the model again, or "
        "report the program"
    ):
        run(device, COPY, limit=10)


@pytest.mark.parametrize(("address", "count"), [(4090, 16), (-1, 1)])
def test_refuses_memory_that_is_not_there(device: RtlDevice, address: int, count: int) -> None:
    message = f"memory accesses must lie in bytes 0 to 4095, not {address} to {address + count - 1}"
    with refused(message):
        device.write(address, bytes(count))
    with refused(message):
        device.read(address, count)


def test_refuses_an_engine_that_is_not_known() -> None:
    message = "--engine must be one of pysim, compiled, not 'verilog'"
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        open_device(resolve("tpu-v1:sim"), 4096, "verilog")


def test_refuses_pysim_for_an_array_that_it_cannot_build() -> None:
    message = (
        "multiply-adds a cycle of tpu-v1:silicon must be at most 1024 for engine pysim, which "
        "builds each cell, not 65536; take a smaller size or --engine compiled"
    )
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        open_device(resolve("tpu-v1"), 4096, "pysim")


def test_both_engines_take_the_same_cycles(device: RtlDevice) -> None:
    device.write(1024, DATA)
    expected = run(device, COPY)
    compiled = RtlDevice(device.npu, memory_bytes=4096, engine="compiled")
    compiled.write(1024, DATA)
    assert run(compiled, COPY) == expected
    assert compiled.read(0, 4096) == device.read(0, 4096)
