"""The golden interpreter: border checks, trace, and operators without a front-end."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects import test as scratch
from xdsl.dialects.builtin import ModuleOp

from npulse.sw.errors import UserError
from npulse.sw.frontends.builder import GraphBuilder
from npulse.sw.frontends.load import load_model
from npulse.sw.frontends.model import Model, main_of
from npulse.sw.interpret import interpret, interpret_module, run_op, ssa_names
from npulse.sw.ir.graph import ClampOp, DequantizeOp, HostOp, RequantizeOp, WeightOp
from npulse.sw.ir.types import QuantAttr, tensor_type

DIGITS = Path(__file__).resolve().parents[2] / "sw" / "models"
Q = QuantAttr.of(0.5, 3)


@pytest.fixture(scope="module")
def digits() -> Model:
    return load_model(DIGITS / "digits_int8.onnx")


def test_bundled_model_recognises_its_digits(digits: Model) -> None:
    """Accuracy is within a point of the float model, 97 % at least."""
    with np.load(DIGITS / "digits_test.npz") as archive:
        images, labels = archive["x"], archive["y"]
    right = [
        interpret(digits, {"image": image[None]})["logits"].argmax() == label
        for image, label in zip(images, labels, strict=True)
    ]
    assert np.mean(right) >= 0.96


def test_trace_keeps_every_value_by_its_printed_name(digits: Model) -> None:
    trace: dict[str, Any] = {}
    image = np.full((1, 1, 8, 8), 0.5, np.float32)
    outputs = interpret(digits, {"image": image}, trace)
    text = str(digits.module)
    assert all(f"%{name}" in text for name in trace)
    results = [r for op in digits.main.body.block.ops for r in op.results]
    assert len(trace) == 1 + len(results)
    assert np.array_equal(trace["image"], image)
    assert np.array_equal(trace["logits"], outputs["logits"])
    assert trace["relu1_int8"].shape == (1, 8, 8, 8)


def test_names_equal_those_of_the_printer_when_they_collide() -> None:
    builder = GraphBuilder()
    x = builder.argument(tensor_type((2,), np.int8, Q), "x")
    first = builder.add(ClampOp(x, node="a", clamp=(0, 5)), "x").result
    second = builder.add(ClampOp(first, node="b", clamp=(1, 5)), "0").result
    third = builder.add(ClampOp(second, node="c", clamp=(1, 5))).result
    module = builder.finish([third])
    assert list(ssa_names(module).values()) == ["x", "x_1", "v0", "0"]
    assert all(f"%{name} = graph.clamp" in str(module) for name in ("x_1", "v0", "0"))


INPUTS: list[tuple[dict[str, Any], str]] = [
    ({}, "input image is missing; give float32 of (1, 1, 8, 8)"),
    (
        {"image": np.zeros((2, 1, 8, 8), np.float32)},
        "input image must have shape (1, 1, 8, 8), not (2, 1, 8, 8)",
    ),
    (
        {"image": np.zeros((1, 1, 8, 8), np.int8)},
        "input image must have dtype float32, not int8",
    ),
    (
        {"picture": np.zeros((1, 1, 8, 8), np.float32)},
        "input picture does not exist; the inputs of the model are image",
    ),
]


@pytest.mark.parametrize(("inputs", "message"), INPUTS)
def test_input_that_does_not_fit_is_named(
    inputs: dict[str, Any], message: str, digits: Model
) -> None:
    with pytest.raises(UserError) as caught:
        interpret(digits, inputs)
    assert str(caught.value) == message


def test_nan_has_no_code(digits: Model) -> None:
    with pytest.raises(UserError) as caught:
        interpret(digits, {"image": np.full((1, 1, 8, 8), np.nan, np.float32)})
    assert str(caught.value) == (
        "graph.quantize node 'image_dequantized_int8': its input holds NaN, which has no code"
    )


def test_host_operator_that_fails_is_named() -> None:
    builder = GraphBuilder()
    x = builder.argument(tensor_type((2,), np.float32), "x")
    host = HostOp(
        [x],
        [tensor_type((2,), np.float32)],
        node="odd",
        kind="Odd",
        origin="onnx",
        payload="",
        rule="r",
        decided_by="d",
        remedy="m",
    )
    module = builder.finish([builder.add(host, "y").results[0]])
    with pytest.raises(UserError) as caught:
        interpret_module(module, {}, [np.zeros(2, np.float32)])
    message = str(caught.value)
    assert message.startswith("Odd node 'odd': the host cannot run it on these inputs (")
    assert message.endswith("; replace the operator")


def test_result_of_another_shape_than_declared_is_named() -> None:
    builder = GraphBuilder()
    x = builder.argument(tensor_type((2,), np.float32), "x")
    weight = builder.add(WeightOp("w", tensor_type((3,), np.float32), "w"), "w").result
    module = builder.finish([x, weight])
    with pytest.raises(UserError) as caught:
        interpret_module(module, {"w": np.zeros(4, np.float32)}, [np.zeros(2, np.float32)])
    assert str(caught.value) == (
        "graph.weight node 'w' must give float32 of (3,), not float32 of (4,); give the model "
        "static shapes"
    )


def test_foreign_operator_is_refused() -> None:
    with pytest.raises(TypeError) as caught:
        run_op(scratch.TestOp(), [], {})
    assert str(caught.value) == "op must be an operator of the graph dialect, not test.op"


def test_module_must_have_one_function() -> None:
    with pytest.raises(ValueError) as caught:
        main_of(ModuleOp([]))
    assert str(caught.value) == "module must have 1 function, not 0"


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_sign_flip_moves_all_256_codes_by_128(dtype: Any) -> None:
    info = np.iinfo(dtype)
    codes = np.arange(info.min, info.max + 1).astype(dtype)
    builder = GraphBuilder()
    quant = QuantAttr.of(0.0371, info.min + 131)
    x = builder.argument(tensor_type((256,), dtype, quant), "x")
    flipped = builder.flip_sign(x, "node", "flipped")
    assert isinstance(flipped.owner, RequantizeOp)
    assert flipped.owner.is_sign_flip
    module = builder.finish([flipped])
    module.verify()
    (result,) = interpret_module(module, {}, [codes])
    assert result.dtype != dtype
    assert np.array_equal(result.view(np.uint8), codes.view(np.uint8) ^ 0x80)


def test_dequantize_per_channel_uses_the_scale_of_each_channel() -> None:
    builder = GraphBuilder()
    quant = QuantAttr.of([0.5, 0.25, 2], [0, 1, -1], 1)
    x = builder.argument(tensor_type((2, 3), np.int8, quant), "x")
    change = DequantizeOp(x, tensor_type((2, 3), np.float32), node="d")
    module = builder.finish([builder.add(change, "y").result])
    module.verify()
    (result,) = interpret_module(module, {}, [np.array([[2, 2, 2], [-3, 5, 0]], np.int8)])
    assert result.tolist() == [[1, 0.25, 6], [-1.5, 1, 2]]


def test_builder_moves_axes_of_extent_1_by_a_reshape() -> None:
    builder = GraphBuilder()
    x = builder.argument(tensor_type((1, 1, 4, 5), np.float32), "x")
    moved = builder.transpose(x, (0, 2, 3, 1), "n", "y")
    assert moved.owner.name == "graph.reshape"  # type: ignore[union-attr]
    turned = builder.transpose(x, (0, 1, 3, 2), "n", "z")
    assert turned.owner.name == "graph.transpose"  # type: ignore[union-attr]
    image = np.arange(20, dtype=np.float32).reshape(1, 1, 4, 5)
    results = interpret_module(builder.finish([moved, turned]), {}, [image])
    assert np.array_equal(results[0], image.transpose(0, 2, 3, 1))
    assert np.array_equal(results[1], image.transpose(0, 1, 3, 2))


def test_builder_gives_two_arrays_of_one_name_different_names() -> None:
    builder = GraphBuilder()
    one, two = np.zeros(2, np.int32), np.ones(2, np.int32)
    builder.weight(one, "w", "n")
    builder.weight(two, "w", "n")
    builder.weight(one, "w", "n")
    assert {name: array is one for name, array in builder.weights.items()} == {
        "w": True,
        "w.1": False,
    }
