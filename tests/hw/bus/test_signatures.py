"""The names and the limits of the bus signatures."""

import re
from collections.abc import Callable

import pytest
from amaranth.lib.wiring import Flow, In, Out

from npulse.hw.bus.axi4 import Axi4Signature
from npulse.hw.bus.axi4lite import Axi4LiteSignature

Build = Callable[[], object]


def test_axi4_lists_the_channels_in_axi_names() -> None:
    members = Axi4Signature(data_width=64, addr_width=40, id_width=3).members
    assert {name: (member.flow, member.shape) for name, member in members.items()} == {
        "araddr": (Out, 40),
        "arlen": (Out, 8),
        "arsize": (Out, 3),
        "arburst": (Out, 2),
        "arid": (Out, 3),
        "arvalid": (Out, 1),
        "arready": (In, 1),
        "rdata": (In, 64),
        "rresp": (In, 2),
        "rlast": (In, 1),
        "rid": (In, 3),
        "rvalid": (In, 1),
        "rready": (Out, 1),
        "awaddr": (Out, 40),
        "awlen": (Out, 8),
        "awsize": (Out, 3),
        "awburst": (Out, 2),
        "awid": (Out, 3),
        "awvalid": (Out, 1),
        "awready": (In, 1),
        "wdata": (Out, 64),
        "wstrb": (Out, 8),
        "wlast": (Out, 1),
        "wvalid": (Out, 1),
        "wready": (In, 1),
        "bresp": (In, 2),
        "bid": (In, 3),
        "bvalid": (In, 1),
        "bready": (Out, 1),
    }


@pytest.mark.parametrize(
    ("read", "write", "prefixes"),
    [(True, False, {"ar", "r"}), (False, True, {"aw", "w", "b"})],
)
def test_axi4_of_one_direction_has_only_its_channels(
    read: bool, write: bool, prefixes: set[str]
) -> None:
    names = set(Axi4Signature(data_width=32, read=read, write=write).members)
    assert {name.removesuffix("valid") for name in names if name.endswith("valid")} == prefixes
    assert all(any(name.startswith(prefix) for prefix in prefixes) for name in names)


def test_axi4lite_lists_the_channels_in_axi_names() -> None:
    members = Axi4LiteSignature(addr_width=12).members
    driven: dict[Flow, dict[str, object]] = {In: {}, Out: {}}
    for name, member in members.items():
        driven[member.flow][name] = member.shape
    assert driven[Out] == {
        "araddr": 12,
        "arprot": 3,
        "arvalid": 1,
        "rready": 1,
        "awaddr": 12,
        "awprot": 3,
        "awvalid": 1,
        "wdata": 32,
        "wstrb": 4,
        "wvalid": 1,
        "bready": 1,
    }
    assert driven[In] == {
        "arready": 1,
        "rdata": 32,
        "rresp": 2,
        "rvalid": 1,
        "awready": 1,
        "wready": 1,
        "bresp": 2,
        "bvalid": 1,
    }


def test_signatures_are_equal_when_their_members_are() -> None:
    assert Axi4Signature(data_width=64) == Axi4Signature(data_width=64)
    assert Axi4Signature(data_width=64) != Axi4Signature(data_width=64, write=False)
    assert Axi4LiteSignature() == Axi4LiteSignature(addr_width=32)
    assert Axi4LiteSignature() != Axi4LiteSignature(data_width=64)


@pytest.mark.parametrize(("width", "size"), [(8, 0), (64, 3), (1024, 7)])
def test_size_is_the_logarithm_of_the_beat(width: int, size: int) -> None:
    signature = Axi4Signature(data_width=width)
    assert (signature.size, signature.beat_bytes) == (size, 2**size)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: Axi4Signature(data_width=96),
            "data_width must be a power of two of 8 to 1024 bits, not 96",
        ),
        (
            lambda: Axi4Signature(data_width=2048),
            "data_width must be a power of two of 8 to 1024 bits, not 2048",
        ),
        (
            lambda: Axi4Signature(data_width=8, addr_width=65),
            "addr_width must be 1 to 64 bits, not 65",
        ),
        (
            lambda: Axi4Signature(data_width=8, id_width=0),
            "id_width must be at least 1 bit, not 0",
        ),
        (
            lambda: Axi4Signature(data_width=8, read=False, write=False),
            "read or write must be true, not both false",
        ),
        (
            lambda: Axi4LiteSignature(data_width=128),
            "data_width must be 32 or 64 bits, not 128",
        ),
        (
            lambda: Axi4LiteSignature(addr_width=0),
            "addr_width must be 1 to 64 bits, not 0",
        ),
    ],
)
def test_refuses_illegal_parameters(build: Build, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        build()
