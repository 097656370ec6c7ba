"""Closed forms of latency against the textbook formula; `tests/hw/cores` holds the RTL to them."""

import re
from dataclasses import replace
from pathlib import Path

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


README = Path(__file__).resolve().parents[3] / "hw" / "README.md"


def test_table_of_the_documentation_has_the_latencies_of_the_presets():
    quoted = {
        name: tuple(map(int, figures))
        for name, *figures in re.findall(
            r"(?m)`(\w+)` \|[^|\n]*\| (\d+) \| (\d+) \| (\d+) \|$", README.read_text()
        )
    }
    order = [PRESETS[size] for size in ("sim", "fpga", "silicon")]
    assert quoted == {
        "accumulate_delay": tuple(accumulate_delay(config) for config in order),
        "matrix_drain": tuple(matrix_drain(config) for config in order),
        "activate_delay": tuple(activate_delay(config) for config in order),
        "pass_cycles": tuple(pass_cycles(config, 1) for config in order),
        "matrix_cycles": tuple(matrix_cycles(config, 1, 1) for config in order),
    }


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
