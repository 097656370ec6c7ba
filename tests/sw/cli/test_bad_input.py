"""Bad input gets one sentence with file, node, rule and remedy, status 2, and leaves no file."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from npulse.sw import models

NPU = ("--npu", "tpu-v1:sim")
LISTED = "; npulse flavours lists names, sizes and parameters"
NEITHER = (
    "is neither ONNX nor TFLite: its protobuf is truncated, damaged or something else; give an "
    ".onnx or .tflite file"
)


@pytest.fixture
def refused(npulse: Any, tmp_path: Path) -> Any:
    """Check message and status of a command, and that it leaves the folder as it was."""

    def check(message: str, *arguments: object) -> None:
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        ended = npulse(*arguments)
        assert ended.err == f"npulse: {message}\n"
        assert ended.status == 2
        assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before

    return check


def one_node(path: str, kind: str, name: str, shape: list[int | str]) -> None:
    """Write an ONNX model of one node from x to y."""
    border = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "xy"]
    node = helper.make_node(kind, ["x"], ["y"], name=name)
    graph = helper.make_graph([node], "g", border[:1], border[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    onnx.save(model, path)


def test_a_model_that_is_no_model(refused: Any) -> None:
    Path("m.onnx").write_text("hello, I am no model at all")
    refused(f"m.onnx {NEITHER}", "compile", "m.onnx", *NPU)


@pytest.mark.parametrize("length", [1, 100, 3000])
def test_a_truncated_model(refused: Any, length: int) -> None:
    Path("m.onnx").write_bytes(models.path("digits").read_bytes()[:length])
    refused(f"m.onnx {NEITHER}", "compile", "m.onnx", *NPU)


def test_an_empty_model(refused: Any) -> None:
    Path("m.onnx").touch()
    refused("m.onnx is empty; give an .onnx or .tflite file", "run", "m.onnx", *NPU)


def test_a_model_that_is_not_there(refused: Any) -> None:
    refused(
        "digitz: no such file, and no bundled model of this name (digits, digits_float); "
        "check the path",
        "run",
        "digitz",
        *NPU,
    )


def test_an_operator_without_hardware_under_strict(refused: Any) -> None:
    one_node("m.onnx", "Sigmoid", "gate", [1, 4])
    refused(
        "m.onnx: every operator must run on tpu-v1:sim under --strict, but 1 of 1 do not "
        "(operator.no_hardware 1), first node 'gate' (Sigmoid): operator Sigmoid; none: the "
        "matrix and activation units have no such operation",
        "compile",
        "m.onnx",
        *NPU,
        "--strict",
    )


@pytest.mark.parametrize("command", ["compile", "run", "explain"])
def test_a_dynamic_dimension(refused: Any, command: str) -> None:
    one_node("m.onnx", "Relu", "act", [1, "length"])
    refused(
        "m.onnx: input 'x': dimension 1 (length) is dynamic, and shapes must be static; give "
        "input data, whose shape decides it, or fix it in the model",
        command,
        "m.onnx",
        *NPU,
    )


def test_an_input_of_another_shape(refused: Any) -> None:
    np.savez("x.npz", image=np.zeros((1, 8, 8), np.float32))
    refused(
        "x.npz: input image must have shape (1, 1, 8, 8), not (1, 8, 8); give an array of this "
        "shape and dtype",
        "run",
        "digits",
        *NPU,
        "--input",
        "x.npz",
        "--output",
        "y.npz",
        "--json",
        "r.json",
    )


def test_an_input_of_another_dtype(refused: Any) -> None:
    np.save("x.npy", np.zeros((1, 1, 8, 8)))
    refused(
        "x.npy: input image must have dtype float32, not float64; give an array of this shape "
        "and dtype",
        "run",
        "digits",
        *NPU,
        "--input",
        "x.npy",
    )


def test_inputs_that_the_model_does_not_have(refused: Any) -> None:
    np.savez("x.npz", picture=np.zeros(1), label=np.zeros(1))
    refused(
        "x.npz: arrays must be those of the inputs image, or as many in their order, not "
        "picture, label; save them with numpy.savez",
        "run",
        "digits",
        *NPU,
        "--input",
        "x.npz",
    )


def test_an_input_file_that_holds_no_arrays(refused: Any) -> None:
    Path("x.npz").write_text("junk")
    refused(
        "x.npz is neither .npz nor .npy; save the arrays with numpy.savez",
        "run",
        "digits",
        *NPU,
        "--input",
        "x.npz",
    )


def test_an_input_file_that_is_cut_short(refused: Any) -> None:
    np.savez("x.npz", image=np.zeros((1, 1, 8, 8), np.float32))
    Path("x.npz").write_bytes(Path("x.npz").read_bytes()[:100])
    refused(
        "x.npz is no whole .npz or .npy file (File is not a zip file); save the arrays with "
        "numpy.savez",
        "run",
        "digits",
        *NPU,
        "--input",
        "x.npz",
    )


def test_an_input_file_that_is_not_there(refused: Any) -> None:
    refused(
        "x.npz: no such file; give an .npz or .npy file", "run", "digits", *NPU, "--input", "x.npz"
    )


def test_an_unknown_flavour(refused: Any) -> None:
    refused(
        f"flavour must be one of tpu-v1, not 'tpu-v9'{LISTED}", "run", "digits", "--npu", "tpu-v9"
    )


def test_an_unknown_size(refused: Any) -> None:
    refused(
        f"size of tpu-v1 must be one of sim, fpga, silicon, not 'huge'{LISTED}",
        "compile",
        "digits",
        "--npu",
        "tpu-v1:huge",
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("array.rows=0", "array.rows must be from 1 to 512, not 0"),
        ("array.rows=x", "parameter array.rows must be an integer, not 'x'"),
        ("array.rows", "an override must be parameter=value, not 'array.rows'"),
        (
            "array=2",
            "parameter 'array' must be one of array.rows, array.cols, array.multiplier_latency",
        ),
        (
            "memory.accumulator_rows=100",
            "memory.accumulator_rows must be a power of two, not 100",
        ),
    ],
)
@pytest.mark.parametrize("command", [("compile", "digits"), ("verilog", "-o", "v")])
def test_an_illegal_parameter(
    refused: Any, command: tuple[str, ...], override: str, message: str
) -> None:
    refused(message + LISTED, *command, *NPU, "--set", override)


def test_an_image_made_for_another_size(npulse: Any, refused: Any) -> None:
    assert npulse("compile", "digits", *NPU, "-o", "d.npulse").status == 0
    refused(
        "d.npulse was made for tpu-v1:sim, not tpu-v1:fpga; leave --npu and --set out, or compile "
        "the model for tpu-v1:fpga",
        "run",
        "d.npulse",
        "--npu",
        "tpu-v1:fpga",
    )
    refused(
        "d.npulse was made for tpu-v1:sim, not tpu-v1:sim --set array.rows=4; leave --npu and "
        "--set out, or compile the model for tpu-v1:sim --set array.rows=4",
        "run",
        "d.npulse",
        "--set",
        "array.rows=4",
    )


@pytest.mark.parametrize("command", ["run", "disasm"])
def test_an_image_with_one_flipped_byte(npulse: Any, refused: Any, command: str) -> None:
    assert npulse("compile", "digits", *NPU, "-o", "d.npulse").status == 0
    content = bytearray(Path("d.npulse").read_bytes())
    content[-100] ^= 1
    Path("d.npulse").write_bytes(content)
    refused(
        f"d.npulse is damaged or cut short: its {len(content)} bytes do not have the SHA-256 that "
        "it states; make it again with npulse compile",
        command,
        "d.npulse",
    )


def test_a_model_without_an_npu(refused: Any) -> None:
    refused("digits: a model needs --npu, for example --npu tpu-v1:sim", "run", "digits")


def test_a_file_that_is_no_image(refused: Any) -> None:
    Path("m.npulse").write_text("no image")
    refused(
        "m.npulse is not an npulse image; make it again with npulse compile", "disasm", "m.npulse"
    )


@pytest.mark.parametrize("option", ["--output", "--json"])
def test_a_folder_that_is_not_there(refused: Any, option: str) -> None:
    refused(
        "absent/y.npz cannot be written: there is no folder absent; make it, or name a file in a "
        "folder that exists",
        "run",
        "digits",
        *NPU,
        option,
        "absent/y.npz",
    )


def test_an_array_too_large_for_verilog(refused: Any) -> None:
    refused(
        "grid cells of tpu_v1_silicon must be at most 5120 for Verilog, since each becomes an "
        "instance of its own, not 66560; take a smaller size, or --set array.rows and cols",
        "verilog",
        "--npu",
        "tpu-v1",
        "-o",
        "v",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "Missing argument 'MODEL'; try npulse --help"),
        (["rum"], "No such command 'rum'. Did you mean 'run'?; try npulse --help"),
        (["compile", "digits"], "Missing option '--npu'; try npulse --help"),
        (
            ["run", "digits", *NPU, "--engine", "abacus"],
            "--engine must be one of pysim, compiled, not 'abacus'",
        ),
    ],
)
def test_a_wrong_command_line(refused: Any, arguments: list[str], message: str) -> None:
    refused(message, *arguments)
