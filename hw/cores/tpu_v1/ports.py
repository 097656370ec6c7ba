"""What the front end hands to each unit, and what units say of themselves."""

from amaranth.lib import data

from npulse.hw.common.decode import format_layout
from npulse.hw.spec.isa import Format
from npulse.hw.spec.tpu_v1_isa import ISA

__all__ = ["PC_WIDTH", "TICKET_WIDTH", "Order", "UnitError"]

TICKET_WIDTH = 8  #: More than the instructions that can be under way at once in a unit.
PC_WIDTH = 16  #: Bits of an instruction's index in its program that errors report.


class Order(data.StructLayout):
    """An instruction on its way to its unit.

    `ticket` is how many instructions of the other accumulator unit on the same half must have
    been carried out before this one may start, modulo ``2**TICKET_WIDTH``.
    """

    def __init__(self, f: Format) -> None:
        super().__init__({"fields": format_layout(ISA, f), "ticket": TICKET_WIDTH, "pc": PC_WIDTH})


class UnitError(data.StructLayout):
    """An error of the instruction `pc`, for one cycle; `code` 0 means none."""

    def __init__(self) -> None:
        super().__init__({"code": 4, "pc": PC_WIDTH})
