"""The register bank on its AXI4-Lite port."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.bus.axi4 import Response
from npulse.hw.bus.csr import CsrBank
from npulse.hw.spec.regmap import Field, Register, RegisterMap, core_regmap
from npulse.sim.rtl.bench import run

OKAY, SLVERR = int(Response.OKAY), int(Response.SLVERR)

COMMANDS = (Field(name="go", doc="G."), Field(name="mode", width=12, doc="M."))
REGMAP = RegisterMap(
    [
        Register(name="STATE", offset=0x00, access="ro", width=20, doc="S."),
        Register(name="FULL", offset=0x04, access="rw", init=0x12345678, doc="F."),
        Register(name="SHORT", offset=0x10, access="rw", width=10, doc="S."),
        Register(name="COMMAND", offset=0x14, access="w1", fields=COMMANDS, doc="C."),
        Register(name="SETUP", offset=0x18, access="rw", fields=COMMANDS, init=7, doc="S."),
    ]
)


async def idle(ctx: Any, cycles: int) -> None:
    for _ in range(cycles):
        await ctx.tick()


async def hand_over(ctx: Any, bus: Any, channel: str) -> None:
    """Raise valid until ready."""
    ctx.set(getattr(bus, f"{channel}valid"), 1)
    ready = 0
    while not ready:
        _, _, ready = await ctx.tick().sample(getattr(bus, f"{channel}ready"))
    ctx.set(getattr(bus, f"{channel}valid"), 0)


async def read(ctx: Any, dut: CsrBank, addr: int, wait: int = 0) -> tuple[int, int]:
    """Data and response; rready comes ``wait`` cycles late, and the answer must not change."""
    ctx.set(dut.bus.araddr, addr)
    await hand_over(ctx, dut.bus, "ar")
    ctx.set(dut.bus.araddr, ~addr & 0xFF)
    answers = {(ctx.get(dut.bus.rvalid), ctx.get(dut.bus.rdata), ctx.get(dut.bus.rresp))}
    ctx.set(dut.bus.arvalid, 1)
    for _ in range(wait):
        sampled = await ctx.tick().sample(
            dut.bus.rvalid, dut.bus.rdata, dut.bus.rresp, dut.bus.arready
        )
        answers.add(sampled[2:5])
        assert not sampled[5], "a second read is taken"
    ctx.set(dut.bus.arvalid, 0)
    ctx.set(dut.bus.rready, 1)
    await ctx.tick()
    ctx.set(dut.bus.rready, 0)
    ((valid, value, response),) = answers
    assert valid and not ctx.get(dut.bus.rvalid)
    return value, response


async def write(
    ctx: Any, dut: CsrBank, addr: int, value: int, *, strobe: int = 15, skew: int = 0, wait: int = 0
) -> int:
    """Response; W comes ``skew`` cycles after AW, or AW after W if negative."""
    ctx.set(dut.bus.awaddr, addr)
    ctx.set(dut.bus.wdata, value)
    ctx.set(dut.bus.wstrb, strobe)
    if skew == 0:
        ctx.set(dut.bus.awvalid, 1)
        await hand_over(ctx, dut.bus, "w")
        ctx.set(dut.bus.awvalid, 0)
    else:
        first, second = ("aw", "w") if skew > 0 else ("w", "aw")
        await hand_over(ctx, dut.bus, first)
        for _ in range(abs(skew) - 1):
            await ctx.tick()
            assert not ctx.get(dut.bus.bvalid)
        await hand_over(ctx, dut.bus, second)
    assert not ctx.get(dut.bus.bvalid)
    await ctx.tick()
    response = ctx.get(dut.bus.bresp)
    for _ in range(wait):
        assert (ctx.get(dut.bus.bvalid), ctx.get(dut.bus.bresp)) == (1, response)
        await ctx.tick()
    assert ctx.get(dut.bus.bvalid)
    ctx.set(dut.bus.bready, 1)
    await ctx.tick()
    ctx.set(dut.bus.bready, 0)
    assert not ctx.get(dut.bus.bvalid)
    return response


def test_reads_inputs_and_values_after_reset() -> None:
    dut = CsrBank(REGMAP)

    async def bench(ctx: Any) -> None:
        ctx.set(dut.port("STATE"), 0xABCDE)
        assert await read(ctx, dut, 0x00) == (0xABCDE, OKAY)
        assert await read(ctx, dut, 0x04) == (0x12345678, OKAY)
        assert await read(ctx, dut, 0x14) == (0, OKAY)
        assert await read(ctx, dut, 0x18) == (7, OKAY)
        assert ctx.get(dut.port("SETUP").mode) == 3

    run(dut, bench, limit=100)


def test_answers_one_read_in_two_cycles() -> None:
    dut = CsrBank(REGMAP)
    handshakes = []

    async def bench(ctx: Any) -> None:
        ctx.set(dut.bus.arvalid, 1)
        ctx.set(dut.bus.rready, 1)
        for _ in range(6):
            _, _, ready, valid = await ctx.tick().sample(dut.bus.arready, dut.bus.rvalid)
            handshakes.append((ready, valid))

    run(dut, bench)
    assert handshakes == [(1, 0), (0, 1)] * 3


@pytest.mark.parametrize("skew", [0, 1, 4, -1, -4])
def test_takes_address_and_word_in_any_order(skew: int) -> None:
    dut = CsrBank(REGMAP)

    async def bench(ctx: Any) -> None:
        assert await write(ctx, dut, 0x04, 0xDEADBEEF, skew=skew) == OKAY
        assert ctx.get(dut.port("FULL")) == 0xDEADBEEF

    run(dut, bench, limit=100)


def test_pulses_for_one_cycle_with_the_response() -> None:
    dut = CsrBank(REGMAP)
    pulses: list[tuple[int, int, int]] = []

    async def watch(ctx: Any) -> None:
        command = dut.port("COMMAND")
        while True:
            sampled = await ctx.tick().sample(command.go, command.mode, dut.bus.bvalid)
            pulses.append(sampled[2:])

    async def bench(ctx: Any) -> None:
        assert await write(ctx, dut, 0x14, REGMAP["COMMAND"].pack(go=1, mode=0xABC), wait=2) == 0
        await write(ctx, dut, 0x14, 0x1FFF, strobe=2)

    run(dut, bench, monitors=[watch], limit=100)
    first = pulses.index((1, 0xABC, 1))
    assert pulses[:first] == [(0, 0, 0)] * first
    assert pulses[first + 1 : first + 3] == [(0, 0, 1)] * 2
    # A strobe on byte 1 alone reaches bits 7 and up of `mode`, which starts at bit 1.
    others = [pulse for pulse in pulses[first + 3 :] if pulse[:2] != (0, 0)]
    assert others == [(0, 0xF80, 1)]


def test_holds_the_second_write_until_the_first_response_is_taken() -> None:
    dut = CsrBank(REGMAP)

    async def bench(ctx: Any) -> None:
        for addr, value in ((0x04, 1), (0x08, 2)):
            ctx.set(dut.bus.awaddr, addr)
            ctx.set(dut.bus.wdata, value)
            ctx.set(dut.bus.wstrb, 15)
            ctx.set(dut.bus.awvalid, 1)
            await hand_over(ctx, dut.bus, "w")
            ctx.set(dut.bus.awvalid, 0)
            await idle(ctx, 3)
        assert not ctx.get(dut.bus.awready) and not ctx.get(dut.bus.wready)
        ctx.set(dut.bus.bready, 1)
        responses = []
        for _ in range(8):
            _, _, valid, response = await ctx.tick().sample(dut.bus.bvalid, dut.bus.bresp)
            responses.extend([response] if valid else [])
        assert responses == [OKAY, SLVERR]

    run(dut, bench)


def test_answers_slverr_outside_of_the_map_and_to_writes_of_inputs() -> None:
    dut = CsrBank(REGMAP, addr_width=12)

    async def bench(ctx: Any) -> None:
        ctx.set(dut.port("STATE"), 5)
        for addr in (0x08, 0x1C, 0x804):
            assert await read(ctx, dut, addr) == (0, SLVERR)
            assert await write(ctx, dut, addr, 0xFFFFFFFF) == SLVERR
        assert await write(ctx, dut, 0x00, 0xFFFFFFFF) == SLVERR
        assert await read(ctx, dut, 0x00) == (5, OKAY)
        assert await read(ctx, dut, 0x04) == (0x12345678, OKAY)
        assert await read(ctx, dut, 0x10) == (0, OKAY)

    run(dut, bench, limit=200)


STEP = st.tuples(
    st.integers(0, 0x1F),
    st.one_of(st.none(), st.integers(0, 2**32 - 1)),
    st.integers(0, 15),
    st.integers(-3, 3),
    st.integers(0, 3),
)


@settings(max_examples=30)
@given(st.lists(STEP, max_size=15))
def test_behaves_as_words_in_a_table(steps: list[tuple[int, int | None, int, int, int]]) -> None:
    dut = CsrBank(REGMAP)
    widths = {0x04: 32, 0x10: 10, 0x18: 13}
    table = {0x00: 0x54321, 0x04: 0x12345678, 0x10: 0, 0x14: 0, 0x18: 7}

    async def bench(ctx: Any) -> None:
        ctx.set(dut.port("STATE"), table[0x00])
        for addr, value, strobe, skew, wait in steps:
            word = addr & ~3
            await idle(ctx, wait)
            if value is None:
                expected = (table.get(word, 0), OKAY if word in table else SLVERR)
                assert await read(ctx, dut, addr, wait) == expected
                continue
            writable = word in table and word != 0
            response = await write(ctx, dut, addr, value, strobe=strobe, skew=skew, wait=wait)
            assert response == (OKAY if writable else SLVERR)
            if word in widths:
                mask = sum(0xFF << 8 * byte for byte in range(4) if strobe >> byte & 1)
                merged = (value & mask) | (table[word] & ~mask)
                table[word] = merged & (2 ** widths[word] - 1)
        assert ctx.get(dut.port("FULL")) == table[0x04]
        assert ctx.get(dut.port("SHORT")) == table[0x10]

    run(dut, bench, limit=1000)


def test_core_map_becomes_a_bank() -> None:
    dut = CsrBank(core_regmap(), addr_width=12)

    async def bench(ctx: Any) -> None:
        for index, register in enumerate(core_regmap()):
            if register.access == "ro":
                value = 3 if register.name == "STATUS" else index
                if register.fields:
                    ctx.set(dut.port(register.name), register.unpack(value))
                else:
                    ctx.set(dut.port(register.name), value)
                assert await read(ctx, dut, register.offset) == (value, OKAY)

    run(dut, bench)


def test_refuses_an_address_that_misses_registers() -> None:
    message = "addr_width must be at least the map's 7 bits, not 6"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        CsrBank(core_regmap(), addr_width=6)


def test_refuses_a_register_that_hides_a_member() -> None:
    regmap = RegisterMap([Register(name="BUS", offset=0, access="ro", doc="B.")])
    message = "register names must not hide members of CsrBank, not ['bus']"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        CsrBank(regmap)
