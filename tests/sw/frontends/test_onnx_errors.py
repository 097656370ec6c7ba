"""Each way in which an ONNX file can be wrong gives one sentence: file, node, rule, remedy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from npulse.sw.errors import UserError
from npulse.sw.frontends.load import load_model
from npulse.sw.frontends.model import Model


def load(content: bytes, folder: Path) -> Model:
    path = folder / "m.onnx"
    path.write_bytes(content)
    return load_model(path)


def message_of(content: bytes, folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        load(content, folder)
    return str(caught.value).removeprefix(str(folder / "m.onnx"))


def missing(b: Any) -> None:
    b.input("x", (1, 2))
    b.output(b.node("Add", ["x", "ghost"], "y"))


def cycle(b: Any) -> None:
    b.input("x", (1, 2))
    b.node("Add", ["x", "b"], "a")
    b.node("Relu", ["a"], "b")
    b.output("b")


def twice(b: Any) -> None:
    b.input("x", (1, 2))
    b.node("Relu", ["x"], "y")
    b.node("Neg", ["x"], "y", name="again")
    b.output("y")


def no_output_node(b: Any) -> None:
    b.input("x", (1, 2))
    b.output("y")


def no_output(b: Any) -> None:
    b.input("x", (1, 2))


def dynamic(b: Any) -> None:
    b.input("x", (1, "height", 3))
    b.output(b.node("Relu", ["x"], "y"))


def negative(b: Any) -> None:
    b.input("x", (1, -4))
    b.output(b.node("Relu", ["x"], "y"))


def unknown(b: Any) -> None:
    b.opsets.append(helper.make_opsetid("com.acme", 1))
    b.input("x", (1, 2))
    b.output(b.node("Warp", ["x"], "y", domain="com.acme"))


def raw_too_long(b: Any) -> None:
    b.input("x", (1, 2))
    b.constants.append(TensorProto(name="w", dims=[2], data_type=1, raw_data=b"\0" * 12))
    b.output(b.node("Add", ["x", "w"], "y"))


def typed_too_short(b: Any) -> None:
    b.input("x", (1, 2))
    b.constants.append(TensorProto(name="w", dims=[2], data_type=1, float_data=[1.0]))
    b.output(b.node("Add", ["x", "w"], "y"))


def negative_dims(b: Any) -> None:
    b.input("x", (1, 2))
    b.constants.append(TensorProto(name="w", dims=[-2], data_type=1, raw_data=b"\0" * 8))
    b.output(b.node("Add", ["x", "w"], "y"))


def bad_scale(scale: float) -> Callable[[Any], None]:
    def build(b: Any) -> None:
        b.input("x", (1, 2))
        b.output(b.qdq("x", "y", scale, 0, np.int8))

    return build


def data_dependent(b: Any) -> None:
    b.input("x", (1, 2))
    b.output(b.node("NonZero", ["x"], "y"), np.int64)


def misfit(b: Any) -> None:
    x = b.qdq(b.input("x", (1, 5)), "xq", 0.5, 0, np.int8)
    w = b.weight("w", np.ones((4, 3), np.int8), 0.5)
    b.output(b.qdq(b.node("MatMul", [x, w], "fc"), "y", 0.5, 0, np.int8))


def groups(b: Any) -> None:
    x = b.input("x", (1, 4, 5, 5), np.int8)
    w = b.constant("w", np.ones((4, 3, 1, 1), np.int8))
    scales = [n for k in "abc" for n in b.scales(k, 0.5, 0, np.int8)]
    b.node("QLinearConv", [x, *scales[:2], w, *scales[2:4], *scales[4:]], "y")
    b.output("y", np.int8)


def wrong_attribute(b: Any) -> None:
    b.input("x", (1, 1, 4, 4))
    b.output(b.node("MaxPool", ["x"], "y", kernel_shape=2))


def absent_attribute(b: Any) -> None:
    b.input("x", (1, 1, 4, 4))
    b.output(b.node("MaxPool", ["x"], "y"))


def too_few_inputs(b: Any) -> None:
    b.input("x", (1, 1, 4, 4))
    b.output(b.node("Conv", ["x"], "y"))


def strange_constant(b: Any) -> None:
    b.input("x", (1, 2))
    b.constant("c", np.ones(2, np.complex64))
    b.output(b.node("Identity", ["c"], "y"), np.complex64)


def huge(b: Any) -> None:
    b.input("x", (1, 40000, 40000))
    b.output(b.node("Relu", ["x"], "y"))


def complex_numbers(b: Any) -> None:
    b.input("x", (1, 2), np.complex64)
    b.output(b.node("Identity", ["x"], "y"), np.complex64)


def ratio(b: Any) -> None:
    x = b.qdq(b.input("x", (1, 2)), "xq", 1e6, 0, np.int8)
    w = b.weight("w", np.ones((2, 3), np.int8), 1e6)
    b.output(b.qdq(b.node("MatMul", [x, w], "fc"), "y", 0.5, 0, np.int8))


CASES: list[tuple[Callable[[Any], None], str]] = [
    (
        missing,
        ": Add node 'y_node' reads tensor 'ghost', which is missing: no node, input or constant "
        "has this name; export the model again",
    ),
    (
        cycle,
        ": Add node 'a_node' is part of a cycle or behind one, and a graph must have none; export "
        "the model again",
    ),
    (
        twice,
        ": Neg node 'again' computes tensor 'y', which is computed or given elsewhere too; export "
        "the model again",
    ),
    (no_output_node, ": output 'y' is computed by no node; export the model again"),
    (no_output, ": the graph has no output, so nothing can be computed; export the model again"),
    (
        dynamic,
        ": input 'x': dimension 1 (height) is dynamic, and shapes must be static; give input data, "
        "whose shape decides it, or fix it in the model",
    ),
    (
        negative,
        ": input 'x' must have dimensions of at least 0, not [1, -4]; fix them in the model",
    ),
    (
        unknown,
        ": com.acme.Warp node 'y_node': the operator is known to neither npulse nor the ONNX "
        "reference; replace it or register it as an ONNX function in the model",
    ),
    (
        raw_too_long,
        ": tensor 'w' of shape [2] must have 8 bytes, not 12; export the model again",
    ),
    (
        typed_too_short,
        ": tensor 'w' must have the data of its shape [2] (cannot reshape array of size 1 into "
        "shape (2,)); export the model again",
    ),
    (negative_dims, ": tensor 'w' has the negative dimension -2; export the model again"),
    (
        bad_scale(float("nan")),
        ": QuantizeLinear node 'y.codes_node': scale must be positive and finite, not nan; "
        "quantise the model again",
    ),
    (
        bad_scale(0.0),
        ": QuantizeLinear node 'y.codes_node': scale must be positive and finite, not 0.0; "
        "quantise the model again",
    ),
    (
        bad_scale(-0.5),
        ": QuantizeLinear node 'y.codes_node': scale must be positive and finite, not -0.5; "
        "quantise the model again",
    ),
    (
        data_dependent,
        ": NonZero node 'y_node': the shape of tensor 'y' must be static, but inference finds "
        "none: the input shapes do not fit, or it depends on data; fix them or replace the "
        "operator",
    ),
    (
        misfit,
        ": QuantizeLinear node 'y.codes_node': the shape of tensor 'y.codes' must be static, but "
        "inference finds none: the input shapes do not fit, or it depends on data; fix them or "
        "replace the operator",
    ),
    (
        groups,
        ": QLinearConv node 'y_node': weight 4x3x1x1 in 1 groups must fit the input 1x4x5x5; "
        "export the model again",
    ),
    (
        wrong_attribute,
        ": MaxPool node 'y_node': attribute kernel_shape must be of type INTS, not INT; export the "
        "model again",
    ),
    (
        absent_attribute,
        ": MaxPool node 'y_node': attribute kernel_shape is required; export the model again",
    ),
    (
        too_few_inputs,
        ": Conv node 'y_node' must have 2 to 3 inputs, not 1; export the model again",
    ),
    (
        strange_constant,
        ": tensor 'y' has elements of complex64, which npulse does not hold; cast them to a plain "
        "number type",
    ),
    (
        huge,
        ": graph.host 'y_node': input 0 must have at most 1073741824 bytes, not shape "
        "1x40000x40000; convert or quantise the model again",
    ),
    (
        complex_numbers,
        ": input 'x' has elements of complex64, which npulse does not hold; cast it outside the "
        "model",
    ),
    (
        ratio,
        ": graph.fully_connected 'fc_node': input scale * weight scale / output scale must be <= "
        "1.07374e+09, not 2e+12; convert or quantise the model again",
    ),
]


@pytest.mark.parametrize(("build", "message"), CASES)
def test_message_names_node_rule_and_remedy(
    build: Callable[[Any], None], message: str, onnx_builder: Any, tmp_path: Path
) -> None:
    build(onnx_builder)
    assert message_of(onnx_builder.build(), tmp_path) == message


def test_names_that_are_not_utf8(onnx_builder: Any, tmp_path: Path) -> None:
    onnx_builder.input("x", (1, 2))
    onnx_builder.output(onnx_builder.node("Relu", ["x"], "yyyy"))
    content = onnx_builder.build().replace(b"Relu", b"Re\xffu")
    message = message_of(content, tmp_path)
    assert message == ": field op_type is not UTF-8 text; export the model again"


def test_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_model(tmp_path / "absent.onnx")
    assert str(caught.value) == f"{tmp_path / 'absent.onnx'}: no such file; check the path"


def test_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_model(tmp_path)
    assert str(caught.value) == f"{tmp_path} is a folder; give an .onnx or .tflite file"


def test_empty_file(tmp_path: Path) -> None:
    assert message_of(b"", tmp_path) == " is empty; give an .onnx or .tflite file"


def test_text_is_neither_format(tmp_path: Path) -> None:
    assert message_of(b"hello, world, this is no model", tmp_path) == (
        " is neither ONNX nor TFLite: its protobuf is truncated, damaged or something else; give "
        "an .onnx or .tflite file"
    )


def test_protobuf_without_a_graph(tmp_path: Path) -> None:
    assert message_of(onnx.ModelProto(ir_version=8).SerializeToString(), tmp_path) == (
        " is not a valid ONNX model: it has no graph or no opset, so its protobuf is truncated, "
        "damaged or something else; export the model again"
    )


def external(b: Any, location: str, offset: int = 0, length: int | None = 8) -> bytes:
    b.input("x", (1, 2))
    tensor = TensorProto(name="w", dims=[2], data_type=1, data_location=TensorProto.EXTERNAL)
    entries = {"location": location, "offset": str(offset)}
    if length is not None:
        entries["length"] = str(length)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    b.constants.append(tensor)
    b.output(b.node("Add", ["x", "w"], "y"))
    return b.build()


def test_external_data_beside_the_model_is_read(onnx_builder: Any, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.array([9, 1.5, -2], np.float32).tobytes())
    model = load(external(onnx_builder, "w.bin", offset=4), tmp_path)
    assert np.array_equal(model.weights["w"], np.array([1.5, -2], np.float32))


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "", "a/../../secret.bin"])
def test_external_data_outside_the_folder_is_refused(
    location: str, onnx_builder: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 8)
    assert message_of(external(onnx_builder, location), folder) == (
        f": tensor 'w': external data must lie in the folder of the model, not at {location!r}; "
        "move the file beside the model"
    )


def test_external_data_that_is_absent_or_short(onnx_builder: Any, tmp_path: Path) -> None:
    content = external(onnx_builder, "w.bin")
    assert message_of(content, tmp_path) == (
        ": tensor 'w': external data file 'w.bin' does not exist; put it beside the model"
    )
    (tmp_path / "w.bin").write_bytes(b"\0" * 6)
    assert message_of(content, tmp_path) == (
        ": tensor 'w': external data must lie within the 6 bytes of 'w.bin', not 8 bytes at 0; "
        "export the model again"
    )


def test_symlink_out_of_the_folder_is_refused(onnx_builder: Any, tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 8)
    (folder / "w.bin").symlink_to(tmp_path / "secret.bin")
    assert "must lie in the folder of the model" in message_of(
        external(onnx_builder, "w.bin"), folder
    )


def test_chain_of_2500_nodes_imports(onnx_builder: Any, tmp_path: Path) -> None:
    b = onnx_builder
    name = b.input("x", (1, 2))
    for index in range(2500):
        name = b.node("Neg", [name], f"y{index}")
    b.output(name)
    model = load(b.build(), tmp_path)
    assert len(list(model.main.body.block.ops)) == 2501


def test_names_with_any_character_survive(onnx_builder: Any, tmp_path: Path) -> None:
    b = onnx_builder
    x = b.input('in "put"\n%0', (2, 2))
    w = b.constant("w\\é/0:1", np.ones((2, 2), np.float32))
    b.output(b.node("Add", [x, w], "%0", name="a\nb"))
    model = load(b.build(), tmp_path)
    assert (model.inputs[0].name, model.outputs[0].name) == ('in "put"\n%0', "%0")
    assert list(model.weights) == ["w\\é/0:1"]
