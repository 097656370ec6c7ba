"""Names of NPUs and overrides of their parameters."""

import re

import pytest

from npulse.hw.spec.flavours import FLAVOURS, resolve
from npulse.hw.spec.tpu_v1 import PRESETS


def refuses(message: str):
    return pytest.raises(ValueError, match=f"^{re.escape(message)}$")


@pytest.mark.parametrize("size", ["sim", "fpga", "silicon"])
def test_every_flavour_has_the_three_sizes(size):
    for name, flavour in FLAVOURS.items():
        npu = resolve(f"{name}:{size}")
        assert npu.config is flavour.presets[size]
        assert (npu.name, npu.flavour, npu.size) == (f"{name}:{size}", name, size)
        assert npu.family == flavour.family == npu.config.family
        assert npu.overrides == ()


@pytest.mark.parametrize("name", ["tpu-v1", "tpu-v1:"])
def test_size_is_silicon_unless_given(name):
    npu = resolve(name)
    assert npu.name == "tpu-v1:silicon"
    assert npu.config == PRESETS["silicon"]


def test_overrides_change_single_parameters_in_order():
    overrides = ["array.rows=4", " array.cols = 0x10 ", "queue_depth=8", "array.rows=32"]
    config = resolve("tpu-v1:sim", overrides).config
    assert (config.array.rows, config.array.cols, config.queue_depth) == (32, 16, 8)
    assert config.array.multiplier_latency == PRESETS["sim"].array.multiplier_latency
    assert config.memory == PRESETS["sim"].memory
    assert resolve("tpu-v1:sim", overrides).overrides == tuple(overrides)
    assert PRESETS["sim"].array.rows == 8


@pytest.mark.parametrize(
    "name, message",
    [
        ("tpu-v9", "flavour must be one of tpu-v1, not 'tpu-v9'"),
        ("", "flavour must be one of tpu-v1, not ''"),
        ("tpu-v1:big", "size of tpu-v1 must be one of sim, fpga, silicon, not 'big'"),
    ],
)
def test_refuses_a_name(name, message):
    with refuses(message):
        resolve(name)


@pytest.mark.parametrize(
    "override, message",
    [
        ("array.rows", "an override must be parameter=value, not 'array.rows'"),
        (
            "arrays.rows=4",
            "parameter 'arrays.rows' must start with one of array, memory, bus, dram, "
            "queue_depth, requantiser_latency, clock_mhz",
        ),
        (
            "array.depth=4",
            "parameter 'array.depth' must start with one of rows, cols, multiplier_latency",
        ),
        (
            "array=4",
            "parameter 'array' must be one of array.rows, array.cols, array.multiplier_latency",
        ),
        (
            "queue_depth.x=4",
            "parameter 'queue_depth.x' must end at queue_depth, which has no parts",
        ),
        ("array.rows=four", "parameter array.rows must be an integer, not 'four'"),
        ("array.rows=", "parameter array.rows must be an integer, not ''"),
        ("array.rows=0", "array.rows must be from 1 to 512, not 0"),
        ("bus.host_bytes=3", "bus.host_bytes must be a power of two, not 3"),
    ],
)
def test_refuses_an_override(override, message):
    with refuses(message):
        resolve("tpu-v1:sim", [override])
