"""A stateful model begins with its first contents, and goes on from what it is given."""

import numpy as np
import pytest

from npulse.hw.spec.flavours import resolve
from npulse.sw.compile import compile_model
from npulse.sw.driver.devices import open_device
from npulse.sw.driver.runtime import Runtime
from npulse.sw.frontends.load import load_model


@pytest.fixture(scope="module")
def runtime(shared_dir):
    model = load_model(shared_dir / "models" / "microwakeword" / "okay_nabu.tflite")
    executable = compile_model(model, resolve("tpu-v1:sim"))
    device = open_device(executable.npu, executable.memory.total_bytes)
    runtime = Runtime(executable, device)
    runtime.load()
    return runtime


def test_state_left_out_is_the_first_contents(runtime):
    info = runtime.executable.inputs[0]
    sound = np.random.default_rng(0).integers(-128, 128, info.shape).astype(np.int8)
    fresh = runtime.run({info.name: sound}, check=True)
    assert fresh.checked and not fresh.mismatches
    states = {i.name: i for i in runtime.executable.inputs if i.initial is not None}
    assert states
    given = {name: runtime.executable.weights[i.initial] for name, i in states.items()}
    again = runtime.run({info.name: sound, **given}, check=True)
    for name, value in fresh.outputs.items():
        np.testing.assert_array_equal(again.outputs[name], value)
    carried = {name: fresh.outputs[name] for name in states}
    later = runtime.run({info.name: sound, **carried}, check=True)
    assert any((later.outputs[name] != fresh.outputs[name]).any() for name in states)
