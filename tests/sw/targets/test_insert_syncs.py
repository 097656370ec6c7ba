"""Order through the unified buffer: Syncs and reads hoisted over them, in text."""

from hypothesis import given
from hypothesis import strategies as st

from npulse.hw.spec.flavours import resolve
from npulse.hw.spec.tpu_v1_isa import UNITS
from npulse.sw.ir.tpu import (
    ActivateOp,
    HaltOp,
    MatrixMultiplyOp,
    ProgramOp,
    ReadHostOp,
    SyncOp,
    WriteHostOp,
)
from npulse.sw.passes.text import parse_module
from npulse.sw.targets.tpu_v1.hoist_reads import hoist_reads
from npulse.sw.targets.tpu_v1.insert_syncs import conflicts, insert_syncs

CONFIG = resolve("tpu-v1:sim").config


def program_of(*lines: str) -> ProgramOp:
    body = "\n    ".join((*lines, "tpu.halt {}"))
    module = parse_module(f"builtin.module {{\n  tpu.program @p {{\n    {body}\n  }}\n}}")
    program = module.body.block.first_op
    assert isinstance(program, ProgramOp)
    return program


def lines_of(program: ProgramOp) -> list[str]:
    return [str(op) for op in program.instructions][:-1]


LOAD = "tpu.read_host {rows = 4}"
MULTIPLY = "tpu.matrix_multiply {ub_addr = 2, switch = 1}"
ACTIVATE = "tpu.activate {ub_addr = 8, switch = 1}"
SECOND = "tpu.matrix_multiply {ub_addr = 8, acc_addr = 64, switch = 1}"
STORE = "tpu.write_host {dram_addr = 64, ub_addr = 8}"


def test_each_unit_waits_for_the_one_that_wrote_its_rows() -> None:
    program = program_of(LOAD, MULTIPLY, ACTIVATE, SECOND, STORE)
    insert_syncs(program)
    assert lines_of(program) == [
        LOAD,
        "tpu.sync {units = 1}",
        MULTIPLY,
        ACTIVATE,
        "tpu.sync {units = 8}",
        SECOND,
        STORE,  # the Sync before `SECOND` has already ended the Activate
    ]


def test_rows_outside_the_limits_are_not_read_and_need_no_sync() -> None:
    apart = MULTIPLY.replace("switch = 1", "switch = 1, origin_y = 1")
    program = program_of(LOAD, apart)
    insert_syncs(program)
    assert lines_of(program) == [LOAD, apart]


def test_a_load_waits_for_the_matrix_unit_to_let_go_of_its_rows() -> None:
    program = program_of(MULTIPLY, LOAD)
    insert_syncs(program)
    assert lines_of(program) == [MULTIPLY, "tpu.sync {units = 4}", LOAD]


def test_activate_waits_for_a_store_that_still_reads_its_rows() -> None:
    program = program_of(STORE, MULTIPLY, ACTIVATE)
    insert_syncs(program)
    assert lines_of(program) == [STORE, MULTIPLY, "tpu.sync {units = 1}", ACTIVATE]


def test_reads_pass_a_sync_until_their_queue_is_full() -> None:
    weights = [f"tpu.read_weights {{dram_addr = {64 * n + 64}, tiles = 2}}" for n in range(8)]
    program = program_of("tpu.sync {units = 8}", *(w for n in weights for w in (n, MULTIPLY)))
    hoist_reads(program, CONFIG)
    # Two reads fill the FIFO of 4 tiles, and 4 more wait in the queue.
    found = lines_of(program)
    assert found[:7] == [*weights[:6], "tpu.sync {units = 8}"]
    assert found[7:] == [MULTIPLY] * 6 + [weights[6], MULTIPLY, weights[7], MULTIPLY]


def test_reads_stay_where_no_sync_is() -> None:
    lines = ["tpu.read_weights {}", MULTIPLY, "tpu.read_parameters {}", ACTIVATE]
    program = program_of(*lines)
    hoist_reads(program, CONFIG)
    assert lines_of(program) == lines


def test_a_missing_sync_is_named() -> None:
    program = program_of(LOAD, MULTIPLY)
    assert conflicts(program) == [
        "instruction 1, tpu.matrix_multiply, must come after a Sync of host"
    ]


#: Unit, first row and rows of an instruction that reads or writes the buffer.
ACCESS = st.tuples(
    st.sampled_from(["load", "store", "multiply", "activate"]),
    st.integers(0, 12),
    st.integers(1, 4),
)


def build(kind, first, rows):
    if kind == "load":
        return ReadHostOp(ub_addr=first, rows=rows)
    if kind == "store":
        return WriteHostOp(ub_addr=first, rows=rows)
    if kind == "multiply":
        return MatrixMultiplyOp(ub_addr=first, rows_x=rows, step_x=1, limit_x=rows)
    return ActivateOp(ub_addr=first, rows_x=rows)


@given(st.lists(ACCESS, max_size=14))
def test_no_two_units_touch_a_row_at_once_unless_hardware_orders_them(accesses) -> None:
    program = ProgramOp("p", [*(build(*a) for a in accesses), HaltOp()])
    insert_syncs(program)
    running: list[tuple[str, set[int]]] = []
    todo = iter(accesses)
    for op in program.instructions:
        if isinstance(op, SyncOp):
            done = {u for u, bit in UNITS.items() if op.fields["units"] & bit}
            running = [(k, rows) for k, rows in running if unit_of(k) not in done]
        elif not isinstance(op, HaltOp):
            kind, first, rows = next(todo)
            mine = set(range(first, first + rows))
            for other, theirs in running:
                assert not clash(other, kind) or not mine & theirs
            running.append((kind, mine))
    assert not conflicts(program)


def unit_of(kind):
    return {"load": "host", "store": "host", "multiply": "matrix", "activate": "activate"}[kind]


def clash(before, after) -> bool:
    """Whether two accesses to one row must not run at the same time."""
    writes = {"load", "activate"}
    if unit_of(before) == unit_of(after) or not {before, after} & writes:
        return False
    # Activate starts after its own MatrixMultiply, hence after all that came before it.
    return (before, after) != ("multiply", "activate")


def test_message_of_a_sync_for_two_units() -> None:
    wide = "tpu.matrix_multiply {rows_x = 30, step_x = 1, limit_x = 30}"
    (message,) = conflicts(program_of(LOAD, "tpu.activate {ub_addr = 20}", wide))
    assert message == (
        "instruction 2, tpu.matrix_multiply, must come after a Sync of host and activate"
    )
