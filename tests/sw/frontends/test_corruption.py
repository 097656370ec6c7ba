"""Damaged files: whatever is cut or flipped, the importers end well or raise `UserError`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.sw.errors import UserError
from npulse.sw.frontends.load import load_model


def survives(content: bytes, folder: Path) -> bool:
    """Load; tell whether the file was accepted. Anything but `UserError` fails the test."""
    path = folder / "damaged"
    path.write_bytes(content)
    try:
        load_model(path)
    except UserError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)
        return False
    return True


def tflite_bytes(b: Any) -> bytes:
    x = b.tensor("x", (1, 4, 4, 2), 0.5, 3)
    w = b.tensor("w", (3, 2, 2, 2), [0.5, 0.25, 1], 0, np.ones((3, 2, 2, 2), np.int8))
    y = b.tensor("y", (1, 2, 2, 3), 0.5)
    options = schema.Conv2DOptionsT()
    options.strideH = options.strideW = 2
    b.op("CONV_2D", [x, w, -1], [y], options)
    z = b.tensor("z", (1, 12), 0.5)
    b.op("RESHAPE", [y], [z], schema.ReshapeOptionsT())
    return b.build([x], [z])


def onnx_bytes(b: Any) -> bytes:
    x = b.qdq(b.input("x", ("N", 2, 4, 4)), "xq", 0.5, 3, np.uint8)
    w = b.weight("w", np.ones((3, 2, 2, 2), np.int8), [0.5, 0.25, 1])
    y = b.node("Conv", [x, w], "conv", strides=[2, 2])
    y = b.node("Relu", [y], "relu")
    y = b.node(
        "Reshape", [b.qdq(y, "q", 0.5, 0, np.uint8), b.constant("s", [1, -1], np.int64)], "y"
    )
    b.output(b.node("Softmax", [y], "z"))
    return b.build()


@pytest.fixture(params=["tflite", "onnx"])
def content(request: pytest.FixtureRequest, tflite_builder: Any, onnx_builder: Any) -> bytes:
    if request.param == "tflite":
        return tflite_bytes(tflite_builder)
    return onnx_bytes(onnx_builder)


def test_whole_file_is_accepted(content: bytes, tmp_path: Path) -> None:
    assert survives(content, tmp_path)


def test_every_truncation_ends_well(content: bytes, tmp_path: Path) -> None:
    accepted = [survives(content[:length], tmp_path) for length in range(0, len(content), 7)]
    assert sum(accepted) <= len(accepted) // 4


def test_byte_changes_all_over_the_file_end_well(content: bytes, tmp_path: Path) -> None:
    for index, position in enumerate(range(0, len(content), 5)):
        damaged = bytearray(content)
        damaged[position] = (0x00, 0x7F, 0xFF)[index % 3]
        survives(bytes(damaged), tmp_path)


def test_random_damage_ends_well(content: bytes, tmp_path: Path) -> None:
    @settings(max_examples=60)
    @given(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=8))
    def check(changes: list[tuple[int, int]]) -> None:
        damaged = bytearray(content)
        for position, value in changes:
            damaged[position] ^= value
        survives(bytes(damaged), tmp_path)

    check()
