"""AXI4 as a signature of flat members that carry their AXI names.

Flat names make the Verilog port of a member `host` read `host__araddr`, which is what
`cocotbext.axi.AxiBus.from_prefix(dut, "host_")` looks for; it also insists on ID signals, so
these always exist. The optional attributes (lock, cache, prot, qos, region, user) are left out.

Ref: AMBA AXI and ACE Protocol Specification, ARM IHI 0022E, chapters A2 and A3.
"""

from enum import IntEnum

from amaranth.hdl import Signal
from amaranth.lib.wiring import Flow, In, Member, Out, PureInterface, Signature

#: A burst must stay inside one aligned block of this many bytes (IHI 0022E, A3.4.1).
BOUNDARY_BYTES = 4096


class Burst(IntEnum):
    """Encoding of AxBURST (IHI 0022E, table A3-3)."""

    FIXED = 0
    INCR = 1
    WRAP = 2


class Response(IntEnum):
    """Encoding of RRESP and BRESP (IHI 0022E, table A3-4)."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


class Axi4Interface(PureInterface):
    """Members of an AXI4 port; those of an absent direction do not exist."""

    araddr: Signal  #: Byte address of the first beat of a read burst.
    arlen: Signal  #: Beats of the burst, minus one.
    arsize: Signal  #: Binary logarithm of the bytes in a beat.
    arburst: Signal  #: `Burst`.
    arid: Signal  #: Tag that `rid` repeats.
    arvalid: Signal  #: A read burst is offered.
    arready: Signal  #: The read burst is taken.
    rdata: Signal  #: Beat read.
    rresp: Signal  #: `Response` of the beat.
    rlast: Signal  #: The beat ends its burst.
    rid: Signal  #: Tag of the burst.
    rvalid: Signal  #: A beat is offered.
    rready: Signal  #: The beat is taken.
    awaddr: Signal  #: Byte address of the first beat of a write burst.
    awlen: Signal  #: Beats of the burst, minus one.
    awsize: Signal  #: Binary logarithm of the bytes in a beat.
    awburst: Signal  #: `Burst`.
    awid: Signal  #: Tag that `bid` repeats.
    awvalid: Signal  #: A write burst is offered.
    awready: Signal  #: The write burst is taken.
    wdata: Signal  #: Beat to write.
    wstrb: Signal  #: One bit a byte of `wdata`: write it.
    wlast: Signal  #: The beat ends its burst.
    wvalid: Signal  #: A beat is offered.
    wready: Signal  #: The beat is taken.
    bresp: Signal  #: `Response` of the whole burst.
    bid: Signal  #: Tag of the burst.
    bvalid: Signal  #: A response is offered.
    bready: Signal  #: The response is taken.


def _address_members(prefix: str, addr_width: int, id_width: int) -> dict[str, Member]:
    """Members of channel AR or AW, as the manager drives them."""
    fields = {"addr": addr_width, "len": 8, "size": 3, "burst": 2, "id": id_width, "valid": 1}
    return {f"{prefix}{name}": Out(width) for name, width in fields.items()} | {
        f"{prefix}ready": In(1)
    }


def _channel_members(prefix: str, fields: dict[str, int], flow: Flow) -> dict[str, Member]:
    """Members of channel R, W or B: ``fields`` and valid flow one way, ready the other."""
    members = {f"{prefix}{name}": flow(width) for name, width in fields.items()}
    return members | {f"{prefix}valid": flow(1), f"{prefix}ready": flow.flip()(1)}


class Axi4Signature(Signature):
    """AXI4 port as its manager (master) sees it; a subordinate has ``In(Axi4Signature(...))``.

    Parameters
    ----------
    data_width : int
        Bits in a beat: a power of two of 8 to 1024.
    addr_width : int
        Bits of a byte address, 1 to 64.
    id_width : int
        Bits of a tag, at least 1. The managers of this library send the constant tag 0, which
        keeps all of their bursts in order.
    read, write : bool
        Whether channels AR and R, or AW, W and B, exist.
    """

    def __init__(
        self,
        *,
        data_width: int,
        addr_width: int = 32,
        id_width: int = 1,
        read: bool = True,
        write: bool = True,
    ) -> None:
        if data_width not in (8, 16, 32, 64, 128, 256, 512, 1024):
            raise ValueError(
                f"data_width must be a power of two of 8 to 1024 bits, not {data_width!r}"
            )
        if not 1 <= addr_width <= 64:
            raise ValueError(f"addr_width must be 1 to 64 bits, not {addr_width!r}")
        if id_width < 1:
            raise ValueError(f"id_width must be at least 1 bit, not {id_width!r}")
        if not (read or write):
            raise ValueError("read or write must be true, not both false")
        self.data_width = data_width
        self.addr_width = addr_width
        self.id_width = id_width
        self.read = read
        self.write = write
        super().__init__(self._members())

    def _members(self) -> dict[str, Member]:
        members: dict[str, Member] = {}
        data, tag = self.data_width, self.id_width
        if self.read:
            members |= _address_members("ar", self.addr_width, tag)
            members |= _channel_members("r", {"data": data, "resp": 2, "last": 1, "id": tag}, In)
        if self.write:
            members |= _address_members("aw", self.addr_width, tag)
            members |= _channel_members("w", {"data": data, "strb": data // 8, "last": 1}, Out)
            members |= _channel_members("b", {"resp": 2, "id": tag}, In)
        return members

    @property
    def beat_bytes(self) -> int:
        """Bytes in a beat."""
        return self.data_width // 8

    @property
    def size(self) -> int:
        """AxSIZE of a full beat: binary logarithm of `beat_bytes`."""
        return self.beat_bytes.bit_length() - 1

    def create(self, *, path: tuple[str | int, ...] = (), src_loc_at: int = 0) -> Axi4Interface:
        """Create the signals of the port."""
        return Axi4Interface(self, path=path, src_loc_at=1 + src_loc_at)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Axi4Signature) and self.members == other.members

    def __repr__(self) -> str:
        return (
            f"Axi4Signature(data_width={self.data_width}, addr_width={self.addr_width}, "
            f"id_width={self.id_width}, read={self.read}, write={self.write})"
        )
