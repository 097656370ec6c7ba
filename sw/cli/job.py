"""What ``npulse run`` is to run: the executable and its inputs, read before anything runs."""

from dataclasses import dataclass, replace
from pathlib import Path

from npulse.hw.spec.flavours import Npu
from npulse.sw import image
from npulse.sw.cli import digits
from npulse.sw.cli.arrays import Arrays, bind, random_inputs, read_arrays
from npulse.sw.cli.options import compiled, find_npu, model_path
from npulse.sw.errors import UserError
from npulse.sw.targets.executable import Executable

__all__ = ["Job", "read_job"]

#: Seed of the inputs that are made up when there are none.
_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to run."""

    executable: Executable
    inputs: list[Arrays]  #: One set a run.
    origin: str  #: Where the inputs came from.
    is_digits: bool  #: The inputs are bundled test images.


def read_job(
    model: str,
    npu_name: str | None,
    overrides: list[str] | None,
    input_file: Path | None,
    images: int,
) -> Job:
    """Read everything that the command names.

    Parameters
    ----------
    images : int
        Test images to take if the model is the bundled one and there is no input file.
    """
    arrays = None if input_file is None else read_arrays(input_file)
    executable = _executable(model, npu_name, overrides, arrays)
    is_digits = arrays is None and digits.is_bundled(executable)
    if arrays is not None and input_file is not None:
        inputs, origin = [bind(arrays, executable.inputs, input_file)], f"inputs of {input_file}"
    elif is_digits:
        pictures, _ = digits.images(images)
        name = executable.inputs[0].name
        inputs = [{name: picture[None]} for picture in pictures]
        origin = f"bundled test images: {len(inputs)}"
    else:
        inputs = [random_inputs(executable.inputs, _SEED)]
        origin = f"random inputs, seed {_SEED}"
    return Job(executable=executable, inputs=inputs, origin=origin, is_digits=is_digits)


def _executable(
    model: str, npu_name: str | None, overrides: list[str] | None, arrays: Arrays | None
) -> Executable:
    """Executable of an image, or of a model that is compiled now."""
    path = model_path(model)
    if image.is_image(path):
        return _image(path, npu_name, overrides)
    if npu_name is None:
        raise UserError(f"{model}: a model needs --npu, for example --npu tpu-v1:sim")
    npu = find_npu(npu_name, overrides)
    given = {name: array.shape for name, array in (arrays or {}).items()}
    loaded, executable = compiled(model, npu, shapes=given)
    names = [info.name for info in loaded.inputs]
    if arrays and not set(given) & set(names) and len(given) == len(names):
        # Arrays in the order of the model decide dynamic dimensions too, once the names are known.
        shapes = dict(zip(names, given.values(), strict=True))
        if any(info.shape != shapes[info.name] for info in loaded.inputs):
            _, executable = compiled(model, npu, shapes=shapes)
    return executable


def _image(path: Path, npu_name: str | None, overrides: list[str] | None) -> Executable:
    """Executable of an image, refused if it is for another core than the one that is named.

    The memory behind the core is no part of it, so ``--set dram.latency_cycles=50`` is welcome.
    """
    executable = image.load(path)
    if npu_name is None and overrides is None:
        return executable
    npu: Npu = find_npu(npu_name or executable.npu.name, overrides)
    if npu.config.digest != executable.npu.config.digest:
        raise UserError(
            f"{path} was made for {_named(executable.npu)}, not {_named(npu)}; leave --npu and "
            f"--set out, or compile the model for {_named(npu)}"
        )
    return replace(executable, npu=npu)


def _named(npu: Npu) -> str:
    return " ".join((npu.name, *(f"--set {override}" for override in npu.overrides)))
