"""The unified buffer: beats in, rows to the array, results back, beats out."""

from dataclasses import replace

import numpy as np
import pytest
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.memory.unified_buffer import UnifiedBuffer
from npulse.hw.spec.tpu_v1 import PRESETS, ArrayConfig, BusConfig, MemoryConfig

DEPTH = 16


def config(rows, cols, beat_bytes=2, latency=1):
    return replace(
        PRESETS["sim"],
        array=ArrayConfig(rows=rows, cols=cols),
        memory=MemoryConfig(unified_buffer_rows=DEPTH, accumulator_rows=16, sram_latency=latency),
        bus=BusConfig(host_bytes=beat_bytes),
    )


def drive(cfg, schedule, cycles):
    """Apply ``schedule[cycle] -> {port: value}``; return what the outputs were in each cycle."""
    dut = UnifiedBuffer(cfg)
    rows = cfg.array.rows
    seen = []

    async def bench(ctx):
        for cycle in range(cycles):
            step = schedule.get(cycle, {})
            ctx.set(dut.read, {"addr": 3, "fill": -1, **step.get("read", {})})
            ctx.set(dut.write, {"addr": 5, **step.get("write", {})})
            ctx.set(dut.read_group, step.get("read_group", 0))
            ctx.set(dut.write_group, step.get("write_group", 0))
            for k in range(cfg.bus.host_bytes):
                ctx.set(dut.store[k], step.get("store", [0x5A] * cfg.bus.host_bytes)[k])
            for n in range(cfg.array.cols):
                ctx.set(dut.result[n], step.get("result", {}).get(n, 0x33))
            seen.append(
                dict(
                    act=[ctx.get(dut.act[k]) for k in range(rows)],
                    swap=[ctx.get(dut.swap[k]) for k in range(rows)],
                    fetch=[ctx.get(dut.fetch.octets[k]) for k in range(cfg.bus.host_bytes)],
                    valid=ctx.get(dut.fetch.valid),
                )
            )
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return dut, seen


def store_all(cfg, image, schedule, start=0):
    """Write a whole (DEPTH, lanes) image, one beat a cycle; return the cycle after."""
    width, cycle = cfg.bus.host_bytes, start
    for addr, row in enumerate(image):
        octets = np.zeros(cfg.host_row_beats * width, np.uint8)
        octets[: cfg.lanes] = row.astype(np.int8).view(np.uint8)
        for beat in range(cfg.host_row_beats):
            step = schedule.setdefault(cycle, {})
            step["write"] = {"store": 1, "beat": beat, "addr": addr}
            step["store"] = octets[beat * width : (beat + 1) * width].tolist()
            cycle += 1
    return cycle


SHAPES = [(1, 1), (3, 3), (4, 2), (5, 2), (2, 4), (2, 5), (8, 8), (1, 4), (4, 1)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("beat_bytes, latency", [(1, 2), (2, 1), (4, 1)])
def test_feeds_array_and_port_with_what_was_stored(shape, beat_bytes, latency):
    cfg = config(*shape, beat_bytes, latency)
    rng = np.random.default_rng(sum(shape) + beat_bytes)
    image = rng.integers(-128, 128, (DEPTH, cfg.lanes))
    schedule: dict = {}
    cycle = store_all(cfg, image, schedule)
    cycle += UnifiedBuffer(cfg).write_hops
    wanted_act, wanted_fetch = {}, []
    for step in range(30):
        addr = int(rng.integers(DEPTH))
        if step % 2:
            group = int(rng.integers(cfg.read_groups))
            pad = bool(rng.integers(2))
            read = {"en": 1, "swap": step % 4 == 1, "pad": pad, "fill": -7, "addr": addr}
            schedule[cycle] = {"read": read, "read_group": group}
            first = group * cfg.group_lanes if cfg.read_groups > 1 else 0
            row = np.full(cfg.lanes, -7) if pad else image[addr]
            row = row[first:]
            if cfg.read_groups > 1:
                row = row[: cfg.group_lanes]
            wanted_act[cycle] = (row, read["swap"])
        else:
            beat = int(rng.integers(cfg.host_row_beats))
            schedule[cycle] = {"read": {"collect": 1, "beat": beat, "addr": addr}}
            octets = image[addr, beat * beat_bytes : (beat + 1) * beat_bytes]
            wanted_fetch.append(octets.astype(np.int8).view(np.uint8).tolist())
        cycle += 1
    _, seen = drive(cfg, schedule, cycle + cfg.lanes + 6)
    for start, (row, swap) in wanted_act.items():
        for k, value in enumerate(row[: cfg.array.rows]):
            assert seen[start + latency + 1 + k]["act"][k] == value
            assert seen[start + latency + k]["swap"][k] == swap
    fetched = [step["fetch"] for step in seen if step["valid"]]
    assert [f[: len(w)] for f, w in zip(fetched, wanted_fetch, strict=True)] == wanted_fetch


@settings(max_examples=40)
@given(st.sampled_from(SHAPES), st.integers(1, 2), st.data())
def test_results_and_stores_interleave_without_loss(shape, latency, data):
    cfg = config(*shape, 2, latency)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    image = rng.integers(-128, 128, (DEPTH, cfg.lanes))
    schedule: dict = {}
    cycle = store_all(cfg, image, schedule)
    results = data.draw(
        st.lists(
            st.tuples(st.integers(0, DEPTH - 1), st.integers(0, cfg.write_groups - 1)), max_size=12
        )
    )
    for addr, group in results:
        values = rng.integers(-128, 128, cfg.array.cols)
        step = schedule.setdefault(cycle, {})
        step["write"] = {"result": 1, "addr": addr}
        step["write_group"] = group
        for n, value in enumerate(values):
            schedule.setdefault(cycle + n, {}).setdefault("result", {})[n] = int(value)
        first = group * cfg.array.cols if cfg.write_groups > 1 else 0
        lanes = min(cfg.array.cols, cfg.lanes - first)
        image[addr, first : first + lanes] = values[:lanes]
        cycle += 1
    cycle += UnifiedBuffer(cfg).write_hops
    for addr in range(DEPTH):
        for beat in range(cfg.host_row_beats):
            schedule[cycle] = {"read": {"collect": 1, "beat": beat, "addr": addr}}
            cycle += 1
    _, seen = drive(cfg, schedule, cycle + cfg.lanes + 6)
    octets = np.array([step["fetch"] for step in seen if step["valid"]], np.uint8)
    rows = octets.reshape(DEPTH, -1)[:, : cfg.lanes].view(np.int8)
    np.testing.assert_array_equal(rows[:, : cfg.block_channels], image[:, : cfg.block_channels])
