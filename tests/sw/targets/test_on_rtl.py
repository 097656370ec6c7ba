"""Compiled networks on the RTL of small arrays, every value that the NPU makes against golden."""

import numpy as np
import pytest

from npulse.hw.spec.flavours import resolve
from npulse.sw.compile import compile_model
from npulse.sw.driver.devices import open_device
from npulse.sw.driver.runtime import Runtime


def every_operator(net):
    made = net(5).input(1, 5, 4, 3).conv(4, pads=(1, 1, 1, 1)).clamp(-70, 90)
    return made.pool((2, 2), (2, 2)).flatten(channels_first=True).fully_connected(3)


def depthwise_and_copies(net):
    made = net(6).input(1, 4, 4, 5).conv(5, (2, 2), groups=5).requantize()
    return made.pool((3, 3), (1, 1), (1, 1, 1, 1))


def matrix_in_chunks(net):
    return net(7).input(21, 4).fully_connected(4)


@pytest.mark.parametrize(
    ("build", "settings", "runs"),
    [
        (every_operator, ["array.rows=3", "array.cols=2"], 1),
        (depthwise_and_copies, ["array.rows=2", "array.cols=3", "queue_depth=2"], 1),
        # The second run starts from what the first has left behind.
        (matrix_in_chunks, ["array.rows=4", "array.cols=4", "memory.accumulator_rows=16"], 2),
    ],
)
def test_network_is_golden_on_the_rtl(net, build, settings, runs) -> None:
    executable = compile_model(build(net).model(), resolve("tpu-v1:sim", settings), strict=True)
    device = open_device(executable.npu, executable.memory.total_bytes)
    runtime = Runtime(executable, device)
    rng = np.random.default_rng(0)
    for _ in range(runs):
        arrays = {
            info.name: rng.integers(-128, 128, info.shape).astype(np.int8)
            for info in executable.inputs
        }
        result = runtime.run(arrays, check=True)
        assert result.mismatches == ()
        assert result.checked >= 6
        assert np.unique(list(result.outputs.values())[0]).size > 1
