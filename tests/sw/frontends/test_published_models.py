"""Published int8 networks on real inputs, against LiteRT and what peers published."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from npulse.sw.frontends.load import load_model
from npulse.sw.interpret import interpret

Archive = Any


@pytest.fixture
def models(shared_dir: Path) -> Path:
    return shared_dir / "models"


@pytest.fixture
def datasets(shared_dir: Path) -> Path:
    return shared_dir / "datasets"


def run(path: Path, images: np.ndarray) -> np.ndarray:
    """Outputs of a model of one input and one output, for one image after the other."""
    model = load_model(path)
    (given,), (made,) = model.inputs, model.outputs
    return np.array([interpret(model, {given.name: x[None]})[made.name][0] for x in images])


def test_resnet8_equals_cfu_playground_on_ten_pictures(models: Path, datasets: Path) -> None:
    peer = np.load(datasets / "mlperf_tiny/cfu_playground_golden.npz")
    found = run(models / "mlperf_tiny/ic01_resnet8_int8.tflite", peer["imgc_x"])
    np.testing.assert_array_equal(found, peer["imgc_golden"])


def test_mobilenet_equals_cfu_playground_on_four_pictures(models: Path, datasets: Path) -> None:
    peer = np.load(datasets / "mlperf_tiny/cfu_playground_golden.npz")
    found = run(models / "mlperf_tiny/vww01_mobilenetv1_025_int8.tflite", peer["vww_x"])
    score = found[:, 1].astype(int) - found[:, 0]
    np.testing.assert_array_equal(score, peer["vww_golden_score"])


def test_wake_word_network_equals_litert_on_45_spectrograms(models: Path, datasets: Path) -> None:
    golden = np.load(datasets / "golden_litert_builtin_ref.npz")
    path = models / "mlperf_tiny/sww01_streaming_wakeword_int8.tflite"
    np.testing.assert_array_equal(run(path, golden["sww01_input_q"]), golden["sww01_int8"])


def accepted_by_litert(path: Path) -> bytes:
    """Move the scales of 1-D tensors to axis 0; LiteRT refuses them on axis 3."""
    import flatbuffers

    model: Any = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    for tensor in model.subgraphs[0].tensors:
        if len(tensor.shape) == 1 and tensor.quantization is not None:
            tensor.quantization.quantizedDimension = 0
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def test_person_detect_equals_litert_once_its_bias_axes_are_mended(
    models: Path, datasets: Path, litert: Any
) -> None:
    path = models / "tflite_micro/person_detect.tflite"
    samples = np.load(datasets / "tflite_micro_samples.npz")
    photos = np.stack([samples["person"], samples["no_person"]])[..., None]
    images = (photos.astype(np.int16) - 128).astype(np.int8)
    due = litert(accepted_by_litert(path), [[image[None]] for image in images])
    np.testing.assert_array_equal(run(path, images), [arrays[0][0] for arrays in due])
