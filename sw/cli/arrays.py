"""Arrays from and to files: the inputs that a user gives, and the outputs of a run."""

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.sw.errors import UserError, shorten
from npulse.sw.files import write_whole
from npulse.sw.frontends.model import TensorInfo

__all__ = ["bind", "npz_bytes", "random_inputs", "read_arrays", "write_outputs"]

Arrays = dict[str, NDArray[Any]]


def read_arrays(path: Path) -> Arrays:
    """Arrays of an .npz file by name, or the one of an .npy file under the name ``""``.

    Raises
    ------
    UserError
        The file is missing, damaged, or holds Python objects.
    """
    remedy = "save the arrays with numpy.savez"
    try:
        content = path.read_bytes()
        if not content.startswith((b"\x93NUMPY", b"PK")):
            raise UserError(f"{path} is neither .npz nor .npy; {remedy}")
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; give an .npz or .npy file") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give an .npz or .npy file") from None
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        text = shorten(" ".join(str(error).split()))
        raise UserError(f"{path} is no whole .npz or .npy file ({text}); {remedy}") from None


def bind(arrays: Arrays, infos: Sequence[TensorInfo], path: Path) -> Arrays:
    """Give each input of a model its array, by name or else in the order of the model.

    The state of a stateful model may be left out: it then begins with its first contents.

    Raises
    ------
    UserError
        Too few or too many arrays, or one of another shape or dtype than its input.
    """
    infos = [info for info in infos if info.initial is None or info.name in arrays]
    names = [info.name for info in infos]
    if set(arrays) != set(names):
        known = sorted(set(arrays) & set(names))
        if len(arrays) != len(names) or known:
            given = ", ".join(name or "one without a name" for name in arrays) or "none"
            raise UserError(
                f"{path}: arrays must be those of the inputs {', '.join(names)}, or as many in "
                f"their order, not {shorten(given)}; save them with numpy.savez"
            )
        arrays = dict(zip(names, arrays.values(), strict=True))
    for info in infos:
        problem = info.check(arrays[info.name])
        if problem is not None:
            raise UserError(f"{path}: {problem}; give an array of this shape and dtype")
    return {name: arrays[name] for name in names}


def random_inputs(infos: Sequence[TensorInfo], seed: int) -> Arrays:
    """Arrays for all inputs: integers over their whole range, real numbers standard normal.

    A state is left out, so that it begins with its first contents.
    """
    rng = np.random.default_rng(seed)
    arrays: Arrays = {}
    for info in infos:
        if info.initial is not None:
            continue
        if info.dtype.kind in "iu":
            limits = np.iinfo(info.dtype)
            values = rng.integers(limits.min, limits.max, info.shape, info.dtype, endpoint=True)
        elif info.dtype.kind == "b":
            values = rng.integers(0, 2, info.shape).astype(info.dtype)
        else:
            values = rng.standard_normal(info.shape).astype(info.dtype)
        arrays[info.name] = np.asarray(values)
    return arrays


def npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Contents of an .npz file; unlike numpy's own writer it takes any name, and no time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue())
    return buffer.getvalue()


def write_outputs(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write outputs into an .npz file, or into an .npy file if there is one output."""
    if path.suffix == ".npy":
        if len(arrays) != 1:
            raise UserError(
                f"{path}: an .npy file must hold 1 output, not {len(arrays)}; name an .npz file"
            )
        content = io.BytesIO()
        np.lib.format.write_array(content, next(iter(arrays.values())), allow_pickle=False)
        write_whole(path, content.getvalue())
        return
    write_whole(path, npz_bytes(arrays))
