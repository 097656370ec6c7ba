"""The compiler on real models, and what it says of them."""

import json
from importlib.resources import files

import pytest

from npulse.hw.spec.flavours import resolve
from npulse.sw.compile import HostSegment, NpuSegment, compile_model
from npulse.sw.frontends.load import load_model
from npulse.sw.report import explain, explain_lines, summary, summary_lines

SIZES = ["sim", "fpga", "silicon"]


@pytest.fixture(scope="module")
def digits():
    return load_model(str(files("npulse.sw.models") / "digits_int8.onnx"))


@pytest.mark.parametrize("size", SIZES)
def test_digits_runs_on_the_npu_but_for_float_at_its_border(digits, size) -> None:
    executable = compile_model(digits, resolve(f"tpu-v1:{size}"), strict=True)
    kinds = [type(segment) for segment in executable.segments]
    assert kinds == [HostSegment, NpuSegment, HostSegment]
    assert [layer.op for layer in executable.summary.layers] == [
        "graph.conv2d",
        "graph.conv2d",
        "graph.fully_connected",
    ]
    assert executable.summary.macs == 4608 + 18432 + 640


def test_compiling_twice_gives_the_same_bytes(digits) -> None:
    first, second = (compile_model(digits, resolve("tpu-v1:sim")) for _ in range(2))
    assert first.program == second.program
    assert first.weight_image == second.weight_image
    assert first.graph == second.graph == str(digits.module)


@pytest.mark.parametrize("size", SIZES)
def test_hello_world_needs_no_host(shared_dir, size) -> None:
    path = shared_dir / "models" / "tflite_micro" / "hello_world_int8.tflite"
    executable = compile_model(load_model(path), resolve(f"tpu-v1:{size}"), strict=True)
    assert [type(segment) for segment in executable.segments] == [NpuSegment]
    assert executable.summary.macs == 16 + 256 + 16


def test_explain_names_every_operator_and_is_json(digits) -> None:
    executable = compile_model(digits, resolve("tpu-v1:sim"))
    data = json.loads(json.dumps(explain(executable)))
    assert data["counts"] == {"npu": 6, "host_by_design": 3, "host_fallback": 0}
    assert data["rules"] == {}
    conv = next(r for r in data["operators"] if r["node"] == "conv1" and r["placed"] == "npu")
    assert conv == {
        "node": "conv1",
        "op": "graph.conv2d",
        "placed": "npu",
        "rule": "layer",
        "attribute": "",
        "remedy": "",
        "fallback": False,
        "estimated_cycles": 996,
    }
    lines = explain_lines(executable)
    assert "npu  graph.conv2d 'conv1': layer, about 996 cycles" in lines
    assert "npu  graph.max_pool2d 'pool1_real': fused (done by node 'conv1')" in lines
    assert lines[-1] == (
        "6 operators on the NPU, 3 on the host by design, 0 on the host as a fallback"
    )


def test_summary_has_the_figures_of_the_program(digits) -> None:
    executable = compile_model(digits, resolve("tpu-v1:sim"))
    data = json.loads(json.dumps(summary(executable)))
    assert data["instructions"] * 32 == data["program_bytes"] == len(executable.program)
    assert data["weight_bytes"] == len(executable.weight_image)
    assert data["sram_lower_bound_rows"] == data["sram_peak_rows"] == 80
    assert summary_lines(executable) == [
        "layers 3, instructions 27, weights 3232 bytes",
        "unified buffer: peak 80 of 3072 rows (2.6 %), lower bound 80, 8 bytes a row",
        "multiply-adds 23680, estimate 1933 cycles",
    ]
