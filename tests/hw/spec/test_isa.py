"""Instruction sets: bits in their places, and every way to write an instruction and back."""

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npulse.hw.spec.isa import Field, Format, Instruction, Isa
from npulse.hw.spec.tpu_v1_isa import ISA as TPU

ADD = Format(
    name="Add",
    opcode=1,
    unit="alu",
    doc="adds",
    fields=(
        Field(name="a", width=3, doc="first"),
        Field(name="b", width=4, signed=True, doc="second"),
        Field(name="count", width=2, minimum=1, doc="times"),
    ),
)
STOP = Format(name="Stop", opcode=3, unit="front", doc="stops")
TOY = Isa(name="toy", word_bytes=2, opcode_width=2, formats=(ADD, STOP))

#: The TPU v1 style's formats are wide and many, the toy's have all kinds of field in two bytes.
ISAS = st.sampled_from([TOY, TPU])
SEEDS = st.integers(0, 2**32)


def refuses(message: str):
    return pytest.raises(ValueError, match=f"^{re.escape(message)}$")


def test_word_has_opcode_lowest_and_fields_upwards():
    word = TOY.encode(TOY.make("Add", a=5, b=-3, count=2))
    assert word == (0b10_1101_101_01).to_bytes(2, "little")
    assert [(field.name, at) for field, at in TOY.offsets(ADD)] == [
        ("a", 2),
        ("b", 5),
        ("count", 9),
    ]
    assert (TOY.used_bits(ADD), TOY.used_bits(STOP)) == (11, 2)


def test_field_bounds_follow_width_sign_and_minimum():
    a, b, count = ADD.fields
    assert [(f.low, f.high) for f in (a, b, count)] == [(0, 7), (-8, 7), (1, 3)]
    assert ADD.field("b") is b


def test_fields_left_out_are_zero_or_the_smallest_legal_value():
    assert TOY.make("Add").values == {"a": 0, "b": 0, "count": 1}


@given(ISAS, SEEDS)
def test_decode_undoes_encode(isa, seed):
    instruction = isa.random(Random(seed))
    word = isa.encode(instruction)
    assert len(word) == isa.word_bytes
    assert isa.decode(word) == instruction


@given(ISAS, SEEDS)
def test_word_is_the_sum_of_its_shifted_fields(isa, seed):
    instruction = isa.random(Random(seed))
    shift, total = isa.opcode_width, instruction.format.opcode
    for field in instruction.format.fields:
        total += (instruction.values[field.name] % 2**field.width) * 2**shift
        shift += field.width
    assert int.from_bytes(isa.encode(instruction), "little") == total


@given(ISAS, SEEDS)
def test_parse_undoes_printing(isa, seed):
    instruction = isa.random(Random(seed))
    assert isa.parse(str(instruction)) == instruction


@given(ISAS, st.lists(SEEDS, max_size=5))
def test_disassemble_undoes_assemble_past_comments_and_blank_lines(isa, seeds):
    program = [isa.random(Random(seed)) for seed in seeds]
    text = "# title\n\n" + "\n".join(f"  {i}  # {n}" for n, i in enumerate(program)) + "\n"
    assert isa.disassemble(isa.assemble(text)) == program


@given(ISAS, st.binary(min_size=32, max_size=32))
def test_what_decode_takes_encodes_to_the_same_word(isa, raw):
    word = raw[: isa.word_bytes]
    try:
        instruction = isa.decode(word)
    except ValueError:
        return
    assert isa.encode(instruction) == word


def test_random_reaches_every_format_and_both_ends_of_a_field():
    rng = Random(0)
    made = [TOY.random(rng) for _ in range(400)]
    assert {i.format.name for i in made} == {"Add", "Stop"}
    adds = [i.values for i in made if i.format is ADD]
    for field in ADD.fields:
        seen = {values[field.name] for values in adds}
        assert seen == set(range(field.low, field.high + 1))


def test_integers_may_be_written_in_any_base():
    assert TOY.parse("Add a=0x7 b=-0b11 count=3") == TOY.make("Add", a=7, b=-3, count=3)


def test_instruction_prints_as_a_line():
    assert str(TOY.make("Add", a=1, count=2)) == "Add a=1 b=0 count=2"
    assert str(TOY.make("Stop")) == "Stop"


def test_table_has_a_row_for_each_format_and_field():
    assert TOY.table() == (
        "| instruction | opcode | unit | field | bits | meaning |\n"
        "|---|---|---|---|---|---|\n"
        "| **Add** | 1 | alu | | | adds |\n"
        "| | | | `a` | 4:2 | first |\n"
        "| | | | `b` | 8:5 | signed, second |\n"
        "| | | | `count` | 10:9 | times |\n"
        "| **Stop** | 3 | front | | | stops |\n"
    )


@pytest.mark.parametrize(
    "values, message",
    [
        ({"a": 8}, "Add.a must be from 0 to 7, not 8"),
        ({"b": -9}, "Add.b must be from -8 to 7, not -9"),
        ({"count": 0}, "Add.count must be from 1 to 3, not 0"),
        ({"c": 1}, "field of Add must be one of a, b, count, not 'c'"),
    ],
)
def test_make_refuses_values(values, message):
    with refuses(message):
        TOY.make("Add", **values)


def test_make_refuses_an_unknown_name():
    with refuses("instruction must be one of Add, Stop, not 'Sub'"):
        TOY.make("Sub")


@pytest.mark.parametrize(
    "bits, message",
    [
        (0b00, "opcode must be one of [1, 3], not 0"),
        (0b10, "opcode must be one of [1, 3], not 2"),
        (1 << 11 | 1 << 9 | 1, "bits 11 and above of Add must be zero"),
        (1 << 15 | 1 << 9 | 1, "bits 11 and above of Add must be zero"),
        (1 << 2 | 3, "bits 2 and above of Stop must be zero"),
        (0b01, "Add.count must be from 1 to 3, not 0"),
    ],
)
def test_decode_refuses_words(bits, message):
    with refuses(message):
        TOY.decode(bits.to_bytes(2, "little"))


def test_decode_and_disassemble_refuse_a_broken_word():
    with refuses("bytes of an instruction must be from 2 to 2, not 3"):
        TOY.decode(bytes(3))
    whole = TOY.encode(TOY.make("Stop"))
    with refuses("bytes of an instruction must be from 2 to 2, not 1"):
        TOY.disassemble(whole + b"\x03")


@pytest.mark.parametrize("pair", ["a", "a=", "a=x", "a=1.5"])
def test_parse_refuses_operands(pair):
    with refuses(f"operand must be field=integer, not {pair!r}"):
        TOY.parse(f"Add {pair} b=1")


def test_parse_refuses_a_field_twice_and_an_empty_line():
    with refuses("field a must be given once, not again in 'Add a=1 b=1 a=2'"):
        TOY.parse("Add a=1 b=1 a=2 ")
    with refuses("instruction must be one of Add, Stop, not ''"):
        TOY.parse("  ")


def test_make_refuses_what_is_no_integer():
    with pytest.raises(TypeError, match="^Add.a must be an integer, not 1.5$"):
        TOY.make("Add", a=1.5)


def build(*formats: Format, opcode_width: int = 2) -> Isa:
    return Isa(name="toy", word_bytes=1, opcode_width=opcode_width, formats=formats)


def small(name: str, opcode: int, *widths: int) -> Format:
    fields = tuple(Field(name=f"f{n}", width=w, doc="") for n, w in enumerate(widths))
    return Format(name=name, opcode=opcode, unit="u", doc="", fields=fields)


@pytest.mark.parametrize(
    "formats, message",
    [
        ([small("A", 4)], "opcode of A must be from 0 to 3, not 4"),
        ([small("A", 0, 4, 3)], "bits of A must be from 1 to 8, not 9"),
        ([small("A", 0), small("A", 1)], "formats of toy must have names and opcodes of their own"),
        ([small("A", 1), small("B", 1)], "formats of toy must have names and opcodes of their own"),
    ],
)
def test_isa_refuses_formats(formats, message):
    with refuses(message):
        build(*formats)


def test_a_format_may_fill_the_word():
    isa = build(small("A", 1, 6))
    instruction = isa.make("A", f0=63)
    assert isa.encode(instruction) == b"\xfd"
    assert isa.decode(b"\xfd") == Instruction(isa.formats[0], {"f0": 63})
