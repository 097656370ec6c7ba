"""Instructions of the TPU v1 style: wide enough for every configuration, and never all zeros."""

import re

import pytest

from npulse.hw.spec.tpu_v1 import PRESETS, ArrayConfig, MemoryConfig, TpuV1Config
from npulse.hw.spec.tpu_v1_isa import ACTIVATE, ISA, MATRIX_MULTIPLY, READ_HOST, UNITS, ErrorCode


def test_addresses_reach_every_row_of_the_largest_memories():
    for f in (READ_HOST, MATRIX_MULTIPLY, ACTIVATE):
        rows = f.field("ub_addr").high + 1
        assert MemoryConfig(unified_buffer_rows=rows).unified_buffer_rows == rows
        with pytest.raises(ValueError, match="^memory.unified_buffer_rows must be from 2 to"):
            MemoryConfig(unified_buffer_rows=rows + 1)
    for f in (MATRIX_MULTIPLY, ACTIVATE):
        rows = f.field("acc_addr").high + 1
        assert MemoryConfig(accumulator_rows=rows).accumulator_rows == rows
        with pytest.raises(ValueError, match="^memory.accumulator_rows must be from 4 to"):
            MemoryConfig(accumulator_rows=2 * rows)


def test_group_reaches_every_lane_group_of_the_tallest_and_the_widest_array():
    for shape in ({"rows": 512, "cols": 1}, {"rows": 1, "cols": 512}):
        config = TpuV1Config(array=ArrayConfig(**shape), memory=MemoryConfig(weight_fifo_tiles=16))
        assert config.lane_groups - 1 <= ACTIVATE.field("group").high


def test_empty_memory_is_no_instruction():
    with pytest.raises(ValueError, match=r"^opcode must be one of \[1, .*8\], not 0$"):
        ISA.decode(bytes(ISA.word_bytes))


def test_opcodes_are_part_of_the_contract():
    assert {f.name: f.opcode for f in ISA.formats} == {
        "Halt": 1,
        "Sync": 2,
        "ReadHostMemory": 3,
        "WriteHostMemory": 4,
        "ReadWeights": 5,
        "ReadParameters": 6,
        "MatrixMultiply": 7,
        "Activate": 8,
    }


def test_sync_has_a_bit_for_each_unit_that_instructions_name():
    assert sorted(UNITS.values()) == [1, 2, 4, 8]
    assert {f.unit for f in ISA.formats} == {*UNITS, "dispatch"}
    mask = re.findall(r"(\w+) (\d)", ISA.formats[1].field("units").doc)
    assert {name: int(bit) for name, bit in mask} == UNITS


def test_error_codes_have_a_text_and_fit_their_register():
    assert [code.value for code in ErrorCode] == list(range(8))
    assert all(code.text for code in ErrorCode)
    assert ErrorCode(1) is ErrorCode.ILLEGAL_INSTRUCTION
    assert ErrorCode.NO_HALT.text == "the program ended without Halt"


def test_a_half_of_the_largest_accumulators_fits_the_counts():
    rows = max(config.half_rows for config in PRESETS.values())
    for f in (MATRIX_MULTIPLY, ACTIVATE):
        assert f.field("rows_y").high >= rows and f.field("rows_x").high >= rows
