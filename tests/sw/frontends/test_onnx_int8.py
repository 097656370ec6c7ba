"""Int8 ONNX models against the ONNX reference.

Budget: the requantisation here is TFLite's in Q31, the reference rounds a float32 product half to
even, so a single operator may differ by one unit in the last place in a few values of a thousand.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from npulse.sw.errors import UserError
from npulse.sw.frontends.load import load_model
from npulse.sw.frontends.model import Model
from npulse.sw.interpret import interpret
from npulse.sw.ir.graph import (
    ClampOp,
    Conv2dOp,
    DequantizeOp,
    FullyConnectedOp,
    HostOp,
    MaxPool2dOp,
    QuantizeOp,
    RequantizeOp,
    ReshapeOp,
    TransposeOp,
    WeightOp,
)

#: Share of values that may differ by one unit.
BUDGET = 0.01


def load_bytes(content: bytes, folder: Path, **shapes: tuple[int, ...]) -> Model:
    path = folder / "model.onnx"
    path.write_bytes(content)
    return load_model(path, shapes)


def kinds(model: Model) -> list[type]:
    return [type(op) for op in list(model.main.body.block.ops)[:-1] if not isinstance(op, WeightOp)]


def assert_within_one_unit(
    builder: Any, folder: Path, unit: float, seed: int, budget: float = BUDGET
) -> Model:
    """Compare 8 random inputs; ``unit`` is the scale of the outputs, 1 for codes."""
    proto = builder.proto()
    model = load_bytes(proto.SerializeToString(), folder)
    rng = np.random.default_rng(seed)
    reference = ReferenceEvaluator(proto)
    steps = []
    for _ in range(8):
        feeds = {}
        for info in model.inputs:
            if info.dtype.kind == "f":
                feeds[info.name] = rng.uniform(-2, 2, info.shape).astype(info.dtype)
            else:
                bounds = np.iinfo(info.dtype)
                feeds[info.name] = rng.integers(
                    bounds.min, bounds.max, info.shape, info.dtype, endpoint=True
                )
        due = reference.run(None, feeds)
        got = interpret(model, feeds)
        for info, array in zip(model.outputs, due, strict=True):
            assert got[info.name].dtype == array.dtype
            assert got[info.name].shape == array.shape
            steps.append((got[info.name].astype(float) - array.astype(float)).ravel() / unit)
    difference = np.rint(np.abs(np.concatenate(steps)))
    assert difference.max() <= 1
    assert difference.mean() <= budget
    return model


def signed_weights(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-127, 128, shape).astype(np.int8)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("activation", ["", "Relu", "Clip"])
def test_qdq_network_becomes_integer_operators_without_a_transpose(
    dtype: Any, activation: str, onnx_builder: Any, tmp_path: Path
) -> None:
    rng = np.random.default_rng(7)
    b, zero = onnx_builder, 100 if dtype == np.uint8 else -28
    x = b.qdq(b.input("x", (1, 3, 9, 8)), "xq", 0.02, zero, dtype)
    w = b.weight("w", signed_weights(rng, (5, 3, 3, 3)), rng.uniform(0.002, 0.01, 5))
    unit = np.float32(0.02) * np.asarray(
        np.frombuffer(b.constants[2].raw_data, np.float32), np.float32
    )
    bias = b.weight("b", rng.integers(-2000, 2000, 5).astype(np.int32), unit)
    y = b.node("Conv", [x, w, bias], "conv", pads=[1, 0, 1, 1], strides=[2, 1])
    if activation == "Relu":
        y = b.node("Relu", [y], "act")
    elif activation == "Clip":
        limits = [b.constant("lo", -0.31, np.float32), b.constant("hi", 1.234, np.float32)]
        y = b.node("Clip", [y, *limits], "act")
    y = b.qdq(y, "yq", 0.015, zero, dtype)
    y = b.node("MaxPool", [y], "pool", kernel_shape=[2, 2], strides=[2, 2])
    y = b.qdq(y, "pq", 0.015, zero, dtype)
    y = b.node("Flatten", [y], "flat")
    v = b.weight("v", signed_weights(rng, (4, 5 * 2 * 3)), 0.01)
    y = b.node("Gemm", [y, v, b.constant("c", [0.5, -1, 0, 0.25], np.float32)], "fc", transB=1)
    b.output(b.qdq(y, "z", 0.1, zero, dtype))
    model = assert_within_one_unit(b, tmp_path, 0.1, 8, budget=0.05)
    expected = [QuantizeOp, TransposeOp, Conv2dOp, MaxPool2dOp, ReshapeOp, FullyConnectedOp]
    assert kinds(model) == [*expected, DequantizeOp]
    (conv,) = [op for op in model.main.body.block.ops if isinstance(op, Conv2dOp)]
    assert conv.node_name == "conv_node"
    assert conv.input_zero_point == -28
    zero_code = {"": -128, "Relu": -28, "Clip": -28 - 21}[activation]
    assert conv.clamp_range == (zero_code, -28 + 82 if activation == "Clip" else 127)


def qlinear_conv(b: Any, rng: Any, x_dtype: Any, w_dtype: Any, **attributes: Any) -> None:
    group = attributes.get("group", 1)
    x = b.input("x", (2, 4, 6, 7), x_dtype)
    w_zero = 128 if w_dtype == np.uint8 else 0
    integers = (rng.integers(-127, 128, (6, 4 // group, 3, 3)) + w_zero).astype(w_dtype)
    w = b.constant("w", integers)
    xs = b.scales("x", 0.03, 131 if x_dtype == np.uint8 else -11, x_dtype)
    ws = b.scales("w", rng.uniform(0.001, 0.01, 6), w_zero, w_dtype)
    ys = b.scales("y", 0.05, 60 if x_dtype == np.uint8 else 9, x_dtype)
    bias = b.constant("bias", rng.integers(-5000, 5000, 6), np.int32)
    b.node("QLinearConv", [x, *xs, w, *ws, *ys, bias], "y", **attributes)
    b.output("y", x_dtype)


@pytest.mark.parametrize("x_dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("w_dtype", [np.int8, np.uint8])
def test_qlinear_conv_of_all_signs(
    x_dtype: Any, w_dtype: Any, onnx_builder: Any, tmp_path: Path
) -> None:
    rng = np.random.default_rng(9)
    qlinear_conv(onnx_builder, rng, x_dtype, w_dtype, pads=[1, 1, 0, 1], dilations=[1, 2])
    model = assert_within_one_unit(onnx_builder, tmp_path, 1, 10)
    assert Conv2dOp in kinds(model)
    assert HostOp not in kinds(model)
    assert model.inputs[0].dtype == x_dtype
    assert model.inputs[0].layout == "NCHW"


@pytest.mark.parametrize(
    "attributes",
    [
        {"group": 2},
        {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 3]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"auto_pad": "VALID", "strides": [3, 1]},
    ],
)
def test_qlinear_conv_windows(
    attributes: dict[str, Any], onnx_builder: Any, tmp_path: Path
) -> None:
    qlinear_conv(onnx_builder, np.random.default_rng(11), np.int8, np.int8, **attributes)
    assert HostOp not in kinds(assert_within_one_unit(onnx_builder, tmp_path, 1, 12))


def test_qlinear_matmul_of_three_axes_and_per_column_scales(
    onnx_builder: Any, tmp_path: Path
) -> None:
    rng, b = np.random.default_rng(13), onnx_builder
    x = b.input("x", (2, 3, 10), np.uint8)
    w = b.constant("w", signed_weights(rng, (10, 6)))
    xs, ys = b.scales("xs", 0.02, 120, np.uint8), b.scales("ys", 0.06, 128, np.uint8)
    ws = b.scales("ws", rng.uniform(0.003, 0.01, 6), 0, np.int8)
    b.node("QLinearMatMul", [x, *xs, w, *ws, *ys], "y")
    b.output("y", np.uint8)
    model = assert_within_one_unit(b, tmp_path, 1, 14)
    expected = [RequantizeOp, ReshapeOp, FullyConnectedOp, ReshapeOp, RequantizeOp]
    assert kinds(model) == expected
    assert all(op.is_sign_flip for op in model.main.body.block.ops if isinstance(op, RequantizeOp))


def test_matmul_add_relu_is_one_operator(onnx_builder: Any, tmp_path: Path) -> None:
    rng, b = np.random.default_rng(15), onnx_builder
    x = b.qdq(b.input("x", (3, 12)), "xq", 0.016, 3, np.int8)
    w = b.weight("w", signed_weights(rng, (12, 5)), rng.uniform(0.003, 0.01, 5), axis=1)
    y = b.node("MatMul", [x, w], "mm")
    y = b.node("Add", [b.constant("c", rng.uniform(-1, 1, 5), np.float32), y], "sum")
    y = b.node("Relu", [y], "act")
    b.output(b.qdq(y, "yq", 0.03, -128, np.int8))
    model = assert_within_one_unit(b, tmp_path, 0.03, 16)
    assert kinds(model) == [QuantizeOp, FullyConnectedOp, DequantizeOp]
    assert model.notes == (
        "MatMul node 'mm_node': the bias is rounded to input scale * weight scale, by at most half "
        "of it",
    )


def test_relu_reshape_and_pool_act_on_codes(onnx_builder: Any, tmp_path: Path) -> None:
    b = onnx_builder
    x = b.qdq(b.input("x", (1, 2, 4, 6)), "xq", 0.02, -5, np.int8)
    y = b.node("Relu", [x], "relu")
    y = b.node("MaxPool", [y], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = b.node("Reshape", [y, b.constant("shape", [2, -1], np.int64)], "flat")
    y = b.node("Transpose", [y], "turned", perm=[1, 0])
    b.output(b.qdq(y, "yq", 0.02, -5, np.int8))
    model = assert_within_one_unit(b, tmp_path, 0.02, 17, budget=0)
    assert HostOp not in kinds(model)
    assert [kind for kind in kinds(model) if kind in (ClampOp, MaxPool2dOp)] == [
        ClampOp,
        MaxPool2dOp,
    ]


def test_change_of_scale_is_a_requantize(onnx_builder: Any, tmp_path: Path) -> None:
    b = onnx_builder
    x = b.qdq(b.input("x", (4, 64)), "xq", 0.0157, -5, np.int8)
    b.output(b.qdq(x, "yq", 0.021, 7, np.int8))
    model = assert_within_one_unit(b, tmp_path, 0.021, 18, budget=0.05)
    assert kinds(model) == [QuantizeOp, RequantizeOp, DequantizeOp]


def test_float_input_of_a_flatten_that_reads_an_image_twice(
    onnx_builder: Any, tmp_path: Path
) -> None:
    """The flattened image goes to a product in H, W, C and to the output in C, H, W."""
    rng, b = np.random.default_rng(19), onnx_builder
    x = b.qdq(b.input("x", (1, 2, 3, 3)), "xq", 0.02, 0, np.int8)
    w = b.weight("w", signed_weights(rng, (3, 2, 1, 1)), 0.01)
    y = b.qdq(b.node("Conv", [x, w], "conv"), "yq", 0.02, 0, np.int8)
    flat = b.node("Flatten", [y], "flat")
    v = b.weight("v", signed_weights(rng, (27, 4)), 0.01)
    b.output(b.qdq(b.node("MatMul", [flat, v], "fc"), "z", 0.02, 0, np.int8))
    b.output("flat")
    assert_within_one_unit(b, tmp_path, 0.02, 20)


def test_bundled_digits_model_has_no_host_operator(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    model = load_model(root / "sw" / "models" / "digits_int8.onnx")
    assert HostOp not in kinds(model)
    assert TransposeOp not in kinds(model)


REASONS = [
    ("weight_is_computed", "weight.not_int8"),
    ("output_is_float", "output.not_quantized"),
    ("input_is_float", "input.not_quantized"),
    ("scales_on_inputs", "weight.axis"),
    ("alpha", "gemm.attributes"),
]


@pytest.mark.parametrize(("change", "rule"), REASONS)
def test_host_operator_says_why(change: str, rule: str, onnx_builder: Any, tmp_path: Path) -> None:
    rng, b = np.random.default_rng(21), onnx_builder
    source = b.input("x", (3, 5))
    x = source if change == "input_is_float" else b.qdq(source, "xq", 0.02, 0, np.int8)
    scales = np.full(5, 0.01) if change == "scales_on_inputs" else 0.01
    w = b.weight("w", signed_weights(rng, (5, 4)), scales)
    if change == "weight_is_computed":
        w = b.input("free", (5, 4))
    y = b.node("Gemm", [x, w], "fc", **({"alpha": 0.5} if change == "alpha" else {}))
    b.output(y if change == "output_is_float" else b.qdq(y, "z", 0.05, 0, np.int8))
    model = assert_within_one_unit(b, tmp_path, 0.05, 22)
    (host,) = [op for op in model.main.body.block.ops if isinstance(op, HostOp)]
    assert host.why()["rule"] == rule
    assert host.kind.data == "Gemm"
    assert host.why()["remedy"]


def test_given_shapes_decide_dynamic_dimensions(onnx_builder: Any, tmp_path: Path) -> None:
    b = onnx_builder
    b.input("x", ("batch", 2, "height"))
    b.output(b.node("Relu", ["x"], "y"))
    model = load_bytes(b.build(), tmp_path, x=(3, 2, 5))
    assert model.inputs[0].shape == model.outputs[0].shape == (3, 2, 5)
    assert model.notes == ()


def test_symbolic_batch_is_1_with_a_note(onnx_builder: Any, tmp_path: Path) -> None:
    b = onnx_builder
    b.input("x", ("N", 2))
    b.output(b.node("Relu", ["x"], "y"))
    model = load_bytes(b.build(), tmp_path)
    assert model.outputs[0].shape == (1, 2)
    assert model.notes == ("input 'x': the symbolic batch dimension 'N' (axis 0) is 1",)


def test_computed_shapes_are_folded(onnx_builder: Any, tmp_path: Path) -> None:
    b = onnx_builder
    b.input("x", (2, 3, 4))
    b.node("Shape", ["x"], "shape")
    first = b.node("Gather", ["shape", b.constant("zero", [0], np.int64)], "first")
    due = b.node("Concat", [first, b.constant("rest", [-1], np.int64)], "due", axis=0)
    b.output(b.node("Reshape", ["x", due], "y"))
    model = load_bytes(b.build(), tmp_path)
    assert model.outputs[0].shape == (2, 12)
    assert kinds(model) == [ReshapeOp]


def product(b: Any, weight: np.ndarray, bias: str = "", **quant: Any) -> str:
    """Quantised input (3, 5) times a weight of 5 columns, as float tensor ``fc``."""
    x = b.qdq(b.input("x", (3, 5)), "xq", 0.02, 0, np.int8)
    w = b.weight("w", weight, 0.01, quant.get("zero", 0))
    return b.node("Gemm", [x, w, *([bias] if bias else [])], "fc", transB=1)


def test_clip_at_a_bound_without_a_code_stays_float(onnx_builder: Any, tmp_path: Path) -> None:
    b = onnx_builder
    x = b.qdq(b.input("x", (4, 8)), "xq", 0.5, 0, np.int8)
    b.output(b.node("Clip", [x, "", b.constant("high", 0.7, np.float32)], "y"))
    model = assert_within_one_unit(b, tmp_path, 0.01, 23, budget=0)
    (host,) = [op for op in model.main.body.block.ops if isinstance(op, HostOp)]
    assert host.why()["rule"] == "clip.bounds"


def test_bias_in_a_scale_of_its_own_is_rescaled(onnx_builder: Any, tmp_path: Path) -> None:
    rng, b = np.random.default_rng(24), onnx_builder
    bias = b.weight("bias", np.array([100, -90, 70, 127], np.int8), 0.008)
    b.output(b.qdq(product(b, signed_weights(rng, (4, 5)), bias), "z", 0.02, 0, np.int8))
    model = assert_within_one_unit(b, tmp_path, 0.02, 25, budget=0.03)
    assert model.weights["fc_node.bias"].tolist() == [4000, -3600, 2800, 5080]


def test_add_behind_a_relu_is_not_a_bias(onnx_builder: Any, tmp_path: Path) -> None:
    rng, b = np.random.default_rng(26), onnx_builder
    y = b.node("Relu", [product(b, signed_weights(rng, (4, 5)))], "relu")
    y = b.node("Add", [y, b.constant("c", [-1, 1, -2, 2], np.float32)], "sum")
    b.output(b.qdq(y, "z", 0.02, 0, np.int8))
    model = assert_within_one_unit(b, tmp_path, 0.02, 27)
    assert FullyConnectedOp not in kinds(model)


def test_float_result_that_is_an_output_is_kept(onnx_builder: Any, tmp_path: Path) -> None:
    rng, b = np.random.default_rng(28), onnx_builder
    y = product(b, signed_weights(rng, (4, 5)))
    b.output(y)
    b.output(b.qdq(y, "z", 0.02, 0, np.int8))
    model = assert_within_one_unit(b, tmp_path, 0.02, 29)
    assert [info.name for info in model.outputs] == ["fc", "z"]


@pytest.mark.parametrize(("zero", "integer"), [(128, True), (100, False)])
def test_uint8_weight_is_integer_when_it_fits_int8(
    zero: int, integer: bool, onnx_builder: Any, tmp_path: Path
) -> None:
    rng, b = np.random.default_rng(30), onnx_builder
    weight = rng.integers(0, 256, (4, 5)).astype(np.uint8)
    weight[0, 0] = 255
    b.output(b.qdq(product(b, weight, zero=zero), "z", 0.02, 0, np.int8))
    model = assert_within_one_unit(b, tmp_path, 0.02, 31)
    assert (FullyConnectedOp in kinds(model)) == integer


def test_codes_read_in_another_scale_than_written(onnx_builder: Any, tmp_path: Path) -> None:
    """DequantizeLinear decides what codes mean; here it says something else than the writer."""
    b = onnx_builder
    written = b.scales("written", 0.02, 0, np.int8)
    codes = b.node("QuantizeLinear", [b.input("x", (4, 6)), *written], "codes")
    read = b.scales("read", 0.5, 7, np.int8)
    b.output(b.node("DequantizeLinear", [codes, *read], "y"))
    model = assert_within_one_unit(b, tmp_path, 0.5, 32, budget=0)
    (host,) = [op for op in model.main.body.block.ops if isinstance(op, HostOp)]
    assert host.why()["rule"] == "dequantize.type"


def test_scales_that_are_inputs_send_the_operator_to_the_host(
    onnx_builder: Any, tmp_path: Path
) -> None:
    b = onnx_builder
    b.input("x", (2, 3), np.int8)
    b.input("scale", ())
    b.output(b.node("DequantizeLinear", ["x", "scale"], "y"))
    model = assert_within_one_unit(b, tmp_path, 1, 33, budget=0)
    (host,) = [op for op in model.main.body.block.ops if isinstance(op, HostOp)]
    assert host.why()["rule"] == "dequantize.scale"


def test_untyped_input_of_a_foreign_domain_does_not_crash_inference(
    onnx_builder: Any, tmp_path: Path
) -> None:
    """onnx ends the process when it infers LabelEncoder on an input without a type."""
    b = onnx_builder
    b.opsets.append(helper.make_opsetid("ai.onnx.ml", 4))
    unknown = b.node("NonZero", [b.input("x", (2, 3))], "places")
    encoder = {"keys_int64s": [0, 1], "values_int64s": [5, 6]}
    b.output(b.node("LabelEncoder", [unknown], "y", domain="ai.onnx.ml", **encoder), np.int64)
    with pytest.raises(UserError, match="the shape of tensor 'places' must be static"):
        load_bytes(b.build(), tmp_path)
