"""The decoder's parts against `Isa.decode`."""

from functools import cache
from random import Random

import pytest
from amaranth.hdl import Const, Elaboratable, Module, Signal
from amaranth.lib import data
from hypothesis import given, settings
from hypothesis import strategies as st

from npulse.hw.common.decode import format_layout, is_legal
from npulse.hw.spec.tpu_v1_isa import HALT, ISA, READ_WEIGHTS, SYNC
from tests.hw.lockstep import Lockstep

BITS = 8 * ISA.word_bytes
SUBSET = (HALT, SYNC, READ_WEIGHTS)


class Decoder(Elaboratable):
    """Legality of a word in the whole set and in a part of it."""

    def __init__(self):
        self.word, self.legal, self.part = Signal(BITS), Signal(), Signal()

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.legal.eq(is_legal(ISA, self.word))
        m.d.comb += self.part.eq(is_legal(ISA, self.word, SUBSET))
        return m


@cache
def decoder():
    return Lockstep(Decoder(), {"word": 0}, ["legal", "part"])


def legality(words):
    return [bool(seen["legal"]) for seen in decoder().play([{"word": word} for word in words])]


def accepted(word):
    try:
        return ISA.decode(word.to_bytes(ISA.word_bytes, "little"))
    except ValueError:
        return None


def bits_of(instruction):
    return int.from_bytes(ISA.encode(instruction), "little")


def test_takes_every_legal_instruction():
    rng = Random(1)
    words = [bits_of(ISA.random(rng)) for _ in range(200)]
    assert legality(words) == [True] * 200


@pytest.mark.parametrize("opcode", range(16))
def test_takes_known_opcodes_alone(opcode):
    lowest = {f.opcode: bits_of(ISA.make(f.name)) for f in ISA.formats}
    assert legality([lowest.get(opcode, opcode)]) == [opcode in lowest]


@pytest.mark.parametrize("f", ISA.formats, ids=lambda f: f.name)
def test_refuses_each_reserved_bit(f):
    word = bits_of(ISA.make(f.name))
    reserved = range(ISA.used_bits(f), BITS)
    assert legality([word] + [word | 1 << bit for bit in reserved]) == [True] + [False] * len(
        reserved
    )


@pytest.mark.parametrize("f", ISA.formats, ids=lambda f: f.name)
def test_refuses_each_zero_count(f):
    full = {field.name: field.high for field in f.fields}
    for field, offset in ISA.offsets(f):
        word = bits_of(ISA.make(f.name, **full)) & ~(((1 << field.width) - 1) << offset)
        assert legality([word]) == [field.minimum is None]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2**BITS - 1), min_size=1), st.integers(0, 2**32))
def test_agrees_with_the_specification_on_any_word(randoms, seed):
    rng = Random(seed)
    words = [word >> rng.randrange(BITS) for word in randoms]
    for _ in range(20):  # legal but for one bit, or but for one empty field
        word = bits_of(ISA.random(rng))
        words.append(word ^ 1 << rng.randrange(BITS))
        fields = list(ISA.offsets(accepted(word).format))
        if fields:
            field, offset = rng.choice(fields)
            words.append(word & ~(((1 << field.width) - 1) << offset))
    assert legality(words) == [accepted(word) is not None for word in words]


def test_a_part_of_the_set_takes_its_own_formats_alone():
    seen = decoder().play([{"word": bits_of(ISA.make(f.name))} for f in ISA.formats])
    assert [bool(cycle["part"]) for cycle in seen] == [f in SUBSET for f in ISA.formats]


def test_no_field_has_a_minimum_that_hardware_does_not_check():
    for f in ISA.formats:
        assert {field.minimum for field in f.fields} <= {None, 1}
        assert not any(field.signed and field.minimum for field in f.fields)


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_layout_of_a_format_has_its_fields(seed):
    instruction = ISA.random(Random(seed))
    f = instruction.format
    layout = format_layout(ISA, f)
    assert layout.size == ISA.used_bits(f)
    view: data.Const = layout.from_bits(bits_of(instruction))
    assert view.opcode == f.opcode
    assert {name: view[name] for name in instruction.values} == instruction.values
    assert Const.cast(view).value == bits_of(instruction)
