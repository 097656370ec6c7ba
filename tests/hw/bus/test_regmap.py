"""The register map: layout of the core's registers, packing of fields, and refusals."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from npulse.hw.spec.regmap import Field, Register, RegisterMap, core_regmap


def register(**changes: Any) -> Register:
    return Register(**(dict(name="A", offset=0, access="rw", doc="Test.") | changes))


FIELDS = (Field(name="low", width=3, doc="L."), Field(name="high", width=5, doc="H."))


def test_core_map_has_stable_offsets() -> None:
    assert {entry.name: (entry.offset, entry.access) for entry in core_regmap()} == {
        "ID": (0x00, "ro"),
        "CONFIG_HASH": (0x04, "ro"),
        "CTRL": (0x08, "w1"),
        "STATUS": (0x0C, "ro"),
        "ERROR_CODE": (0x10, "ro"),
        "ERROR_PC": (0x14, "ro"),
        "PROGRAM_ADDR": (0x18, "rw"),
        "PROGRAM_COUNT": (0x1C, "rw"),
        "CYCLES": (0x40, "ro"),
        "BUSY": (0x44, "ro"),
        "WAIT_WEIGHTS": (0x48, "ro"),
        "WAIT_ACTIVATIONS": (0x4C, "ro"),
        "WAIT_ACCUMULATORS": (0x50, "ro"),
        "FILL_DRAIN": (0x54, "ro"),
        "IDLE": (0x58, "ro"),
        "INSTRUCTIONS": (0x5C, "ro"),
        "HOST_READ_BEATS": (0x60, "ro"),
        "HOST_WRITE_BEATS": (0x64, "ro"),
        "WEIGHT_BEATS": (0x68, "ro"),
    }
    assert core_regmap().addr_width == 7


def test_map_sorts_by_offset() -> None:
    regmap = RegisterMap([register(name="B", offset=8), register()])
    assert [entry.name for entry in regmap] == ["A", "B"]
    assert (len(regmap), regmap["B"].offset, regmap.addr_width) == (2, 8, 4)


def test_packs_fields_from_the_lowest_bit() -> None:
    entry = register(fields=FIELDS)
    assert entry.width == 8
    assert entry.pack(high=3, low=5) == 0b00011_101
    assert entry.pack(high=31) == 0b11111_000
    assert entry.unpack(0xFFFFFF1D) == dict(low=5, high=3)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: register(name="a"), "register name must be an identifier in upper case, not 'a'"),
        (
            lambda: Field(name="A", doc="Test."),
            "field name must be an identifier in lower case, not 'A'",
        ),
        (
            lambda: Field(name="a", width=0, doc="Test."),
            "width of a must be at least 1 bit, not 0",
        ),
        (lambda: register(offset=6), "offset of A must be a multiple of 4 bytes, not 6"),
        (lambda: register(offset=-4), "offset of A must be a multiple of 4 bytes, not -4"),
        (lambda: register(access="wo"), "access of A must be ro, rw or w1, not 'wo'"),
        (lambda: register(width=33), "width of A must be 1 to 32 bits, not 33"),
        (
            lambda: register(fields=(*FIELDS, Field(name="more", width=25, doc="M."))),
            "width of A must be 1 to 32 bits, not 33",
        ),
        (
            lambda: register(fields=(FIELDS[0], FIELDS[0])),
            "fields of A must have different names, not ['low', 'low']",
        ),
        (lambda: register(width=4, init=16), "init of A must be 0 to 15, not 16"),
        (lambda: register(access="ro", init=1), "init of A must be 0 to 0, not 1"),
        (lambda: RegisterMap([]), "registers must be at least one, not none"),
        (
            lambda: RegisterMap([register(offset=4), register(name="B", offset=4)]),
            "offset of B must differ from that of A, not 0x4 too",
        ),
        (
            lambda: RegisterMap([register(), register(offset=4)]),
            "registers must have different names, not ['A', 'A']",
        ),
        (
            lambda: register(fields=FIELDS).pack(middle=1),
            "field must be one of ['high', 'low'], not 'middle'",
        ),
        (lambda: register(fields=FIELDS).pack(low=8), "A.low must be 0 to 7, not 8"),
    ],
)
def test_refuses_illegal_descriptions(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        build()
