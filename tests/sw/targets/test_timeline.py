"""Estimates of cycles: closed forms of single instructions, and what makes a program longer."""

from npulse.hw.spec.flavours import resolve
from npulse.hw.spec.timing import matrix_drain
from npulse.sw.compile import compile_model
from npulse.sw.ir.tpu import MatrixMultiplyOp, ReadHostOp, ReadWeightsOp, SyncOp
from npulse.sw.targets.tpu_v1.timeline import HANDOVER, Timeline

CONFIG = resolve("tpu-v1:sim").config


def test_a_move_takes_its_bytes_at_the_rate_of_the_port() -> None:
    short, long = (Timeline(CONFIG).add(ReadHostOp(rows=rows)) for rows in (10, 110))
    assert long - short == 100 * CONFIG.host_row_bytes / 2


def test_a_multiply_ends_when_its_last_sum_has_drained() -> None:
    timeline = Timeline(CONFIG)
    arrived = timeline.add(ReadWeightsOp(tiles=1))
    end = timeline.add(MatrixMultiplyOp(switch=1, rows_y=5, rows_x=7))
    assert end == arrived + CONFIG.array.rows + 5 * 7 + matrix_drain(CONFIG)


def test_a_sync_holds_dispatch_until_its_unit_is_done() -> None:
    timeline = Timeline(CONFIG)
    end = timeline.add(ReadHostOp(rows=500))
    assert timeline.add(SyncOp(units=2)) < end
    assert timeline.add(SyncOp(units=1)) == end + HANDOVER


def test_slower_memory_makes_an_estimate_longer(net) -> None:
    model = net().input(1, 12, 12, 8).conv(16, pads=(1, 1, 1, 1)).model()
    fast, slow = (
        compile_model(model, resolve("tpu-v1:sim", settings)).summary.estimated_cycles
        for settings in ([], ["dram.host_millibytes_per_cycle=500"])
    )
    # 144 rows in and 288 out, of 8 bytes, at half a byte a cycle instead of two.
    assert slow - fast == (144 + 288) * 8 * 3 // 2
