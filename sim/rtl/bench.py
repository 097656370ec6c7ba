"""Run benches on a component, drive streams, and watch the rules of streams and AXI4.

`stream_put` and `stream_get` are the helpers of the Amaranth manual, chapter "Data streams".
The monitors run in the background; each ends the run with an `AssertionError` that names the
signal.

Ref: AMBA AXI and ACE Protocol Specification, ARM IHI 0022E, A3.2.1 (valid and payload hold until
ready) and A3.4.1 (bursts and the 4 KiB boundary).
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from amaranth.hdl import Elaboratable
from amaranth.sim import Simulator

from npulse.hw.bus.axi4 import BOUNDARY_BYTES

#: An async function of a simulator context.
Bench = Callable[[Any], Any]

#: Engines that `run` can use.
ENGINES = ("pysim",)

#: Payload of each AXI channel, after the letters of the channel.
_PAYLOADS = {
    "ar": ("addr", "len", "size", "burst", "id"),
    "r": ("data", "resp", "last", "id"),
    "aw": ("addr", "len", "size", "burst", "id"),
    "w": ("data", "strb", "last"),
    "b": ("resp", "id"),
}


async def stream_put(ctx: Any, port: Any, payload: Any) -> None:
    """Offer ``payload`` until it is taken; returns in the cycle after the transfer."""
    ctx.set(port.valid, 1)
    ctx.set(port.payload, payload)
    # Plain ticks and no `until`: CPython 3.11 cannot close a bench inside it when a run fails.
    ready = 0
    while not ready:
        _, _, ready = await ctx.tick().sample(port.ready)
    ctx.set(port.valid, 0)


async def stream_get(ctx: Any, port: Any) -> Any:
    """Take and return one payload; returns in the cycle after the transfer."""
    ctx.set(port.ready, 1)
    valid, payload = 0, None
    while not valid:
        _, _, valid, payload = await ctx.tick().sample(port.valid, port.payload)
    ctx.set(port.ready, 0)
    return payload


def check_stable(port: Any) -> Bench:
    """Monitor which asserts that a stalled producer keeps ``valid`` and payload (stream rule 2)."""

    async def monitor(ctx: Any) -> None:
        stalled = None
        while True:
            sampled = await ctx.tick().sample(port.valid, port.ready, port.payload)
            _, _, valid, ready, payload = sampled
            assert stalled is None or (valid and payload == stalled), f"unstable: {port!r}"
            stalled = payload if valid and not ready else None

    return monitor


def _check_address(prefix: str, address: dict[str, int]) -> None:
    """Assert that an INCR burst stays inside one aligned block of 4 KiB."""
    assert address["burst"] == 1, f"{prefix}burst is {address['burst']}, not INCR"
    beat_bytes = 1 << address["size"]
    first = address["addr"] // beat_bytes * beat_bytes
    final = first + (address["len"] + 1) * beat_bytes - 1
    assert first // BOUNDARY_BYTES == final // BOUNDARY_BYTES, (
        f"{prefix} burst of {address['len'] + 1} beats at {first:#x} crosses {BOUNDARY_BYTES} bytes"
    )


class _Bursts:
    """Lengths of the bursts of one direction whose last beat is still to come.

    W beats may come before their AW, so whichever side is behind waits in its queue.
    """

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.expected: deque[int] = deque()
        self.seen: deque[int] = deque()
        self.beats = 0
        #: Bursts of which address and last beat have moved, and no response yet.
        self.unanswered = 0

    def address(self, length: int) -> None:
        """Note a burst of ``length`` + 1 beats."""
        self.expected.append(length + 1)
        self._match()

    def beat(self, last: int) -> None:
        """Note a beat and check the bursts that it ends."""
        self.beats += 1
        if last:
            self.seen.append(self.beats)
            self.beats = 0
        self._match()

    def _match(self) -> None:
        while self.expected and self.seen:
            expected, seen = self.expected.popleft(), self.seen.popleft()
            assert seen == expected, f"{self.channel}last on beat {seen} of {expected}"
            self.unanswered += 1
        if self.expected:
            assert self.beats < self.expected[0], (
                f"{self.channel}last is missing on beat {self.beats} of {self.expected[0]}"
            )


def check_axi(bus: Any) -> Bench:
    """Monitor which asserts the AXI4 rules on every channel that ``bus`` has.

    Checked: a raised valid stays, with a stable payload, until ready; bursts are INCR and do not
    cross 4 KiB; rlast and wlast mark exactly the last beats; a read beat and a write response
    answer a burst that was sent.
    """
    channels = [channel for channel in _PAYLOADS if hasattr(bus, f"{channel}valid")]
    names = [
        f"{channel}{name}"
        for channel in channels
        for name in ("valid", "ready", *_PAYLOADS[channel])
    ]
    signals = [getattr(bus, name) for name in names]

    async def monitor(ctx: Any) -> None:
        held: dict[str, dict[str, int]] = {}
        reads, writes = _Bursts("r"), _Bursts("w")
        while True:
            _, _, *values = await ctx.tick().sample(*signals)
            now = dict(zip(names, values, strict=True))
            moved: dict[str, dict[str, int]] = {}
            for channel in channels:
                payload = {name: now[channel + name] for name in _PAYLOADS[channel]}
                valid, before = now[f"{channel}valid"], held.pop(channel, None)
                assert before is None or valid, f"{channel}valid fell before {channel}ready"
                assert before is None or payload == before, f"{channel} payload is unstable"
                if valid:
                    (moved if now[f"{channel}ready"] else held)[channel] = payload
            if "b" in moved:
                assert writes.unanswered, "bvalid without a finished burst"
                writes.unanswered -= 1
            if "r" in moved:
                assert reads.expected, "rvalid without a burst"
                reads.beat(moved["r"]["last"])
            for channel, bursts in (("ar", reads), ("aw", writes)):
                if channel in moved:
                    _check_address(channel, moved[channel])
                    bursts.address(moved[channel]["len"])
            if "w" in moved:
                writes.beat(moved["w"]["last"])

    return monitor


def run(
    dut: Elaboratable,
    *benches: Bench,
    monitors: Sequence[Bench] = (),
    limit: int = 5_000,
    engine: str = "pysim",
) -> None:
    """Simulate until every bench returns.

    Parameters
    ----------
    benches, monitors : async functions of a simulator context
        Monitors run in the background and may be endless.
    limit : int
        Cycles after which the run ends with `TimeoutError`.
    engine : str
        One of `ENGINES`.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")

    async def watchdog(ctx: Any) -> None:
        for _ in range(limit):  # in a background bench, `repeat` or `until` would break at exit
            await ctx.tick()
        raise TimeoutError(f"benches still running after {limit} cycles")

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    for bench in benches:
        sim.add_testbench(bench)
    for monitor in (*monitors, watchdog):
        sim.add_testbench(monitor, background=True)
    sim.run()
