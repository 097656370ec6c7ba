"""The monitors report what they promise, each on a planted fault."""

import re
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import stream

from npulse.hw.bus.axi4 import Axi4Signature
from npulse.sim.rtl.bench import check_axi, check_stable, run, stream_get, stream_put

Step = dict[str, int]


def clocked() -> Module:
    """Design with a clock and nothing else to watch."""
    m, toggle = Module(), Signal()
    m.d.sync += toggle.eq(~toggle)
    return m


def replay(port: Any, steps: list[Step], monitor: Any) -> None:
    """Set ``steps`` on ``port``, one a cycle, under ``monitor``; what a step lacks is 0."""

    async def bench(ctx: Any) -> None:
        names = {name for step in steps for name in step}
        for step in [*steps, {}]:
            for name in names:
                ctx.set(getattr(port, name), step.get(name, 0))
            await ctx.tick()

    run(clocked(), bench, monitors=[monitor], limit=100)


ADDRESS = dict(awvalid=1, awready=1, awaddr=0xFF8, awlen=1, awsize=2, awburst=1)
READ = {name.replace("aw", "ar"): value for name, value in ADDRESS.items()}
BEAT = dict(wvalid=1, wready=1)
LAST = dict(BEAT, wlast=1)
ANSWER = dict(bvalid=1, bready=1)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([ADDRESS, BEAT, LAST, ANSWER], id="address first"),
        pytest.param([BEAT, LAST, ADDRESS, ANSWER], id="data first"),
        pytest.param([BEAT, LAST | ADDRESS, BEAT, LAST | ADDRESS, ANSWER, ANSWER], id="mixed"),
        pytest.param([ADDRESS | dict(awready=0), ADDRESS, BEAT | dict(wready=0), BEAT], id="wait"),
        pytest.param(
            [READ, dict(rvalid=1, rready=1), dict(rvalid=1, rready=1, rlast=1)], id="read"
        ),
    ],
)
def test_check_axi_accepts_legal_traffic(steps: list[Step]) -> None:
    bus = Axi4Signature(data_width=32).create()
    replay(bus, steps, check_axi(bus))


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([dict(ADDRESS, awready=0), {}], "awvalid fell before awready"),
        (
            [dict(ADDRESS, awready=0), dict(ADDRESS, awaddr=0)],
            "aw payload is unstable",
        ),
        ([dict(BEAT, wready=0), dict(BEAT, wdata=1)], "w payload is unstable"),
        ([dict(ADDRESS, awburst=0)], "awburst is 0, not INCR"),
        (
            [dict(READ, arlen=2)],
            "ar burst of 3 beats at 0xff8 crosses 4096 bytes",
        ),
        ([ADDRESS, LAST], "wlast on beat 1 of 2"),
        ([LAST, ADDRESS], "wlast on beat 1 of 2"),
        ([ADDRESS, BEAT, BEAT], "wlast is missing on beat 2 of 2"),
        ([READ, dict(rvalid=1, rready=1, rlast=1)], "rlast on beat 1 of 2"),
        ([dict(rvalid=1, rready=1)], "rvalid without a burst"),
        ([ADDRESS, BEAT, ANSWER], "bvalid without a finished burst"),
        ([BEAT, LAST, ANSWER], "bvalid without a finished burst"),
    ],
)
def test_check_axi_reports_a_broken_rule(steps: list[Step], message: str) -> None:
    bus = Axi4Signature(data_width=32).create()
    with pytest.raises(AssertionError, match=f"^{re.escape(message)}"):
        replay(bus, steps, check_axi(bus))


@pytest.mark.parametrize(
    "second", [dict(valid=0, payload=5), dict(valid=1, payload=6)], ids=["valid", "payload"]
)
def test_check_stable_reports_a_producer_that_gives_up(second: Step) -> None:
    port = stream.Signature(8).create()
    steps = [dict(valid=1, payload=5, ready=1), dict(valid=1, payload=5), second]
    replay(port, [*steps[:2], dict(valid=1, payload=5, ready=1)], check_stable(port))
    with pytest.raises(AssertionError, match="^unstable: "):
        replay(port, steps, check_stable(port))


def test_run_ends_a_bench_that_hangs() -> None:
    port = stream.Signature(8).create()

    async def bench(ctx: Any) -> None:
        await stream_get(ctx, port)

    with pytest.raises(TimeoutError, match="^benches still running after 20 cycles$"):
        run(clocked(), bench, limit=20)


def test_streams_carry_every_payload_once() -> None:
    port = stream.Signature(8).create()
    taken: list[int] = []

    async def produce(ctx: Any) -> None:
        for value in range(10):
            await ctx.tick().repeat(1 + value % 3)
            await stream_put(ctx, port, value)

    async def consume(ctx: Any) -> None:
        for value in range(10):
            await ctx.tick().repeat(1 + value % 4)
            taken.append(await stream_get(ctx, port))

    run(clocked(), produce, consume, monitors=[check_stable(port)], limit=100)
    assert taken == list(range(10))


def test_run_refuses_an_unknown_engine() -> None:
    with pytest.raises(ValueError, match="^engine must be one of pysim, not 'fpga'$"):
        run(Module(), engine="fpga")
