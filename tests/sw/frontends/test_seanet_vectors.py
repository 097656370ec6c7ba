"""Peers' vectors of one operator with int16 activations: those whose arithmetic golden has."""

from pathlib import Path

import numpy as np
import pytest

from npulse.sw.errors import UserError
from npulse.sw.frontends.load import load_model
from npulse.sw.interpret import interpret

#: Families whose operators move elements or change their scale, with the cases of the folder.
CASES = {"pad": 10, "strided_slice": 17, "quantize": 1}
#: Families of int16 arithmetic, which are refused in one sentence.
REFUSED = ("add", "conv", "leaky_relu", "sub", "transpose_conv")


def names(archive: np.lib.npyio.NpzFile) -> list[str]:
    return sorted({key.split("/")[0] for key in archive})


@pytest.mark.parametrize("family", CASES)
def test_golden_equals_every_case(family: str, shared_dir: Path) -> None:
    folder = shared_dir / "tflm_seanet_vectors"
    archive = np.load(folder / f"{family}.npz")
    assert len(names(archive)) >= CASES[family]
    for name in names(archive):
        model = load_model(folder / "tflite" / f"{name}.tflite")
        (given,), (made,) = model.inputs, model.outputs
        found = interpret(model, {given.name: archive[f"{name}/input0"].reshape(given.shape)})
        np.testing.assert_array_equal(found[made.name].ravel(), archive[f"{name}/golden"], name)


@pytest.mark.parametrize("family", REFUSED)
def test_int16_arithmetic_is_refused_by_its_tensor(family: str, shared_dir: Path) -> None:
    folder = shared_dir / "tflm_seanet_vectors"
    for name in names(np.load(folder / f"{family}.npz")):
        with pytest.raises(UserError, match="must be int8, not int16"):
            load_model(folder / "tflite" / f"{name}.tflite")
