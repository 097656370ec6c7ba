"""Closed forms of latency against the textbook formula; `tests/hw/cores` holds the RTL to them."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from npulse.hw.spec.timing import (
    accumulate_delay,
    activate_delay,
    matrix_cycles,
    matrix_drain,
    pass_cycles,
)
from npulse.hw.spec.tpu_v1 import PRESETS, ArrayConfig, MemoryConfig, TpuV1Config


def config(rows, cols, *, multiplier=0, sram=1, requantiser=4):
    return TpuV1Config(
        array=ArrayConfig(rows=rows, cols=cols, multiplier_latency=multiplier),
        memory=MemoryConfig(sram_latency=sram),
        requantiser_latency=requantiser,
    )


CONFIGS = st.builds(
    config,
    st.integers(1, 64),
    st.integers(1, 64),
    multiplier=st.integers(0, 4),
    sram=st.integers(1, 2),
    requantiser=st.integers(1, 8),
)


def test_latencies_of_the_presets():
    """The figures of the table in ``hw/README.md``."""
    assert {
        size: (
            accumulate_delay(config),
            matrix_drain(config),
            activate_delay(config),
            pass_cycles(config, 1),
        )
        for size, config in PRESETS.items()
    } == {"sim": (10, 20, 8, 8), "fpga": (21, 40, 13, 16), "silicon": (258, 516, 8, 256)}


@given(CONFIGS, st.integers(1, 200), st.integers(1, 20))
def test_products_take_the_textbook_cycles_and_a_constant(config, m, tiles):
    """(T - 1) max(M, K) + M + K + N - 2, and D + s + 4 for the registers around the array."""
    k, n = config.array.rows, config.array.cols
    d, s = config.array.multiplier_latency, config.memory.sram_latency
    textbook = (tiles - 1) * max(m, k) + m + k + n - 2
    turnaround = (tiles - 1) * max(0, s + 2 - max(m, k))  # only where M and K are below s + 2
    assert matrix_cycles(config, m, tiles) == textbook + turnaround + d + s + 4


@given(CONFIGS)
def test_one_row_is_its_drain(config):
    assert matrix_cycles(config, 1, 1) == matrix_drain(config)
    assert matrix_drain(config) > accumulate_delay(config) > config.array.rows


@given(CONFIGS)
def test_deeper_pipelines_add_exactly_their_registers(config):
    deeper = replace(config, requantiser_latency=config.requantiser_latency % 8 + 1)
    more = deeper.requantiser_latency - config.requantiser_latency
    assert activate_delay(deeper) - activate_delay(config) == more
    assert accumulate_delay(deeper) == accumulate_delay(config)
