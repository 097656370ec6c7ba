"""Instructions of the TPU v1 style: CISC with repeat counts, after the list in ISCA17 section 2.

Units. *host* moves rows between DRAM and the unified buffer, *weights* fills the weight FIFO and
the parameter FIFO, *matrix* streams rows of the buffer through the array into the accumulators,
*activate* takes accumulators through requantisation and pooling back into the buffer. Each unit
carries out its own instructions in order; the four overlap. Hardware orders matrix and activate on
each half of the accumulators, and both after the FIFO that they take from. Order through the
unified buffer is the program's, by *Sync*.
"""

from enum import IntEnum

from npulse.hw.spec.isa import Field, Format, Isa

__all__ = ["ISA", "UNITS", "ErrorCode"]


class ErrorCode(IntEnum):
    """Why the core stopped (register ERROR_CODE); the text is for people."""

    def __new__(cls, value: int, text: str) -> "ErrorCode":
        member = int.__new__(cls, value)
        member._value_ = value
        member.text = text
        return member

    text: str

    NONE = 0, "no error"
    ILLEGAL_INSTRUCTION = 1, "unknown opcode, reserved bit set, or a zero count"
    BUS = 2, "the memory answered a transfer with an error"
    ACCUMULATOR_RANGE = 3, "rows of an instruction leave their half of the accumulators"
    BUFFER_RANGE = 4, "an address lies beyond the unified buffer"
    NO_HALT = 5, "the program ended without Halt"
    LEFTOVER = 6, "weight tiles or parameter entries were left over at Halt"
    TRAILING = 7, "instructions follow Halt"


#: Bit of each unit in the mask of `Sync`.
UNITS = {"host": 1, "weights": 2, "matrix": 4, "activate": 8}

_DRAM = Field(name="dram_addr", width=32, doc="byte address in DRAM, aligned to the port")
_UB = Field(name="ub_addr", width=17, doc="row of the unified buffer")
_ACC = Field(name="acc_addr", width=12, doc="first accumulator row; all rows lie in one half")
_MOVE = (
    _DRAM,
    _UB,
    Field(name="rows", width=17, minimum=1, doc="contiguous rows of one run"),
    Field(name="runs", width=12, minimum=1, doc="runs"),
    Field(name="dram_stride", width=32, doc="bytes from run to run in DRAM"),
    Field(name="ub_stride", width=17, doc="rows from run to run in the buffer"),
)

HALT = Format(name="Halt", opcode=1, unit="dispatch", doc="wait for all units and end the program")

SYNC = Format(
    name="Sync",
    opcode=2,
    unit="dispatch",
    doc="hold back all later instructions until these units have finished everything",
    fields=(Field(name="units", width=4, doc="host 1, weights 2, matrix 4, activate 8"),),
)

READ_HOST = Format(
    name="ReadHostMemory",
    opcode=3,
    unit="host",
    doc="copy DRAM to the unified buffer",
    fields=_MOVE,
)

WRITE_HOST = Format(
    name="WriteHostMemory",
    opcode=4,
    unit="host",
    doc="copy the buffer to DRAM",
    fields=_MOVE,
)

READ_WEIGHTS = Format(
    name="ReadWeights",
    opcode=5,
    unit="weights",
    doc="push tiles into the weight FIFO, as it has room",
    fields=(_DRAM, Field(name="tiles", width=16, minimum=1, doc="contiguous tiles")),
)

READ_PARAMETERS = Format(
    name="ReadParameters",
    opcode=6,
    unit="weights",
    doc="push entries into the parameter FIFO, as it has room",
    fields=(_DRAM, Field(name="entries", width=16, minimum=1, doc="contiguous entries")),
)

MATRIX_MULTIPLY = Format(
    name="MatrixMultiply",
    opcode=7,
    unit="matrix",
    doc=(
        "for each block, kernel row and kernel column take a weight tile, stream rows_y x rows_x "
        "rows of the buffer through it, and add the sums to as many accumulator rows"
    ),
    fields=(
        Field(name="ub_addr", width=17, doc="row of block 0 at (origin_y, origin_x), modulo 2^17"),
        _ACC,
        Field(name="accumulate", width=1, doc="add to the accumulators; else the first pass sets"),
        Field(name="switch", width=1, doc="take a tile for the first pass, else keep the active"),
        Field(name="fill", width=8, signed=True, doc="byte in place of rows outside the limits"),
        Field(name="blocks", width=12, minimum=1, doc="blocks of channels"),
        Field(name="block_stride", width=17, doc="buffer rows from block to block"),
        Field(name="kernel_y", width=6, minimum=1, doc="kernel rows"),
        Field(name="kernel_x", width=6, minimum=1, doc="kernel columns"),
        Field(name="rows_y", width=12, minimum=1, doc="output rows"),
        Field(name="rows_x", width=12, minimum=1, doc="output columns"),
        Field(name="step_y", width=5, doc="y from output row to output row"),
        Field(name="step_x", width=5, doc="x from output column to output column"),
        Field(name="dilate_y", width=5, doc="y from kernel row to kernel row"),
        Field(name="dilate_x", width=5, doc="x from kernel column to kernel column"),
        Field(name="step_y_rows", width=17, doc="buffer rows that step_y is"),
        Field(name="dilate_y_rows", width=17, doc="buffer rows that dilate_y is"),
        Field(name="origin_y", width=13, signed=True, doc="y of the first output at kernel row 0"),
        Field(
            name="origin_x", width=13, signed=True, doc="x of the first output at kernel column 0"
        ),
        Field(name="limit_y", width=12, minimum=1, doc="rows with y in 0 .. limit_y - 1 are read"),
        Field(name="limit_x", width=12, minimum=1, doc="rows with x in 0 .. limit_x - 1 are read"),
    ),
)

ACTIVATE = Format(
    name="Activate",
    opcode=8,
    unit="activate",
    doc=(
        "for each output pixel requantise the window_y x window_x accumulator rows of its window, "
        "keep the largest value in each column, and write the row to the unified buffer"
    ),
    fields=(
        Field(
            name="acc_addr",
            width=12,
            doc="half (highest bit in use) and, modulo a half, row at (origin_y, origin_x)",
        ),
        _UB,
        Field(name="group", width=9, doc="lane group of the buffer that takes the columns"),
        Field(name="switch", width=1, doc="take a parameter entry; else keep the active one"),
        Field(name="rows_y", width=12, minimum=1, doc="output rows"),
        Field(name="rows_x", width=12, minimum=1, doc="output columns"),
        Field(name="window_y", width=5, minimum=1, doc="window rows"),
        Field(name="window_x", width=5, minimum=1, doc="window columns"),
        Field(name="step_y", width=5, doc="y from output row to output row"),
        Field(name="step_x", width=5, doc="x from output column to output column"),
        Field(name="step_y_rows", width=12, doc="accumulator rows that step_y is"),
        Field(name="window_y_rows", width=12, doc="accumulator rows from y to y + 1"),
        Field(name="origin_y", width=13, signed=True, doc="y of the first window"),
        Field(name="origin_x", width=13, signed=True, doc="x of the first window"),
        Field(name="limit_y", width=12, minimum=1, doc="rows with y in 0 .. limit_y - 1 count"),
        Field(name="limit_x", width=12, minimum=1, doc="rows with x in 0 .. limit_x - 1 count"),
        Field(name="ub_y_stride", width=17, doc="buffer rows from output row to output row"),
    ),
)

#: Opcode 0 is illegal on purpose: empty memory stops the core.
ISA = Isa(
    name="tpu-v1",
    word_bytes=32,
    opcode_width=4,
    formats=(
        HALT,
        SYNC,
        READ_HOST,
        WRITE_HOST,
        READ_WEIGHTS,
        READ_PARAMETERS,
        MATRIX_MULTIPLY,
        ACTIVATE,
    ),
)
