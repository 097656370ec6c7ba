"""Golden recurrent layers, transposed convolution, extrema and pad against CMSIS-NN."""

import json

import numpy as np
import pytest

from npulse.hw.spec.numerics import RequantScheme
from npulse.sim.golden.binary import maximum, minimum
from npulse.sim.golden.lstm import GATES, LstmParameters, LstmWeights, lstm
from npulse.sim.golden.movement import pad
from npulse.sim.golden.requant import requantize
from npulse.sim.golden.svdf import SvdfParameters, svdf
from npulse.sim.golden.transpose_conv import transpose_conv2d


class Case:
    """Arrays and defines of one case."""

    def __init__(self, archive, name: str) -> None:
        self.archive, self.name = archive, name
        self.config = json.loads(bytes(archive[f"{name}/config"]))

    def bias(self) -> np.ndarray | None:
        return self["biases"] if f"{self.name}/biases" in self.archive else None

    def __getitem__(self, key: str) -> np.ndarray:
        return self.archive[f"{self.name}/{key}"]


@pytest.fixture(scope="module")
def cases_of(shared_dir):
    def load(file: str) -> list[Case]:
        folder = shared_dir / "cmsis_nn_vectors"
        archive = np.load(folder / f"{file}.npz")
        names = json.loads((folder / "cases.json").read_text())[f"{file}.npz"]
        return [Case(archive, name) for name in names if "s16" not in name and "int16" not in name]

    return load


def run_lstm(case: Case) -> np.ndarray:
    c = case.config
    steps, batch, inputs = c["TIME_STEPS"], c["BATCH_SIZE"], c["INPUT_SIZE"]
    cells, time_major = c["HIDDEN_SIZE"], c["TIME_MAJOR"] == "true"
    shape = (steps, batch, inputs) if time_major else (batch, steps, inputs)
    x = case["input_tensor"].reshape(shape)

    def factors(source: str):
        return tuple(
            (
                c[f"{gate.upper()}_GATE_{source}_MULTIPLIER"],
                c[f"{gate.upper()}_GATE_{source}_SHIFT"],
            )
            for gate in GATES
        )

    weights = LstmWeights(
        inputs=tuple(case[f"{g}_gate_input_weights"].reshape(cells, inputs) for g in GATES),
        recurrent=tuple(case[f"{g}_gate_hidden_weights"].reshape(cells, cells) for g in GATES),
        bias=tuple(case[f"{g}_gate_bias"] for g in GATES),
    )
    parameters = LstmParameters(
        input_zero_point=-c["INPUT_ZERO_POINT"],
        state_zero_point=c["OUTPUT_ZERO_POINT"],
        input_factors=factors("INPUT"),
        recurrent_factors=factors("HIDDEN"),
        cell_scale_log2=c["CELL_SCALE_POWER"],
        hidden_factor=(c["OUTPUT_MULTIPLIER"], c["OUTPUT_SHIFT"]),
        hidden_zero_point=c["OUTPUT_ZERO_POINT"],
        cell_clip=c["CELL_CLIP"],
    )
    state = np.full((batch, cells), c["OUTPUT_ZERO_POINT"], np.int8)
    ordered = x if time_major else x.swapaxes(0, 1)
    outputs, _, _ = lstm(ordered, state, np.zeros((batch, cells), np.int16), weights, parameters)
    return outputs if time_major else outputs.swapaxes(0, 1)


def run_svdf(case: Case) -> np.ndarray:
    c = case.config
    parameters = SvdfParameters(
        state_multiplier=c["MULTIPLIER_IN"],
        state_shift=c["SHIFT_1"],
        multiplier=c["MULTIPLIER_OUT"],
        shift=c["SHIFT_2"],
        input_zero_point=-c["INPUT_OFFSET"],
        state_zero_point=0,
        zero_point=c["OUTPUT_OFFSET"],
        rank=c["RANK"],
    )
    filters = c["FEATURE_BATCHES"]
    features = case["weights_feature"].reshape(filters, -1)
    time = case["weights_time"].reshape(filters, -1)
    batch, inputs = c["INPUT_BATCHES"], c["INPUT_SIZE"]
    state = np.zeros((batch, time.size), time.dtype)
    output = np.zeros(0, np.int8)
    for x in case["input_sequence"].reshape(-1, batch, inputs):
        output, state = svdf(x, features, time, case["biases"], state, parameters)
    return output


def run_transpose_conv(case: Case) -> np.ndarray:
    c = case.config
    weights = case["weights"].reshape(c["OUT_CH"], c["FILTER_Y"], c["FILTER_X"], c["IN_CH"])
    acc = transpose_conv2d(
        case["input"].reshape(-1, c["INPUT_H"], c["INPUT_W"], c["IN_CH"]),
        weights,
        case.bias(),
        size=(c["OUTPUT_H"], c["OUTPUT_W"]),
        stride=(c["STRIDE_Y"], c["STRIDE_X"]),
        before=(c["PAD_Y"], c["PAD_X"]),
        input_zero_point=-c["INPUT_OFFSET"],
    )
    return requantize(
        acc,
        case["output_mult"],
        case["output_shift"],
        zero_point=c["OUTPUT_OFFSET"],
        act_min=c["OUT_ACTIVATION_MIN"],
        act_max=c["OUT_ACTIVATION_MAX"],
        scheme=RequantScheme.TFLITE_Q31_DOUBLE,
    )


def run_extremum(case: Case) -> np.ndarray:
    def operand(number: int) -> np.ndarray:
        shape = [case.config[f"{axis}_{number}"] for axis in AXES]
        return case[f"input_tensor_{number}"].reshape(shape)

    choose = maximum if case.config["LAYER_TYPE"] == "maximum" else minimum
    return choose(operand(1), operand(2))


AXES = ("BATCH", "HEIGHT", "WIDTH", "CHANNEL")


def run_pad(case: Case) -> np.ndarray:
    c = case.config
    x = case["input_tensor"].reshape([c[f"INPUT_{axis}"] for axis in "NHWC"])
    before, after = ([c[f"{side}_PAD_{axis}"] for axis in "NHWC"] for side in ("PRE", "POST"))
    return pad(x, before, after, c["PAD_VALUE"])


#: Runner, array of the result, and int8 cases; a folder with more cases is run in full.
RUNNERS = {
    "svdf_int": (run_svdf, "output_ref", 3),
    "transpose_conv_int": (run_transpose_conv, "output_ref", 4),
    "minmax_int": (run_extremum, "output", 7),
    "pad_int": (run_pad, "output", 1),
}


@pytest.mark.parametrize("file", RUNNERS)
def test_golden_equals_every_int8_case(cases_of, file) -> None:
    runner, key, count = RUNNERS[file]
    cases = cases_of(file)
    wrong = [case.name for case in cases if not np.array_equal(runner(case).ravel(), case[key])]
    assert wrong == []
    assert len(cases) >= count


def test_lstm_is_within_one_step_of_vectors_that_interpolate_tanh(cases_of) -> None:
    """CMSIS-NN takes logistic and tanh from tables; golden computes gemmlowp's, as LiteRT does.

    Two other cases mix the defines of two generations of data and are left out.
    """
    cases = [c for c in cases_of("lstm_int") if f"{c.name}/output_ref" not in c.archive]
    assert len(cases) >= 2
    for case in cases:
        error = np.abs(run_lstm(case).ravel().astype(int) - case["output"])
        assert error.max() <= 1
        assert (error > 0).mean() < 0.15
