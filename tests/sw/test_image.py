"""The image file: the same executable comes back, and no damaged byte goes unnoticed."""

import json
import re
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npulse.hw.spec.flavours import resolve
from npulse.sw import image
from npulse.sw.errors import UserError
from npulse.sw.frontends.model import TensorInfo
from npulse.sw.ir.types import QuantAttr
from npulse.sw.targets.executable import (
    DramMap,
    DramRange,
    Executable,
    HostSegment,
    Layer,
    NpuSegment,
    Placement,
    Summary,
    TensorBinding,
)


def example() -> Executable:
    """Every kind of field with distinct values; no program that a core would run."""
    binding = TensorBinding(
        value="x", shape=(2, 2, 3), array_shape=(1, 2, 2, 3), address=256, length_bytes=32
    )
    quant = QuantAttr.of([0.1, 0.25], [0, -3], axis=3)
    return Executable(
        npu=resolve("tpu-v1:sim", ["array.rows=4"]),
        segments=(
            HostSegment(name="h", module="builtin.module {}", inputs=("a",), outputs=("x",)),
            NpuSegment(name="n", program_address=0, instructions=2, inputs=(binding,), outputs=()),
        ),
        inputs=(TensorInfo("a", (1, 4), np.dtype(np.float32), None, "other"),),
        outputs=(TensorInfo("é", (1, 2, 2, 3), np.dtype(np.int8), quant, "NHWC"),),
        input_values=("a",),
        output_values=("x",),
        memory=DramMap(
            program=DramRange(name="program", address=0, length_bytes=64),
            weights=DramRange(name="weights", address=64, length_bytes=100),
            parameters=DramRange(name="parameters", address=164, length_bytes=28),
            tensors=(DramRange(name="x", address=256, length_bytes=32),),
            total_bytes=288,
        ),
        program=bytes(range(64)),
        weight_image=bytes(128),
        reasons=(
            Placement(
                node="conv",
                op="Conv",
                placed="host",
                rule="groups",
                attribute="groups = 2",
                remedy="use 1 group",
                fallback=True,
                estimated_cycles=0,
            ),
        ),
        summary=Summary(
            layers=(
                Layer(
                    node="fc",
                    op="graph.fully_connected",
                    macs=12,
                    instructions=2,
                    tiles=1,
                    tile_reads=1,
                    estimated_cycles=9,
                ),
            ),
            instructions=2,
            weight_bytes=128,
            sram_peak_rows=7,
            sram_lower_bound_rows=6,
            sram_capacity_rows=3072,
            row_bytes=8,
            macs=12,
            estimated_cycles=9,
        ),
        graph="builtin.module {}",
        weights={
            "w": np.arange(6, dtype=np.int8).reshape(2, 3),
            "scalar": np.array(2.5, np.float32),
            "none": np.zeros((0, 4), np.int64),
            "bf16": np.array([1.5, -2], ml_dtypes.bfloat16),
            'odd "file_sha256": name': np.array([True]),
        },
        source="model.onnx",
        origin="onnx",
        sha256="0f" * 32,
        notes=("batch of 1 chosen",),
    )


CONTENT = image.dumps(example())


def same(a: Executable, b: Executable) -> bool:
    """Compare all fields, arrays by type and content."""
    if set(a.weights) != set(b.weights):
        return False
    arrays = [(a.weights[name], b.weights[name]) for name in a.weights]
    plain = [f.name for f in fields(Executable) if f.name != "weights"]
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in arrays) and all(
        getattr(a, name) == getattr(b, name) for name in plain
    )


def refused(content: bytes, message: str) -> None:
    """Check the whole message of an image called m.npulse."""
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        image.loads(content, "m.npulse")


def resealed(change: Any) -> bytes:
    """Image whose manifest was changed by someone who can seal it."""
    original = CONTENT
    size = int.from_bytes(original[:8], "little")
    header = json.loads(original[8 : 8 + size])
    manifest = json.loads(header["__metadata__"]["npulse"])
    change(manifest)
    manifest["file_sha256"] = "0" * 64
    header["__metadata__"]["npulse"] = json.dumps(manifest, sort_keys=True)
    text = json.dumps(header, separators=(",", ":")).encode()
    content = len(text).to_bytes(8, "little") + text + original[8 + size :]
    start = content.index(b'file_sha256\\\\": \\\\"'.replace(b"\\\\", b"\\")) + 17
    assert content[start : start + 64] == b"0" * 64
    seal = sha256(content).hexdigest().encode()
    return content[:start] + seal + content[start + 64 :]


def test_an_executable_comes_back_whole(tmp_path: Path) -> None:
    image.save(example(), tmp_path / "m.npulse")
    assert same(image.load(tmp_path / "m.npulse"), example())
    assert [path.name for path in tmp_path.iterdir()] == ["m.npulse"]


def test_the_same_executable_gives_the_same_bytes() -> None:
    assert image.dumps(example()) == CONTENT


def test_every_flipped_byte_of_header_and_ends_is_noticed() -> None:
    header_end = 8 + int.from_bytes(CONTENT[:8], "little")
    places = [*range(header_end + 4), *range(len(CONTENT) - 4, len(CONTENT))]
    for place in places:
        damaged = bytearray(CONTENT)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(UserError, match=r"^m\.npulse (is|has) [^\n]*; [^\n]*$"):
            image.loads(bytes(damaged), "m.npulse")


@given(st.integers(0, len(CONTENT) - 1), st.integers(1, 255))
def test_any_other_byte_anywhere_is_noticed(place: int, difference: int) -> None:
    damaged = bytearray(CONTENT)
    damaged[place] ^= difference
    with pytest.raises(UserError):
        image.loads(bytes(damaged), "m.npulse")


@given(st.integers(0, len(CONTENT) - 1))
def test_any_truncation_is_noticed(length: int) -> None:
    with pytest.raises(UserError, match=r"^m\.npulse is "):
        image.loads(CONTENT[:length], "m.npulse")


def test_bytes_behind_the_end_are_noticed() -> None:
    with pytest.raises(UserError, match=r"^m\.npulse is damaged "):
        image.loads(CONTENT + b"\0", "m.npulse")


@pytest.mark.parametrize("content", [b"", b"\x08\x00", b"PK\x03\x04" * 9, b"ONNX model" * 99])
def test_says_that_another_file_is_no_image(content: bytes) -> None:
    refused(content, "m.npulse is not an npulse image; make it again with npulse compile")


def test_says_that_another_safetensors_file_is_no_image() -> None:
    header = b'{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}'
    refused(
        len(header).to_bytes(8, "little") + header + b"\0",
        "m.npulse is not an npulse image, or its header is damaged; "
        "make it again with npulse compile",
    )


def test_says_how_much_of_a_cut_header_is_there() -> None:
    due = 8 + int.from_bytes(CONTENT[:8], "little")
    refused(
        CONTENT[:100],
        f"m.npulse is cut short in its header: 100 of at least {due} bytes; "
        "make it again with npulse compile",
    )


def test_says_that_a_flipped_byte_of_a_tensor_is_damage() -> None:
    damaged = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    refused(
        damaged,
        f"m.npulse is damaged or cut short: its {len(CONTENT)} bytes do not have the SHA-256 that "
        "it states; make it again with npulse compile",
    )


def test_resealing_alone_changes_nothing() -> None:
    assert same(image.loads(resealed(lambda manifest: None), "m.npulse"), example())


def test_names_another_version() -> None:
    refused(
        resealed(lambda manifest: manifest.update(format=9)),
        "m.npulse has image format 9, but this npulse reads 1; make it again with npulse compile",
    )


def test_names_parameters_that_are_not_those_of_its_npu() -> None:
    digest = example().npu.config.digest
    refused(
        resealed(lambda manifest: manifest["npu"].update(digest=1)),
        "m.npulse was made for tpu-v1:sim with parameters of digest 00000001, but those of this "
        f"npulse have {digest:08x}; compile the model again",
    )


def test_names_an_npu_that_is_not_known() -> None:
    refused(
        resealed(lambda manifest: manifest["npu"].update(name="tpu-v9:sim")),
        "m.npulse was made for tpu-v9:sim, which this npulse refuses (flavour must be one of "
        "tpu-v1, not 'tpu-v9'); compile the model again",
    )


def test_names_a_tensor_that_is_not_that_of_the_manifest() -> None:
    refused(
        resealed(lambda manifest: manifest["tensors"]["program"].update(sha256="0" * 64)),
        "m.npulse is damaged: tensor program does not have the SHA-256 that the manifest states; "
        "make it again with npulse compile",
    )


def test_refuses_a_manifest_of_another_shape() -> None:
    refused(
        resealed(lambda manifest: manifest.pop("summary")),
        "m.npulse has a manifest that this npulse cannot read (KeyError: 'summary'); "
        "make it again with npulse compile",
    )


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "m.npulse"
    message = (
        f"{path} cannot be written: there is no folder {path.parent}; make it, or name a file in "
        "a folder that exists"
    )
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        image.save(example(), path)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.npulse"
    path.mkdir()
    message = f"{path} cannot be written: Is a directory; give a file that is yours to write"
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        image.save(example(), path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.npulse"
    message = f"{path} cannot be read: No such file or directory; check the path"
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        image.load(path)


def test_an_old_image_is_kept_when_a_new_one_cannot_be_made(tmp_path: Path) -> None:
    path = tmp_path / "m.npulse"
    image.save(example(), path)
    before = path.read_bytes()
    broken = replace(example(), notes=(object(),))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        image.save(broken, path)
    assert path.read_bytes() == before
