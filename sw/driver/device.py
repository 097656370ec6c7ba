"""What the runtime needs of a device, whatever is behind it."""

from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from typing import Protocol

from npulse.hw.spec.flavours import Npu
from npulse.sw.errors import UserError

__all__ = ["Device", "DeviceError", "Progress", "RunStats"]

#: Called now and then with the cycles that have passed since the start.
Progress = Callable[[int], None]


class DeviceError(UserError):
    """The device stopped, did not answer, or is another one than the program is for."""


@dataclass(frozen=True, kw_only=True)
class RunStats:
    """Hardware counters of a run; field for field the registers of the same names."""

    cycles: int = 0
    busy: int = 0
    wait_weights: int = 0
    wait_activations: int = 0
    wait_accumulators: int = 0
    fill_drain: int = 0
    idle: int = 0
    instructions: int = 0
    host_read_beats: int = 0
    host_write_beats: int = 0
    weight_beats: int = 0

    def __add__(self, other: "RunStats") -> "RunStats":
        sums = (a + b for a, b in zip(astuple(self), astuple(other), strict=True))
        return RunStats(**dict(zip((f.name for f in fields(self)), sums, strict=True)))

    @property
    def breakdown(self) -> dict[str, int]:
        """What the matrix unit did in each cycle; the values add up to `cycles`."""
        names = (
            "busy",
            "wait_weights",
            "wait_activations",
            "wait_accumulators",
            "fill_drain",
            "idle",
        )
        return {name: getattr(self, name) for name in names}


class Device(Protocol):
    """A core and its memory.

    All methods raise `DeviceError` when the device does not do what its registers promise.
    """

    @property
    def npu(self) -> Npu:
        """What the device is."""
        ...

    @property
    def config_hash(self) -> int:
        """Fingerprint that the hardware states (register CONFIG_HASH)."""
        ...

    def reset(self) -> None:
        """Return to the state after power-up; memory is zero."""
        ...

    def write(self, address: int, content: bytes) -> None:
        """Put bytes into memory from a byte address."""
        ...

    def read(self, address: int, count: int) -> bytes:
        """Get bytes of memory from a byte address."""
        ...

    def start(self, program_address: int, count: int) -> None:
        """Start a program of `count` instructions at a byte address of memory."""
        ...

    def wait(self, limit: int, progress: Progress | None = None) -> RunStats:
        """Wait for the end of the program, for at most `limit` cycles."""
        ...
