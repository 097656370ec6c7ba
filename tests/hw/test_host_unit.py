"""The host unit between the movers of the host port and the lanes of the unified buffer."""

from collections import deque
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.cores.tpu_v1.host import HostUnit
from npulse.hw.spec.tpu_v1 import PRESETS, ArrayConfig, BusConfig, MemoryConfig
from npulse.hw.spec.tpu_v1_isa import READ_HOST, WRITE_HOST, ErrorCode
from npulse.sim.simulator import Simulator

ROWS = 32  #: Rows of the buffer.
RESPONSE = 6  #: Cycles from the last beat of a write to the answer of the memory.


def always():
    return True


class HostBench:
    """A host unit with models of reader, writer and buffer around it."""

    def __init__(self, lanes, beat_bytes):
        self.config = replace(
            PRESETS["sim"],
            array=ArrayConfig(rows=lanes, cols=lanes),
            memory=MemoryConfig(unified_buffer_rows=ROWS, accumulator_rows=16),
            bus=BusConfig(host_bytes=beat_bytes),
        )
        self.dut = HostUnit(self.config)
        self.sim = Simulator(self.dut, engine="pysim")
        self.sim.add_clock(1e-6)
        self.sim.add_testbench(self.bench)
        self.fresh = True

    def run(self, orders, *, cycles, rng=None, coin=always, drains=True):
        """Carry out orders; ``coin()`` says whether a side is ready, `drains` whether the writer
        takes anything at all.

        Notes cycles with what happened in them: `descs` (direction and values), `stores` and
        `collects` (address, beat, octets), `written` beats, `taken` orders, `errors`, and whether
        the unit was idle.
        """
        self.orders, self.cycles, self.coin = deque(orders), cycles, coin
        self.rng, self.drains = rng or Random(0), drains
        self.descs, self.stores, self.collects, self.written = [], [], [], []
        self.taken, self.errors, self.idles, self.writer_idles = [], [], [], []
        self.sent = []  # beats that the reader gave, in order
        if not self.fresh:
            self.sim.reset()
        self.fresh = False
        self.sim.run()
        return self

    async def bench(self, ctx):
        self.to_read = self.to_write = 0  # beats that reader and writer still have to move
        self.answer = 0  # cycles until the memory has answered the last write
        self.beat = None
        #: Beats inside the lanes; a beat comes out as long after its command as in the core.
        self.lanes = deque([None] * (self.config.lanes + self.config.memory.sram_latency + 1))
        for cycle in range(self.cycles):
            self.offer(ctx)
            self.note(ctx, cycle)
            await ctx.tick()

    def offer(self, ctx):
        """Set the inputs of a cycle."""
        dut, coin = self.dut, self.coin
        order = self.orders[0] if self.orders else None
        ctx.set(dut.orders.valid, order is not None)
        if order is not None:
            ctx.set(dut.orders.payload, order)
        ctx.set(dut.read_desc.ready, coin())
        ctx.set(dut.write_desc.ready, coin())
        ctx.set(dut.store.ready, coin())
        ctx.set(dut.collect.ready, coin())
        if self.beat is None and self.to_read and coin():
            self.beat = self.rng.randrange(1 << 8 * self.config.bus.host_bytes)
        ctx.set(dut.read_beats.valid, self.beat is not None)
        ctx.set(dut.read_beats.payload, self.beat or 0)
        ctx.set(dut.write_beats.ready, self.drains and self.to_write > 0 and coin())
        ctx.set(dut.reader_idle, self.to_read == 0)
        self.answer = max(0, self.answer - 1) if self.to_write == 0 else RESPONSE
        self.writer_idles.append(self.answer == 0)
        ctx.set(dut.writer_idle, self.answer == 0)
        beat = self.lanes.popleft()
        width = self.config.bus.host_bytes
        octets = list((0xBADBADBADBAD if beat is None else beat).to_bytes(8, "little")[:width])
        ctx.set(dut.fetched, {"valid": beat is not None, "octets": octets})

    def note(self, ctx, cycle):
        """Note the transfers of a cycle."""
        dut = self.dut
        if moves(ctx, dut.orders):
            self.orders.popleft()
            self.taken.append(cycle)
        for name, port in (("read", dut.read_desc), ("write", dut.write_desc)):
            if moves(ctx, port):
                p = ctx.get(port.payload)
                self.descs.append((name, p.addr, p.beats, p.rows, p.stride))
                if name == "read":
                    self.to_read += p.beats * p.rows
                else:
                    self.to_write += p.beats * p.rows
        if moves(ctx, dut.store):
            p = ctx.get(dut.store.payload)
            self.stores.append((cycle, p.place.addr, p.place.beat, p.octets))
        if moves(ctx, dut.read_beats):
            self.sent.append(self.beat)
            self.beat, self.to_read = None, self.to_read - 1
        if moves(ctx, dut.collect):
            place = ctx.get(dut.collect.payload)
            octets = self.rng.randrange(1 << 8 * self.config.bus.host_bytes)
            self.collects.append((cycle, place.addr, place.beat, octets))
            self.lanes.append(octets)
        else:
            self.lanes.append(None)
        if moves(ctx, dut.write_beats):
            self.written.append(ctx.get(dut.write_beats.payload))
            self.to_write -= 1
        error = ctx.get(dut.error)
        if error.code:
            self.errors.append((cycle, ErrorCode(error.code), error.pc))
        self.idles.append(ctx.get(dut.idle))


def moves(ctx, port):
    return ctx.get(port.valid) and ctx.get(port.ready)


def order(opcode, *, pc=0, dram_addr=0, ub_addr=0, rows=1, runs=1, dram_stride=0, ub_stride=0):
    fields = {
        "opcode": opcode,
        "dram_addr": dram_addr,
        "ub_addr": ub_addr,
        "rows": rows,
        "runs": runs,
        "dram_stride": dram_stride,
        "ub_stride": ub_stride,
    }
    return {"fields": fields, "ticket": 0, "pc": pc}


def places(config, one):
    """Rows and beats that an order moves, in order."""
    f = one["fields"]
    return [
        (f["ub_addr"] + run * f["ub_stride"] + row, beat)
        for run in range(f["runs"])
        for row in range(f["rows"])
        for beat in range(config.host_row_beats)
    ]


@cache
def host(lanes, beat_bytes):
    return HostBench(lanes, beat_bytes)


def test_read_stores_a_beat_a_cycle_row_by_row_and_run_by_run():
    bench = host(4, 2)
    one = order(
        READ_HOST.opcode, dram_addr=0x400, ub_addr=5, rows=2, runs=2, dram_stride=64, ub_stride=10
    )
    bench.run([one], cycles=40)
    assert bench.descs == [("read", 0x400, 4, 2, 64)]  # two rows of two beats are contiguous
    wanted = [(row, beat) for row in (5, 6, 15, 16) for beat in (0, 1)]
    assert [store[1:3] for store in bench.stores] == wanted
    first = bench.stores[0][0]
    assert [store[0] for store in bench.stores] == list(range(first, first + 8))
    assert [store[3] for store in bench.stores] == bench.sent


def test_write_collects_a_beat_a_cycle_and_hands_on_what_comes_out():
    bench = host(4, 2)
    one = order(
        WRITE_HOST.opcode, dram_addr=0x800, ub_addr=1, rows=3, runs=2, dram_stride=32, ub_stride=8
    )
    bench.run([one], cycles=60)
    assert bench.descs == [("write", 0x800, 6, 2, 32)]
    wanted = [(row, beat) for row in (1, 2, 3, 9, 10, 11) for beat in (0, 1)]
    assert [collect[1:3] for collect in bench.collects] == wanted
    first = bench.collects[0][0]
    assert [collect[0] for collect in bench.collects] == list(range(first, first + 12))
    assert bench.written == [collect[3] for collect in bench.collects]


def test_is_idle_again_when_the_last_beat_may_be_read_from_the_buffer():
    """The last store passes ``lanes`` lanes; four more cycles are those of its registers."""
    bench = host(3, 4)
    bench.run([order(READ_HOST.opcode, rows=2)], cycles=40)
    last = bench.stores[-1][0]
    assert bench.idles[bench.taken[0]] == 1
    quiet = last + bench.config.lanes + 4 + 1
    assert bench.idles[bench.taken[0] + 1 : quiet + 1] == [0] * (quiet - bench.taken[0] - 1) + [1]


def test_write_ends_with_the_answer_of_the_memory_and_not_before():
    bench = host(4, 2)
    bench.run([order(WRITE_HOST.opcode, rows=2), order(READ_HOST.opcode)], cycles=60)
    answered = len(bench.writer_idles) - bench.writer_idles[::-1].index(False)
    # One cycle to see it, and the next order is taken.
    assert bench.taken == [0, answered + 1]
    assert bench.idles[1 : answered + 1] == [0] * answered


def test_a_stalled_writer_never_loses_a_beat():
    """More beats than the queue holds: the unit stops asking before the queue is full."""
    bench = host(2, 1)
    slow = Random(3)
    bench.run(
        [order(WRITE_HOST.opcode, rows=ROWS)], cycles=1000, coin=lambda: slow.randrange(3) == 0
    )
    assert len(bench.written) == 2 * ROWS
    assert bench.written == [collect[3] for collect in bench.collects]


def test_stops_collecting_while_the_writer_takes_nothing():
    bench = host(2, 1)
    bench.run([order(WRITE_HOST.opcode, rows=ROWS)], cycles=150, drains=False)
    assert len(bench.collects) == 16  # the power of two above 2 lanes + 7
    assert not bench.written and not bench.idles[-1]


@pytest.mark.parametrize("opcode", [READ_HOST.opcode, WRITE_HOST.opcode])
@pytest.mark.parametrize("first, error", [(ROWS - 2, None), (ROWS - 1, 1), (ROWS, 0)])
def test_row_beyond_the_buffer_is_an_error_with_the_instructions_index(opcode, first, error):
    bench = host(4, 4)
    bench.run([order(opcode, pc=41, ub_addr=first, rows=2)], cycles=40)
    steps = [step[0] for step in (bench.stores or bench.collects)]
    assert [cycle for cycle, _, _ in bench.errors] == ([] if error is None else steps[error:])
    assert {found[1:] for found in bench.errors} <= {(ErrorCode.BUFFER_RANGE, 41)}


ORDER = st.builds(
    order,
    st.sampled_from([READ_HOST.opcode, WRITE_HOST.opcode]),
    dram_addr=st.integers(0, 2**32 - 1),
    ub_addr=st.integers(0, 7),
    rows=st.integers(1, 4),
    runs=st.integers(1, 3),
    dram_stride=st.integers(0, 2**32 - 1),
    ub_stride=st.integers(0, 8),
)


@settings(max_examples=10)
@given(
    st.sampled_from([(1, 1), (3, 1), (4, 2), (3, 4)]),
    st.lists(ORDER, min_size=1, max_size=4),
    st.integers(2, 9),
    st.integers(0, 2**31),
)
def test_orders_move_their_beats_one_after_the_other_under_any_waits(shape, orders, speed, seed):
    bench, rng = host(*shape), Random(seed)
    total = sum(len(places(bench.config, one)) for one in orders)
    bench.run(
        orders, cycles=100 + 60 * total // speed, rng=rng, coin=lambda: rng.randrange(10) < speed
    )
    beats = bench.config.host_row_beats
    names = {READ_HOST.opcode: "read", WRITE_HOST.opcode: "write"}
    assert bench.descs == [
        (
            names[f["opcode"]],
            f["dram_addr"],
            f["rows"] * beats,
            f["runs"],
            f["dram_stride"],
        )
        for f in (one["fields"] for one in orders)
    ]
    steps = sorted(
        [(*store, True) for store in bench.stores] + [(*c, False) for c in bench.collects]
    )
    assert [(addr, beat, stored) for _, addr, beat, _, stored in steps] == [
        (*place, one["fields"]["opcode"] == READ_HOST.opcode)
        for one in orders
        for place in places(bench.config, one)
    ]
    assert [store[3] for store in bench.stores] == bench.sent
    assert [collect[3] for collect in bench.collects] == bench.written
    assert bench.idles[-1] and not bench.errors
    for idle, writer_idle in zip(bench.idles, bench.writer_idles, strict=True):
        assert writer_idle or not idle
    # No order starts before the last beat of the one before it.
    done = iter(steps)
    for one, next_taken in zip(orders, [*bench.taken[1:], None], strict=True):
        last = [next(done) for _ in places(bench.config, one)][-1]
        assert next_taken is None or last[0] < next_taken
