from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from npulse.sw.frontends.load import load_model
from npulse.sw.interpret import interpret


def test_hello_world_equals_litert_on_all_256_inputs(
    shared_dir: Path, litert: Callable[..., Any]
) -> None:
    path = shared_dir / "models" / "tflite_micro" / "hello_world_int8.tflite"
    model = load_model(path)
    codes = np.arange(-128, 128).astype(np.int8).reshape(256, 1, 1)
    name, out = model.inputs[0].name, model.outputs[0].name
    golden = np.stack([interpret(model, {name: code})[out] for code in codes])
    reference = np.stack([arrays[0] for arrays in litert(path, [[code] for code in codes])])
    assert np.array_equal(golden, reference)
    assert len(np.unique(golden)) > 100
