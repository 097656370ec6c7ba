"""Streams in a cocotb bench: ports ``<name>__payload``, ``<name>__valid``, ``<name>__ready``.

A bench writes in the falling half of the clock and looks right before the rising edge; so what it
sees is what the registers see.
"""

import random
from collections.abc import Sequence
from typing import Any

from cocotb.triggers import FallingEdge, RisingEdge

__all__ = ["reset", "stream_get", "stream_put"]


async def reset(dut: Any, **inputs: int) -> None:
    """Hold reset for two cycles with the inputs at given values."""
    for name, value in inputs.items():
        getattr(dut, name).value = value
    await FallingEdge(dut.clk)
    dut.rst.value = 1
    for _ in range(2):
        await FallingEdge(dut.clk)
    dut.rst.value = 0


async def stream_put(dut: Any, name: str, values: Sequence[int], idle: float = 0) -> None:
    """Send values; before each, wait a cycle with probability `idle`, again and again."""
    payload, valid, ready = (getattr(dut, f"{name}__{s}") for s in ("payload", "valid", "ready"))
    await FallingEdge(dut.clk)
    for value in values:
        while random.random() < idle:
            payload.value = random.getrandbits(len(payload))
            await FallingEdge(dut.clk)
        payload.value, valid.value = value, 1
        taken = False
        while not taken:
            await RisingEdge(dut.clk)
            taken = ready.value == 1
            await FallingEdge(dut.clk)
        valid.value = 0


async def stream_get(dut: Any, name: str, count: int, idle: float = 0) -> list[int]:
    """Receive values, refusing in a share `idle` of the cycles; a refused value must stay."""
    payload, valid, ready = (getattr(dut, f"{name}__{s}") for s in ("payload", "valid", "ready"))
    values: list[int] = []
    held: int | None = None
    while len(values) < count:
        await FallingEdge(dut.clk)
        takes = random.random() >= idle
        ready.value = takes
        await RisingEdge(dut.clk)
        offered = int(payload.value) if valid.value == 1 else None
        assert held is None or offered == held, f"{name} must hold {held:#x}, not {offered!r}"
        held = None if takes else offered
        if takes and offered is not None:
            values.append(offered)
    await FallingEdge(dut.clk)
    ready.value = 0
    return values
