"""Every operator at the widths where machine types end, on extreme operands, against Python."""

from collections.abc import Callable
from typing import Any

import pytest
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned

from npulse.sim.engine.bulk import Compiled
from npulse.sim.engine.cache import ObjectCache

NO_CACHE = ObjectCache(None)
WIDTHS = (1, 7, 8, 31, 32, 33, 63, 64, 65, 127, 128, 129)


def bits(value: int, width: int) -> int:
    return value & (1 << width) - 1


def parity(value: int, width: int) -> int:
    return bits(value, width).bit_count() & 1


BINARY: dict[str, tuple[Callable[..., Value], Callable[..., int]]] = {
    "+": (lambda a, b: a + b, lambda a, b, w: a + b),
    "-": (lambda a, b: a - b, lambda a, b, w: a - b),
    "*": (lambda a, b: a * b, lambda a, b, w: a * b),
    "//": (lambda a, b: a // b, lambda a, b, w: a // b if b else 0),
    "%": (lambda a, b: a % b, lambda a, b, w: a % b if b else 0),
    "&": (lambda a, b: a & b, lambda a, b, w: a & b),
    "|": (lambda a, b: a | b, lambda a, b, w: a | b),
    "^": (lambda a, b: a ^ b, lambda a, b, w: a ^ b),
    "==": (lambda a, b: a == b, lambda a, b, w: a == b),
    "!=": (lambda a, b: a != b, lambda a, b, w: a != b),
    "<": (lambda a, b: a < b, lambda a, b, w: a < b),
    "<=": (lambda a, b: a <= b, lambda a, b, w: a <= b),
    ">": (lambda a, b: a > b, lambda a, b, w: a > b),
    ">=": (lambda a, b: a >= b, lambda a, b, w: a >= b),
    "<<": (lambda a, b: a << b.as_unsigned()[:3], lambda a, b, w: a << (b & 7 & (1 << w) - 1)),
    ">>": (lambda a, b: a >> b.as_unsigned()[:9], lambda a, b, w: a >> bits(b, min(w, 9))),
    "mux": (lambda a, b: Mux(a, b, ~b), lambda a, b, w: b if a else ~b),
    "part": (
        lambda a, b: a.bit_select(b.as_unsigned()[:8], 5),
        lambda a, b, w: bits(a >> bits(b, min(w, 8)), 5),
    ),
    "word": (
        lambda a, b: a.word_select(b.as_unsigned()[:6], 3),
        lambda a, b, w: bits(a >> 3 * bits(b, min(w, 6)), 3),
    ),
    "cat": (lambda a, b: Cat(a, b), lambda a, b, w: bits(a, w) | bits(b, w) << w),
}
UNARY: dict[str, tuple[Callable[..., Value], Callable[..., int]]] = {
    "~": (lambda a: ~a, lambda a, w: ~a),
    "neg": (lambda a: -a, lambda a, w: -a),
    "any": (lambda a: a.any(), lambda a, w: a != 0),
    "all": (lambda a: a.all(), lambda a, w: bits(a, w) == (1 << w) - 1),
    "xor": (lambda a: a.xor(), parity),
    "bool": (lambda a: a.bool(), lambda a, w: a != 0),
    "replicate": (lambda a: a.replicate(2), lambda a, w: bits(a, w) | bits(a, w) << w),
    "matches": (
        lambda a: a.matches("-" * (len(a) - 1) + "1", "1" + "-" * (len(a) - 1)),
        lambda a, w: bool(a & 1 or bits(a, w) >> w - 1),
    ),
}


def extremes(width: int, is_signed: bool) -> list[int]:
    top = 1 << width
    values = {0, 1, 2, 3, 7, top - 1, top // 2, top // 2 - 1, top // 3, 0x5DEECE66D}
    values = {bits(value, width) for value in values}
    return sorted(v - top if is_signed and v >> width - 1 else v for v in values)


def expected(value: Value, number: int) -> int:
    shape = value.shape()
    number = bits(int(number), shape.width)
    if shape.signed and shape.width and number >> shape.width - 1:
        number -= 1 << shape.width
    return number


def outputs_of(width: int, is_signed: bool) -> tuple[Module, Signal, Signal, list[Any]]:
    shape = signed(width) if is_signed else unsigned(width)
    a, b = Signal(shape), Signal(shape)
    m, outputs = Module(), []
    for name, (make, model) in BINARY.items():
        outputs.append((name, make(a, b), lambda x, y, f=model: f(x, y, width)))
    for name, (make, model) in UNARY.items():
        outputs.append((name, make(a), lambda x, y, f=model: f(x, width)))
    result = []
    for name, value, model in outputs:
        signal = Signal(value.shape())
        m.d.comb += signal.eq(value)
        result.append((name, value, signal, model))
    return m, a, b, result


@pytest.mark.parametrize("is_signed", [False, True], ids=["unsigned", "signed"])
@pytest.mark.parametrize("width", WIDTHS)
def test_operators_equal_python(width: int, is_signed: bool) -> None:
    m, a, b, outputs = outputs_of(width, is_signed)
    compiled = Compiled(m, cache=NO_CACHE)
    for x in extremes(width, is_signed):
        for y in extremes(width, is_signed):
            compiled.set(a, x)
            compiled.set(b, y)
            for name, value, signal, model in outputs:
                assert compiled.get(signal) == expected(value, model(x, y)), (name, x, y)


def test_operators_on_width_zero() -> None:
    m, none, a = Module(), Signal(0), Signal(4)
    values = {
        "==": (none == none, 1),
        "!=": (none != none, 0),
        "<": (none < none, 0),
        ">=": (none >= none, 1),
        "any": (none.any(), 0),
        "all": (none.all(), 1),
        "xor": (none.xor(), 0),
        "+": (none + a, 5),
        "<<": (a << none, 5),
        ">>": (a >> none, 5),
        "part of none": (none.bit_select(a, 3), 0),
        "part by none": (a.bit_select(none, 2), 1),
        "matches": (none.matches(""), 1),
        "matches nothing": (a.matches(), 0),
    }
    outputs = {}
    for name, (value, want) in values.items():
        signal = Signal(value.shape())
        m.d.comb += signal.eq(value)
        outputs[name] = (signal, want)
    compiled = Compiled(m, cache=NO_CACHE)
    compiled.set(a, 5)
    assert {name: compiled.get(s) for name, (s, _) in outputs.items()} == {
        name: want for name, (_, want) in outputs.items()
    }


def fits(pattern: str, value: int, width: int) -> bool:
    text = f"{value:0{width}b}"
    return all(p in ("-", bit) for p, bit in zip(pattern, text, strict=True))


def test_a_switch_takes_the_first_case_with_a_pattern_that_fits() -> None:
    cases = [("1--0-0", "0--1--"), ("--11--",), ("000---", "-----1", "0-0-0-"), ("111111",)]
    m, test, out = Module(), Signal(6), Signal(4, init=9)
    with m.Switch(test):
        for number, patterns in enumerate(cases):
            with m.Case(*patterns):
                m.d.comb += out.eq(number)
    compiled = Compiled(m, cache=NO_CACHE)
    for value in range(64):
        compiled.set(test, value)
        hits = [n for n, ps in enumerate(cases) if any(fits(p, value, 6) for p in ps)]
        assert compiled.get(out) == (hits[0] if hits else 9), f"{value:06b}"


def test_a_long_chain_of_conditions_gives_the_first_that_holds() -> None:
    m, request, grant = Module(), Signal(9), Signal(9)
    with m.If(request[0]):
        m.d.comb += grant[0].eq(1)
    for bit in range(1, 9):
        with m.Elif(request[bit]):
            m.d.comb += grant[bit].eq(1)
    compiled = Compiled(m, cache=NO_CACHE)
    for value in range(512):
        compiled.set(request, value)
        assert compiled.get(grant) == value & -value


def test_a_bus_of_2048_bits() -> None:
    m, a, b, amount = Module(), Signal(2048), Signal(2048), Signal(11)
    total, moved, byte = Signal(2049), Signal(2048), Signal(8)
    m.d.comb += [
        total.eq(a + b),
        moved.eq(a >> amount),
        byte.eq(a.word_select(amount[:8], 8)),
    ]
    compiled = Compiled(m, cache=NO_CACHE)
    x, y = int.from_bytes(bytes(range(256)), "little"), (1 << 2048) - 1
    for shift in (0, 1, 63, 64, 1000, 2047):
        compiled.set(a, x)
        compiled.set(b, y)
        compiled.set(amount, shift)
        assert compiled.get(total) == x + y
        assert compiled.get(moved) == x >> shift
        assert compiled.get(byte) == x >> 8 * (shift % 256) & 255


def test_a_loop_at_bit_level_only_is_cut() -> None:
    m, x, t, u = Module(), Signal(8), Signal(8), Signal(8)
    m.d.comb += [t.eq(u ^ x), u.eq(Cat(Const(1, 1), t[:7]))]
    compiled = Compiled(m, cache=NO_CACHE)
    compiled.set(x, 0b1011_0010)
    value = 0
    for bit in range(8):
        carried = 1 if bit == 0 else value >> bit - 1 & 1
        value |= (carried ^ 0b1011_0010 >> bit & 1) << bit
    assert compiled.get(t) == value
