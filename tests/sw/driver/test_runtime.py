"""Executables on a device: outputs, checks that find faults, and back-to-back runs."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npulse.hw.spec.flavours import resolve
from npulse.sim.rtl.dram_channels import WriteOrder
from npulse.sim.rtl.throttle import Stalls
from npulse.sw import models
from npulse.sw.compile import compile_model
from npulse.sw.driver.device import DeviceError, RunStats
from npulse.sw.driver.devices import open_device
from npulse.sw.driver.rtl import RtlDevice
from npulse.sw.driver.runtime import Mismatch, Runtime, compare, cycle_limit
from npulse.sw.errors import UserError
from npulse.sw.frontends.load import load_model
from npulse.sw.targets.executable import Executable

NPU = resolve("tpu-v1:sim")
IMAGES = models.test_set()[0]


def feed(index: int) -> dict[str, Any]:
    """One test image as the model wants it."""
    return {"image": IMAGES[index : index + 1]}


@pytest.fixture(scope="module")
def executable() -> Executable:
    return compile_model(load_model(models.path("digits")), NPU)


@pytest.fixture(scope="module")
def runtime(executable: Executable) -> Runtime:
    """The model on the compiled engine, which takes a fraction of a second an image."""
    device = open_device(NPU, executable.memory.total_bytes, "compiled")
    return Runtime(executable, device)


def test_every_value_of_many_images_equals_golden(runtime: Runtime) -> None:
    for index in range(20):
        result = runtime.run(feed(index), check=True)
        assert result.mismatches == ()
        assert result.checked == 20
        assert np.array_equal(result.outputs["logits"], runtime.golden(feed(index))["logits"])


def test_runs_follow_each_other_without_reset_and_cost_the_same(runtime: Runtime) -> None:
    first = runtime.run(feed(0))
    other = runtime.run(feed(1))
    again = runtime.run(feed(0))
    assert first.stats == again.stats == other.stats
    assert np.array_equal(first.outputs["logits"], again.outputs["logits"])
    assert not np.array_equal(first.outputs["logits"], other.outputs["logits"])


def test_two_models_take_turns_on_one_device(runtime: Runtime, executable: Executable) -> None:
    expected = runtime.run(feed(3), check=True)
    weights = np.frombuffer(executable.weight_image, np.uint8) ^ 1
    other = Runtime(replace(executable, weight_image=weights.tobytes()), runtime.device)
    assert other.run(feed(3), check=True).mismatches
    runtime.load()
    assert runtime.run(feed(3), check=True).stats == expected.stats


def test_counters_add_up_and_bytes_are_those_of_the_program(
    runtime: Runtime, executable: Executable
) -> None:
    stats = runtime.run(feed(0)).stats
    assert sum(stats.breakdown.values()) == stats.cycles
    assert stats.instructions == executable.summary.instructions
    weight_bytes = stats.weight_beats * NPU.config.bus.weight_bytes
    assert weight_bytes == executable.summary.weight_bytes


def test_a_wrong_weight_is_found_and_named(runtime: Runtime, executable: Executable) -> None:
    address = executable.memory.weights.address + 3
    before = runtime.device.read(address, 1)
    runtime.device.write(address, bytes([before[0] ^ 0x40]))
    try:
        result = runtime.run(feed(0), check=True)
    finally:
        runtime.device.write(address, before)
    assert {m.value for m in result.mismatches} == {"logits_int8", "logits"}
    assert all(m.wrong > 0 and m.total == 10 for m in result.mismatches)


@pytest.mark.parametrize(
    ("write_order", "stalls"),
    [
        ("address_first", None),
        ("data_first", None),
        ("address_first", Stalls(seed=1, probability=230)),
    ],
    ids=["address before data", "data before address", "ready in a tenth of cycles"],
)
def test_memories_of_any_manners_give_the_same_values(
    runtime: Runtime, executable: Executable, write_order: WriteOrder, stalls: Stalls | None
) -> None:
    size = executable.memory.total_bytes
    device = RtlDevice(
        NPU, memory_bytes=size, stalls=stalls, write_order=write_order, engine="compiled"
    )
    result = Runtime(executable, device).run(feed(4), check=True)
    assert (result.checked, result.mismatches) == (20, ())
    if stalls is not None:
        assert result.stats.cycles > 1.5 * runtime.run(feed(4)).stats.cycles


def test_a_model_on_the_host_alone_needs_no_device() -> None:
    model = load_model(models.path("digits_float"))
    runtime = Runtime(compile_model(model, NPU), None)
    result = runtime.run(feed(0), check=True)
    assert (result.stats, result.checked, result.mismatches) == (RunStats(), 10, ())


def test_progress_never_falls(runtime: Runtime) -> None:
    seen: list[int] = []
    result = runtime.run(feed(0), progress=seen.append)
    assert seen == sorted(seen)
    assert 0 < seen[-1] <= result.stats.cycles


def test_the_limit_is_far_above_what_a_run_takes(runtime: Runtime, executable: Executable) -> None:
    assert cycle_limit(executable) > 20 * runtime.run(feed(0)).stats.cycles


def test_a_device_of_other_parameters_is_refused(runtime: Runtime, executable: Executable) -> None:
    npu = resolve("tpu-v1:sim", ["array.rows=4"])
    due, stated = npu.config.digest, NPU.config.digest
    message = (
        f"the device must be tpu-v1:sim with parameters of digest {due:08x}, but states "
        f"{stated:08x}; compile the model for this device"
    )
    with pytest.raises(DeviceError, match=f"^{re.escape(message)}$"):
        Runtime(replace(executable, npu=npu), runtime.device)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input image is missing; the inputs of the model are image"),
        (
            {**feed(0), "label": IMAGES[:1]},
            "input label does not exist; the inputs of the model are image",
        ),
        (
            {"image": IMAGES[:2]},
            "input image must have shape (1, 1, 8, 8), not (2, 1, 8, 8)",
        ),
    ],
)
def test_inputs_are_checked(runtime: Runtime, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        runtime.run(inputs)


def test_sums_of_counters() -> None:
    total = RunStats(cycles=3, busy=1, idle=2) + RunStats(cycles=4, fill_drain=4)
    assert total == RunStats(cycles=7, busy=1, idle=2, fill_drain=4)


def test_compare_sees_single_bits() -> None:
    zero = np.zeros((2, 2), np.float32)
    assert compare("x", zero, zero.copy()) is None
    nan = np.full((2, 2), np.nan, np.float32)
    assert compare("x", nan, nan.copy()) is None
    found = compare("x", np.array([[0, 0], [-0.0, 0]], np.float32), zero)
    assert found == Mismatch(value="x", wrong=1, total=4, first=(1, 0), got=-0.0, expected=0.0)
    scalar = compare("x", np.array(5, np.int8), np.array(6, np.int8))
    assert str(scalar) == ("x differs from golden in 1 of 1 values, first at []: 5 instead of 6")


def test_compare_refuses_another_type() -> None:
    message = "x must be int8 of (2,), not uint8 of (2,)"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        compare("x", np.zeros(2, np.uint8), np.zeros(2, np.int8))
