"""Engines by name: the one place where a device is chosen."""

from collections.abc import Callable

from npulse.hw.spec.flavours import Npu
from npulse.sw.driver.bulk import BulkDevice
from npulse.sw.driver.device import Device
from npulse.sw.driver.rtl import RtlDevice
from npulse.sw.errors import UserError

__all__ = ["DEFAULT_ENGINE", "ENGINES", "PYSIM_MACS", "check_engine", "open_device"]

#: Multiply-adds a cycle up to which pysim is offered: it builds every cell of the array, 32 x 32
#: of them in about 10 s, and then carries out a few dozen cycles a second.
PYSIM_MACS = 1024


def _pysim(npu: Npu, memory_bytes: int) -> Device:
    macs = npu.config.peak_macs_per_cycle
    if macs > PYSIM_MACS:
        raise UserError(
            f"multiply-adds a cycle of {npu.name} must be at most {PYSIM_MACS} for engine pysim, "
            f"which builds each cell, not {macs}; take a smaller size or --engine compiled"
        )
    return RtlDevice(npu, memory_bytes=memory_bytes, engine="pysim")


def _compiled(npu: Npu, memory_bytes: int) -> Device:
    return BulkDevice(npu, memory_bytes=memory_bytes)


#: For each engine a function of NPU and bytes of DRAM.
ENGINES: dict[str, Callable[[Npu, int], Device]] = {"pysim": _pysim, "compiled": _compiled}


#: What `npulse run` takes when none is named.
DEFAULT_ENGINE = "compiled"


def check_engine(engine: str) -> None:
    """Refuse an engine that is none of `ENGINES`."""
    if engine not in ENGINES:
        raise UserError(f"--engine must be one of {', '.join(ENGINES)}, not {engine!r}")


def open_device(npu: Npu, memory_bytes: int, engine: str = DEFAULT_ENGINE) -> Device:
    """Make a device with memory from byte address 0.

    Raises
    ------
    UserError
        `engine` is none of `ENGINES`, or cannot simulate an NPU of this size.
    """
    check_engine(engine)
    return ENGINES[engine](npu, memory_bytes)
