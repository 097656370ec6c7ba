"""The TPU v1 style core at RTL against golden numpy, one program at a time."""

from dataclasses import replace

import numpy as np
import pytest

from npulse.hw.spec.flavours import Npu, resolve
from npulse.hw.spec.tpu_v1 import PRESETS, ArrayConfig, BusConfig, MemoryConfig
from npulse.hw.spec.tpu_v1_isa import ISA, ErrorCode
from npulse.sim.rtl.throttle import Stalls
from npulse.sw.driver.bulk import BulkDevice
from npulse.sw.driver.device import DeviceError
from npulse.sw.driver.rtl import RtlDevice
from tests.hw.cores.conv_program import Program, conv_program, random_conv, run

SHAPES = [
    (1, 1),
    (2, 2),
    (3, 3),
    (4, 4),
    (8, 8),
    (12, 12),
    (2, 4),
    (4, 2),
    (3, 5),
    (5, 3),
    (1, 4),
    (4, 1),
    (6, 2),
    (2, 7),
]
MEMORY_BYTES = 1 << 17


def npu(rows, cols, *, seed=0):
    """NPU of a shape, with the other parameters drawn from `seed`."""
    rng = np.random.default_rng([rows, cols, seed])
    draw = lambda *values: int(rng.choice(values))  # noqa: E731
    config = replace(
        PRESETS["sim"],
        array=ArrayConfig(rows=rows, cols=cols, multiplier_latency=draw(0, 1, 2, 3)),
        memory=MemoryConfig(
            unified_buffer_rows=2048,
            accumulator_rows=128,
            weight_fifo_tiles=draw(2, 4),
            parameter_entries=draw(2, 4),
            sram_latency=draw(1, 2),
        ),
        bus=BusConfig(
            weight_bytes=draw(1, 2, 4, 8),
            host_bytes=draw(1, 2, 4, 8),
            instruction_bytes=draw(4, 16, 32),
        ),
        queue_depth=draw(2, 4),
        requantiser_latency=draw(1, 3, 4, 8),
    )
    return Npu(name=f"{rows}x{cols}", flavour="tpu-v1", size="sim", overrides=(), config=config)


def check_random_programs(shape, seeds, *, engine):
    """Run random convolutions on one device without a reset between them, memory stalling.

    pysim gets small ones: it carries out a few hundred cycles a second.
    """
    target = npu(*shape, seed=seeds[0])
    stalls = Stalls(seed=seeds[0], probability=[0, 26, 128][sum(shape) % 3])
    make = BulkDevice if engine == "compiled" else RtlDevice
    device = make(target, memory_bytes=MEMORY_BYTES, stalls=stalls)
    for seed in seeds:
        rng = np.random.default_rng([*shape, seed])
        conv = random_conv(rng, target.config, small=engine == "pysim")
        program, address, expected = conv_program(target.config, conv)
        output, stats = run(device, program, address, expected.shape)
        np.testing.assert_array_equal(output, expected, err_msg=f"shape {shape}, seed {seed}")
        assert sum(stats.breakdown.values()) == stats.cycles
        assert stats.instructions == len(program.lines)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_random_programs_equal_golden(shape):
    check_random_programs(shape, range(24), engine="compiled")


@pytest.mark.parametrize("shape", [(3, 2), (2, 3)], ids=str)
def test_random_programs_equal_golden_in_pysim(shape):
    check_random_programs(shape, range(2), engine="pysim")


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_many_random_programs_equal_golden_in_pysim(shape):
    check_random_programs(shape, range(24), engine="pysim")


def device(edge, memory_bytes, **options):
    """Square `tpu-v1:sim` of another edge on the compiled engine."""
    target = resolve("tpu-v1:sim", [f"array.rows={edge}", f"array.cols={edge}"])
    return BulkDevice(target, memory_bytes=memory_bytes, **options)


@pytest.fixture(scope="module")
def small():
    """A 2 x 2 device that error tests reset."""
    return device(2, 4096)


def outcome(device, lines, *, count=None, memory=b""):
    """Run instructions (or raw words) and return the error's text, or None."""
    program = Program(device.npu.config, memory=bytearray(memory))
    words = b"".join(
        line if isinstance(line, bytes) else ISA.encode(ISA.parse(line)) for line in lines
    )
    address = program.place(words)
    device.reset()
    device.write(0, bytes(program.memory))
    device.start(address, len(lines) if count is None else count)
    try:
        device.wait(5000)
    except DeviceError as error:
        return str(error)
    return None


HALT = "Halt"
FILL = "MatrixMultiply limit_y=1 limit_x=1"


@pytest.mark.parametrize(
    "lines, code, index",
    [
        ([bytes(32)], ErrorCode.ILLEGAL_INSTRUCTION, 0),
        (["Sync", (15).to_bytes(32, "little")], ErrorCode.ILLEGAL_INSTRUCTION, 1),
        (["Sync", (1 | 1 << 9).to_bytes(32, "little")], ErrorCode.ILLEGAL_INSTRUCTION, 1),
        ([(5).to_bytes(32, "little")], ErrorCode.ILLEGAL_INSTRUCTION, 0),
        (["ReadHostMemory dram_addr=1048576", "Sync units=1", HALT], ErrorCode.BUS, 0),
        (["ReadHostMemory ub_addr=3072", "Sync units=1", HALT], ErrorCode.BUFFER_RANGE, 0),
        (["Sync", f"{FILL} ub_addr=3072", HALT], ErrorCode.BUFFER_RANGE, 1),
        ([f"{FILL} rows_x=9 rows_y=9", HALT], ErrorCode.ACCUMULATOR_RANGE, 0),
        (["Sync", "Sync"], ErrorCode.NO_HALT, 2),
        (["ReadWeights", "Sync units=2", HALT], ErrorCode.LEFTOVER, 2),
        (["ReadParameters", "Sync units=2", HALT], ErrorCode.LEFTOVER, 2),
        ([HALT, "Sync"], ErrorCode.TRAILING, 0),
        ([], ErrorCode.NO_HALT, 0),
        (["Activate ub_addr=3072", HALT], ErrorCode.BUFFER_RANGE, 0),
        (["Activate group=1", HALT], ErrorCode.BUFFER_RANGE, 0),
    ],
)
def test_stops_with_an_error_and_its_place(small, lines, code, index):
    message = (
        f"the core stopped at instruction {index} of the program with error {int(code)} "
        f"({code.text}); npulse disasm shows the instruction"
    )
    assert outcome(small, lines) == message
    assert outcome(small, ["Sync", HALT]) is None, "a reset must clear the error"


def test_counts_every_cycle_once_and_runs_again_without_reset():
    dut = device(4, 1 << 15)
    conv = random_conv(np.random.default_rng(5), dut.npu.config)
    results = []
    for poll in (False, True, False):
        dut.poll = poll
        program, address, expected = conv_program(dut.npu.config, conv)
        output, stats = run(dut, program, address, expected.shape)
        np.testing.assert_array_equal(output, expected)
        results.append(stats)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("probability", [26, 128, 230])
def test_stalls_of_the_memory_change_only_the_time(probability):
    cycles = []
    for stalls in (None, Stalls(seed=probability, probability=probability)):
        dut = device(3, 1 << 15, stalls=stalls)
        conv = random_conv(np.random.default_rng(9), dut.npu.config)
        program, address, expected = conv_program(dut.npu.config, conv)
        output, stats = run(dut, program, address, expected.shape)
        np.testing.assert_array_equal(output, expected)
        cycles.append(stats.cycles)
    assert cycles[0] < cycles[1]
