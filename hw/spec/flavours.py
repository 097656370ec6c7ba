"""Names of NPUs: a flavour, a size, and overrides of single parameters.

A new family adds one line to `FLAVOURS`, and nothing else outside its own packages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from npulse.hw.spec import tpu_v1

__all__ = ["FLAVOURS", "Flavour", "Npu", "resolve"]

Config = tpu_v1.TpuV1Config


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """A style of NPU under its public name."""

    family: str  #: Package under `hw.cores` and `sw.targets`.
    summary: str  #: One line for people.
    presets: dict[str, Config]  #: By size: sim, fpga, silicon.


FLAVOURS: dict[str, Flavour] = {
    "tpu-v1": Flavour(
        family="tpu_v1",
        summary="CISC instructions, weight-stationary int8 array, four overlapped units",
        presets=tpu_v1.PRESETS,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Npu:
    """One NPU: what it is called, and every parameter of it."""

    name: str  #: As the user wrote it, with its size: ``tpu-v1:sim``.
    flavour: str
    size: str
    overrides: tuple[str, ...]
    config: Config

    @property
    def family(self) -> str:
        """Package of the core and of the compiler's target."""
        return FLAVOURS[self.flavour].family


def resolve(name: str, overrides: Sequence[str] = ()) -> Npu:
    """Find the NPU called ``flavour[:size]`` (size `silicon` unless given) with overrides.

    Parameters
    ----------
    name : str
        For example ``tpu-v1:fpga``.
    overrides : sequence of str
        Each ``parameter=value`` with a dotted parameter, for example ``array.rows=32``.

    Raises
    ------
    ValueError
        Unknown flavour, size or parameter, or an illegal value; one sentence.
    """
    flavour, _, size = name.partition(":")
    size = size or "silicon"
    if flavour not in FLAVOURS:
        raise ValueError(f"flavour must be one of {', '.join(FLAVOURS)}, not {flavour!r}")
    presets = FLAVOURS[flavour].presets
    if size not in presets:
        raise ValueError(f"size of {flavour} must be one of {', '.join(presets)}, not {size!r}")
    config = presets[size]
    for override in overrides:
        path, given, value = override.partition("=")
        if not given:
            raise ValueError(f"an override must be parameter=value, not {override!r}")
        config = _override(config, path.strip(), path.strip().split("."), value.strip())
    return Npu(
        name=f"{flavour}:{size}",
        flavour=flavour,
        size=size,
        overrides=tuple(overrides),
        config=config,
    )


def _override(config: Any, path: str, parts: list[str], value: str) -> Any:
    """Copy of a dataclass with the parameter at `parts` replaced, all checks run again."""
    names = [f.name for f in fields(config)]
    if parts[0] not in names:
        raise ValueError(f"parameter {path!r} must start with one of {', '.join(names)}")
    inner = getattr(config, parts[0])
    if is_dataclass(inner):
        if len(parts) == 1:
            inside = ", ".join(f"{path}.{f.name}" for f in fields(inner))
            raise ValueError(f"parameter {path!r} must be one of {inside}")
        return replace(config, **{parts[0]: _override(inner, path, parts[1:], value)})
    if len(parts) > 1:
        raise ValueError(f"parameter {path!r} must end at {parts[0]}, which has no parts")
    try:
        number = int(value, 0)
    except ValueError:
        raise ValueError(f"parameter {path} must be an integer, not {value!r}") from None
    return replace(config, **{parts[0]: number})
