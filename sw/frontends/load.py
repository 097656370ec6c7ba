"""Loads a model file of any format that npulse reads, told apart by content."""

import hashlib
from pathlib import Path

from xdsl.utils.exceptions import VerifyException

from npulse.sw.errors import UserError
from npulse.sw.frontends.model import GivenShapes, Model


def load_model(path: str | Path, shapes: GivenShapes | None = None) -> Model:
    """Read a model and import it as a verified graph.

    Parameters
    ----------
    path
        ``.onnx`` or ``.tflite``; the suffix does not matter.
    shapes
        Shapes of the arrays that will be given, by input name. They decide dynamic dimensions and
        nothing else. Without them a dynamic batch is 1.

    Raises
    ------
    UserError
        One sentence that names the file, the node, the rule and the remedy.
    """
    name = str(path)
    content = _read(Path(path), name)
    digest = hashlib.sha256(content).hexdigest()
    if content[4:8] == b"TFL3":
        from npulse.sw.frontends.tflite import import_tflite

        model = import_tflite(content, name, digest)
    else:
        from npulse.sw.frontends.onnx_qdq import import_onnx

        model = import_onnx(content, name, digest, shapes or {})
    _verify(model)
    return model


def _read(path: Path, name: str) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{name}: no such file; check the path") from None
    except IsADirectoryError:
        raise UserError(f"{name} is a folder; give an .onnx or .tflite file") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{name} cannot be read: {error}; check the path and its rights") from None
    if not content:
        raise UserError(f"{name} is empty; give an .onnx or .tflite file")
    return content


def _verify(model: Model) -> None:
    """Verify; the second pass finds the operator, whose own message is one sentence."""
    try:
        try:
            model.module.verify()
        except VerifyException:
            for op in model.main.body.block.ops:
                op.verify_()
            raise
    except VerifyException as error:
        raise UserError(f"{model.source}: {error}; convert or quantise the model again") from error
