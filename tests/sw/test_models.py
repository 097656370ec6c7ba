import importlib.util
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from npulse.sw import models

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_script", ROOT / "scripts/make_digits.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(name: str) -> ModelProto:
    return onnx.load(models.path(name))


def run(model: ModelProto, images: NDArray[np.float32]) -> NDArray[np.float32]:
    (result,) = ReferenceEvaluator(model).run(None, {"image": images})
    return np.asarray(result)


def logits(model: ModelProto, images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Evaluate a copy of the model whose batch is all images at once."""
    wide = ModelProto()
    wide.CopyFrom(model)
    for value in (*wide.graph.input, *wide.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = len(images)
    return run(wide, images)


def accuracy(name: str) -> float:
    x, y = models.test_set()
    return float((logits(load(name), x).argmax(axis=1) == y).mean())


def constants(model: ModelProto) -> dict[str, NDArray]:
    return {c.name: numpy_helper.to_array(c) for c in model.graph.initializer}


@pytest.mark.parametrize("name", models.BUNDLED)
def test_bundled_model_maps_one_image_to_ten_logits(name: str) -> None:
    model = load(name)
    onnx.checker.check_model(model, full_check=True)
    x, _ = models.test_set()
    result = run(model, x[:1])
    assert (result.shape, result.dtype) == ((1, 10), np.float32)
    shapes = [
        [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    ]
    assert shapes == [[1, 1, 8, 8], [1, 10]]


def test_every_file_of_the_package_goes_into_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["npulse.sw.models"]
    files = {file.name for file in models.path("digits").parent.glob("digits*")}
    packed = {file for file in files if any(fnmatch(file, pattern) for pattern in patterns)}
    assert packed == files >= set(models.BUNDLED.values())


def test_image_sets_have_their_documented_shapes_and_ranges() -> None:
    x, y = models.test_set()
    calibration = models.calibration_set()
    assert (x.shape, x.dtype) == ((360, 1, 8, 8), np.float32)
    assert (y.shape, y.dtype) == ((360,), np.int64)
    assert (calibration.shape, calibration.dtype) == ((256, 1, 8, 8), np.float32)
    for images in (x, calibration):
        assert (images.min(), images.max()) == (0, 1)
    assert set(y) == set(range(10))


def test_no_test_image_is_a_calibration_image() -> None:
    x, _ = models.test_set()
    seen = {image.tobytes() for image in models.calibration_set()}
    assert not any(image.tobytes() in seen for image in x)


def test_float_model_is_right_on_97_percent_of_images_it_never_saw() -> None:
    assert accuracy("digits_float") >= 0.97


def test_int8_model_is_within_one_point_of_the_float_model() -> None:
    assert abs(accuracy("digits") - accuracy("digits_float")) <= 0.01


def test_int8_logits_are_within_one_step_of_the_float_logits_on_average() -> None:
    x = models.calibration_set()
    step = constants(load("digits"))["logits.scale"]
    error = np.abs(logits(load("digits"), x) - logits(load("digits_float"), x))
    assert 0 < error.mean() <= step


def test_int8_weights_are_symmetric_and_per_channel_in_convolutions() -> None:
    stored = constants(load("digits"))
    for layer, channels in ("conv1", (8,)), ("conv2", (16,)), ("logits", ()):
        weight = stored[f"{layer}.weight_int8"]
        assert weight.dtype == np.int8
        assert stored[f"{layer}.weight.scale"].shape == channels
        # Each scale comes from the largest weight it covers, which therefore is stored as 127.
        covered = np.abs(weight.astype(int)).reshape(len(weight) if channels else 1, -1)
        assert (covered.max(axis=1) == 127).all()


def test_int8_biases_are_int32_in_units_of_the_accumulator() -> None:
    stored = constants(load("digits"))
    inputs = {"conv1": "image_dequantized", "conv2": "pool1", "logits": "flat"}
    for layer, source in inputs.items():
        unit = stored[f"{source}.scale"] * stored[f"{layer}.weight.scale"]
        np.testing.assert_array_equal(stored[f"{layer}.bias.scale"], unit)
        assert stored[f"{layer}.bias_int32"].dtype == np.int32


def test_pooling_and_flattening_keep_the_scale_of_their_input() -> None:
    stored = constants(load("digits"))
    for output, source in ("pool1", "relu1"), ("pool2", "relu2"), ("flat", "relu2"):
        for part in ("scale", "zero"):
            assert stored[f"{output}.{part}"] == stored[f"{source}.{part}"]


def test_quantising_the_bundled_float_model_again_gives_the_same_bytes(script: ModuleType) -> None:
    again = script.quantize(load("digits_float"), models.calibration_set())
    content = again.SerializeToString(deterministic=True)
    assert content == models.path("digits").read_bytes()


def test_script_computes_what_the_onnx_model_it_writes_computes(script: ModuleType) -> None:
    rng = np.random.default_rng(1)
    params = {}
    for name, shape in script.WEIGHTS.items():
        params[f"{name}.weight"] = rng.normal(size=shape)
        params[f"{name}.bias"] = rng.normal(size=shape[0])
    x, _ = models.test_set()
    ours = script.forward(params, x[:20])["logits"]
    theirs = logits(script.float_model(params), x[:20])
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(ours).max())


def test_training_follows_the_slope_of_the_loss(script: ModuleType) -> None:
    """Compare the gradient with central differences along one random direction per parameter."""
    x, y = models.test_set()
    x, y = x[:16] + np.random.default_rng(2).uniform(0, 0.1, (16, 1, 8, 8)), y[:16]
    params = {name: value.astype(float) for name, value in constants(load("digits_float")).items()}

    def loss(name: str, change: NDArray) -> float:
        out = script.forward({**params, name: params[name] + change}, x)["logits"]
        return float((np.log(np.exp(out).sum(axis=1)) - out[np.arange(len(y)), y]).mean())

    grads = script.gradients(params, x, y)
    assert grads.keys() == params.keys()
    for name, grad in grads.items():
        change = 1e-6 * np.random.default_rng(3).normal(size=grad.shape)
        slope = (loss(name, change) - loss(name, -change)) / 2
        assert slope == pytest.approx((grad * change).sum(), rel=1e-4), name


def test_unknown_name_lists_the_bundled_ones() -> None:
    message = "name must be one of digits, digits_float, not 'mnist'"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        models.path("mnist")
