"""Control and status registers: one description for the hardware, the driver and the docs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

#: ``ro``: hardware drives, software reads. ``rw``: software writes and reads back. ``w1``: a
#: written 1 is a pulse of one cycle, a read gives 0.
Access = Literal["ro", "rw", "w1"]

#: Bits of a register's slot, and of every access.
DATA_WIDTH = 32
#: Bytes between neighbouring registers.
WORD_BYTES = DATA_WIDTH // 8

#: Value of register ID in `core_regmap`: the letters "NPLS", first letter in the lowest byte.
CORE_ID = int.from_bytes(b"NPLS", "little")


def _check_name(kind: str, name: str, *, upper: bool) -> None:
    case = name.upper() if upper else name.lower()
    if not name.isidentifier() or name != case:
        style = "upper" if upper else "lower"
        raise ValueError(f"{kind} name must be an identifier in {style} case, not {name!r}")


@dataclass(frozen=True, kw_only=True)
class Field:
    """Bits of a register, above those of the fields before it.

    Attributes
    ----------
    name : str
        In lower case.
    width : int
        Bits, at least 1.
    doc : str
        Meaning, one sentence.
    """

    name: str
    width: int = 1
    doc: str

    def __post_init__(self) -> None:
        _check_name("field", self.name, upper=False)
        if self.width < 1:
            raise ValueError(f"width of {self.name} must be at least 1 bit, not {self.width!r}")


@dataclass(frozen=True, kw_only=True)
class Register:
    """Register of at most 32 bits; the bits above ``width`` read as 0.

    Attributes
    ----------
    name : str
        In upper case.
    offset : int
        Byte address inside the map, a multiple of 4.
    access : str
        `Access`.
    doc : str
        Meaning, one sentence.
    fields : tuple of Field
        Lowest bits first; empty for one number.
    width : int
        Bits, ignored with ``fields``, which add up to it.
    init : int
        Value after reset of an ``rw`` register.
    """

    name: str
    offset: int
    access: Access
    doc: str
    fields: tuple[Field, ...] = ()
    width: int = DATA_WIDTH
    init: int = 0

    def __post_init__(self) -> None:
        _check_name("register", self.name, upper=True)
        if self.fields:
            object.__setattr__(self, "width", sum(field.width for field in self.fields))
        self._check_place()
        self._check_content()

    def _check_place(self) -> None:
        if self.offset < 0 or self.offset % WORD_BYTES:
            raise ValueError(
                f"offset of {self.name} must be a multiple of {WORD_BYTES} bytes, "
                f"not {self.offset!r}"
            )
        if self.access not in ("ro", "rw", "w1"):
            raise ValueError(f"access of {self.name} must be ro, rw or w1, not {self.access!r}")

    def _check_content(self) -> None:
        names = [field.name for field in self.fields]
        if len(set(names)) != len(names):
            raise ValueError(f"fields of {self.name} must have different names, not {names!r}")
        if not 1 <= self.width <= DATA_WIDTH:
            raise ValueError(
                f"width of {self.name} must be 1 to {DATA_WIDTH} bits, not {self.width!r}"
            )
        bound = 2**self.width if self.access == "rw" else 1
        if not 0 <= self.init < bound:
            raise ValueError(f"init of {self.name} must be 0 to {bound - 1}, not {self.init!r}")

    def pack(self, **values: int) -> int:
        """Return the word with the given fields, the others 0.

        Raises
        ------
        ValueError
            If a field does not exist or its value does not fit.
        """
        word, position = 0, 0
        known = {field.name for field in self.fields}
        for name in values:
            if name not in known:
                raise ValueError(f"field must be one of {sorted(known)!r}, not {name!r}")
        for field in self.fields:
            value = values.get(field.name, 0)
            if not 0 <= value < 2**field.width:
                raise ValueError(
                    f"{self.name}.{field.name} must be 0 to {2**field.width - 1}, not {value!r}"
                )
            word |= value << position
            position += field.width
        return word

    def unpack(self, word: int) -> dict[str, int]:
        """Return the value of each field of a word that was read."""
        values, position = {}, 0
        for field in self.fields:
            values[field.name] = word >> position & (2**field.width - 1)
            position += field.width
        return values


class RegisterMap:
    """Registers at different offsets, in the order of their offsets.

    Raises
    ------
    ValueError
        If there is no register, or two share a name or an offset.
    """

    def __init__(self, registers: Sequence[Register]) -> None:
        if not registers:
            raise ValueError("registers must be at least one, not none")
        self.registers = tuple(sorted(registers, key=lambda register: register.offset))
        for before, after in zip(self.registers, self.registers[1:], strict=False):
            if before.offset == after.offset:
                raise ValueError(
                    f"offset of {after.name} must differ from that of {before.name}, "
                    f"not {after.offset:#x} too"
                )
        self._by_name = {register.name: register for register in self.registers}
        if len(self._by_name) != len(self.registers):
            names = [register.name for register in self.registers]
            raise ValueError(f"registers must have different names, not {names!r}")

    def __getitem__(self, name: str) -> Register:
        return self._by_name[name]

    def __iter__(self) -> Iterator[Register]:
        return iter(self.registers)

    def __len__(self) -> int:
        return len(self.registers)

    @property
    def addr_width(self) -> int:
        """Bits of a byte address that reaches every register."""
        return (self.registers[-1].offset + WORD_BYTES - 1).bit_length()


def _counters(first_offset: int) -> list[Register]:
    """Counters since the last start; the first seven say what the matrix unit did."""
    meanings = {
        "CYCLES": "Cycles from start to done; the sum of the six counters that follow.",
        "BUSY": "Cycles in which the matrix unit took a row of activations.",
        "WAIT_WEIGHTS": "Cycles in which the matrix unit waited for weights.",
        "WAIT_ACTIVATIONS": "Cycles in which the matrix unit waited for activations.",
        "WAIT_ACCUMULATORS": "Cycles in which the matrix unit waited for accumulators.",
        "FILL_DRAIN": "Cycles in which a wave entered or left the array without a new row.",
        "IDLE": "Cycles in which the matrix unit had no instruction.",
        "INSTRUCTIONS": "Instructions retired.",
        "HOST_READ_BEATS": "Beats read from host memory.",
        "HOST_WRITE_BEATS": "Beats written to host memory.",
        "WEIGHT_BEATS": "Beats read from weight memory.",
    }
    return [
        Register(name=name, offset=first_offset + index * WORD_BYTES, access="ro", doc=doc)
        for index, (name, doc) in enumerate(meanings.items())
    ]


def core_regmap() -> RegisterMap:
    """Return the registers that every NPU core has, so that one driver serves all."""
    start = Field(name="start", doc="Clear the counters and run the program.")
    clear = Field(name="clear", doc="Lower done and error.")
    status = (
        Field(name="busy", doc="A program runs."),
        Field(name="done", doc="A program has ended since the last start or clear."),
        Field(name="error", doc="It ended with an error; see ERROR_CODE and ERROR_PC."),
    )
    control = [
        Register(name="ID", offset=0x00, access="ro", doc="Constant CORE_ID."),
        Register(
            name="CONFIG_HASH",
            offset=0x04,
            access="ro",
            doc="Low bits of the hash of the configuration; an image names the one it is for.",
        ),
        Register(name="CTRL", offset=0x08, access="w1", doc="Commands.", fields=(start, clear)),
        Register(name="STATUS", offset=0x0C, access="ro", doc="State.", fields=status),
        Register(
            name="ERROR_CODE", offset=0x10, access="ro", doc="First error, 0 for none.", width=8
        ),
        Register(
            name="ERROR_PC",
            offset=0x14,
            access="ro",
            doc="Index in the program of the instruction that failed first.",
        ),
        Register(
            name="PROGRAM_ADDR",
            offset=0x18,
            access="rw",
            doc="Byte address of the first instruction in host memory.",
        ),
        Register(
            name="PROGRAM_COUNT", offset=0x1C, access="rw", doc="Instructions of the program."
        ),
    ]
    return RegisterMap([*control, *_counters(0x40)])
