"""Engines by name: the one place where a device is chosen."""

from collections.abc import Callable

from npulse.hw.spec.flavours import Npu
from npulse.sw.driver.device import Device
from npulse.sw.driver.rtl import RtlDevice

__all__ = ["ENGINES", "open_device"]


def _pysim(npu: Npu, memory_bytes: int) -> Device:
    return RtlDevice(npu, memory_bytes=memory_bytes)


#: For each engine a function of NPU and bytes of DRAM.
ENGINES: dict[str, Callable[[Npu, int], Device]] = {"pysim": _pysim}


def open_device(npu: Npu, memory_bytes: int, engine: str = "pysim") -> Device:
    """Make a device with memory from byte address 0.

    Raises
    ------
    ValueError
        `engine` is none of `ENGINES`.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    return ENGINES[engine](npu, memory_bytes)
