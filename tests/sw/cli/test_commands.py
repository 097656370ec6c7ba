"""What each command prints and writes when all is well."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from npulse.hw.spec.tpu_v1_isa import ISA
from npulse.sw import image, models
from npulse.sw.cli.app import app

ROOT = Path(__file__).resolve().parents[3]
NPU = ("--npu", "tpu-v1:sim")


def test_help_lists_every_command(npulse: Any) -> None:
    ended = npulse("--help")
    assert ended.status == 0
    for command in (*app.registered_commands, *app.registered_groups):
        assert re.search(rf"(?m)^  {command.name} +[A-Z]", ended.out)
        assert npulse(command.name, "--help").status == 0
    assert npulse() == ended


def test_commands_of_the_readme_exist() -> None:
    names = {command.name for command in (*app.registered_commands, *app.registered_groups)}
    shells = re.findall(r"(?s)```sh\n(.*?)```", (ROOT / "README.md").read_text())
    used = re.findall(r"(?:^|&& )npulse (\w+)", "\n".join(shells), re.MULTILINE)
    assert len(used) >= 6 and set(used) <= names


def test_flavours_as_text_and_as_json(npulse: Any) -> None:
    ended = npulse("flavours", "--json", "-")
    rows = json.loads(ended.out)
    assert [row["name"] for row in rows] == ["tpu-v1:sim", "tpu-v1:fpga", "tpu-v1:silicon"]
    assert rows[0]["array"] == [8, 8]
    assert "tpu-v1:silicon  256 x 256" in npulse("flavours").out


def test_parameters_of_one_flavour(npulse: Any) -> None:
    ended = npulse("flavours", "tpu-v1:sim", "--set", "array.rows=12", "--json", "f.json")
    assert re.search(r"(?m)^ *array\.rows +12 *$", ended.out)
    assert json.loads(Path("f.json").read_text())["parameters"]["array"]["rows"] == 12


def test_compile_writes_an_image_named_after_the_model(npulse: Any) -> None:
    ended = npulse("compile", "digits", *NPU, "--json", "c.json")
    assert ended.status == 0
    assert sorted(path.name for path in Path().iterdir()) == ["c.json", "digits.npulse"]
    report = json.loads(Path("c.json").read_text())
    executable = image.load(Path("digits.npulse"))
    assert report["image"] == "digits.npulse"
    assert report["compiled"]["instructions"] == executable.summary.instructions
    assert f"written: digits.npulse ({Path('digits.npulse').stat().st_size:,} bytes)" in ended.out


def test_an_image_comes_out_the_same_twice(npulse: Any) -> None:
    for name in ("a.npulse", "b.npulse"):
        assert npulse("compile", "digits", *NPU, "-o", name).status == 0
    assert Path("a.npulse").read_bytes() == Path("b.npulse").read_bytes()


def test_disassembly_assembles_to_the_program(npulse: Any) -> None:
    npulse("compile", "digits", *NPU, "-o", "d.npulse")
    text = npulse("disasm", "d.npulse").out
    assert ISA.assemble(text) == image.load(Path("d.npulse")).program


def test_explain_names_every_operator_and_its_rule(npulse: Any) -> None:
    ended = npulse("explain", "digits", *NPU, "--json", "-")
    placements = json.loads(ended.out)["operators"]
    assert {p["placed"] for p in placements if p["node"] in ("conv1", "conv2")} >= {"npu"}
    assert not any(p["fallback"] for p in placements)
    assert all(p["rule"] for p in placements)
    lines = npulse("explain", "digits", *NPU).out
    assert all(placement["rule"] in " ".join(lines.split()) for placement in placements)


def test_verilog_has_the_module_and_its_parameters(npulse: Any) -> None:
    small = ("--set", "array.rows=2", "--set", "array.cols=2")
    ended = npulse("verilog", *NPU, *small, "-o", "v")
    assert ended.status == 0
    assert sorted(path.name for path in Path("v").iterdir()) == [
        "tpu_v1_sim.json",
        "tpu_v1_sim.v",
    ]
    metadata = json.loads(Path("v/tpu_v1_sim.json").read_text())
    assert metadata["parameters"]["array"]["rows"] == 2
    assert "module tpu_v1_sim(" in Path("v/tpu_v1_sim.v").read_text()
    names = {port["name"] for port in metadata["ports"]}
    assert {"clk", "rst", "csr__awaddr", "host__wdata", "weights__rdata", "interrupt"} <= names


def test_digits_at_rtl_equal_golden_and_fit_one_screen(npulse: Any) -> None:
    small = ("--set", "array.rows=4", "--set", "array.cols=4")  # a quarter of the Verilog
    fast = ("--engine", "compiled", "--images", "4")
    ended = npulse("run", "digits", *NPU, *small, *fast, "--check", "--keep", "out")
    assert ended.status == 0, ended.err
    lines = ended.out.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    assert "output == golden: yes, 80 of 80 values" in lines
    assert "  label 7, says 7    label 2, says 2    label 4, says 4    label 6, says 6" in lines
    report = json.loads(Path("out/report.json").read_text())
    files = {"digits_int8.npulse", "tpu_v1_sim.v", "tpu_v1_sim.json", "report.json"}
    assert {path.name for path in Path("out").iterdir()} == files
    assert {Path(name).name for name in report["files"]} == files
    assert report["check"] == {"equal": True, "values": 80, "wrong": 0, "differences": []}
    assert sum(report["breakdown"].values()) == report["counters"]["cycles"]
    assert report["macs"] == 4 * report["compiled"]["macs"]
    accuracy = report["accuracy"]
    assert accuracy["float32"] >= 0.97 * accuracy["images"]
    assert accuracy["int8"] >= accuracy["float32"] - 0.01 * accuracy["images"]
    assert image.load(Path("out/digits_int8.npulse")).npu.name == "tpu-v1:sim"


def test_an_image_on_one_engine_gives_what_the_model_gives_on_the_other(npulse: Any) -> None:
    x, _ = models.test_set()
    np.savez("x.npz", image=x[5:6])
    np.save("x.npy", x[5:6])
    npulse("compile", "digits", *NPU, "-o", "d.npulse")
    as_model = ("run", "digits", *NPU, "--input", "x.npz", "--engine", "pysim")
    as_image = ("run", "d.npulse", "--input", "x.npy", "--engine", "compiled")
    model = npulse(*as_model, "--check", "--output", "y.npz", "--json", "m.json")
    saved = npulse(*as_image, "--check", "--json", "r.json")
    assert (model.status, saved.status) == (0, 0), model.err + saved.err
    with np.load("y.npz") as outputs:
        logits = outputs["logits"]
    reports = [json.loads(Path(name).read_text()) for name in ("m.json", "r.json")]
    inline = reports[1]["outputs"]["logits"]
    assert (inline["dtype"], inline["shape"]) == ("float32", [1, 10])
    assert np.array_equal(logits, np.array(inline["data"], np.float32).reshape(1, 10))
    assert reports[0]["counters"] == reports[1]["counters"]


def test_an_image_runs_behind_another_memory(npulse: Any) -> None:
    npulse("compile", "digits", *NPU, "-o", "d.npulse")
    run = ("run", "d.npulse", "--engine", "compiled", "--images", "1", "--check", "--json", "-")
    near = json.loads(npulse(*run).out)
    far = json.loads(npulse(*run, "--set", "dram.latency_cycles=100").out)
    assert near["check"]["equal"]
    assert far["check"]["equal"]
    assert far["counters"]["cycles"] > near["counters"]["cycles"]
    assert far["counters"]["busy"] == near["counters"]["busy"]


def test_a_difference_from_golden_is_said_and_is_status_1(npulse: Any) -> None:
    npulse("compile", "digits", *NPU, "-o", "d.npulse")
    executable = image.load(Path("d.npulse"))
    weights = bytes([executable.weight_image[0] ^ 0x40]) + executable.weight_image[1:]
    image.save(replace(executable, weight_image=weights), Path("d.npulse"))
    run = ("run", "d.npulse", "--engine", "compiled", "--images", "1", "--check")
    ended = npulse(*run, "--json", "r.json")
    assert ended.status == 1
    assert re.search(r"(?m)^output == golden: no, \d+ of 20 values$", ended.out)
    assert re.search(
        r"(?m)^  logits_int8 differs from golden in \d+ of 10 values, first at ", ended.out
    )
    check = json.loads(Path("r.json").read_text())["check"]
    assert not check["equal"]
    assert check["wrong"] > 0
    assert len(check["differences"]) == 2


def test_two_images_are_stacked(npulse: Any) -> None:
    ended = npulse(
        "run", "digits", *NPU, "--engine", "compiled", "--images", "2", "--output", "y.npy"
    )
    assert "output == golden: not checked; add --check" in ended.out
    assert np.load("y.npy").shape == (2, 1, 10)
