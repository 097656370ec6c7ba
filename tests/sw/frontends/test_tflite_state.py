"""Stateful and recurrent TFLite models: their state is an input and an output of the graph."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from npulse.sw.errors import UserError
from npulse.sw.frontends.load import load_model
from npulse.sw.frontends.model import Model
from npulse.sw.interpret import interpret
from npulse.sw.ir.graph import HostOp

RECURRENT = [
    "tflite_micro/trained_lstm_int8",
    "tflite_micro/micro_speech_lstm",
    "coral/keras_lstm_mnist_ptq",
    "tflite_micro/keyword_scrambled",
    "microwakeword/okay_nabu",
]


def run_steps(model: Model, batches: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
    """Run one batch after the other, each with the state that the last one left."""
    given = [info.name for info in model.inputs if info.initial is None]
    carried = [info.name for info in model.inputs if info.initial is not None]
    state: dict[str, np.ndarray] = {}
    results = []
    for arrays in batches:
        found = interpret(model, {**dict(zip(given, arrays, strict=True)), **state})
        state = {name: found[name] for name in carried}
        results.append([found[i.name] for i in model.outputs if i.name not in carried])
    return results


@pytest.mark.parametrize("name", RECURRENT)
def test_consecutive_runs_of_a_published_model_equal_litert(
    name: str, shared_dir: Path, litert: Any
) -> None:
    path = shared_dir / "models" / f"{name}.tflite"
    model = load_model(path)
    given = [info for info in model.inputs if info.initial is None]
    rng = np.random.default_rng(2)
    batches = [
        [
            rng.integers(np.iinfo(i.dtype).min, np.iinfo(i.dtype).max, i.shape, i.dtype)
            for i in given
        ]
        for _ in range(4)
    ]
    assert any(info.initial is not None for info in model.inputs)
    for found, due in zip(run_steps(model, batches), litert(path, batches), strict=True):
        for a, b in zip(found, due, strict=True):
            np.testing.assert_array_equal(a, b)


def test_mnist_lstm_equals_litert_on_all_digits(shared_dir: Path) -> None:
    """LiteRT keeps the state from digit to digit; started afresh, the model reads each of them."""
    model = load_model(shared_dir / "models/tflite_micro/trained_lstm_int8.tflite")
    digits = np.load(shared_dir / "datasets/tflite_micro_samples.npz")
    golden = np.load(shared_dir / "datasets/golden_litert_builtin_ref.npz")["mnist_lstm_int8"]
    images = (digits["mnist_x"].astype(np.int16) - 128).astype(np.int8)[:, None]
    found = [arrays[0][0] for arrays in run_steps(model, [[image] for image in images])]
    np.testing.assert_array_equal(found, golden)
    afresh = np.array([run_steps(model, [[image]])[0][0][0] for image in images])
    assert (afresh.argmax(axis=1) == digits["mnist_y"]).all()


def svdf_model(b: Any, rank: int = 2, activation: int = 1) -> bytes:
    rng = np.random.default_rng(6)
    filters, inputs, steps = 6 * rank, 9, 4
    x = b.tensor("x", (1, inputs), 0.04, -3)
    features = rng.integers(-127, 128, (filters, inputs)).astype(np.int8)
    time = rng.integers(-3000, 3000, (filters, steps)).astype(np.int16)
    places = [
        x,
        b.tensor("features", features.shape, 0.01, 0, features),
        b.tensor("time", time.shape, 1e-4, 0, time),
        b.tensor("bias", (6,), 2e-7, 0, rng.integers(-9999, 9999, 6).astype(np.int32)),
        b.tensor("state", (1, filters * steps), 0.002, 0, dtype=np.int16),
    ]
    b.tensors[places[4]].isVariable = True
    y = b.tensor("y", (1, 6), 0.02, 7)
    options = schema.SVDFOptionsT()
    options.rank, options.fusedActivationFunction = rank, activation
    b.op("SVDF", places, [y], options)
    return b.build([x], [y])


@pytest.mark.parametrize("rank", [1, 2])
def test_svdf_equals_litert_over_consecutive_runs(
    rank: int, tflite_builder: Any, tmp_path: Path, litert: Any
) -> None:
    content = svdf_model(tflite_builder, rank)
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    model = load_model(path)
    rng = np.random.default_rng(7)
    batches = [[rng.integers(-128, 128, (1, 9)).astype(np.int8)] for _ in range(9)]
    found = [arrays[0] for arrays in run_steps(model, batches)]
    np.testing.assert_array_equal(found, [due[0] for due in litert(content, batches)])
    assert len(np.unique(found)) > 20
    (op,) = [op for op in model.main.body.block.ops if isinstance(op, HostOp)]
    assert op.why() == {
        "rule": "operator.no_hardware",
        "decided_by": "operator SVDF",
        "remedy": "none: no unit of the NPU keeps the state of a recurrent layer",
    }


def test_state_is_an_input_with_first_contents_and_an_output(
    tflite_builder: Any, tmp_path: Path
) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(svdf_model(tflite_builder))
    model = load_model(path)
    assert [i.name for i in model.inputs] == ["x", "state"]
    assert [o.name for o in model.outputs] == ["y", "state"]
    assert model.inputs[1].initial == "state.initial"
    assert not model.weights["state.initial"].any()
    assert model.outputs[1].initial is None
    assert model.notes == (
        "variable 'state' is an input and an output: give each run what the last gave",
    )


def test_activation_other_than_relu_is_refused(tflite_builder: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(svdf_model(tflite_builder, activation=0))
    with pytest.raises(UserError) as caught:
        load_model(path)
    assert str(caught.value) == (
        f"{path}: SVDF node 'y': fused activation must be RELU; convert the model again"
    )


def test_reading_through_something_that_is_no_handle_is_refused(
    tflite_builder: Any, tmp_path: Path
) -> None:
    b = tflite_builder
    x, y = b.tensor("x", (1, 4), 0.5), b.tensor("y", (1, 4), 0.5)
    b.op("READ_VARIABLE", [x], [y], schema.ReadVariableOptionsT())
    path = tmp_path / "model.tflite"
    path.write_bytes(b.build([x], [y]))
    with pytest.raises(UserError) as caught:
        load_model(path)
    assert str(caught.value) == (
        f"{path}: READ_VARIABLE node 'y': 'x' must be the handle of a variable; convert it again"
    )


def test_call_of_a_subgraph_that_does_not_exist_is_refused(
    tflite_builder: Any, tmp_path: Path
) -> None:
    b = tflite_builder
    x = b.tensor("x", (1, 4), 0.5)
    options = schema.CallOnceOptionsT()
    options.initSubgraphIndex = 3
    b.op("CALL_ONCE", [], [], options)
    path = tmp_path / "model.tflite"
    path.write_bytes(b.build([x], [x]))
    with pytest.raises(UserError) as caught:
        load_model(path)
    assert str(caught.value) == (
        f"{path}: CALL_ONCE node 'operator 0': subgraph must be from 1 to 0, not 3"
    )
