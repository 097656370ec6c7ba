"""The way of the weights: unit, credits, feeder and lanes, from the beats to the array."""

from collections import deque
from dataclasses import replace
from functools import cache
from random import Random

import numpy as np
import pytest
from amaranth.hdl import Elaboratable, Module
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.cores.tpu_v1.weights import Credit, WeightFeeder, WeightUnit
from npulse.hw.memory.weight_fifo import weight_lanes
from npulse.hw.spec.tpu_v1 import PRESETS, ArrayConfig, BusConfig, MemoryConfig
from npulse.hw.spec.tpu_v1_layout import PARAMETER_BYTES, pack_tiles
from npulse.sim.simulator import Simulator


def config(rows, cols, *, beat_bytes=2, tiles=2, latency=1):
    return replace(
        PRESETS["sim"],
        array=ArrayConfig(rows=rows, cols=cols),
        memory=MemoryConfig(weight_fifo_tiles=tiles, parameter_entries=2, sram_latency=latency),
        bus=BusConfig(weight_bytes=beat_bytes),
    )


def feed(rows, tiles, cycles, available, take):
    """Run a feeder; `available` and `take` say for a cycle and its ``ready`` what to do."""
    dut = WeightFeeder(config(rows, 2, tiles=tiles))
    seen = []

    async def bench(ctx):
        for cycle in range(cycles):
            takes = bool(ctx.get(dut.ready)) and take(cycle)
            ctx.set(dut.available, available(cycle))
            ctx.set(dut.take, takes)
            read = ctx.get(dut.read)
            seen.append(
                dict(
                    get=ctx.get(dut.get),
                    ready=ctx.get(dut.ready),
                    empty=ctx.get(dut.empty),
                    take=takes,
                    read=(read.load, read.last, read.addr),
                )
            )
            await ctx.tick()

    sim = Simulator(dut, engine="pysim")
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return seen


def times(seen, name):
    return [cycle for cycle, values in enumerate(seen) if values[name]]


def test_tile_slides_in_row_by_row_and_is_ready_after_its_rows():
    """The read command is registered, so a row's command shows one cycle after its count."""
    seen = feed(3, 2, 12, lambda cycle: 2 <= cycle <= 5, lambda cycle: False)
    assert times(seen, "get") == [2]
    assert [values["read"] for values in seen[3:6]] == [(1, 0, 0), (0, 0, 1), (0, 1, 2)]
    assert times(seen, "ready") == list(range(2 + 3, 12))
    assert [values["empty"] for values in seen] == [1, 1, 1] + [0] * 9


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("between", [1, 2, 4, 5, 9])
def test_period_is_exactly_the_larger_of_rows_and_time_between_takes(rows, between):
    taken = [-between]

    def take(cycle):
        if cycle < taken[-1] + between:
            return False
        taken.append(cycle)
        return True

    seen = feed(rows, 4, 80, lambda cycle: True, take)
    period = max(rows, between)
    assert set(np.diff(times(seen, "take"))) == {period}
    gets = times(seen, "get")
    assert set(np.diff(gets[1:])) == {period}
    assert gets[1:] == times(seen, "take")[: len(gets) - 1]  # the next tile starts with the take


@settings(max_examples=40)
@given(st.integers(1, 5), st.sampled_from([2, 4]), st.integers(1, 9), st.integers(0, 2**31))
def test_never_reads_a_tile_over_one_that_is_not_taken(rows, tiles, weight, seed):
    rng = Random(seed)
    seen = feed(
        rows, tiles, 120, lambda _: rng.randrange(10) < weight, lambda _: rng.randrange(10) < 5
    )
    gets, takes = times(seen, "get"), times(seen, "take")
    for index, get in enumerate(gets):
        whole = range(get + 1, min(get + 1 + rows, 120))
        for row, cycle in enumerate(whole):
            addr = (index * rows + row) % (tiles * rows)
            assert seen[cycle]["read"] == (row == 0, row == rows - 1, addr)
        if index:  # the shadow weights were taken before, or in this cycle
            assert takes[index - 1] <= get
    assert len(takes) <= len(gets)
    busy = {cycle for get in gets for cycle in range(get + 1, get + 1 + rows)}
    for cycle, values in enumerate(seen):
        assert cycle in busy or values["read"][:2] == (0, 0)
        before = [get for get in gets if get < cycle]
        held = len(before) > sum(take < cycle for take in takes)
        assert values["empty"] == (not held)
        assert values["ready"] == (held and before[-1] + rows <= cycle)


class Path(Elaboratable):
    """Weight unit, both credits, feeder and lanes, joined as in the core."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.unit, self.feeder = WeightUnit(cfg), WeightFeeder(cfg)
        self.tile = Credit(cfg.memory.weight_fifo_tiles)
        self.entry = Credit(cfg.memory.parameter_entries)
        self.lanes = weight_lanes(
            cols=cfg.array.cols,
            depth=self.feeder.depth,
            beats=cfg.weight_row_beats,
            latency=cfg.memory.sram_latency,
        )

    def elaborate(self, platform):
        m = Module()
        unit, feeder, tile, entry, lanes = (
            self.unit,
            self.feeder,
            self.tile,
            self.entry,
            self.lanes,
        )
        for name in ("unit", "feeder", "tile", "entry", "lanes"):
            m.submodules[name] = getattr(self, name)
        m.d.comb += [
            tile.put.eq(unit.tile_put),
            tile.get.eq(feeder.get),
            tile.free.eq(lanes.read_o.last),
            unit.tile_room.eq(tile.room),
            feeder.available.eq(tile.available),
            entry.put.eq(unit.entry_put),
            unit.entry_room.eq(entry.room),
            lanes.read_i.eq(feeder.read),
            lanes.write.eq(unit.tile_write),
        ]
        width = self.cfg.bus.weight_bytes
        for lane in range(self.cfg.array.cols):
            m.d.comb += lanes.beat[lane].eq(lane // width)
            m.d.comb += lanes.octet[lane].eq(unit.octets.word_select(lane % width, 8))
        return m


class PathBench:
    """Carries out orders with random waits at every side; notes what came out."""

    def __init__(self, cfg):
        self.cfg, self.dut = cfg, Path(cfg)
        self.sim = Simulator(self.dut, engine="pysim")
        self.sim.add_clock(1e-6)
        self.sim.add_testbench(self.bench)
        self.fresh = True

    def run(self, orders, contents, seed, cycles):
        """`orders` are (parameters, address, count), `contents` the beats that they fetch."""
        self.orders, self.beats, self.rng = deque(orders), deque(), Random(seed)
        self.contents, self.cycles = deque(contents), cycles
        self.descs, self.weights, self.entries = [], [], []
        self.loads, self.idles = [], []
        if not self.fresh:
            self.sim.reset()
        self.fresh = False
        self.sim.run()

    async def bench(self, ctx):
        unit, rng, cols = self.dut.unit, self.rng, self.cfg.array.cols
        filled, used = 0, 0  # parameter entries
        for _ in range(self.cycles):
            order = self.orders[0] if self.orders and rng.randrange(4) else None
            ctx.set(unit.orders.valid, order is not None)
            if order is not None:
                opcode = 6 if order[0] else 5
                fields = {"opcode": opcode, "dram_addr": order[1], "tiles": order[2]}
                ctx.set(unit.orders.payload, fields)
            ctx.set(unit.desc.ready, rng.randrange(3) > 0)
            beat = self.beats[0] if self.beats and rng.randrange(4) else None
            ctx.set(unit.beats.valid, beat is not None)
            ctx.set(unit.beats.payload, beat if beat is not None else 0)
            takes = bool(ctx.get(self.dut.feeder.ready)) and rng.randrange(3) == 0
            ctx.set(self.dut.feeder.take, takes)
            get = bool(ctx.get(self.dut.entry.available)) and rng.randrange(4) == 0
            free = used > 0 and rng.randrange(4) == 0
            ctx.set(self.dut.entry.get, get)
            ctx.set(self.dut.entry.free, free)
            used += get - free
            self.idles.append((ctx.get(unit.idle), len(self.beats)))
            if ctx.get(unit.desc.valid) and ctx.get(unit.desc.ready):
                p = ctx.get(unit.desc.payload)
                self.descs.append((p.addr, p.beats, p.rows, p.stride))
                self.beats.extend(self.contents.popleft())
            if order is not None and ctx.get(unit.orders.ready):
                self.orders.popleft()
            if beat is not None and ctx.get(unit.beats.ready):
                self.beats.popleft()
            write = ctx.get(unit.parameter_write)
            if write.en:
                self.entries.append((write.entry, write.octet, write.beat, ctx.get(unit.octets)))
            filled += ctx.get(unit.entry_put) - free
            assert filled <= self.cfg.memory.parameter_entries
            self.loads.append(ctx.get(self.dut.lanes.load[0]))
            self.weights.append([ctx.get(self.dut.lanes.weight[n]) for n in range(cols)])
            await ctx.tick()

    def tiles(self):
        """Tiles that slid into the array, from the wave of weights that follows each load."""
        rows, cols = self.cfg.array.rows, self.cfg.array.cols
        return [
            [[self.weights[at + k + n][n] for n in range(cols)] for k in range(rows)]
            for at, load in enumerate(self.loads)
            if load
        ]


@cache
def path(rows, cols, beat_bytes, tiles, latency):
    return PathBench(config(rows, cols, beat_bytes=beat_bytes, tiles=tiles, latency=latency))


PATHS = [(3, 3, 2, 2, 1), (1, 2, 4, 2, 2), (4, 1, 1, 4, 1), (2, 5, 2, 2, 2)]


@settings(max_examples=8)
@given(
    st.sampled_from(PATHS),
    st.lists(st.tuples(st.booleans(), st.integers(1, 2)), min_size=1, max_size=5),
    st.integers(0, 2**31),
)
def test_tiles_and_entries_arrive_whole_and_in_order_under_any_waits(shape, jobs, seed):
    bench = path(*shape)
    cfg, rng = bench.cfg, np.random.default_rng(seed)
    rows, cols, width = cfg.array.rows, cfg.array.cols, cfg.bus.weight_bytes
    orders, contents, descs, tiles, octets = [], [], [], [], []
    for index, (parameters, count) in enumerate(jobs):
        height = PARAMETER_BYTES if parameters else rows
        values = rng.integers(-128, 128, (count, height, cols)).astype(np.int8)
        if parameters:
            octets += values.reshape(-1, cols).tolist()
        else:
            tiles += values.tolist()
        raw = pack_tiles(cfg, values)
        contents.append(
            [int.from_bytes(raw[at : at + width], "little") for at in range(0, len(raw), width)]
        )
        orders.append((parameters, 4096 * index, count))
        unit_beats = height * cfg.weight_row_beats
        descs.append((4096 * index, unit_beats, count, unit_beats * width))
    total = sum(map(len, contents))
    bench.run(orders, contents, seed, 60 + 4 * total + 20 * len(tiles) + 20 * len(octets))
    assert bench.descs == descs and not bench.contents
    assert bench.tiles() == tiles
    written = iter(bench.entries)
    for index, row in enumerate(octets):
        unit, octet = divmod(index, PARAMETER_BYTES)
        for beat in range(cfg.weight_row_beats):
            entry, number, place, value = next(written)
            assert (entry, number, place) == (unit % 2, octet, beat)
            lanes = value.to_bytes(width, "little")[: cols - beat * width]
            assert list(lanes) == [v & 0xFF for v in row[beat * width : (beat + 1) * width]]
    assert next(written, None) is None
    for idle, waiting in bench.idles:
        assert not (idle and waiting), "idle while beats of an order are on their way"
    assert bench.idles[-1] == (1, 0)


def test_beats_wait_for_a_free_slot():
    """Two tiles fit; the third waits until the first has left the last column."""
    cfg = config(2, 3, beat_bytes=4)
    dut = Path(cfg)
    taken = []

    async def bench(ctx):
        ctx.set(dut.unit.orders.valid, 1)
        ctx.set(dut.unit.orders.payload, {"opcode": 5, "dram_addr": 0, "tiles": 3})
        ctx.set(dut.unit.desc.ready, 1)
        await ctx.tick()
        ctx.set(dut.unit.orders.valid, 0)
        ctx.set(dut.unit.beats.valid, 1)
        for cycle in range(20):
            if ctx.get(dut.unit.beats.ready):
                taken.append(cycle)
            last = ctx.get(dut.lanes.read_o.last)
            if last:
                freed.append(cycle)
            await ctx.tick()

    freed: list[int] = []
    sim = Simulator(dut, engine="pysim")
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    assert len(freed) == 1  # nobody takes the shadow weights, so the second tile stays
    first, _, _, fourth, fifth, sixth = taken
    assert fourth == first + 3
    assert (fifth, sixth) == (freed[0] + 1, freed[0] + 2)


def test_parameters_wait_for_a_free_entry():
    """Two entries fit; the third waits until one has been used and given back."""
    cfg = config(2, 3, beat_bytes=4)
    dut = Path(cfg)
    taken = []

    async def bench(ctx):
        ctx.set(dut.unit.orders.valid, 1)
        ctx.set(dut.unit.orders.payload, {"opcode": 6, "dram_addr": 0, "tiles": 3})
        ctx.set(dut.unit.desc.ready, 1)
        await ctx.tick()
        ctx.set(dut.unit.orders.valid, 0)
        ctx.set(dut.unit.beats.valid, 1)
        for cycle in range(80):
            ctx.set(dut.entry.get, cycle == 40)
            ctx.set(dut.entry.free, cycle == 50)
            if ctx.get(dut.unit.beats.ready):
                taken.append(cycle)
            await ctx.tick()

    sim = Simulator(dut, engine="pysim")
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    first = taken[0]
    assert taken[: 2 * PARAMETER_BYTES] == list(range(first, first + 2 * PARAMETER_BYTES))
    assert taken[2 * PARAMETER_BYTES :] == list(range(51, 51 + PARAMETER_BYTES))


@pytest.mark.parametrize("engine", ["pysim", "compiled"])
def test_asserts_that_no_tile_is_used_before_it_is_in_the_array(engine):
    dut = WeightFeeder(config(4, 2))

    async def bench(ctx):
        ctx.set(dut.available, 1)
        for cycle in range(6):
            ctx.set(dut.take, cycle == 2)
            await ctx.tick()

    sim = Simulator(dut, engine=engine)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    with pytest.raises(AssertionError, match="a tile was used before it was in the array$"):
        sim.run()
