"""The three-layer sine model of TensorFlow Lite Micro, all 256 inputs, bit for bit."""

from pathlib import Path

import numpy as np
import pytest
import tflite

from npulse.hw.spec.numerics import RequantScheme, quantize_multiplier
from npulse.sim.golden.elementwise import Activation, activation_range
from npulse.sim.golden.matmul import fully_connected
from npulse.sim.golden.requant import requantize

INPUTS = np.arange(-128, 128, dtype=np.int8)[:, None]
ACTIVATIONS = {
    tflite.ActivationFunctionType.NONE: Activation.NONE,
    tflite.ActivationFunctionType.RELU: Activation.RELU,
}


class Tensor:
    """Shape, scale, zero point and constant of one tensor of a model."""

    def __init__(self, model, index: int) -> None:
        tensor = model.Subgraphs(0).Tensors(index)
        quantization = tensor.Quantization()
        self.scale = float(quantization.ScaleAsNumpy()[0])
        self.zero_point = int(quantization.ZeroPointAsNumpy()[0])
        dtype = {tflite.TensorType.INT8: np.int8, tflite.TensorType.INT32: np.int32}[tensor.Type()]
        buffer = model.Buffers(tensor.Buffer())
        if buffer.DataLength():
            self.data = buffer.DataAsNumpy().view(dtype).reshape(tensor.ShapeAsNumpy())


def run_layer(model, operator, x: np.ndarray) -> np.ndarray:
    source, weights, bias = (Tensor(model, index) for index in operator.InputsAsNumpy())
    target = Tensor(model, operator.Outputs(0))
    options = tflite.FullyConnectedOptions()
    table = operator.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    activation = ACTIVATIONS[options.FusedActivationFunction()]
    act_min, act_max = activation_range(activation, target.scale, target.zero_point)
    multiplier, shift = quantize_multiplier(source.scale * weights.scale / target.scale)
    acc = fully_connected(x, weights.data, bias.data, input_zero_point=source.zero_point)
    return requantize(
        acc,
        multiplier,
        shift,
        zero_point=target.zero_point,
        act_min=act_min,
        act_max=act_max,
        scheme=RequantScheme.TFLITE_Q31_AWAY,
    )


@pytest.fixture(scope="module")
def model_path(shared_dir) -> Path:
    return shared_dir / "models" / "tflite_micro" / "hello_world_int8.tflite"


@pytest.fixture(scope="module")
def golden(model_path) -> np.ndarray:
    model = tflite.Model.GetRootAsModel(model_path.read_bytes(), 0)
    graph = model.Subgraphs(0)
    x = INPUTS
    for index in range(graph.OperatorsLength()):
        x = run_layer(model, graph.Operators(index), x)
    return x


def test_equals_the_recorded_outputs_of_builtin_ref(golden, shared_dir) -> None:
    recorded = np.load(shared_dir / "datasets" / "golden_litert_builtin_ref.npz")
    assert np.array_equal(golden, recorded["hello_world_int8_all256"])


def test_equals_builtin_ref_here(golden, model_path, builtin_ref) -> None:
    content = model_path.read_bytes()
    expected = [builtin_ref(content, [x[None]])[0] for x in INPUTS]
    assert np.array_equal(golden, expected)


def test_is_a_sine(golden, model_path) -> None:
    model = tflite.Model.GetRootAsModel(model_path.read_bytes(), 0)
    graph = model.Subgraphs(0)
    source, target = Tensor(model, graph.Inputs(0)), Tensor(model, graph.Outputs(0))
    angle = (INPUTS.astype(float) - source.zero_point) * source.scale
    value = (golden.astype(float) - target.zero_point) * target.scale
    # The float model itself is off by as much as about 0.1; a wrong layer is off by 1.
    assert np.abs(value - np.sin(angle)).max() < 0.25
