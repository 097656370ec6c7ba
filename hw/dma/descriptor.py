"""What a mover is asked to transfer: a block of rows of beats, a stride apart."""

from amaranth.lib import data


class TransferDescriptor(data.StructLayout):
    """Strided 2-D block of bus beats, moved row by row with rising addresses.

    Beat *j* of row *i* lies at ``addr + i * stride + j * beat_bytes``, modulo 2**32, so a
    negative stride is its two's complement. One row is ``rows = 1`` with any stride.

    Members
    -------
    addr : 32 bits
        Byte address of the first beat, a multiple of the bytes in a beat.
    beats : 27 bits
        Contiguous beats in a row, at least 1: a whole tensor of 2**17 rows of up to 512 beats
        and more.
    rows : 16 bits
        Rows, at least 1.
    stride : 32 bits
        Bytes from the start of a row to the start of the next, a multiple of the bytes in a beat.
    """

    def __init__(self) -> None:
        super().__init__({"addr": 32, "beats": 27, "rows": 16, "stride": 32})
