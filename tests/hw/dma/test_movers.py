"""Read and write masters against a simulated memory: full rate, order, faults, idle."""

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from npulse.hw.bus.axi4 import Response
from npulse.hw.dma.address import BurstGenerator
from npulse.hw.dma.reader import ReadMaster
from npulse.hw.dma.writer import WriteMaster
from npulse.sim.rtl.bench import check_axi, check_stable, run, stream_get, stream_put
from npulse.sim.rtl.dram import Dram, DramPort
from npulse.sim.rtl.throttle import Stalls

Block = dict[str, int]
WIDTH, BEAT = 64, 8


def block(addr: int, beats: int, rows: int = 1, stride: int = 0) -> Block:
    """Descriptor as the fields of its layout."""
    return dict(addr=addr, beats=beats, rows=rows, stride=stride % 2**32)


def addresses(desc: Block) -> Iterator[int]:
    """Byte address of each beat, from the definition in `TransferDescriptor`."""
    for row in range(desc["rows"]):
        for beat in range(desc["beats"]):
            yield (desc["addr"] + row * desc["stride"] + beat * BEAT) % 2**32


def word(memory: NDArray[np.uint8], addr: int) -> int:
    """Beat at a byte address."""
    return int.from_bytes(memory[addr : addr + BEAT].tobytes(), "little")


def with_memory(mover: ReadMaster | WriteMaster, memory: Dram) -> Module:
    """Connect the bus of ``mover`` to the only port of ``memory``."""
    m = Module()
    m.submodules.mover = mover
    m.submodules.memory = memory
    wiring.connect(m, mover.bus, memory.bus("p"))
    return m


def read_memory(depth_bytes: int, **options: Any) -> Dram:
    stalls = options.pop("stalls", None)
    port = DramPort(name="p", data_width=WIDTH, write=False, **options)
    return Dram(depth_bytes=depth_bytes, ports=[port], stalls=stalls)


def write_memory(depth_bytes: int, **options: Any) -> Dram:
    stalls = options.pop("stalls", None)
    port = DramPort(name="p", data_width=WIDTH, read=False, **options)
    return Dram(depth_bytes=depth_bytes, ports=[port], stalls=stalls)


def wait_idle(mover: ReadMaster | WriteMaster) -> Callable[[Any], Any]:
    async def wait(ctx: Any) -> None:
        idle = 0
        while not idle:
            _, _, idle = await ctx.tick().sample(mover.idle)

    return wait


#: Rows that start and end inside aligned blocks, rows of one beat, a row across 4 KiB, one going
#: down, and a queue of descriptors of one beat each.
FULL_RATE = {
    "bursts": [block(0x40, 100)],
    "misaligned": [block(0x38, 70, rows=2, stride=0x3A8)],
    "columns": [block(0x8, 1, rows=40, stride=0x18)],
    "boundary": [block(0xFC8, 40)],
    "down": [block(0x400, 9, rows=5, stride=-0x48)],
    "queue": [block(0x10 * index, 1) for index in range(40)],
    "mixed": [block(0x78, 3), block(0x78, 1, rows=3, stride=0x80), block(0xFF0, 17)],
}


@pytest.mark.parametrize("blocks", FULL_RATE.values(), ids=FULL_RATE)
def test_reads_a_beat_a_cycle_without_a_bubble(blocks: list[Block]) -> None:
    dut, memory = ReadMaster(data_width=WIDTH, outstanding=8), read_memory(0x2000)
    content = np.random.default_rng(1).integers(0, 256, 0x2000, dtype=np.uint8)
    expected = [word(content, addr) for desc in blocks for addr in addresses(desc)]
    valid: list[int] = []
    beats: list[int] = []

    async def offer(ctx: Any) -> None:
        for desc in blocks:
            await stream_put(ctx, dut.desc, desc)

    async def take(ctx: Any) -> None:
        memory.store(ctx, 0, content)
        ctx.set(dut.data.ready, 1)
        # Descriptor, 3 cycles to arvalid, 2 of the memory, 1 of the output register.
        for _ in range(6 + len(expected) + 3):
            _, _, now, beat = await ctx.tick().sample(dut.data.valid, dut.data.payload)
            valid.append(now)
            beats.extend([beat] if now else [])
        assert ctx.get(dut.idle)

    run(with_memory(dut, memory), offer, take, monitors=[check_axi(dut.bus)])
    assert valid == [0] * 6 + [1] * len(expected) + [0] * 3
    assert beats == expected


@pytest.mark.parametrize("blocks", FULL_RATE.values(), ids=FULL_RATE)
def test_writes_a_beat_a_cycle_without_a_bubble(blocks: list[Block]) -> None:
    dut, memory = WriteMaster(data_width=WIDTH, outstanding=8), write_memory(0x2000)
    count = sum(desc["beats"] * desc["rows"] for desc in blocks)
    moved: list[int] = []

    async def offer(ctx: Any) -> None:
        for desc in blocks:
            await stream_put(ctx, dut.desc, desc)

    async def feed(ctx: Any) -> None:
        for value in range(1, count + 1):
            await stream_put(ctx, dut.data, value)

    async def watch(ctx: Any) -> None:
        for _ in range(5 + count + 3):
            _, _, valid, ready = await ctx.tick().sample(dut.bus.wvalid, dut.bus.wready)
            moved.append(valid & ready)

    async def feed_and_check(ctx: Any) -> None:
        await feed(ctx)
        await wait_idle(dut)(ctx)
        content = memory.load(ctx, 0, 0x2000)
        expected = np.zeros_like(content)
        order = [addr for desc in blocks for addr in addresses(desc)]
        for value, addr in enumerate(order, 1):
            expected[addr : addr + BEAT] = np.frombuffer(value.to_bytes(BEAT, "little"), np.uint8)
        np.testing.assert_array_equal(content, expected)

    run(with_memory(dut, memory), offer, feed_and_check, watch, monitors=[check_axi(dut.bus)])
    # Descriptor, 3 cycles to the burst, 1 to the beat counter, 1 of the output register.
    assert moved[: 5 + count] == [0] * 5 + [1] * count


@pytest.mark.parametrize(("outstanding", "bursts"), [(1, 1), (3, 3)])
def test_reads_with_at_most_outstanding_bursts_in_flight(outstanding: int, bursts: int) -> None:
    dut = ReadMaster(data_width=WIDTH, max_burst_beats=4, outstanding=outstanding)
    sent = 0

    async def bench(ctx: Any) -> None:
        nonlocal sent
        ctx.set(dut.bus.arready, 1)
        ctx.set(dut.data.ready, 1)
        await stream_put(ctx, dut.desc, block(0, 4, rows=9, stride=64))
        for _ in range(20):
            _, _, valid = await ctx.tick().sample(dut.bus.arvalid)
            sent += valid
        assert sent == bursts
        ctx.set(dut.bus.rvalid, 1)
        for last in (0, 0, 0, 1):
            ctx.set(dut.bus.rlast, last)
            await ctx.tick()
        ctx.set(dut.bus.rvalid, 0)
        for _ in range(20):
            _, _, valid = await ctx.tick().sample(dut.bus.arvalid)
            sent += valid
        assert sent == bursts + 1

    run(dut, bench)


@pytest.mark.parametrize(("outstanding", "bursts"), [(1, 1), (3, 3)])
def test_writes_with_at_most_outstanding_bursts_in_flight(outstanding: int, bursts: int) -> None:
    dut = WriteMaster(data_width=WIDTH, max_burst_beats=4, outstanding=outstanding)
    sent = 0

    async def bench(ctx: Any) -> None:
        nonlocal sent
        ctx.set(dut.bus.awready, 1)
        ctx.set(dut.bus.wready, 1)
        ctx.set(dut.data.valid, 1)
        await stream_put(ctx, dut.desc, block(0, 4, rows=9, stride=64))
        for answers in (0, 1):
            ctx.set(dut.bus.bvalid, answers)
            await ctx.tick()
            ctx.set(dut.bus.bvalid, 0)
            for _ in range(30):
                _, _, valid = await ctx.tick().sample(dut.bus.awvalid)
                sent += valid
            assert sent == bursts + answers

    run(dut, bench)


def test_writer_completes_when_all_beats_are_taken_before_the_address() -> None:
    dut = WriteMaster(data_width=WIDTH, max_burst_beats=4)
    taken: list[tuple[int, int]] = []

    async def memory(ctx: Any) -> None:
        for _ in range(3):
            last = 0
            ctx.set(dut.bus.wready, 1)
            while not last:
                sampled = await ctx.tick().sample(dut.bus.wvalid, dut.bus.wdata, dut.bus.wlast)
                _, _, valid, value, last = sampled
                last &= valid
                taken.extend([(value, last)] if valid else [])
            ctx.set(dut.bus.wready, 0)
            await ctx.tick()
            ctx.set(dut.bus.awready, 1)
            _, _, valid = await ctx.tick().sample(dut.bus.awvalid)
            assert valid, "awvalid waits for something"
            ctx.set(dut.bus.awready, 0)
            assert not ctx.get(dut.idle)
            ctx.set(dut.bus.bvalid, 1)
            await ctx.tick()
            ctx.set(dut.bus.bvalid, 0)
        await wait_idle(dut)(ctx)

    async def feed(ctx: Any) -> None:
        await stream_put(ctx, dut.desc, block(0x10, 8))
        for value in range(8):
            await stream_put(ctx, dut.data, value)

    run(dut, memory, feed, monitors=[check_axi(dut.bus)])
    # Beats 2 and 3 of an aligned block of 4, a whole block, beats 0 and 1 of the next.
    lasts = [0, 1, 0, 0, 0, 1, 0, 1]
    assert taken == list(zip(range(8), lasts, strict=True))


def test_writer_offers_the_address_while_wready_waits_for_it() -> None:
    dut = WriteMaster(data_width=WIDTH)

    async def bench(ctx: Any) -> None:
        await stream_put(ctx, dut.desc, block(0, 1))
        for _ in range(10):
            await ctx.tick()
        assert ctx.get(dut.bus.awvalid)

    run(dut, bench, monitors=[check_axi(dut.bus)])


def test_idle_falls_with_a_descriptor_and_rises_when_the_last_beat_has_left() -> None:
    dut, memory = ReadMaster(data_width=WIDTH), read_memory(64)

    async def bench(ctx: Any) -> None:
        assert ctx.get(dut.idle)
        await stream_put(ctx, dut.desc, block(0, 1))
        for _ in range(12):
            assert not ctx.get(dut.idle)
            await ctx.tick()
        await stream_get(ctx, dut.data)
        assert ctx.get(dut.idle)

    run(with_memory(dut, memory), bench)


@pytest.mark.parametrize("addr", [0, 0x400])
def test_error_of_a_read_stays_until_clear(addr: int) -> None:
    dut, memory = ReadMaster(data_width=WIDTH), read_memory(0x100)

    async def bench(ctx: Any) -> None:
        ctx.set(dut.data.ready, 1)
        for start in (addr, 0):
            await stream_put(ctx, dut.desc, block(start, 2))
            await wait_idle(dut)(ctx)
            assert ctx.get(dut.error) == (addr != 0)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        assert not ctx.get(dut.error)

    run(with_memory(dut, memory), bench)


@pytest.mark.parametrize("addr", [0, 0x400])
def test_error_of_a_write_stays_until_clear(addr: int) -> None:
    dut, memory = WriteMaster(data_width=WIDTH), write_memory(0x100)

    async def bench(ctx: Any) -> None:
        ctx.set(dut.data.valid, 1)
        for start in (addr, 0):
            await stream_put(ctx, dut.desc, block(start, 2))
            await wait_idle(dut)(ctx)
            assert ctx.get(dut.error) == (addr != 0)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        assert not ctx.get(dut.error)

    run(with_memory(dut, memory), bench)


@pytest.mark.parametrize("response", list(Response))
def test_every_response_but_okay_is_an_error(response: Response) -> None:
    reader, writer = ReadMaster(data_width=WIDTH), WriteMaster(data_width=WIDTH)
    m = Module()
    m.submodules += [reader, writer]

    async def bench(ctx: Any) -> None:
        ctx.set(reader.bus.rresp, Response.SLVERR)  # not valid, so ignored
        ctx.set(writer.bus.bresp, Response.SLVERR)
        await ctx.tick()
        ctx.set(reader.bus.rvalid, 1)
        ctx.set(reader.bus.rresp, response)
        ctx.set(writer.bus.bvalid, 1)
        ctx.set(writer.bus.bresp, response)
        assert not ctx.get(reader.error) and not ctx.get(writer.error)
        await ctx.tick()
        expected = int(response != Response.OKAY)
        assert (ctx.get(reader.error), ctx.get(writer.error)) == (expected, expected)

    run(m, bench)


#: Descriptors whose beats are disjoint and lie in three pages.
@st.composite
def blocks_in_pages(draw: st.DrawFn) -> list[Block]:
    blocks, start = [], 0
    for _ in range(draw(st.integers(1, 4))):
        start += draw(st.integers(0, 60))
        beats, rows = draw(st.integers(1, 40)), draw(st.integers(1, 4))
        stride = beats + draw(st.integers(0, 70))
        end = start + stride * (rows - 1) + beats
        if draw(st.booleans()):
            blocks.append(block(start * BEAT, beats, rows, stride * BEAT))
        else:
            blocks.append(block((end - beats) * BEAT, beats, rows, -stride * BEAT))
        start = end
    return blocks


DEPTH = 2048 * BEAT * 2
PACE = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 999),
        "probability": st.sampled_from([0, 60, 150]),
        "latency": st.sampled_from([2, 7, 30]),
        "rate": st.sampled_from([Fraction(64), Fraction(11, 2)]),
        "outstanding": st.integers(1, 5),
        "max_burst_beats": st.sampled_from([2, 16, 256]),
        "idle": st.sampled_from([0, 80]),
    }
)


@settings(max_examples=15)
@given(blocks=blocks_in_pages(), pace=PACE)
def test_reads_match_numpy_under_stalls(blocks: list[Block], pace: dict[str, Any]) -> None:
    dut = ReadMaster(
        data_width=WIDTH,
        max_burst_beats=pace["max_burst_beats"],
        outstanding=pace["outstanding"],
    )
    memory = read_memory(
        DEPTH,
        latency_cycles=pace["latency"],
        bytes_per_cycle=pace["rate"],
        stalls=Stalls(seed=pace["seed"], probability=pace["probability"]),
    )
    rng = np.random.default_rng(pace["seed"])
    content = rng.integers(0, 256, DEPTH, dtype=np.uint8)

    async def offer(ctx: Any) -> None:
        for desc in blocks:
            await stream_put(ctx, dut.desc, desc)

    async def take(ctx: Any) -> None:
        memory.store(ctx, 0, content)
        for desc in blocks:
            for addr in addresses(desc):
                while rng.integers(256) < pace["idle"]:
                    await ctx.tick()
                assert await stream_get(ctx, dut.data) == word(content, addr)
        for _ in range(60):
            await ctx.tick()
            assert not ctx.get(dut.data.valid), "more beats than asked for"
        assert ctx.get(dut.idle) and not ctx.get(dut.error)

    monitors = [check_axi(dut.bus), check_stable(dut.data)]
    run(with_memory(dut, memory), offer, take, monitors=monitors, limit=12_000)


@settings(max_examples=15)
@given(
    blocks=blocks_in_pages(),
    pace=PACE,
    order=st.sampled_from(["address_first", "data_first"]),
)
def test_writes_match_numpy_under_stalls(
    blocks: list[Block], pace: dict[str, Any], order: str
) -> None:
    dut = WriteMaster(
        data_width=WIDTH,
        max_burst_beats=pace["max_burst_beats"],
        outstanding=pace["outstanding"],
    )
    memory = write_memory(
        DEPTH,
        latency_cycles=pace["latency"],
        bytes_per_cycle=pace["rate"],
        write_order=order,
        stalls=Stalls(seed=pace["seed"], probability=pace["probability"]),
    )
    rng = np.random.default_rng(pace["seed"])
    content = rng.integers(0, 256, DEPTH, dtype=np.uint8)
    expected = content.copy()

    async def offer(ctx: Any) -> None:
        memory.store(ctx, 0, content)
        for desc in blocks:
            await stream_put(ctx, dut.desc, desc)

    async def feed(ctx: Any) -> None:
        for desc in blocks:
            for addr in addresses(desc):
                beat = rng.integers(0, 256, BEAT, dtype=np.uint8)
                expected[addr : addr + BEAT] = beat
                while rng.integers(256) < pace["idle"]:
                    await ctx.tick()
                await stream_put(ctx, dut.data, int.from_bytes(beat.tobytes(), "little"))
        await wait_idle(dut)(ctx)
        np.testing.assert_array_equal(memory.load(ctx, 0, DEPTH), expected)
        assert not ctx.get(dut.error)
        ctx.set(dut.data.valid, 1)
        await ctx.tick().repeat(5)
        assert not ctx.get(dut.data.ready), "takes beats without a descriptor"

    run(with_memory(dut, memory), offer, feed, monitors=[check_axi(dut.bus)], limit=12_000)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: ReadMaster(data_width=64, outstanding=0),
            "outstanding must be at least 1 burst, not 0",
        ),
        (
            lambda: WriteMaster(data_width=64, outstanding=0),
            "outstanding must be at least 1 burst, not 0",
        ),
        (
            lambda: BurstGenerator(data_width=64, max_burst_beats=12),
            "max_burst_beats must be a power of two of 2 to 256 beats (4096 bytes, 256 beats), "
            "not 12",
        ),
        (
            lambda: BurstGenerator(data_width=1024, max_burst_beats=64),
            "max_burst_beats must be a power of two of 2 to 32 beats (4096 bytes, 256 beats), "
            "not 64",
        ),
        (
            lambda: ReadMaster(data_width=48),
            "data_width must be a power of two of 8 to 1024 bits, not 48",
        ),
    ],
)
def test_refuses_illegal_parameters(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        build()
