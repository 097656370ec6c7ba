"""Parameters of the TPU v1 style: presets, derived quantities, fingerprint and refusals."""

import re
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npulse.hw.spec.tpu_v1 import (
    PRESETS,
    ArrayConfig,
    BusConfig,
    DramConfig,
    MemoryConfig,
    TpuV1Config,
)

KIB, MIB = 1024, 1024 * 1024


@pytest.mark.parametrize("size", PRESETS)
def test_presets_keep_the_proportions_of_the_published_size(size):
    """The small ones scale the array's edge N alone; the bus is the power of two above N / 5."""
    config = PRESETS[size]
    edge = config.array.rows
    assert config.array.cols == edge
    assert config.memory.accumulator_rows == 16 * edge
    assert config.memory.unified_buffer_rows == 384 * edge
    assert config.memory.weight_fifo_tiles == 4
    assert config.bus.weight_bytes // 2 < Fraction(edge, 5) <= config.bus.weight_bytes
    ratio = config.dram.weight_bytes_per_cycle / Fraction(edge, 5)
    assert Fraction(9, 10) <= ratio <= Fraction(13, 10)


@pytest.mark.parametrize(
    "size, edge, accumulator_bytes, buffer_bytes, tile_bytes",
    [
        ("silicon", 256, 4 * MIB, 24 * MIB, 64 * KIB),
        ("fpga", 16, 16 * KIB, 96 * KIB, 256),
        ("sim", 8, 4 * KIB, 24 * KIB, 64),
    ],
)
def test_presets_have_the_sizes_of_the_table(
    size, edge, accumulator_bytes, buffer_bytes, tile_bytes
):
    config = PRESETS[size]
    assert config.peak_macs_per_cycle == edge * edge
    assert 4 * edge * config.memory.accumulator_rows == accumulator_bytes
    assert config.unified_buffer_bytes == buffer_bytes
    assert config.tile_bytes == tile_bytes


def test_published_size_is_the_one_of_the_paper():
    config = PRESETS["silicon"]
    assert config.clock_mhz == 700
    per_second = config.dram.weight_bytes_per_cycle * config.clock_mhz * 10**6
    assert abs(per_second - 34 * 10**9) < 34 * 10**6
    # 92 TOPS (ISCA17, abstract): two operations a multiply-add.
    assert round(2 * config.peak_macs_per_cycle * 700e6 / 1e12) == 92


@given(st.integers(1, 512), st.integers(1, 512), st.sampled_from([1, 2, 8, 32, 128]))
def test_derived_quantities_describe_one_buffer(rows, cols, beat):
    config = TpuV1Config(
        array=ArrayConfig(rows=rows, cols=cols),
        bus=BusConfig(host_bytes=beat, weight_bytes=beat),
    )
    assert config.lanes == config.lane_groups * config.group_lanes
    assert min(config.read_groups, config.write_groups) == 1
    if rows >= cols:  # each group takes the results of one pass, the array reads all of them
        assert (config.read_groups, config.group_lanes) == (1, cols)
        assert config.lanes <= rows < config.lanes + cols
    else:  # each group feeds one pass; together they hold all columns
        assert (config.write_groups, config.group_lanes) == (1, rows)
        assert cols <= config.lanes < cols + rows
    assert config.block_channels == (config.lanes if rows >= cols else cols)
    for count, beats, taken in (
        (config.lanes, config.host_row_beats, config.host_row_bytes),
        (cols, config.weight_row_beats, config.tile_bytes // rows),
    ):
        assert (beats - 1) * beat < count <= beats * beat == taken
    assert config.unified_buffer_bytes == 98304 * config.lanes
    assert config.half_rows == 2048


def test_dram_rates_are_exact_fractions():
    dram = DramConfig(weight_millibytes_per_cycle=48600, host_millibytes_per_cycle=1)
    assert dram.weight_bytes_per_cycle == Fraction(243, 5)
    assert dram.host_bytes_per_cycle == Fraction(1, 1000)


def leaves(config, path=()):
    """Every single parameter with its path."""
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from leaves(value, (*path, field.name))
        else:
            yield (*path, field.name), value


def changed(config, path, value):
    """Copy with one parameter at another legal value."""
    name, *rest = path
    inner = getattr(config, name)
    if rest:
        return replace(config, **{name: changed(inner, rest, value)})
    for other in (2 * value, value // 2, value + 1):  # what is a power of two stays one
        try:
            return replace(config, **{name: other})
        except ValueError:
            continue
    raise AssertionError(f"no other legal value of {name}")


@pytest.mark.parametrize("path, value", list(leaves(PRESETS["sim"])), ids=lambda p: str(p))
def test_digest_changes_with_each_parameter_of_the_rtl_and_with_no_other(path, value):
    config = PRESETS["sim"]
    other = changed(config, path, max(1, value))
    assert other != config
    elsewhere = path[0] in ("dram", "clock_mhz")
    assert (other.digest == config.digest) == elsewhere


def test_digest_is_32_bits_and_the_same_for_equal_parameters():
    digests = [config.digest for config in PRESETS.values()]
    assert len(set(digests)) == 3
    assert all(0 <= digest < 1 << 32 for digest in digests)
    assert TpuV1Config().digest == PRESETS["silicon"].digest


#: Class, prefix of the name in messages, name, value, rule.
REFUSALS = [
    (ArrayConfig, "array.", "rows", 0, "from 1 to 512"),
    (ArrayConfig, "array.", "cols", 513, "from 1 to 512"),
    (ArrayConfig, "array.", "multiplier_latency", 5, "from 0 to 4 cycles"),
    (MemoryConfig, "memory.", "unified_buffer_rows", 1, "from 2 to 131072 rows"),
    (MemoryConfig, "memory.", "accumulator_rows", 2, "from 4 to 4096 rows"),
    (MemoryConfig, "memory.", "accumulator_rows", 48, "a power of two"),
    (MemoryConfig, "memory.", "weight_fifo_tiles", 1, "from 2 to 16 tiles"),
    (MemoryConfig, "memory.", "weight_fifo_tiles", 3, "a power of two"),
    (MemoryConfig, "memory.", "parameter_entries", 32, "from 2 to 16 entries"),
    (MemoryConfig, "memory.", "parameter_entries", 6, "a power of two"),
    (MemoryConfig, "memory.", "sram_latency", 3, "from 1 to 2 cycles"),
    (BusConfig, "bus.", "weight_bytes", 256, "from 1 to 128 bytes"),
    (BusConfig, "bus.", "weight_bytes", 12, "a power of two"),
    (BusConfig, "bus.", "host_bytes", 0, "from 1 to 128 bytes"),
    (BusConfig, "bus.", "host_bytes", 3, "a power of two"),
    (BusConfig, "bus.", "instruction_bytes", 64, "from 1 to 32 bytes"),
    (BusConfig, "bus.", "instruction_bytes", 24, "a power of two"),
    (DramConfig, "dram.", "latency_cycles", 1, "from 2 to 1000 cycles"),
    (DramConfig, "dram.", "weight_millibytes_per_cycle", 0, "from 1 to 1048576"),
    (DramConfig, "dram.", "host_millibytes_per_cycle", 0, "from 1 to 1048576"),
    (TpuV1Config, "", "queue_depth", 1, "from 2 to 16 instructions"),
    (TpuV1Config, "", "queue_depth", 5, "a power of two"),
    (TpuV1Config, "", "requantiser_latency", 9, "from 1 to 8 cycles"),
    (TpuV1Config, "", "clock_mhz", 0, "from 1 to 10000 MHz"),
]


@pytest.mark.parametrize("config, prefix, name, value, rule", REFUSALS)
def test_refuses_a_parameter(config, prefix, name, value, rule):
    message = f"{prefix}{name} must be {rule}, not {value}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        config(**{name: value})


def test_every_parameter_has_a_refusal():
    """A parameter without bounds would reach the RTL unchecked."""
    checked = {(config.__name__, name) for config, _, name, _, _ in REFUSALS}
    for config in (ArrayConfig, MemoryConfig, BusConfig, DramConfig, TpuV1Config):
        for field in fields(config):
            if not is_dataclass(getattr(config(), field.name)):
                assert (config.__name__, field.name) in checked
