"""The simulated memory: exact latency and rate, data against numpy, faults and stalls."""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.bus.axi4 import Axi4Interface, Burst, Response
from npulse.sim.rtl.bench import check_axi, run
from npulse.sim.rtl.delay_queue import DelayQueue
from npulse.sim.rtl.dram import Dram, DramPort
from npulse.sim.rtl.dram_channels import WriteOrder
from npulse.sim.rtl.throttle import Stalls


async def send(ctx: Any, bus: Axi4Interface, channel: str, **payload: int) -> None:
    """Offer a payload on an AXI channel until it is taken."""
    for name, value in payload.items():
        ctx.set(getattr(bus, channel + name), value)
    ctx.set(getattr(bus, f"{channel}valid"), 1)
    ready = 0
    while not ready:
        _, _, ready = await ctx.tick().sample(getattr(bus, f"{channel}ready"))
    ctx.set(getattr(bus, f"{channel}valid"), 0)


async def receive(ctx: Any, bus: Axi4Interface, channel: str, *names: str) -> tuple[int, ...]:
    """Take one payload from an AXI channel."""
    ctx.set(getattr(bus, f"{channel}ready"), 1)
    valid, payload = 0, []
    while not valid:
        signals = [getattr(bus, channel + name) for name in ("valid", *names)]
        _, _, valid, *payload = await ctx.tick().sample(*signals)
    ctx.set(getattr(bus, f"{channel}ready"), 0)
    return tuple(payload)


def address(bus: Axi4Interface, addr: int, beats: int) -> dict[str, int]:
    """Payload of an INCR burst of full beats."""
    size = bus.signature.size  # type: ignore[attr-defined]
    return dict(addr=addr, len=beats - 1, size=size, burst=Burst.INCR)


async def read(ctx: Any, bus: Axi4Interface, addr: int, beats: int) -> list[tuple[int, int]]:
    """Data and response of each beat of a burst."""
    await send(ctx, bus, "ar", **address(bus, addr, beats))
    return [(await receive(ctx, bus, "r", "data", "resp"))[:2] for _ in range(beats)]  # type: ignore[misc]


@pytest.mark.parametrize("latency", [2, 3, 9])
def test_first_beat_comes_latency_cycles_after_the_address(latency: int) -> None:
    dut = Dram(depth_bytes=256, ports=[DramPort(name="p", data_width=32, latency_cycles=latency)])
    bus = dut.bus("p")
    valid = []

    async def bench(ctx: Any) -> None:
        ctx.set(bus.rready, 1)
        await send(ctx, bus, "ar", **address(bus, 0, 3))
        for _ in range(latency + 4):
            _, _, sample = await ctx.tick().sample(bus.rvalid)
            valid.append(sample)

    run(dut, bench, monitors=[check_axi(bus)])
    # The first sample is one cycle after the handshake.
    assert valid == [0] * (latency - 1) + [1] * 3 + [0] * 2


@pytest.mark.parametrize("latency", [2, 3, 9])
def test_response_comes_latency_cycles_after_the_last_beat(latency: int) -> None:
    dut = Dram(depth_bytes=256, ports=[DramPort(name="p", data_width=32, latency_cycles=latency)])
    bus = dut.bus("p")
    valid = []

    async def bench(ctx: Any) -> None:
        ctx.set(bus.bready, 1)
        await send(ctx, bus, "aw", **address(bus, 0, 1))
        await send(ctx, bus, "w", data=1, strb=15, last=1)
        for _ in range(latency + 2):
            _, _, sample = await ctx.tick().sample(bus.bvalid)
            valid.append(sample)

    run(dut, bench, monitors=[check_axi(bus)])
    assert valid == [0] * (latency - 1) + [1] + [0] * 2


@pytest.mark.parametrize(
    ("rate", "beats"),
    [(Fraction(4), 60), (Fraction(3), 45), (Fraction(1, 2), 8), (Fraction(7, 5), 21)],
)
def test_reads_at_the_given_rate(rate: Fraction, beats: int) -> None:
    port = DramPort(name="p", data_width=32, bytes_per_cycle=rate)
    dut = Dram(depth_bytes=512, ports=[port])
    bus = dut.bus("p")
    taken = 0

    async def bench(ctx: Any) -> None:
        nonlocal taken
        ctx.set(bus.rready, 1)
        await send(ctx, bus, "ar", **address(bus, 0, 128))
        await ctx.tick().repeat(port.latency_cycles - 1)
        for _ in range(60):
            _, _, sample = await ctx.tick().sample(bus.rvalid)
            taken += sample

    run(dut, bench)
    assert taken == beats == -(-60 * rate // 4)


def test_writes_at_the_given_rate() -> None:
    port = DramPort(name="p", data_width=32, bytes_per_cycle=Fraction(8, 3))
    dut = Dram(depth_bytes=512, ports=[port])
    bus = dut.bus("p")
    taken = 0

    async def bench(ctx: Any) -> None:
        nonlocal taken
        await send(ctx, bus, "aw", **address(bus, 0, 128))
        ctx.set(bus.wvalid, 1)
        for _ in range(60):
            _, _, sample = await ctx.tick().sample(bus.wready)
            taken += sample

    run(dut, bench)
    assert taken == 40


def test_serves_a_single_beat_burst_a_cycle() -> None:
    port = DramPort(name="p", data_width=32, latency_cycles=5)
    dut = Dram(depth_bytes=512, ports=[port])
    bus = dut.bus("p")
    ready, valid = [], []

    async def bench(ctx: Any) -> None:
        ctx.set(bus.rready, 1)
        ctx.set(bus.arvalid, 1)
        for name, value in address(bus, 0, 1).items():
            ctx.set(getattr(bus, f"ar{name}"), value)
        for _ in range(40):
            _, _, accepted, sample = await ctx.tick().sample(bus.arready, bus.rvalid)
            ready.append(accepted)
            valid.append(sample)

    run(dut, bench)
    assert (ready, valid) == ([1] * 40, [0] * 5 + [1] * 35)


def test_ports_of_different_width_share_little_endian_bytes() -> None:
    ports = [DramPort(name="narrow", data_width=16), DramPort(name="wide", data_width=64)]
    dut = Dram(depth_bytes=64, ports=ports)
    narrow, wide = dut.bus("narrow"), dut.bus("wide")

    async def bench(ctx: Any) -> None:
        dut.store(ctx, 3, np.arange(0x11, 0x16, dtype=np.uint8))
        assert ctx.get(dut.memory.data[0]) == 0x1514131211000000
        assert await read(ctx, narrow, 2, 3) == [(0x1100, 0), (0x1312, 0), (0x1514, 0)]
        await send(ctx, narrow, "aw", **address(narrow, 12, 2))
        await send(ctx, narrow, "w", data=0xBEEF, strb=2, last=0)
        await send(ctx, narrow, "w", data=0xCAFE, strb=3, last=1)
        assert await receive(ctx, narrow, "b", "resp") == (0,)
        assert await read(ctx, wide, 8, 1) == [(0xCAFEBE0000000000, 0)]
        np.testing.assert_array_equal(dut.load(ctx, 13, 3), [0xBE, 0xFE, 0xCA])

    run(dut, bench, monitors=[check_axi(narrow), check_axi(wide)])


def test_answers_decerr_outside_of_the_memory() -> None:
    dut = Dram(depth_bytes=24, ports=[DramPort(name="p", data_width=64)])
    bus = dut.bus("p")

    async def bench(ctx: Any) -> None:
        dut.store(ctx, 0, np.arange(1, 25, dtype=np.uint8))
        decerr = Response.DECERR
        assert [resp for _, resp in await read(ctx, bus, 16, 2)] == [0, decerr]
        assert await read(ctx, bus, 1 << 20, 1) == [(0, decerr)]
        await send(ctx, bus, "aw", **address(bus, 16, 2))
        await send(ctx, bus, "w", data=0, strb=255, last=0)
        await send(ctx, bus, "w", data=0, strb=255, last=1)
        assert await receive(ctx, bus, "b", "resp") == (decerr,)
        await send(ctx, bus, "aw", **address(bus, 1 << 20, 1))
        await send(ctx, bus, "w", data=0, strb=255, last=1)
        assert await receive(ctx, bus, "b", "resp") == (decerr,)
        await send(ctx, bus, "aw", **address(bus, 0, 1))
        await send(ctx, bus, "w", data=0, strb=0, last=1)
        assert await receive(ctx, bus, "b", "resp") == (0,)
        np.testing.assert_array_equal(dut.load(ctx, 0, 24), [*range(1, 17), *[0] * 8])

    run(dut, bench, monitors=[check_axi(bus)])


@pytest.mark.parametrize("change", [dict(burst=Burst.FIXED), dict(burst=Burst.WRAP), dict(size=1)])
def test_answers_slverr_to_bursts_it_does_not_support(change: dict[str, int]) -> None:
    dut = Dram(depth_bytes=64, ports=[DramPort(name="p", data_width=32)])
    bus = dut.bus("p")

    async def bench(ctx: Any) -> None:
        dut.store(ctx, 0, np.full(64, 7, np.uint8))
        await send(ctx, bus, "ar", **address(bus, 0, 1) | change)
        assert await receive(ctx, bus, "r", "data", "resp") == (0, Response.SLVERR)
        await send(ctx, bus, "aw", **address(bus, 0, 1) | change)
        await send(ctx, bus, "w", data=0, strb=15, last=1)
        assert await receive(ctx, bus, "b", "resp") == (Response.SLVERR,)
        np.testing.assert_array_equal(dut.load(ctx, 0, 64), np.full(64, 7))

    run(dut, bench)


def test_repeats_the_tag_of_a_burst() -> None:
    dut = Dram(depth_bytes=64, ports=[DramPort(name="p", data_width=32)])
    bus = dut.bus("p")

    async def bench(ctx: Any) -> None:
        for tag in (1, 0):
            await send(ctx, bus, "ar", **address(bus, 0, 1), id=tag)
            assert await receive(ctx, bus, "r", "id") == (tag,)
            await send(ctx, bus, "aw", **address(bus, 0, 1), id=tag)
            await send(ctx, bus, "w", data=0, strb=15, last=1)
            assert await receive(ctx, bus, "b", "id") == (tag,)

    run(dut, bench)


@pytest.mark.parametrize(("order", "early"), [("address_first", 1), ("data_first", 0)])
def test_write_order_makes_one_channel_wait(order: WriteOrder, early: int) -> None:
    dut = Dram(depth_bytes=64, ports=[DramPort(name="p", data_width=32, write_order=order)])
    bus = dut.bus("p")

    async def bench(ctx: Any) -> None:
        _, _, awready, wready = await ctx.tick().sample(bus.awready, bus.wready)
        assert (awready, wready) == (early, 0)
        ctx.set(bus.wvalid, 1)
        _, _, awready, wready = await ctx.tick().sample(bus.awready, bus.wready)
        assert (awready, wready) == (1, 0)
        ctx.set(bus.awvalid, 1)
        await ctx.tick()
        _, _, wready = await ctx.tick().sample(bus.wready)
        assert wready == 1

    run(dut, bench)


def test_stalls_withhold_every_channel_at_the_given_probability() -> None:
    dut = Dram(
        depth_bytes=64,
        ports=[DramPort(name="p", data_width=32)],
        stalls=Stalls(seed=5, probability=64),
    )
    bus = dut.bus("p")
    ready = np.zeros((2000, 2), int)

    async def bench(ctx: Any) -> None:
        for cycle in range(len(ready)):
            _, _, *ready[cycle] = await ctx.tick().sample(bus.arready, bus.awready)

    run(dut, bench)
    np.testing.assert_allclose(ready.mean(axis=0), 0.75, atol=0.04)
    # Independent channels agree in 0.75**2 + 0.25**2 of the cycles.
    assert abs((ready[:, 0] == ready[:, 1]).mean() - 0.625) < 0.04


#: Beat address, beats, strobe seed, whether to write, and idle cycles of the manager.
ACCESS = st.tuples(
    st.integers(0, 28),
    st.integers(1, 6),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.integers(0, 2),
)


@settings(max_examples=12)
@given(
    accesses=st.lists(ACCESS, min_size=1, max_size=8),
    data_width=st.sampled_from([32, 128]),
    seed=st.integers(0, 999),
    probability=st.sampled_from([0, 40, 160]),
    rate=st.sampled_from([Fraction(1024), Fraction(5, 2)]),
    order=st.sampled_from(["address_first", "data_first"]),
)
def test_accesses_match_numpy_under_stalls(
    accesses: list[tuple[int, int, int, bool, int]],
    data_width: int,
    seed: int,
    probability: int,
    rate: Fraction,
    order: WriteOrder,
) -> None:
    beat = data_width // 8
    ports = [
        DramPort(name="p", data_width=data_width, bytes_per_cycle=rate, write_order=order),
        DramPort(name="widest", data_width=128),
    ]
    depth = 48 * beat
    dut = Dram(depth_bytes=depth, ports=ports, stalls=Stalls(seed=seed, probability=probability))
    bus = dut.bus("p")
    rng = np.random.default_rng(seed)
    model = rng.integers(0, 256, depth, dtype=np.uint8)
    pending: list[tuple[int, int, bool]] = []

    async def addresses(ctx: Any, start: int, beats: int) -> None:
        await send(ctx, bus, "aw", **address(bus, start * beat, beats))

    async def bench(ctx: Any) -> None:
        dut.store(ctx, 0, model)
        for start, beats, strobes, is_write, wait in accesses:
            for _ in range(wait):
                await ctx.tick()
            if not is_write:
                words = model[start * beat : (start + beats) * beat].reshape(beats, beat)
                expected = [(int.from_bytes(word.tobytes(), "little"), 0) for word in words]
                assert await read(ctx, bus, start * beat, beats) == expected
                continue
            pending.append((start, beats, True))
            local = np.random.default_rng(strobes)
            for index in range(beats):
                word = local.integers(0, 256, beat, dtype=np.uint8)
                mask = local.integers(0, 2, beat).astype(bool)
                where = slice((start + index) * beat, (start + index + 1) * beat)
                model[where][mask] = word[mask]
                strobe = int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")
                value = int.from_bytes(word.tobytes(), "little")
                await send(ctx, bus, "w", data=value, strb=strobe, last=index == beats - 1)
            assert await receive(ctx, bus, "b", "resp") == (0,)
        np.testing.assert_array_equal(dut.load(ctx, 0, depth), model)

    async def offer_addresses(ctx: Any) -> None:
        for start, beats, _, is_write, _ in accesses:
            if is_write:
                while not pending:
                    await ctx.tick()
                pending.pop(0)
                await addresses(ctx, start, beats)

    run(dut, bench, offer_addresses, monitors=[check_axi(bus)], limit=3000)


def test_raises_valid_without_waiting_for_ready() -> None:
    dut = Dram(depth_bytes=64, ports=[DramPort(name="p", data_width=32)])
    bus = dut.bus("p")

    async def bench(ctx: Any) -> None:
        await send(ctx, bus, "ar", **address(bus, 0, 2))
        await send(ctx, bus, "aw", **address(bus, 0, 1))
        await send(ctx, bus, "w", data=1, strb=15, last=1)
        for _ in range(4):
            await ctx.tick()
        assert (ctx.get(bus.rvalid), ctx.get(bus.bvalid)) == (1, 1)

    run(dut, bench, monitors=[check_axi(bus)])


def test_answers_each_write_once_while_responses_stall() -> None:
    dut = Dram(
        depth_bytes=64,
        ports=[DramPort(name="p", data_width=32)],
        stalls=Stalls(seed=3, probability=160),
    )
    bus = dut.bus("p")
    answers = 0

    async def bench(ctx: Any) -> None:
        for _ in range(10):
            await send(ctx, bus, "aw", **address(bus, 0, 1))
            await send(ctx, bus, "w", data=1, strb=15, last=1)

    async def count(ctx: Any) -> None:
        nonlocal answers
        ctx.set(bus.bready, 1)
        for _ in range(150):
            _, _, valid = await ctx.tick().sample(bus.bvalid)
            answers += valid

    run(dut, bench, count)
    assert answers == 10


def test_may_be_elaborated_twice() -> None:
    dut = Dram(depth_bytes=64, ports=[DramPort(name="p", data_width=32)])

    async def bench(ctx: Any) -> None:
        dut.store(ctx, 0, np.full(4, 7, np.uint8))
        assert await read(ctx, dut.bus("p"), 0, 1) == [(0x07070707, 0)]

    run(dut, bench)
    run(dut, bench)


PORT = DramPort(name="p", data_width=64)
Build = Callable[[], object]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: Dram(depth_bytes=20, ports=[PORT]),
            "depth_bytes must be a multiple of the widest port's 8 bytes and at least 16, not 20",
        ),
        (
            lambda: Dram(depth_bytes=64, ports=[PORT, PORT]),
            "ports must be at least one with different names, not ['p', 'p']",
        ),
        (
            lambda: Dram(depth_bytes=64, ports=[]),
            "ports must be at least one with different names, not []",
        ),
        (
            lambda: DramPort(name="elaborate", data_width=8),
            "name must be a free identifier, not 'elaborate'",
        ),
        (
            lambda: DramPort(name="p", data_width=8, latency_cycles=1),
            "latency_cycles must be at least 2, not 1",
        ),
        (
            lambda: DramPort(name="p", data_width=8, bytes_per_cycle=0),
            "bytes_per_cycle must be above 0, not 0",
        ),
        (
            lambda: DramPort(name="p", data_width=8, write_order="any"),  # type: ignore[arg-type]
            "write_order must be address_first or data_first, not 'any'",
        ),
        (
            lambda: DramPort(name="p", data_width=24),
            "data_width must be a power of two of 8 to 1024 bits, not 24",
        ),
        (
            lambda: Stalls(seed=1, probability=256),
            "probability must be 0 to 255 (of 256), not 256",
        ),
        (
            lambda: DelayQueue(width=1, entries=2, delay_cycles=0),
            "delay_cycles must be at least 1, not 0",
        ),
    ],
)
def test_refuses_illegal_parameters(build: Build, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        build()
