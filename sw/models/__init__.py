"""Small models bundled with npulse: their files, and images to run and calibrate them.

`digits` reads one 8 by 8 picture of a handwritten digit: input `image` (1, 1, 8, 8) float32 in
0 to 1, output `logits` (1, 10) float32. scripts/make_digits.py made the files.

The images are from E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI 1998,
doi:10.24432/C50P49, licence CC BY 4.0; changed: scaled from 0 to 16 to 0 to 1, and shuffled.
"""

from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: File of each bundled model: `digits` is int8 in QDQ form, `digits_float` what it came from.
BUNDLED = {"digits": "digits_int8.onnx", "digits_float": "digits_float.onnx"}


def _file(file_name: str) -> Path:
    return Path(str(resources.files(__name__) / file_name))


def path(name: str) -> Path:
    """Find the ONNX file of a bundled model.

    Raises
    ------
    ValueError
        If no bundled model has this name.
    """
    if name not in BUNDLED:
        raise ValueError(f"name must be one of {', '.join(BUNDLED)}, not {name!r}")
    return _file(BUNDLED[name])


def test_set() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Load the images of `digits` that training left out.

    Returns
    -------
    x : (360, 1, 8, 8) float32
        Images in 0 to 1.
    y : (360,) int64
        The digit that each shows, 0 to 9.
    """
    with np.load(_file("digits_test.npz")) as arrays:
        return arrays["x"], arrays["y"]


def calibration_set() -> NDArray[np.float32]:
    """Load the training images (256, 1, 8, 8) of `digits` whose ranges set the int8 scales."""
    with np.load(_file("digits_calibration.npz")) as arrays:
        return arrays["x"]
