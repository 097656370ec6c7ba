"""Golden operators against the int8 unit-test vectors of CMSIS-NN, which come from TensorFlow Lite.

Cases of other arithmetic are left out by name: packed int4 weights, int16 activations, fully
connected with a multiplier a channel, and the product of two tensors.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from npulse.hw.spec.numerics import RequantScheme
from npulse.sim.golden.conv import conv2d, depthwise_conv2d
from npulse.sim.golden.elementwise import AddParameters, add
from npulse.sim.golden.geometry import Padding
from npulse.sim.golden.matmul import fully_connected
from npulse.sim.golden.pool import average_pool2d, max_pool2d
from npulse.sim.golden.requant import requantize
from npulse.sim.golden.softmax import SoftmaxParameters, softmax

#: What a name contains when its case is of another arithmetic.
OTHER_ARITHMETIC = ("int4", "int16", "s16", "per_ch")

#: int8 cases of each file; a folder with more cases is run in full.
CASES = {
    "conv_int": 17,
    "depthwise_int": 6,
    "fully_connected_int": 3,
    "pool_int": 7,
    "add_mul_int": 1,
    "softmax_int": 1,
}
#: Every other case of the same files, by name.
SKIPPED = """
basic_int4 conv_1_x_n_1_int4 conv_1_x_n_2_int4 conv_1_x_n_3_int4 conv_1_x_n_4_int4
conv_1_x_n_5_int4 conv_2x2_dilation_5x5_input_int4 int16xint8_dilation_1 int16xint8_dilation_3
int16xint8_spill2 int16xint8xint32_2 int16xint8xint32_4 int16xint8xint32_6 kernel1x1_int4
kernel1x1_int4_3 kernel1x1_stride_x_int4 kernel1x1_stride_x_y_int4 stride2pad1_int4
depthwise_int4_2 depthwise_int4_4 depthwise_int4_generic_2 depthwise_int4_generic_4
depthwise_int4_generic_6 dw_int16xint8_dilation
dw_int16xint8_fast_multiple_batches_uneven_buffers dw_int16xint8_fast_null_bias
dw_int16xint8_fast_spill_null_bias dw_int16xint8_fast_stride_null_bias dw_int16xint8_mult4
fc_int16_slow fully_connected_int16_big fully_connected_int4_2 fully_connected_int4_4
fully_connected_int4_6 avgpooling_int16 avgpooling_int16_2 maxpool_int16 maxpool_int16_2
add_s16_spill mul_s16 softmax_s8_s16
"""


class Case:
    """Arrays and defines of one case."""

    def __init__(self, archive, name: str) -> None:
        self.archive, self.name = archive, name
        self.config = json.loads(bytes(archive[f"{name}/config"]))

    def __getitem__(self, key: str) -> np.ndarray:
        return self.archive[f"{self.name}/{key}"]

    def bias(self) -> np.ndarray | None:
        return self["biases"] if f"{self.name}/biases" in self.archive else None

    def pair(self, name: str, x: str = "_X", y: str = "_Y") -> tuple[int, int]:
        return self.config[name + y], self.config[name + x]


def names_of(folder: Path, file: str) -> tuple[list[str], list[str]]:
    """Return the int8 cases of a file and the others."""
    names = json.loads((folder / "cases.json").read_text())[f"{file}.npz"]
    other = [
        name
        for name in names
        if any(word in name for word in OTHER_ARITHMETIC) or name.startswith("mul")
    ]
    return [name for name in names if name not in other], other


@pytest.fixture(scope="module")
def vectors(shared_dir) -> Path:
    return shared_dir / "cmsis_nn_vectors"


@pytest.fixture(scope="module")
def cases_of(vectors):
    def load(file: str) -> list[Case]:
        archive = np.load(vectors / f"{file}.npz")
        return [Case(archive, name) for name in names_of(vectors, file)[0]]

    return load


def padding_of(image, output, kernel, stride, dilation, before) -> Padding:
    """Extend the stated padding before the image to what the stated output needs after it."""

    def one_axis(i: int) -> tuple[int, int]:
        needed = (output[i] - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1
        return before[i], max(0, needed - image[i] - before[i])

    return one_axis(0), one_axis(1)


def finish(acc: np.ndarray, case: Case, multiplier, shift) -> np.ndarray:
    return requantize(
        acc,
        multiplier,
        shift,
        zero_point=case.config["OUTPUT_OFFSET"],
        act_min=case.config["OUT_ACTIVATION_MIN"],
        act_max=case.config["OUT_ACTIVATION_MAX"],
        scheme=RequantScheme.TFLITE_Q31_DOUBLE,
    )


def run_convolution(case: Case) -> np.ndarray:
    config = case.config
    image, kernel = case.pair("INPUT", "_W", "_H"), case.pair("FILTER")
    stride, dilation = case.pair("STRIDE"), case.pair("DILATION")
    output = case.pair("OUTPUT", "_W", "_H")
    arguments = dict(
        stride=stride,
        dilation=dilation,
        padding=padding_of(image, output, kernel, stride, dilation, case.pair("PAD")),
        input_zero_point=-config["INPUT_OFFSET"],
    )
    x = case["input"].reshape(-1, *image, config["IN_CH"])
    if "CH_MULT" in config:
        w = case["weights"].reshape(1, *kernel, config["OUT_CH"])
        acc = depthwise_conv2d(x, w, case.bias(), **arguments)
    else:
        depth = config.get("FILTER_CH", config["IN_CH"])
        w = case["weights"].reshape(config["OUT_CH"], *kernel, depth)
        groups = config["IN_CH"] // depth
        acc = conv2d(x, w, case.bias(), groups=groups, **arguments)
    return finish(acc, case, case["output_mult"], case["output_shift"])


def run_fully_connected(case: Case) -> np.ndarray:
    config = case.config
    depth = config["ACCUMULATION_DEPTH"]
    x, w = case["input"].reshape(-1, depth), case["weights"].reshape(-1, depth)
    acc = fully_connected(x, w, case.bias(), input_zero_point=-config["INPUT_OFFSET"])
    return finish(acc, case, config["OUTPUT_MULTIPLIER"], config["OUTPUT_SHIFT"])


def run_pool(case: Case) -> np.ndarray:
    config = case.config
    image, window = case.pair("INPUT", "_W", "_H"), case.pair("FILTER", "_W", "_H")
    stride, output = case.pair("STRIDE", "_W", "_H"), case.pair("OUTPUT", "_W", "_H")
    before = case.pair("PADDING", "_W", "_H")
    pool = max_pool2d if case.name.startswith("max") else average_pool2d
    return pool(
        case["input_tensor"].reshape(-1, *image, config["INPUT_C"]),
        window,
        stride=stride,
        padding=padding_of(image, output, window, stride, (1, 1), before),
        act_min=config["ACTIVATION_MIN"],
        act_max=config["ACTIVATION_MAX"],
    )


def run_add(case: Case) -> np.ndarray:
    config = case.config
    assert config["LEFT_SHIFT"] == 20
    parameters = AddParameters(
        a_multiplier=config["INPUT1_MULT"],
        a_shift=config["INPUT1_SHIFT"],
        b_multiplier=config["INPUT2_MULT"],
        b_shift=config["INPUT2_SHIFT"],
        multiplier=config["OUTPUT_MULT"],
        shift=config["OUTPUT_SHIFT"],
    )
    return add(
        case["input1"],
        case["input2"],
        parameters,
        a_zero_point=-config["INPUT1_OFFSET"],
        b_zero_point=-config["INPUT2_OFFSET"],
        zero_point=config["OUTPUT_OFFSET"],
        act_min=config["OUT_ACTIVATION_MIN"],
        act_max=config["OUT_ACTIVATION_MAX"],
    )


def run_softmax(case: Case) -> np.ndarray:
    config = case.config
    parameters = SoftmaxParameters(
        config["INPUT_MULT"], config["INPUT_LEFT_SHIFT"], config["DIFF_MIN"]
    )
    return softmax(case["input"].reshape(config["NUM_ROWS"], -1), parameters)


RUNNERS = {
    "conv_int": (run_convolution, "output_ref"),
    "depthwise_int": (run_convolution, "output_ref"),
    "fully_connected_int": (run_fully_connected, "output_ref"),
    "pool_int": (run_pool, "output"),
    "add_mul_int": (run_add, "output_ref"),
    "softmax_int": (run_softmax, "output_ref"),
}


@pytest.mark.parametrize("file", RUNNERS)
def test_golden_equals_every_int8_case(cases_of, file) -> None:
    runner, key = RUNNERS[file]
    cases = cases_of(file)
    wrong = [case.name for case in cases if not np.array_equal(runner(case).ravel(), case[key])]
    assert wrong == []
    assert len(cases) >= CASES[file]


def test_cases_of_other_arithmetic_are_named(vectors) -> None:
    skipped = {name for file in RUNNERS for name in names_of(vectors, file)[1]}
    assert skipped >= set(SKIPPED.split())
