import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from npulse.sw.errors import UserError
from npulse.sw.frontends.load import load_model
from npulse.sw.frontends.model import Model
from npulse.sw.frontends.tflite_ops import OPERATORS
from npulse.sw.interpret import interpret
from npulse.sw.ir.graph import Conv2dOp, FullyConnectedOp, HostOp

INT8_MODELS = [
    "mlperf_tiny/ic01_resnet8_int8",
    "mlperf_tiny/vww01_mobilenetv1_025_int8",
    "mlperf_tiny/sww01_streaming_wakeword_int8",
    "tflite_micro/simple_add_model",
]


def run_all(model: Model, batches: list[list[Any]]) -> list[list[Any]]:
    names = [info.name for info in model.inputs]
    results = [interpret(model, dict(zip(names, arrays, strict=True))) for arrays in batches]
    return [[found[info.name] for info in model.outputs] for found in results]


def load_bytes(content: bytes, folder: Path) -> Model:
    path = folder / "model.bin"  # the suffix does not matter
    path.write_bytes(content)
    return load_model(path)


def assert_equals_litert(content: bytes, folder: Path, litert: Any, seed: int) -> Model:
    model = load_bytes(content, folder)
    rng = np.random.default_rng(seed)
    batches = [
        [rng.integers(-128, 128, i.shape).astype(np.int8) for i in model.inputs] for _ in range(4)
    ]
    for got, due in zip(run_all(model, batches), litert(content, batches), strict=True):
        for a, b in zip(got, due, strict=True):
            assert np.array_equal(a, b)
    return model


def test_hello_world_equals_litert_on_all_256_inputs(shared_dir: Path, litert: Any) -> None:
    path = shared_dir / "models" / "tflite_micro" / "hello_world_int8.tflite"
    batches = [[code] for code in np.arange(-128, 128).astype(np.int8).reshape(256, 1, 1)]
    golden = np.array(run_all(load_model(path), batches))
    assert np.array_equal(golden, np.array(litert(path, batches)))
    assert len(np.unique(golden)) > 100


@pytest.mark.parametrize("name", INT8_MODELS)
def test_published_int8_models_equal_litert(name: str, shared_dir: Path, litert: Any) -> None:
    path = shared_dir / "models" / f"{name}.tflite"
    model = load_model(path)
    rng = np.random.default_rng(1)
    inputs = [[rng.integers(-128, 128, i.shape).astype(np.int8) for i in model.inputs]]
    for got, due in zip(run_all(model, inputs)[0], litert(path, inputs)[0], strict=True):
        assert np.array_equal(got, due)


def test_person_detect_is_accepted_though_litert_refuses_its_bias_axes(shared_dir: Path) -> None:
    model = load_model(shared_dir / "models" / "tflite_micro" / "person_detect.tflite")
    (info,) = model.inputs
    assert (info.shape, info.layout) == ((1, 96, 96, 1), "NHWC")
    (result,) = run_all(model, [[np.zeros(info.shape, np.int8)]])
    assert result[0].shape == (1, 2)
    assert result[0].astype(int).sum() in (-1, 0, 1)  # two probabilities of 1/256 add up to 1


@pytest.mark.parametrize("activation", ["NONE", "RELU", "RELU6", "RELU_N1_TO_1"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("depthwise", [False, True])
def test_convolutions_equal_litert(
    activation: str, padding: str, depthwise: bool, tflite_builder: Any, tmp_path: Path, litert: Any
) -> None:
    rng = np.random.default_rng(len(activation) + depthwise)
    b, cin, cout, image, kernel, stride = tflite_builder, 3, 6, (7, 8), (3, 2), (2, 1)
    x = b.tensor("x", (1, *image, cin), 0.04, -7)
    shape = (1, *kernel, cout) if depthwise else (cout, *kernel, cin)
    scales = rng.uniform(0.002, 0.02, cout).astype(np.float32)
    weights = rng.integers(-127, 128, shape).astype(np.int8)
    w = b.tensor("w", shape, scales, 0, weights, axis=3 if depthwise else 0)
    bias = rng.integers(-3000, 3000, cout).astype(np.int32)
    bias_index = b.tensor("b", (cout,), scales * np.float32(0.04), 0, bias)
    options = schema.DepthwiseConv2DOptionsT() if depthwise else schema.Conv2DOptionsT()
    options.padding = getattr(schema.Padding, padding)
    options.strideH = options.strideW = stride[0]
    options.dilationHFactor = options.dilationWFactor = 1
    if depthwise:
        options.depthMultiplier = cout // cin
    options.fusedActivationFunction = getattr(schema.ActivationFunctionType, activation)
    if padding == "SAME":
        out = tuple(-(-n // 2) for n in image)
    else:
        out = tuple((n - k) // 2 + 1 for n, k in zip(image, kernel, strict=True))
    y = b.tensor("y", (1, *out, cout), 0.05, 11)
    b.op("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", [x, w, bias_index], [y], options)
    model = assert_equals_litert(b.build([x], [y]), tmp_path, litert, 2)
    (conv,) = [op for op in model.main.body.block.ops if isinstance(op, Conv2dOp)]
    assert conv.group_count == (cin if depthwise else 1)
    assert conv.clamp_range[0] == {"NONE": -128, "RELU": 11, "RELU6": 11}.get(activation, -9)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_fully_connected_equals_litert(
    per_channel: bool, bias: bool, tflite_builder: Any, tmp_path: Path, litert: Any
) -> None:
    rng = np.random.default_rng(3)
    b, depth, count = tflite_builder, 37, 19
    x = b.tensor("x", (2, depth), 0.0371, 5)
    scales = rng.uniform(0.003, 0.02, count if per_channel else 1).astype(np.float32)
    w = b.tensor("w", (count, depth), scales, 0, rng.integers(-127, 128, (count, depth), np.int8))
    inputs = [x, w]
    if bias:
        values = rng.integers(-9000, 9000, count).astype(np.int32)
        inputs.append(b.tensor("b", (count,), scales * np.float32(0.0371), 0, values))
    y = b.tensor("y", (2, count), 0.1, -20)
    b.op("FULLY_CONNECTED", inputs, [y], schema.FullyConnectedOptionsT())
    model = assert_equals_litert(b.build([x], [y]), tmp_path, litert, 4)
    (op,) = [op for op in model.main.body.block.ops if isinstance(op, FullyConnectedOp)]
    assert op.effective_scales.shape == (count,)


def test_fully_connected_equals_litert_at_ties_of_both_signs(
    tflite_builder: Any, tmp_path: Path, litert: Any
) -> None:
    """The factor from accumulator to code is 1/2, so every odd accumulator is a tie."""
    b = tflite_builder
    x = b.tensor("x", (256, 1), 0.5, 0)
    w = b.tensor("w", (1, 1), 0.25, 0, np.ones((1, 1), np.int8))
    y = b.tensor("y", (256, 1), 0.25, 0)
    b.op("FULLY_CONNECTED", [x, w, -1], [y], schema.FullyConnectedOptionsT())
    content = b.build([x], [y])
    codes = np.arange(-128, 128).astype(np.int8).reshape(256, 1)
    (got,) = run_all(load_bytes(content, tmp_path), [[codes]])[0]
    assert np.array_equal(got, litert(content, [[codes]])[0][0])
    assert got[128 - 3, 0] == -2


def test_pool_relu_reshape_softmax_chain_equals_litert(
    tflite_builder: Any, tmp_path: Path, litert: Any
) -> None:
    b = tflite_builder
    x = b.tensor("x", (1, 5, 7, 4), 0.05, -3)
    pooled = b.tensor("pooled", (1, 3, 3, 4), 0.05, -3)
    options = schema.Pool2DOptionsT()
    options.padding = schema.Padding.SAME
    options.strideH, options.strideW, options.filterHeight, options.filterWidth = 2, 3, 3, 2
    b.op("MAX_POOL_2D", [x], [pooled], options)
    relu = b.tensor("relu", (1, 3, 3, 4), 0.031, -100)
    b.op("RELU6", [pooled], [relu])
    flat = b.tensor("flat", (3, 12), 0.031, -100)
    reshape = schema.ReshapeOptionsT()
    reshape.newShape = [3, 12]
    b.op("RESHAPE", [relu], [flat], reshape)
    y = b.tensor("y", (3, 12), 1 / 256, -128)
    softmax = schema.SoftmaxOptionsT()
    softmax.beta = 1.0
    b.op("SOFTMAX", [flat], [y], softmax)
    model = assert_equals_litert(b.build([x], [y]), tmp_path, litert, 5)
    (host,) = [op for op in model.main.body.block.ops if isinstance(op, HostOp)]
    assert json.loads(host.payload.data) == {"Beta": 1.0}
    assert host.why() == {
        "rule": "operator.no_hardware",
        "decided_by": "operator SOFTMAX",
        "remedy": "none: the matrix and activation units have no such operation",
    }


def test_quantize_and_dequantize_equal_litert(
    tflite_builder: Any, tmp_path: Path, litert: Any
) -> None:
    b = tflite_builder
    x = b.tensor("x", (1, 40), dtype=np.float32)
    q = b.tensor("q", (1, 40), 0.125, 3)
    b.op("QUANTIZE", [x], [q])
    y = b.tensor("y", (1, 40), dtype=np.float32)
    b.op("DEQUANTIZE", [q], [y])
    content = b.build([x], [y])
    ties = (np.arange(-20, 20).astype(np.float32) * 0.0625 * 7).reshape(1, 40)
    (got,) = run_all(load_bytes(content, tmp_path), [[ties]])
    assert np.array_equal(got[0], litert(content, [[ties]])[0][0])


def one_op(builder: Any, kind: str, **tensors: Any) -> bytes:
    x = builder.tensor("x", (1, 4), tensors.get("x_scale", 0.5), tensors.get("x_zero", 0))
    w = builder.tensor("w", (2, 4), 0.5, 0, np.ones((2, 4), np.int8))
    y = builder.tensor("y", (1, 2), 0.5, dtype=tensors.get("y_dtype", np.int8))
    options = schema.FullyConnectedOptionsT()
    options.fusedActivationFunction = tensors.get("activation", 0)
    builder.op(kind, [x, tensors.get("weight", w)], [y], options)
    return builder.build([x], [y])


KNOWN = ", ".join(sorted(OPERATORS))
MESSAGES = [
    (
        {"kind": "ATAN2"},
        "{path}: ATAN2 node 'y': the operator is not supported; a model may use " + KNOWN,
    ),
    (
        {"y_dtype": np.int16},
        "{path}: FULLY_CONNECTED node 'y': tensor 'y' must be int8, not int16; convert the model "
        "with full integer quantisation (int8)",
    ),
    (
        {"x_scale": float("nan")},
        "{path}: tensor 'x': scale must be positive and finite, not nan; quantise the model again",
    ),
    (
        {"x_scale": 0.0},
        "{path}: tensor 'x': scale must be positive and finite, not 0.0; quantise the model again",
    ),
    (
        {"x_zero": 300},
        "{path}: tensor 'x': zero point must be from -128 to 127, not 300; quantise the model "
        "again",
    ),
    (
        {"activation": 4},
        "{path}: FULLY_CONNECTED node 'y': fused activation must be NONE, RELU, RELU6 or "
        "RELU_N1_TO_1, not number 4 of the schema; write it as an operator of its own",
    ),
    (
        {"weight": 0},
        "{path}: FULLY_CONNECTED node 'y': 'x' must be constant to be a weight or bias; this "
        "operator runs with constant weights only",
    ),
    (
        {"weight": 2},
        "{path}: FULLY_CONNECTED node 'y': 'y' must be constant to be a weight or bias; this "
        "operator runs with constant weights only",
    ),
]


@pytest.mark.parametrize(("change", "message"), MESSAGES)
def test_message_names_file_node_rule_and_remedy(
    change: dict[str, Any], message: str, tflite_builder: Any, tmp_path: Path
) -> None:
    content = one_op(tflite_builder, **{"kind": "FULLY_CONNECTED", **change})
    with pytest.raises(UserError) as caught:
        load_bytes(content, tmp_path)
    assert str(caught.value) == message.format(path=tmp_path / "model.bin")


def test_dynamic_dimension_other_than_the_batch_is_named(
    tflite_builder: Any, tmp_path: Path
) -> None:
    content_builder = tflite_builder
    x = content_builder.tensor("x", (1, 1, 4), 0.5)
    content_builder.tensors[x].shapeSignature = [-1, -1, 4]
    y = content_builder.tensor("y", (4,), 0.5)
    content_builder.op("RESHAPE", [x], [y], schema.ReshapeOptionsT())
    with pytest.raises(UserError) as caught:
        load_bytes(content_builder.build([x], [y]), tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'model.bin'}: input 'x': dimension 1 is dynamic, and shapes must be static; "
        "convert the model with a fixed input shape"
    )


def test_dynamic_batch_is_1_with_a_note(tflite_builder: Any, tmp_path: Path) -> None:
    x = tflite_builder.tensor("x", (1, 4), 0.5)
    tflite_builder.tensors[x].shapeSignature = [-1, 4]
    y = tflite_builder.tensor("y", (4,), 0.5)
    tflite_builder.op("RESHAPE", [x], [y], schema.ReshapeOptionsT())
    model = load_bytes(tflite_builder.build([x], [y]), tmp_path)
    assert model.notes == ("input 'x': the dynamic batch (axis 0) is 1, as the file says",)
    assert len(model.sha256) == 64


def test_tensors_without_names_are_called_by_number(tflite_builder: Any, tmp_path: Path) -> None:
    x = tflite_builder.tensor("", (1, 4), 0.5)
    y = tflite_builder.tensor("", (4,), 0.5)
    tflite_builder.op("RESHAPE", [x], [y], schema.ReshapeOptionsT())
    model = load_bytes(tflite_builder.build([x], [y]), tmp_path)
    assert [i.name for i in (*model.inputs, *model.outputs)] == ["tensor 0", "tensor 1"]
