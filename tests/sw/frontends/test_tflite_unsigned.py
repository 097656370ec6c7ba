"""Models of uint8 codes, the TFLite scheme from before 2019, against LiteRT's BUILTIN_REF."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from npulse.sw.frontends.load import load_model
from npulse.sw.frontends.model import Model
from npulse.sw.interpret import interpret
from npulse.sw.ir.graph import Conv2dOp, FullyConnectedOp
from npulse.sw.targets.tpu_v1.legality import first_violation

X, Y = (0.0231, 121), (0.0417, 97)  #: scale and zero point
IMAGE = (1, 7, 6, 4)


def options(name: str, **values: Any) -> Any:
    made = getattr(schema, f"{name}OptionsT")()
    for key, value in values.items():
        setattr(made, key, value)
    return made


def assert_equals_litert(content: bytes, folder: Path, litert: Any) -> Model:
    path = folder / "model.tflite"
    path.write_bytes(content)
    model = load_model(path)
    assert {info.dtype for info in (*model.inputs, *model.outputs)} == {np.dtype(np.uint8)}
    rng = np.random.default_rng(3)
    batches = [
        [rng.integers(0, 256, i.shape).astype(np.uint8) for i in model.inputs] for _ in range(4)
    ]
    names = [info.name for info in model.inputs]
    for arrays, due in zip(batches, litert(content, batches), strict=True):
        found = interpret(model, dict(zip(names, arrays, strict=True)))
        for a, b in zip(found.values(), due, strict=True):
            assert a.dtype == np.uint8
            np.testing.assert_array_equal(a, b)
    return model


def weights(builder: Any, shape: tuple[int, ...], zero: int, low: int, high: int) -> list[int]:
    rng = np.random.default_rng(5)
    w = builder.tensor("w", shape, 0.0072, zero, rng.integers(low, high, shape).astype(np.uint8))
    count = shape[3] if shape[0] == 1 and len(shape) == 4 else shape[0]
    bias = rng.integers(-3000, 3000, count).astype(np.int32)
    scale = np.float32(X[0]) * np.float32(0.0072)
    return [w, builder.tensor("b", (count,), scale, 0, bias)]


@pytest.mark.parametrize(("zero", "low", "high"), [(128, 0, 256), (151, 0, 256), (90, 0, 200)])
@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_products_with_asymmetric_weights_equal_litert(
    kind: str, zero: int, low: int, high: int, tflite_builder: Any, tmp_path: Path, litert: Any
) -> None:
    b = tflite_builder
    if kind == "FULLY_CONNECTED":
        x, y = b.tensor("x", (8, 40), *X, dtype=np.uint8), b.tensor("y", (8, 9), *Y, dtype=np.uint8)
        made = options("FullyConnected", fusedActivationFunction=1)
        shape = (9, 40)
    else:
        deep = kind == "DEPTHWISE_CONV_2D"
        made = options(
            "DepthwiseConv2D" if deep else "Conv2D",
            padding=0,
            strideH=2,
            strideW=1,
            dilationHFactor=1,
            dilationWFactor=1,
            fusedActivationFunction=3,
        )
        if deep:
            made.depthMultiplier = 2
        shape = (1, 3, 3, 8) if deep else (8, 3, 3, 4)
        x = b.tensor("x", IMAGE, *X, dtype=np.uint8)
        y = b.tensor("y", (1, 4, 6, 8), *Y, dtype=np.uint8)
    b.op(kind, [x, *weights(b, shape, zero, low, high)], [y], made)
    model = assert_equals_litert(b.build([x], [y]), tmp_path, litert)
    (op,) = [op for op in model.main.body.block.ops if isinstance(op, Conv2dOp | FullyConnectedOp)]
    assert op.weight_zero_point == (23 if zero == 151 else 0)


def test_fully_connected_equals_litert_at_ties_of_both_signs(
    tflite_builder: Any, tmp_path: Path, litert: Any
) -> None:
    """The factor from accumulator to code is 1/2, so every odd accumulator is a tie."""
    b = tflite_builder
    x = b.tensor("x", (256, 1), 0.5, 128, dtype=np.uint8)
    w = b.tensor("w", (1, 1), 0.25, 128, np.full((1, 1), 129, np.uint8))
    y = b.tensor("y", (256, 1), 0.25, 128, dtype=np.uint8)
    b.op("FULLY_CONNECTED", [x, w, -1], [y], options("FullyConnected"))
    assert_equals_litert(b.build([x], [y]), tmp_path, litert)


def test_scales_are_multiplied_in_float32(tflite_builder: Any, tmp_path: Path, litert: Any) -> None:
    """The factor is exactly 1/512 in float32 and 6e-8 off in double, which shows at ties."""
    b, rng = tflite_builder, np.random.default_rng(8)
    x_scale, w_scale = 0.03484751656651497, 0.014022164978086948
    x = b.tensor("x", (1, 128, 128, 16), x_scale, 128, dtype=np.uint8)
    kernels = rng.integers(0, 256, (16, 1, 1, 16)).astype(np.uint8)
    w = b.tensor("w", kernels.shape, w_scale, 128, kernels)
    y_scale = float(np.float32(x_scale) * np.float32(w_scale)) * 512
    y = b.tensor("y", (1, 128, 128, 16), y_scale, 128, dtype=np.uint8)
    made = options("Conv2D", strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1)
    bias_scale = np.float32(x_scale) * np.float32(w_scale)
    bias = b.tensor("b", (16,), bias_scale, 0, np.zeros(16, np.int32))
    b.op("CONV_2D", [x, w, bias], [y], made)
    assert_equals_litert(b.build([x], [y]), tmp_path, litert)


def test_weights_that_fit_int8_lose_their_zero_point(
    tflite_builder: Any, tmp_path: Path, litert: Any
) -> None:
    b = tflite_builder
    x, y = b.tensor("x", (2, 40), *X, dtype=np.uint8), b.tensor("y", (2, 9), *Y, dtype=np.uint8)
    inputs = [x, *weights(b, (9, 40), 60, 0, 180)]
    b.op("FULLY_CONNECTED", inputs, [y], options("FullyConnected"))
    model = assert_equals_litert(b.build([x], [y]), tmp_path, litert)
    (op,) = [op for op in model.main.body.block.ops if isinstance(op, FullyConnectedOp)]
    assert op.weight_zero_point == 0


def test_weights_that_do_not_fit_stay_off_the_npu(tflite_builder: Any, tmp_path: Path) -> None:
    from npulse.hw.spec.flavours import resolve

    b = tflite_builder
    x, y = b.tensor("x", (1, 40), *X, dtype=np.uint8), b.tensor("y", (1, 9), *Y, dtype=np.uint8)
    inputs = [x, *weights(b, (9, 40), 151, 0, 256)]
    b.op("FULLY_CONNECTED", inputs, [y], options("FullyConnected"))
    path = tmp_path / "model.tflite"
    path.write_bytes(b.build([x], [y]))
    ops = load_model(path).main.body.block.ops
    (op,) = [op for op in ops if isinstance(op, FullyConnectedOp)]
    violation = first_violation(op, resolve("tpu-v1:sim").config)
    assert violation is not None
    assert (violation.rule, violation.attribute) == (
        "symmetric_weights",
        "weight zero point = 23",
    )


ONE = {
    "ADD": ([(IMAGE, X), (IMAGE, (0.03, 7))], (IMAGE, Y), options("Add")),
    "SUB": ([(IMAGE, X), (IMAGE, (0.03, 7))], (IMAGE, Y), options("Sub")),
    "MUL": ([(IMAGE, X), (IMAGE, (0.03, 7))], (IMAGE, Y), options("Mul")),
    "LOGISTIC": ([(IMAGE, X)], (IMAGE, (1 / 256, 0)), None),
    "TANH": ([(IMAGE, X)], (IMAGE, (1 / 128, 128)), None),
    "LEAKY_RELU": ([(IMAGE, X)], (IMAGE, Y), options("LeakyRelu", alpha=0.2)),
    "HARD_SWISH": ([(IMAGE, X)], (IMAGE, (0.02, 16)), None),
    "RELU6": ([(IMAGE, X)], (IMAGE, Y), None),
    "SOFTMAX": ([((3, 10), X)], ((3, 10), (1 / 256, 0)), options("Softmax", beta=1.0)),
    "CONCATENATION": (
        [(IMAGE, X), (IMAGE, (0.011, 30))],
        ((1, 14, 6, 4), Y),
        options("Concatenation", axis=1),
    ),
    "AVERAGE_POOL_2D": (
        [(IMAGE, X)],
        ((1, 4, 3, 4), X),
        options("Pool2D", padding=0, strideH=2, strideW=2, filterHeight=2, filterWidth=2),
    ),
    "MAX_POOL_2D": (
        [(IMAGE, X)],
        ((1, 3, 3, 4), X),
        options("Pool2D", padding=1, strideH=2, strideW=2, filterHeight=3, filterWidth=2),
    ),
    "RESHAPE": ([(IMAGE, X)], ((7, 24), X), options("Reshape", newShape=[7, 24])),
}


@pytest.mark.parametrize("kind", ONE)
def test_operator_equals_litert(
    kind: str, tflite_builder: Any, tmp_path: Path, litert: Any
) -> None:
    inputs, (shape, quant), made = ONE[kind]
    b = tflite_builder
    places = [b.tensor(f"x{i}", s, *q, dtype=np.uint8) for i, (s, q) in enumerate(inputs)]
    y = b.tensor("y", shape, *quant, dtype=np.uint8)
    b.op(kind, places, [y], made)
    assert_equals_litert(b.build(places, [y]), tmp_path, litert)
