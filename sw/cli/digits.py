"""What only the bundled example has: pictures, labels, and accuracy beside the float model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.sw import models
from npulse.sw.driver.runtime import Runtime
from npulse.sw.frontends.load import load_model
from npulse.sw.interpret import interpret
from npulse.sw.targets.executable import Executable

__all__ = ["Accuracy", "accuracy", "drawing", "images", "is_bundled"]

#: From white to black; each pixel is drawn twice, since letters are twice as high as wide.
_SHADES = " ░▒▓█"
#: Pictures that fit side by side in 80 columns.
_PER_ROW = 4


@dataclass(frozen=True)
class Accuracy:
    """Right predictions of both models on the bundled test set."""

    images: int
    int8: int
    float32: int


def is_bundled(executable: Executable) -> bool:
    """Tell whether an executable was compiled from the file of the bundled int8 model."""
    return executable.sha256 == sha256(models.path("digits").read_bytes()).hexdigest()


def images(count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """First `count` images (count, 1, 8, 8) of the test set, and their labels (count,)."""
    x, y = models.test_set()
    return x[:count], y[:count]


def accuracy(runtime: Runtime) -> Accuracy:
    """Run both models on every test image, by golden."""
    x, labels = models.test_set()
    real = load_model(models.path("digits_float"))
    name = runtime.executable.inputs[0].name
    right = {"int8": 0, "float32": 0}
    for image, label in zip(x, labels.tolist(), strict=True):
        feed = {name: image[None]}
        right["int8"] += _digit(runtime.golden(feed)) == label
        right["float32"] += _digit(interpret(real, feed)) == label
    return Accuracy(len(x), **right)


def _digit(outputs: dict[str, NDArray[Any]]) -> int:
    (logits,) = outputs.values()
    return int(logits.argmax())


def drawing(
    pictures: NDArray[np.float32],
    labels: Sequence[int],
    outputs: Sequence[dict[str, NDArray[Any]]],
) -> Iterator[str]:
    """Yield lines that show the first pictures side by side, and what the model says.

    Parameters
    ----------
    pictures : (N, 1, 8, 8) float32
        In 0 to 1.
    labels : N integers
    outputs : N mappings with the logits
    """
    shown = slice(0, _PER_ROW)
    rows = [_rows(picture[0]) for picture in pictures[shown]]
    for parts in zip(*rows, strict=True):
        yield "  " + "   ".join(parts)
    verdicts = [
        f"label {label}, says {(said := _digit(output))}{'' if said == label else ' !'}"
        for label, output in zip(labels[shown], outputs[shown], strict=True)
    ]
    yield "  " + "   ".join(f"{verdict:<16}" for verdict in verdicts).rstrip()
    rest = list(zip(labels, outputs, strict=True))[_PER_ROW:]
    if rest:
        right = sum(_digit(output) == label for label, output in rest)
        yield f"  and {right} of {len(rest)} more are right"


def _rows(picture: NDArray[np.float32]) -> list[str]:
    """Lines of one picture, (8, 8) in 0 to 1."""
    steps = np.rint(picture * (len(_SHADES) - 1)).astype(int)
    return ["".join(2 * _SHADES[step] for step in row) for row in steps]
