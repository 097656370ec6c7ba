"""Bursts cover exactly the beats of a descriptor, inside 4 KiB, for narrow and wide buses."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.bus.axi4 import BOUNDARY_BYTES
from npulse.hw.dma.address import BurstGenerator
from npulse.sim.rtl.bench import check_stable, run, stream_get, stream_put

Block = tuple[int, int, int, int]


def row_starts(desc: Block) -> Iterator[tuple[int, int]]:
    """First beat and beats of each row, with addresses in beats."""
    addr, beats, rows, stride = desc
    return ((addr + row * stride, beats) for row in range(rows))


#: Address, beats, rows and stride, in beats; near both ends of the address space.
BLOCK = st.tuples(
    st.one_of(st.integers(0, 600), st.integers(2**25 - 600, 2**25 - 1)),
    st.integers(1, 300),
    st.integers(1, 4),
    st.integers(-300, 600),
)


@settings(max_examples=40)
@given(
    blocks=st.lists(BLOCK, min_size=1, max_size=3),
    shape=st.sampled_from([(8, 256), (8, 2), (128, 256), (1024, 32), (1024, 2)]),
    waits=st.integers(0, 2),
)
def test_bursts_cover_the_beats_in_order(
    blocks: list[Block], shape: tuple[int, int], waits: int
) -> None:
    data_width, max_burst_beats = shape
    beat_bytes = data_width // 8
    dut = BurstGenerator(data_width=data_width, max_burst_beats=max_burst_beats)

    async def offer(ctx: Any) -> None:
        for addr, beats, rows, stride in blocks:
            fields = dict(addr=addr, beats=beats, rows=rows, stride=stride)
            for name in ("addr", "stride"):
                fields[name] = fields[name] * beat_bytes % 2**32
            await stream_put(ctx, dut.desc, fields)

    async def take(ctx: Any) -> None:
        for start, beats in (row for desc in blocks for row in row_starts(desc)):
            position = start * beat_bytes % 2**32
            while beats:
                for _ in range(waits):
                    await ctx.tick()
                burst = await stream_get(ctx, dut.burst)
                length = burst.len + 1
                assert burst.addr == position
                assert length <= min(beats, max_burst_beats)
                last = position + length * beat_bytes - 1
                assert position // BOUNDARY_BYTES == last // BOUNDARY_BYTES
                # Only a row's first burst may be shorter than it could be.
                assert length == beats or (position // beat_bytes + length) % max_burst_beats == 0
                position, beats = (last + 1) % 2**32, beats - length
        for _ in range(5):
            assert not ctx.get(dut.burst.valid) and not ctx.get(dut.busy)
            await ctx.tick()

    run(dut, offer, take, monitors=[check_stable(dut.burst)], limit=20_000)
