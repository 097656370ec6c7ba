"""Memories: every kind of port, ranges, granularity, order of writes, numpy views."""

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, signed
from amaranth.lib.memory import Memory

from npulse.sim.engine.bulk import Compiled
from npulse.sim.engine.cache import ObjectCache

NO_CACHE = ObjectCache(None)


def design(shape: Any, depth: int, init: list[int], **ports: Any) -> tuple[Module, Memory]:
    m = Module()
    m.submodules.words = words = Memory(shape=shape, depth=depth, init=init)
    return m, words


@pytest.mark.parametrize("width", [1, 7, 8, 16, 33, 64, 65, 72, 192, 2048])
@pytest.mark.parametrize("depth", [1, 3, 8])
def test_rows_of_any_width_and_depth_read_back(width: int, depth: int) -> None:
    init = [(0x9E3779B97F4A7C15 * (n + 1)) % (1 << width) for n in range(depth)]
    m, words = design(width, depth, init)
    write, sync, comb = words.write_port(), words.read_port(), words.read_port(domain="comb")
    compiled = Compiled(m, cache=NO_CACHE)
    want = list(init)
    for step in range(3 * depth):
        addr, value = step % depth, (step * 0xABCDEF123457) % (1 << width)
        for port in (write, sync, comb):
            compiled.set(port.addr, addr)
        compiled.set(write.data, value)
        compiled.set(write.en, step % 3 != 1)
        assert compiled.get(comb.data) == want[addr]
        old = want[addr]
        if step % 3 != 1:
            want[addr] = value
        compiled.step()
        assert compiled.get(sync.data) == old, "a synchronous read sees the old row"
    rows = compiled.memory("words")
    whole = [
        int(row) if rows.ndim == 1 else int.from_bytes(row.tobytes(), "little") for row in rows
    ]
    assert whole == want


def test_reads_past_the_last_row_are_zero_and_writes_are_dropped() -> None:
    m, words = design(8, 5, [11, 22, 33, 44, 55])
    write, sync, comb = words.write_port(), words.read_port(), words.read_port(domain="comb")
    compiled = Compiled(m, cache=NO_CACHE)
    for addr in (5, 6, 7):
        for port in (write, sync, comb):
            compiled.set(port.addr, addr)
        compiled.set(write.en, 1)
        compiled.set(write.data, 99)
        assert compiled.get(comb.data) == 0
        compiled.step()
        assert compiled.get(sync.data) == 0
    assert list(compiled.memory("words")) == [11, 22, 33, 44, 55]


@pytest.mark.parametrize("transparent", [False, True])
def test_transparency_counts_where_the_write_is_masked(transparent: bool) -> None:
    m, words = design(12, 4, [0x123] * 4)
    write = words.write_port(granularity=4)
    read = words.read_port(transparent_for=[write] if transparent else [])
    compiled = Compiled(m, cache=NO_CACHE)
    compiled.set(write.addr, 2)
    compiled.set(read.addr, 2)
    compiled.set(write.data, 0xABC)
    compiled.set(write.en, 0b101)
    compiled.step()
    assert compiled.get(read.data) == (0xA2C if transparent else 0x123)
    assert compiled.memory("words")[2] == 0xA2C


@pytest.mark.parametrize("width, grain", [(64, 8), (24, 3), (256, 8), (256, 64), (40, 8), (8, 1)])
def test_masked_writes_change_the_enabled_groups_only(width: int, grain: int) -> None:
    m, words = design(width, 4, [])
    write = words.write_port(granularity=grain)
    compiled = Compiled(m, cache=NO_CACHE)
    rng = np.random.default_rng(width * 1000 + grain)
    want = 0
    for _ in range(20):
        value = int.from_bytes(rng.bytes(width // 8), "little")
        enable = int.from_bytes(rng.bytes(64), "little") % (1 << width // grain)
        compiled.set(write.data, value)
        compiled.set(write.en, enable)
        compiled.step()
        for group in range(width // grain):
            if enable >> group & 1:
                mask = ((1 << grain) - 1) << group * grain
                want = want & ~mask | value & mask
        row = compiled.memory("words")[0]
        got = int(row) if row.ndim == 0 else int.from_bytes(row.tobytes(), "little")
        assert got == want


def test_the_later_of_two_ports_wins_bit_by_bit() -> None:
    m, words = design(8, 2, [])
    first, second = words.write_port(), words.write_port(granularity=4)
    compiled = Compiled(m, cache=NO_CACHE)
    compiled.set(first.data, 0xAB)
    compiled.set(first.en, 1)
    compiled.set(second.data, 0xCD)
    compiled.set(second.en, 0b01)
    compiled.step()
    assert compiled.memory("words")[0] == 0xAD


def test_a_read_port_without_enable_holds() -> None:
    m, words = design(8, 2, [5, 6])
    read = words.read_port()
    compiled = Compiled(m, cache=NO_CACHE)
    compiled.step()
    compiled.set(read.en, 0)
    compiled.set(read.addr, 1)
    compiled.step()
    assert compiled.get(read.data) == 5


def test_a_write_addressed_by_another_memory_sees_its_old_row() -> None:
    m, table = design(4, 4, [3, 0, 0, 0])
    m.submodules.target = target = Memory(shape=8, depth=16, init=[])
    change, look = table.write_port(), table.read_port(domain="comb")
    write = target.write_port()
    m.d.comb += [
        change.data.eq(9),
        change.en.eq(1),
        write.addr.eq(look.data),
        write.data.eq(55),
        write.en.eq(1),
    ]
    compiled = Compiled(m, cache=NO_CACHE)
    compiled.step()
    assert compiled.memory("words")[0] == 9
    assert np.flatnonzero(compiled.memory("target")).tolist() == [3]
    compiled.step()
    assert np.flatnonzero(compiled.memory("target")).tolist() == [3, 9]


def test_signed_rows_are_stored_as_bits_and_read_signed() -> None:
    m, words = design(signed(5), 2, [-3, 4])
    read = words.read_port(domain="comb")
    compiled = Compiled(m, cache=NO_CACHE)
    assert list(compiled.memory("words")) == [29, 4]
    assert compiled.get(read.data) == -3


def test_the_view_is_the_memory_itself() -> None:
    m, words = design(32, 16, [])
    read = words.read_port(domain="comb")
    compiled = Compiled(m, cache=NO_CACHE)
    view = compiled.memory(words)
    assert view.dtype == np.uint32 and view.shape == (16,)
    view[:] = np.arange(16) * 3
    compiled.set(read.addr, 7)
    assert compiled.get(read.data) == 21
    assert np.shares_memory(view, compiled.memory("words"))


def test_an_unknown_memory_is_named_with_the_known_ones() -> None:
    m, words = design(8, 2, [])
    words.read_port()
    compiled = Compiled(m, cache=NO_CACHE)
    with pytest.raises(KeyError) as error:
        compiled.memory("wards")
    assert error.value.args == ("memory must be one of ['words'], not 'wards'",)
