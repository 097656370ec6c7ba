"""Benches of the DMA movers against a memory of cocotbext-axi, with random pauses everywhere.

Tests named ``reads...`` are for the read master, those named ``writes...`` for the write master.
"""

import logging
import random
from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np
from axi_device import pause_at_random
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, with_timeout
from cocotbext.axi import AxiRamRead, AxiRamWrite, AxiReadBus, AxiWriteBus
from streams import reset, stream_get, stream_put

from npulse.hw.dma.descriptor import TransferDescriptor

BEAT_BYTES = 8
MEMORY_BYTES = 1 << 16
LIMIT_NS = 2_000_000

Block = dict[str, int]


def random_blocks(count: int) -> list[Block]:
    """Descriptors of 1 to 60 beats in memory, some across 4 KiB, no beat twice."""
    blocks, free = [], 0
    for _ in range(count):
        beats, rows = random.randint(1, 20), random.randint(1, 3)
        stride = random.randint(beats, beats + 30)
        addr = free + random.randint(0, 40)
        free = addr + rows * stride
        rises = random.random() < 0.7
        first = addr if rises else addr + (rows - 1) * stride
        blocks.append(
            {
                "addr": first * BEAT_BYTES,
                "beats": beats,
                "rows": rows,
                "stride": (stride if rises else -stride) * BEAT_BYTES % 2**32,
            }
        )
    assert 4096 < free * BEAT_BYTES <= MEMORY_BYTES
    return blocks


def addresses(blocks: list[Block]) -> Iterator[int]:
    """Byte address of each beat, from the definition in `TransferDescriptor`."""
    for block in blocks:
        for row in range(block["rows"]):
            for beat in range(block["beats"]):
                yield (block["addr"] + row * block["stride"] + beat * BEAT_BYTES) % 2**32


def words(blocks: list[Block]) -> list[int]:
    """Descriptors as payloads."""
    return [TransferDescriptor().const(block).as_bits() for block in blocks]


async def begin(dut: Any, **inputs: int) -> None:
    """Start clock and reset."""
    logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.WARNING)
    Clock(dut.clk, 10, unit="ns").start()
    await reset(dut, desc__valid=0, desc__payload=0, clear=0, **inputs)


async def become_idle(dut: Any) -> None:
    """Wait until a mover has done all of its work."""
    while dut.idle.value == 0:
        await FallingEdge(dut.clk)


@cocotb.test()
async def reads_what_memory_has(dut: Any) -> None:
    memory = AxiRamRead(AxiReadBus.from_prefix(dut, "bus_"), dut.clk, dut.rst, size=MEMORY_BYTES)
    pause_at_random(0.3, memory.ar_channel, memory.r_channel)
    content = np.random.default_rng(cocotb.RANDOM_SEED).bytes(MEMORY_BYTES)
    memory.write(0, content)
    await begin(dut, data__ready=0)
    blocks = random_blocks(50)
    due = [content[at : at + BEAT_BYTES] for at in addresses(blocks)]
    cocotb.start_soon(stream_put(dut, "desc", words(blocks), idle=0.2))
    got = await with_timeout(stream_get(dut, "data", len(due), idle=0.3), LIMIT_NS, "ns")
    wrong = [
        f"beat {index} is {word:016x}, not {int.from_bytes(beat, 'little'):016x}"
        for index, (word, beat) in enumerate(zip(got, due, strict=True))
        if word.to_bytes(BEAT_BYTES, "little") != beat
    ]
    assert not wrong, wrong[:3]
    await with_timeout(become_idle(dut), LIMIT_NS, "ns")
    assert dut.error.value == 0, "error is set"
    assert dut.data__valid.value == 0, "there is one beat more than due"


@cocotb.test()
async def writes_what_it_is_given_and_no_more(dut: Any) -> None:
    memory = AxiRamWrite(AxiWriteBus.from_prefix(dut, "bus_"), dut.clk, dut.rst, size=MEMORY_BYTES)
    pause_at_random(0.3, memory.aw_channel, memory.w_channel, memory.b_channel)
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    due = bytearray(rng.bytes(MEMORY_BYTES))
    memory.write(0, bytes(due))
    await begin(dut, data__valid=0, data__payload=0)
    blocks = random_blocks(50)
    beats = [rng.bytes(BEAT_BYTES) for _ in addresses(blocks)]
    for at, beat in zip(addresses(blocks), beats, strict=True):
        due[at : at + BEAT_BYTES] = beat
    cocotb.start_soon(stream_put(dut, "desc", words(blocks), idle=0.2))
    values = [int.from_bytes(beat, "little") for beat in beats]
    await with_timeout(stream_put(dut, "data", values, idle=0.3), LIMIT_NS, "ns")
    await with_timeout(become_idle(dut), LIMIT_NS, "ns")
    assert dut.error.value == 0, "error is set"
    found = memory.read(0, MEMORY_BYTES)
    wrong = [at for at in range(MEMORY_BYTES) if found[at] != due[at]]
    assert not wrong, f"{len(wrong)} bytes are wrong, first at {wrong[0]:#x}"
