"""TensorFlow Lite Micro's hello_world at RTL, on every input that it can have."""

import numpy as np
import pytest

from npulse.hw.spec.flavours import resolve
from npulse.sw.compile import compile_model
from npulse.sw.driver.devices import open_device
from npulse.sw.driver.runtime import Runtime
from npulse.sw.frontends.load import load_model


@pytest.mark.parametrize("name", ["tpu-v1:sim", "tpu-v1:fpga"])
def test_all_256_inputs_equal_golden_and_litert(shared_dir, name):
    model = load_model(shared_dir / "models" / "tflite_micro" / "hello_world_int8.tflite")
    executable = compile_model(model, resolve(name), strict=True)
    runtime = Runtime(executable, open_device(executable.npu, executable.memory.total_bytes))
    runtime.load()
    (source,), (target,) = executable.inputs, executable.outputs
    outputs = []
    for value in range(-128, 128):
        x = np.full(source.shape, value, np.int8)
        result = runtime.run({source.name: x}, check=True)
        assert not result.mismatches
        outputs.append(int(result.outputs[target.name].ravel()[0]))
    with np.load(shared_dir / "datasets" / "golden_litert_builtin_ref.npz") as stored:
        key = next(k for k in stored.files if "hello" in k and stored[k].size == 256)
        np.testing.assert_array_equal(outputs, stored[key].ravel())
