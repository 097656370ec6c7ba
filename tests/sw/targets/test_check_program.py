"""Proofs of finished programs, and the faults that they find."""

import re

import pytest

from npulse.hw.spec.flavours import resolve
from npulse.sw.ir.tpu import (
    ActivateOp,
    HaltOp,
    MatrixMultiplyOp,
    ProgramOp,
    ReadHostOp,
    ReadParametersOp,
    ReadWeightsOp,
    SyncOp,
)
from npulse.sw.targets.executable import DramMap, DramRange
from npulse.sw.targets.tpu_v1.check_program import check_program, problems
from npulse.sw.targets.tpu_v1.queues import Machine
from npulse.sw.targets.tpu_v1.rows import buffer_reads, weight_tiles

CONFIG = resolve("tpu-v1:sim").config
MEMORY = DramMap(
    weights=DramRange(name="weights", address=0, length_bytes=1024),
    parameters=DramRange(name="parameters", address=1024, length_bytes=256),
    tensors=(DramRange(name="x", address=1280, length_bytes=128),),
    program=DramRange(name="program", address=1408, length_bytes=0),
    total_bytes=1408,
)


def weights(tiles=1, at=0):
    return ReadWeightsOp(dram_addr=at, tiles=tiles)


def parameters():
    return ReadParametersOp(dram_addr=1024)


def multiply(tiles=1, **fields):
    return MatrixMultiplyOp(switch=1, kernel_x=tiles, limit_x=tiles, dilate_x=1, **fields)


def activate(**fields):
    return ActivateOp(switch=1, ub_addr=100, window_y_rows=1, **fields)


def faults(*ops, config=CONFIG) -> list[str]:
    return list(problems(ProgramOp("p", [*ops, HaltOp()]), config, MEMORY))


def test_a_correct_program_passes() -> None:
    ops = [weights(), parameters(), multiply(), activate(), HaltOp()]
    check_program(ProgramOp("p", ops), CONFIG, MEMORY)


def test_a_fault_is_raised_with_the_name_of_the_program() -> None:
    program = ProgramOp("p", [multiply(ub_addr=3072), HaltOp()])
    message = (
        "p: instruction 0, tpu.matrix_multiply, must stay below row 3072 of the unified buffer, "
        "not reach 3072"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_program(program, CONFIG, MEMORY)


@pytest.mark.parametrize(
    ("op", "fault"),
    [
        (
            ReadHostOp(dram_addr=1280, ub_addr=3070, rows=3),
            "tpu.read_host, must stay below row 3072 of the unified buffer, not reach 3072",
        ),
        (
            ReadHostOp(dram_addr=1281, rows=1),
            "tpu.read_host, must address DRAM in words of 2 bytes, not at 1281",
        ),
        (
            ReadHostOp(dram_addr=1280, rows=17),
            "tpu.read_host, must stay within one range of DRAM, not touch 1280 to 1415",
        ),
        (
            ReadWeightsOp(dram_addr=960, tiles=2),
            "tpu.read_weights, must stay within one range of DRAM, not touch 960 to 1087",
        ),
        (
            ReadParametersOp(dram_addr=0),
            "tpu.read_parameters, must stay within one range of DRAM, not touch 0 to 95",
        ),
        (
            multiply(rows_y=9, rows_x=8),
            "tpu.matrix_multiply, must stay within 64 accumulator rows of a half, not end at 72",
        ),
        (
            multiply(acc_addr=128),
            "tpu.matrix_multiply, must start below accumulator row 128, not at 128",
        ),
        (
            activate(limit_y=65),
            "tpu.activate, must stay within 64 accumulator rows of a half, not end at 65",
        ),
        (activate(group=1), "tpu.activate, must write one of 1 lane groups, not 1"),
    ],
)
def test_an_address_out_of_its_memory_is_named(op, fault) -> None:
    assert f"instruction 0, {fault}" in faults(op)


def test_a_read_that_its_queue_can_never_take_is_a_deadlock() -> None:
    # Five tiles do not fit the FIFO of four, so the reads behind wait for the multiply, which
    # dispatch does not reach.
    def reads(count):
        return [weights(tiles=5), *(parameters() for _ in range(count))]

    assert faults(*reads(4), multiply(5), *(activate() for _ in range(4))) == [
        "instruction 4, tpu.read_parameters, must not wait for room in its queue for ever, but "
        "weights waits in tpu.read_weights"
    ]
    assert faults(*reads(1), multiply(5), activate()) == []


def test_a_sync_that_no_unit_can_satisfy_is_a_deadlock() -> None:
    assert faults(multiply(), SyncOp(units=4), weights()) == [
        "instruction 1, tpu.sync, must not wait for units to finish for ever, but matrix waits in "
        "tpu.matrix_multiply"
    ]


def test_a_multiply_without_its_tile_never_ends() -> None:
    assert faults(weights(), multiply(2)) == [
        "the end must not wait for units to finish for ever, but matrix waits in "
        "tpu.matrix_multiply"
    ]


def test_what_is_left_in_a_fifo_is_named() -> None:
    assert faults(weights(2), multiply()) == [
        "the end must leave no weight tiles in their FIFO, not 1"
    ]
    assert faults(parameters()) == ["the end must leave no parameter entries in their FIFO, not 1"]


def test_a_missing_sync_is_a_fault() -> None:
    load = [ReadHostOp(dram_addr=1280, rows=4), weights()]
    ready = [parameters(), activate()]
    assert faults(*load, multiply(), *ready) == [
        "instruction 2, tpu.matrix_multiply, must come after a Sync of host"
    ]
    load = [ReadHostOp(dram_addr=1280, rows=4), weights()]
    ready = [parameters(), activate()]
    assert faults(*load, SyncOp(units=1), multiply(), *ready) == []


def test_a_unit_waits_for_the_other_on_the_same_half_only() -> None:
    machine = Machine(CONFIG)
    machine.dispatch(multiply())
    machine.dispatch(ActivateOp(acc_addr=64))
    assert not machine.queues["activate"]
    machine.dispatch(ActivateOp(acc_addr=0))
    assert len(machine.queues["activate"]) == 1
    machine.dispatch(weights())
    assert not machine.queues["matrix"]
    assert not machine.queues["activate"]


def test_tiles_of_a_multiply_count_blocks_read_groups_and_kernel() -> None:
    wide = resolve("tpu-v1:sim", ["array.rows=3", "array.cols=8"]).config
    op = MatrixMultiplyOp(switch=1, blocks=2, kernel_y=3, kernel_x=4)
    assert weight_tiles(CONFIG, op) == 24
    assert weight_tiles(wide, op) == 72
    assert weight_tiles(CONFIG, MatrixMultiplyOp(switch=0, kernel_y=3)) == 2


def test_rows_that_a_multiply_reads_end_at_its_limits() -> None:
    # A 3 x 3 kernel with padding 1 on a 4 x 5 image at row 20, in two blocks.
    op = MatrixMultiplyOp(
        ub_addr=20 - 6,
        blocks=2,
        block_stride=20,
        kernel_y=3,
        kernel_x=3,
        rows_y=4,
        rows_x=5,
        step_y=1,
        step_x=1,
        dilate_y=1,
        dilate_x=1,
        step_y_rows=5,
        dilate_y_rows=5,
        origin_y=-1,
        origin_x=-1,
        limit_y=4,
        limit_x=5,
    )
    span = buffer_reads(op)
    assert span is not None
    assert (span.first, span.last) == (20, 59)
