"""Finds the core of a family."""

from importlib import import_module

from amaranth.lib import wiring

from npulse.hw.spec.flavours import Npu

__all__ = ["make_core"]


def make_core(npu: Npu) -> wiring.Component:
    """Make the core of an NPU: class ``TpuV1Core`` of ``npulse.hw.cores.tpu_v1.core`` for tpu_v1.

    Other families follow the same naming, so that a new one needs no line here.
    """
    module = import_module(f"npulse.hw.cores.{npu.family}.core")
    name = "".join(part.capitalize() for part in npu.family.split("_")) + "Core"
    return getattr(module, name)(npu.config)
