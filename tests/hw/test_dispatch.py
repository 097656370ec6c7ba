"""The front end: order, tickets, Sync and Halt, and every way in which a program may end."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.cores.tpu_v1.dispatch import Dispatcher
from npulse.hw.spec.tpu_v1 import PRESETS, BusConfig
from npulse.hw.spec.tpu_v1_isa import ISA, UNITS, ErrorCode
from npulse.sim.simulator import Simulator

UNIT_NAMES = list(UNITS)
HALT = ISA.make("Halt")
ADDR = 0x1230


def word(instruction):
    return int.from_bytes(ISA.encode(instruction), "little")


def always(*_):
    return True


class Front:
    """One dispatcher, run anew for each program; notes what it does in each cycle."""

    def __init__(self, instruction_bytes):
        self.config = replace(PRESETS["sim"], bus=BusConfig(instruction_bytes=instruction_bytes))
        self.dut = Dispatcher(self.config)
        self.sim = Simulator(self.dut, engine="pysim")
        self.sim.add_clock(1e-6)
        self.sim.add_testbench(self.bench)
        self.fresh = True

    def run(
        self, *programs, ready=always, idle=None, beat=always, inputs=None, cycles=200, after=3
    ):
        """Run programs (lists of words) one after the other; each ends when `running` falls.

        `ready(unit, cycle)` is the readiness of a unit's queue, `idle(cycle)` the mask of idle
        units, `beat(cycle)` whether a beat comes, ``inputs[cycle]`` values of other inputs.
        """
        self.programs, self.ready, self.beat = programs, ready, beat
        self.idle = idle or (lambda cycle: 15)
        self.inputs, self.cycles, self.after = inputs or {}, cycles, after
        self.orders, self.descs, self.retired, self.seen, self.ends = [], [], [], [], []
        if not self.fresh:
            self.sim.reset()
        self.fresh = False
        self.sim.run()
        return self

    async def bench(self, ctx):
        self.cycle = 0
        for program in self.programs:
            await self.start(ctx, len(program))
            beats = self.cut(program)
            for _ in range(self.cycles):
                await self.step(ctx, beats)
                if not ctx.get(self.dut.running):
                    break
            else:
                raise TimeoutError(f"program still runs after {self.cycles} cycles")
            for _ in range(self.after):  # nothing may happen behind the end
                await self.step(ctx, beats)
            self.ends.append(self.end(ctx))

    def end(self, ctx):
        error = ctx.get(self.dut.error)
        return ctx.get(self.dut.done), ctx.get(self.dut.failed), ErrorCode(error.code), error.pc

    async def start(self, ctx, count):
        ctx.set(self.dut.program_addr, ADDR)
        ctx.set(self.dut.program_count, count)
        ctx.set(self.dut.start, 1)
        await ctx.tick()
        ctx.set(self.dut.start, 0)

    def cut(self, program):
        width = self.config.bus.instruction_bytes
        whole = b"".join(value.to_bytes(ISA.word_bytes, "little") for value in program)
        return [
            int.from_bytes(whole[at : at + width], "little") for at in range(0, len(whole), width)
        ]

    async def step(self, ctx, beats):
        dut, cycle = self.dut, self.cycle
        offered = bool(beats) and self.beat(cycle)
        ctx.set(dut.beats.valid, offered)
        ctx.set(dut.beats.payload, beats[0] if offered else 0)
        ctx.set(dut.desc.ready, self.beat(cycle))
        ctx.set(dut.idle, self.idle(cycle))
        values = {"clear": 0, "leftover": 0, "unit_error": {"code": 0, "pc": 0}}
        for name, value in {**values, **self.inputs.get(cycle, {})}.items():
            ctx.set(getattr(dut, name), value)
        for unit in UNIT_NAMES:
            port = getattr(dut, unit)
            ctx.set(port.ready, self.ready(unit, cycle))
            if ctx.get(port.valid) and ctx.get(port.ready):
                self.orders.append((cycle, unit, ctx.get(port.payload)))
        if ctx.get(dut.desc.valid) and ctx.get(dut.desc.ready):
            p = ctx.get(dut.desc.payload)
            self.descs.append((p.addr, p.beats, p.rows))
        if offered and ctx.get(dut.beats.ready):
            beats.pop(0)
        if ctx.get(dut.retired):
            self.retired.append(cycle)
        flags = {name: ctx.get(getattr(dut, name)) for name in ("syncing", "running")}
        self.seen.append(flags | {"end": self.end(ctx)})
        await ctx.tick()
        self.cycle += 1


@pytest.fixture(scope="module")
def wide():
    """A whole instruction a beat, so that nothing but the front end sets the pace."""
    return Front(32)


@pytest.fixture(scope="module")
def narrow():
    return Front(4)


def fields_of(unit, payload):
    """Opcode and operands of an order."""
    return payload if unit == "weights" else payload.fields


def test_hands_on_one_instruction_a_cycle_with_fields_and_index(wide):
    program = [
        ISA.make("ReadHostMemory", dram_addr=0x500, ub_addr=7, rows=3, runs=2, ub_stride=9),
        ISA.make("ReadWeights", dram_addr=0x600, tiles=5),
        ISA.make("MatrixMultiply", ub_addr=70, fill=-3, origin_x=-1),
        ISA.make("WriteHostMemory", dram_addr=0x700, rows=4),
        ISA.make("ReadParameters", dram_addr=0x800, entries=6),
        ISA.make("Activate", acc_addr=65, ub_addr=80, origin_y=-2),
    ]
    front = wide.run([word(i) for i in [*program, HALT]])
    assert front.descs == [(ADDR, len(program) + 1, 1)]
    first = front.retired[0]
    assert front.retired == list(range(first, first + len(program) + 1))
    assert [(cycle - first, unit) for cycle, unit, _ in front.orders] == [
        (n, i.format.unit) for n, i in enumerate(program)
    ]
    for n, (instruction, (_, unit, payload)) in enumerate(zip(program, front.orders, strict=True)):
        got = fields_of(unit, payload)
        assert got.opcode == instruction.format.opcode
        names = [name for name in instruction.values if name != "entries"]
        assert [got[name] for name in names] == [instruction.values[name] for name in names]
        assert unit == "weights" or payload.pc == n
    assert front.orders[4][2].tiles == 6  # `entries` lies where `tiles` does
    assert front.ends == [(1, 0, ErrorCode.NONE, 0)]


def test_puts_an_instruction_together_from_narrow_beats(narrow):
    instruction = ISA.make("Activate", ub_addr=0x1ABCD, limit_x=0xABC, ub_y_stride=0x12345)
    front = narrow.run([word(instruction), word(HALT)])
    assert front.descs == [(ADDR, 2 * 8, 1)]
    _, unit, payload = front.orders[0]
    assert {name: payload.fields[name] for name in instruction.values} == instruction.values


def test_a_full_queue_holds_back_the_instructions_behind_it(wide):
    program = [ISA.make("ReadWeights"), ISA.make("MatrixMultiply"), HALT]
    front = wide.run(
        [word(i) for i in program], ready=lambda unit, cycle: unit != "weights" or cycle >= 30
    )
    assert [(cycle, unit) for cycle, unit, _ in front.orders] == [(30, "weights"), (31, "matrix")]


def test_beats_wait_while_the_words_fetched_ahead_are_full(narrow):
    tiles = list(range(1, 11))
    program = [word(ISA.make("ReadWeights", tiles=n)) for n in tiles]
    front = narrow.run([*program, word(HALT)], ready=lambda _, cycle: cycle >= 120, cycles=300)
    assert [payload.tiles for _, _, payload in front.orders] == tiles
    assert front.orders[0][0] == 120


@pytest.mark.parametrize("unit", UNIT_NAMES)
def test_sync_waits_for_its_units_alone(wide, unit):
    mask = UNITS[unit]
    program = [ISA.make("Sync", units=mask), ISA.make("ReadWeights"), HALT]
    others = wide.run([word(i) for i in program], idle=lambda cycle: mask if cycle < 30 else 15)
    assert others.orders[0][0] < 20
    own = wide.run([word(i) for i in program], idle=lambda cycle: 15 if cycle >= 30 else 15 - mask)
    assert own.retired[0] == 30 and own.orders[0][0] == 31
    # The counters call it waiting for activations only where the buffer's writers are waited for.
    assert own.seen[29]["syncing"] == (unit in ("host", "activate"))
    assert not own.seen[30]["syncing"]


def test_halt_waits_for_all_units(wide):
    for unit in UNIT_NAMES:
        busy = 15 - UNITS[unit]
        front = wide.run([word(HALT)], idle=lambda cycle, busy=busy: 15 if cycle >= 25 else busy)
        assert front.retired == [25]
        assert [cycle for cycle, seen in enumerate(front.seen) if seen["running"]][-1] == 25


def test_ticket_counts_the_other_units_instructions_on_the_same_half(wide):
    half = wide.config.half_rows
    program = []
    for unit, at in [("M", 0), ("M", 1), ("A", 1), ("A", 0), ("A", 0), ("M", 0), ("M", 1)]:
        name = "MatrixMultiply" if unit == "M" else "Activate"
        program.append(ISA.make(name, acc_addr=at * half + 3))
    front = wide.run([word(i) for i in [*program, HALT]])
    assert [payload.ticket for _, _, payload in front.orders] == [0, 0, 1, 1, 1, 2, 1]


def test_tickets_go_on_from_program_to_program_and_wrap(wide):
    long = [word(ISA.make("Activate"))] * 257
    after = [word(ISA.make("MatrixMultiply")), word(HALT)]
    front = wide.run([*long, word(HALT)], after, cycles=400)
    assert front.orders[-1][2].ticket == 257 % 256
    assert front.orders[256][2].pc == 256 and front.orders[-1][2].pc == 0


RESERVED = word(HALT) | 1 << 200
ZERO_COUNT = word(ISA.make("ReadWeights")) & 0xF


@pytest.mark.parametrize("bad", [0, 15, RESERVED, ZERO_COUNT], ids=hex)
def test_illegal_instruction_stops_with_its_index(wide, bad):
    good = word(ISA.make("ReadWeights"))
    front = wide.run([good, good, bad, good, word(HALT)])
    assert front.ends == [(0, 1, ErrorCode.ILLEGAL_INSTRUCTION, 2)]
    assert len(front.orders) == 2


def test_program_without_halt_stops_behind_its_end(wide):
    front = wide.run([word(ISA.make("ReadWeights"))] * 3)
    assert front.ends == [(0, 1, ErrorCode.NO_HALT, 3)]


def test_leftovers_at_halt_are_an_error(wide):
    front = wide.run([word(HALT)], inputs={cycle: {"leftover": 1} for cycle in range(50)})
    assert front.ends == [(0, 1, ErrorCode.LEFTOVER, 0)]


@pytest.mark.parametrize("code", [ErrorCode.BUS, ErrorCode.BUFFER_RANGE])
def test_error_of_a_unit_stops_the_program_with_the_units_index(wide, code):
    program = [word(ISA.make("Sync", units=1)), word(ISA.make("ReadWeights")), word(HALT)]
    inputs = {20: {"unit_error": {"code": code, "pc": 77}}}
    front = wide.run(program, idle=lambda cycle: 0, inputs=inputs)
    assert front.ends == [(0, 1, code, 77)]
    assert not front.orders


def test_first_error_stays_until_cleared(wide):
    """An error of a unit comes before one of the front end in the same cycle, but not after it."""
    late = {"unit_error": {"code": ErrorCode.BUS, "pc": 9}}
    illegal, bus = (0, 1, ErrorCode.ILLEGAL_INSTRUCTION, 0), (0, 1, ErrorCode.BUS, 9)
    failed = [seen["end"][1] for seen in wide.run([0]).seen].index(1)
    inputs = {failed: late, failed + 1: late, failed + 3: {"clear": 1}}
    ends = [seen["end"] for seen in wide.run([0], inputs=inputs, after=6).seen]
    assert ends[failed : failed + 5] == [illegal] * 4 + [(0, 0, ErrorCode.NONE, 0)]
    assert wide.run([0], inputs={failed - 1: late}).ends == [bus]


def test_next_start_lowers_done_and_failed(wide):
    """Only an end behind the last instruction may be followed by a start without a reset."""
    endless = [word(ISA.make("ReadWeights"))]
    front = wide.run(endless, [word(HALT)], endless)
    assert [end[:2] for end in front.ends] == [(0, 1), (1, 0), (0, 1)]
    assert all(seen["end"][:2] == (0, 0) for seen in front.seen if seen["running"])


@settings(max_examples=15)
@given(st.lists(st.integers(0, 2**32), max_size=12), st.integers(1, 9), st.integers(0, 2**31))
def test_any_program_is_handed_on_in_order_under_any_waits(narrow, seeds, speed, seed):
    program = [ISA.random(Random(one)) for one in seeds]
    program = [*(i for i in program if i.format.name != "Halt"), HALT]
    rng = Random(seed)
    idles = [rng.randrange(16) | (15 if rng.randrange(10) < speed else 0) for _ in range(4000)]
    front = narrow.run(
        [word(i) for i in program],
        ready=lambda *_: rng.randrange(10) < speed,
        beat=lambda _: rng.randrange(10) < speed,
        idle=lambda cycle: idles[cycle],
        cycles=4000,
    )
    assert front.ends == [(1, 0, ErrorCode.NONE, 0)]
    assert len(front.retired) == len(program)
    orders = iter(front.orders)
    issued = {"matrix": [0, 0], "activate": [0, 0]}
    for pc, (instruction, cycle) in enumerate(zip(program, front.retired, strict=True)):
        unit, values = instruction.format.unit, instruction.values
        if unit == "dispatch":  # `Halt` has no field and waits for all
            assert values.get("units", 15) & ~idles[cycle] == 0
            continue
        accepted, name, payload = next(orders)
        assert (accepted, name) == (cycle, unit)
        got = fields_of(unit, payload)
        assert got.opcode == instruction.format.opcode
        assert [got[n] for n in values if n != "entries"] == [
            values[n] for n in values if n != "entries"
        ]
        assert unit == "weights" or payload.pc == pc
        if unit in issued:
            half = values["acc_addr"] // front.config.half_rows % 2
            other = issued["activate" if unit == "matrix" else "matrix"]
            assert payload.ticket == other[half]
            issued[unit][half] += 1
    assert next(orders, None) is None
