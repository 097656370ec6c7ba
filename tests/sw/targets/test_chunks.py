"""Cutting outputs into chunks that fit the accumulators."""

from hypothesis import assume, given
from hypothesis import strategies as st

from npulse.hw.spec.flavours import resolve
from npulse.sw.targets.tpu_v1.chunks import Geometry, choose_chunk, chunks, layer_cycles

CONFIG = resolve("tpu-v1:sim", ["memory.accumulator_rows=32"]).config


@st.composite
def geometries(draw) -> Geometry:
    size, window, strides, pads = (
        tuple(draw(st.integers(low, high)) for _ in "yx")
        for low, high in ((1, 40), (1, 5), (1, 4), (0, 2))
    )
    pads = tuple(min(p, w - 1) for p, w in zip(pads, window, strict=True))
    out = tuple(
        (n + 2 * p - w) // s + 1 for n, w, s, p in zip(size, window, strides, pads, strict=True)
    )
    assume(min(out) >= 1)
    origin = tuple(-p for p in pads)
    return Geometry(out=out, size=size, window=window, strides=strides, origin=origin)


@given(geometries(), st.integers(1, 9))
def test_chunks_make_every_output_once_and_fit_a_half(geometry, tiles) -> None:
    chunk = choose_chunk(CONFIG, geometry, tiles)
    if chunk is None:
        assert geometry.window[0] * geometry.window[1] > CONFIG.half_rows
        return
    made = []
    for part in chunks(geometry, chunk):
        assert 1 <= part.rows <= CONFIG.half_rows
        for y in range(part.first[0], part.first[0] + part.count[0]):
            for x in range(part.first[1], part.first[1] + part.count[1]):
                made.append((y, x))
                assert needed(geometry, y, x) <= covered(part)
    assert sorted(made) == [(y, x) for y in range(geometry.out[0]) for x in range(geometry.out[1])]


def needed(geometry, y, x) -> set[tuple[int, int]]:
    """Pixels of the convolution within the window of an output."""
    top = geometry.origin[0] + y * geometry.strides[0]
    left = geometry.origin[1] + x * geometry.strides[1]
    return {
        (v, u)
        for v in range(top, top + geometry.window[0])
        for u in range(left, left + geometry.window[1])
        if 0 <= v < geometry.size[0] and 0 <= u < geometry.size[1]
    }


def covered(part) -> set[tuple[int, int]]:
    (y, x), (rows, columns) = part.conv_first, part.conv_count
    return {(v, u) for v in range(y, y + rows) for u in range(x, x + columns)}


def plain(out) -> Geometry:
    return Geometry(out=out, size=out, window=(1, 1), strides=(1, 1), origin=(0, 0))


def test_chunks_of_one_layer_are_of_even_height() -> None:
    chunk = choose_chunk(CONFIG, plain((9, 4)), 1)
    assert chunk == (3, 4)


def test_a_line_longer_than_a_half_is_cut() -> None:
    chunk = choose_chunk(CONFIG, plain((2, 40)), 9)
    assert chunk is not None
    assert chunk[1] <= CONFIG.half_rows
    assert sum(c.rows for c in chunks(plain((2, 40)), chunk)) == 80


def test_cycles_follow_the_closed_form() -> None:
    # 16 streamed rows; an 8 x 8 tile takes 32 cycles at 2 bytes a cycle.
    geometry = plain((8, 4))
    assert layer_cycles(CONFIG, geometry, (4, 4), 1) == 32 + 16
    assert layer_cycles(CONFIG, geometry, (4, 4), 9) == 2 * 9 * 32
    assert layer_cycles(CONFIG, plain((1, 3)), (1, 3), 1) == 32
    fast = resolve("tpu-v1:sim", ["dram.weight_millibytes_per_cycle=64000"]).config
    assert layer_cycles(fast, plain((1, 3)), (1, 3), 5) == 5 * 8


def test_activate_sets_the_pace_of_a_pooling_of_its_own() -> None:
    # 16 pixels are copied in 32 cycles of transfer, and 4 windows of 9 rows take 36.
    geometry = Geometry(out=(2, 2), size=(4, 4), window=(3, 3), strides=(1, 1), origin=(0, 0))
    assert layer_cycles(CONFIG, geometry, (2, 2), 1) == 36
    assert layer_cycles(CONFIG, geometry, (2, 2), 2) == 64
