"""The ``.npulse`` image: a compiled model in one file, which proves itself whole when it is read.

An image is a safetensors file. Its tensors are `program` and `weight_image`, uint8, and
``host.<name>`` for each array that host segments and the golden run name. Its one metadata entry
`npulse` is the manifest as JSON: the format version, the NPU with all parameters and their digest,
the fields of `Executable`, type, shape and SHA-256 of every tensor, and `file_sha256`. The last is
the SHA-256 of the whole file with its own 64 digits as zeros, so no byte of the file can change
unnoticed.

Ref: safetensors format, https://github.com/huggingface/safetensors (8 bytes length of the header,
little endian; the header as JSON; the tensors).
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, get_type_hints

import ml_dtypes  # noqa: F401 - makes bfloat16 known to numpy by its name
import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors import numpy as safetensors_numpy

from npulse.hw.spec.flavours import Npu, resolve
from npulse.sw.errors import UserError
from npulse.sw.files import write_whole
from npulse.sw.manifest import decode, encode
from npulse.sw.targets.executable import Executable

__all__ = ["FORMAT", "dumps", "is_image", "load", "loads", "read_manifest", "save"]

#: Version of the manifest; one npulse reads one version.
FORMAT = 1

#: The seal as the header has it: JSON inside a JSON string.
_SEAL = re.compile(rb'\\"file_sha256\\": \\"([0-9a-f]{64})\\"')
_HOST = "host."
#: Fields of `Executable` that are not in the manifest under their own names.
_APART = ("npu", "program", "weight_image", "weights")

Tensors = dict[str, NDArray[Any]]


def dumps(executable: Executable) -> bytes:
    """Write an image into bytes; the same executable gives the same bytes."""
    tensors: Tensors = {
        "program": np.frombuffer(executable.program, np.uint8),
        "weight_image": np.frombuffer(executable.weight_image, np.uint8),
        **{_HOST + name: np.asarray(a, order="C") for name, a in executable.weights.items()},
    }
    manifest = json.dumps(_manifest(executable, tensors), sort_keys=True)
    content = safetensors_numpy.save(tensors, {"npulse": manifest})
    seal = sha256(content).hexdigest().encode()
    start, end = _seal_span(content)
    return content[:start] + seal + content[end:]


def save(executable: Executable, path: Path) -> None:
    """Write an image; it appears whole or not at all.

    Raises
    ------
    UserError
        The file cannot be written.
    """
    write_whole(path, dumps(executable))


def _manifest(executable: Executable, tensors: Tensors) -> dict[str, Any]:
    npu = executable.npu
    return {
        "format": FORMAT,
        "file_sha256": "0" * 64,
        "npu": {
            "name": npu.name,
            "overrides": list(npu.overrides),
            "digest": npu.config.digest,
            "parameters": asdict(npu.config),
        },
        "tensors": {name: _describe(array) for name, array in tensors.items()},
        **{
            f.name: encode(getattr(executable, f.name))
            for f in fields(executable)
            if f.name not in _APART
        },
    }


def _describe(array: NDArray[Any]) -> dict[str, Any]:
    digest = sha256(array.tobytes()).hexdigest()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "sha256": digest}


def _header(content: bytes) -> bytes:
    """JSON header of a safetensors file, as far as it is there."""
    return content[8 : 8 + int.from_bytes(content[:8], "little")]


def _seal_span(content: bytes) -> tuple[int, int]:
    """Place of the digits of `file_sha256`; `ValueError` unless there is exactly one."""
    found = list(_SEAL.finditer(_header(content)))
    if len(found) != 1:
        raise ValueError(f"file_sha256 must occur once, not {len(found)} times")
    return 8 + found[0].start(1), 8 + found[0].end(1)


def is_image(path: Path) -> bool:
    """Tell from its first bytes whether a file sets out to be an image."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _starts_as_image(file.read(10))


def _starts_as_image(content: bytes) -> bool:
    return content[8:10] == b'{"' and int.from_bytes(content[:8], "little") < 1 << 48


def load(path: Path) -> Executable:
    """Read an image and prove it whole.

    Raises
    ------
    UserError
        No image, cut short, damaged, of another version, or made for parameters that its NPU does
        not have any more; one sentence that names the file.
    """
    return loads(_read(path), str(path))


def loads(content: bytes, source: str) -> Executable:
    """Read an image from the bytes of the file called `source`; errors as those of `load`."""
    manifest = _parse_manifest(content, source)
    try:
        return _executable(content, manifest, source)
    except (TypeError, ValueError, LookupError) as error:
        raise UserError(
            f"{source} has a manifest that this npulse cannot read ({type(error).__name__}: "
            f"{error}); make it again with npulse compile"
        ) from error


def _executable(content: bytes, manifest: Mapping[str, Any], source: str) -> Executable:
    npu = _npu(manifest["npu"], source)
    tensors = _tensors(content, manifest["tensors"], source)
    hints = get_type_hints(Executable)
    values = {
        f.name: decode(hints[f.name], manifest[f.name])
        for f in fields(Executable)
        if f.name not in _APART
    }
    return Executable(
        npu=npu,
        program=tensors.pop("program").tobytes(),
        weight_image=tensors.pop("weight_image").tobytes(),
        weights={name.removeprefix(_HOST): array for name, array in tensors.items()},
        **values,
    )


def read_manifest(path: Path) -> dict[str, Any]:
    """Manifest of an image whose whole content has been checked; errors as those of `load`."""
    return _parse_manifest(_read(path), str(path))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; check the path") from None


def _parse_manifest(content: bytes, source: str) -> dict[str, Any]:
    """Manifest after every byte was checked, of this version."""
    remedy = "make it again with npulse compile"
    if not _starts_as_image(content):
        raise UserError(f"{source} is not an npulse image; {remedy}")
    due = 8 + int.from_bytes(content[:8], "little")
    if len(content) < due:
        raise UserError(
            f"{source} is cut short in its header: {len(content)} of at least {due} bytes; {remedy}"
        )
    try:
        start, end = _seal_span(content)
    except ValueError:
        raise UserError(
            f"{source} is not an npulse image, or its header is damaged; {remedy}"
        ) from None
    bare = content[:start] + b"0" * 64 + content[end:]
    if sha256(bare).hexdigest().encode() != content[start:end]:
        raise UserError(
            f"{source} is damaged or cut short: its {len(content)} bytes do not have the SHA-256 "
            f"that it states; {remedy}"
        )
    manifest = json.loads(json.loads(_header(content))["__metadata__"]["npulse"])
    if manifest["format"] != FORMAT:
        raise UserError(
            f"{source} has image format {manifest['format']}, but this npulse reads {FORMAT}; "
            f"{remedy}"
        )
    return manifest


def _npu(stated: Mapping[str, Any], source: str) -> Npu:
    """NPU that an image was made for, if it still is what it was."""
    try:
        npu = resolve(stated["name"], stated["overrides"])
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{source} was made for {stated['name']}, which this npulse refuses ({error}); "
            "compile the model again"
        ) from None
    if npu.config.digest != stated["digest"]:
        raise UserError(
            f"{source} was made for {npu.name} with parameters of digest {stated['digest']:08x}, "
            f"but those of this npulse have {npu.config.digest:08x}; compile the model again"
        )
    return npu


def _tensors(content: bytes, stated: Mapping[str, Any], source: str) -> Tensors:
    """Arrays of an image, each checked against its entry in the manifest."""
    read: Callable[[bytes], Any] = safetensors.deserialize
    raw = {name: entry for name, entry in read(content)}
    tensors: Tensors = {}
    for name, entry in stated.items():
        array = np.frombuffer(raw[name]["data"], np.dtype(entry["dtype"])).reshape(entry["shape"])
        if _describe(array)["sha256"] != entry["sha256"]:
            raise UserError(
                f"{source} is damaged: tensor {name} does not have the SHA-256 that the manifest "
                "states; make it again with npulse compile"
            )
        tensors[name] = array
    return tensors
