"""Compiles a model for an NPU: the one entry of the compiler."""

from importlib import import_module

from npulse.hw.spec.flavours import Npu
from npulse.sw.frontends.model import Model
from npulse.sw.targets.executable import (
    DramMap,
    DramRange,
    Executable,
    HostSegment,
    Layer,
    NpuSegment,
    Placement,
    Summary,
    TensorBinding,
)

__all__ = [
    "DramMap",
    "DramRange",
    "Executable",
    "HostSegment",
    "Layer",
    "NpuSegment",
    "Placement",
    "Summary",
    "TensorBinding",
    "compile_model",
]


def compile_model(model: Model, npu: Npu, *, strict: bool = False) -> Executable:
    """Compile a model with the target of the NPU's family.

    Parameters
    ----------
    strict : bool
        Refuse a model of which an operator falls back to the host.

    Raises
    ------
    UserError
        The model cannot be compiled, or `strict` and an operator falls back; one sentence.
    """
    target = import_module(f"npulse.sw.targets.{npu.family}.target")
    return target.compile_model(model, npu, strict=strict)
