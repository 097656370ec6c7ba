"""Configuration of a TPU v1 style NPU, and its three presets.

Ref: Jouppi et al., In-Datacenter Performance Analysis of a Tensor Processing Unit, ISCA 2017
(arXiv 1704.04760), section 2, cited below as ISCA17. What it does not state is a choice of ours
and is marked so. The flavour is a style rebuilt from public information: neither its encodings
nor its binaries are the original's.
"""

import json
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from hashlib import sha256

from npulse.hw.spec.check import power_of_two, within

__all__ = [
    "PRESETS",
    "ArrayConfig",
    "BusConfig",
    "DramConfig",
    "MemoryConfig",
    "TpuV1Config",
]


@dataclass(frozen=True, kw_only=True)
class ArrayConfig:
    """Weight-stationary array of int8 multiply-add cells."""

    rows: int = 256  #: Depth of the reduction; ISCA17: 256.
    cols: int = 256  #: Output channels a pass; ISCA17: 256.
    multiplier_latency: int = 0  #: Registers between operands and product; a choice (Fmax).

    def __post_init__(self) -> None:
        within("array.rows", self.rows, 1, 512)
        within("array.cols", self.cols, 1, 512)
        within("array.multiplier_latency", self.multiplier_latency, 0, 4, "cycles")


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """On-chip memories; a row has one entry in each lane."""

    unified_buffer_rows: int = 98304  #: Rows of one byte a lane; ISCA17: 24 MiB / 256 B.
    accumulator_rows: int = 4096  #: Rows of 32 bits a column, in two halves; ISCA17: 4 MiB.
    weight_fifo_tiles: int = 4  #: Tiles between DRAM and array; ISCA17: 4.
    parameter_entries: int = 4  #: Sets of requantisation parameters a column; a choice.
    sram_latency: int = 1  #: Cycles from address to data, 2 with an output register; a choice.

    def __post_init__(self) -> None:
        within("memory.unified_buffer_rows", self.unified_buffer_rows, 2, 1 << 17, "rows")
        power_of_two("memory.accumulator_rows", self.accumulator_rows, 4, 4096, "rows")
        power_of_two("memory.weight_fifo_tiles", self.weight_fifo_tiles, 2, 16, "tiles")
        power_of_two("memory.parameter_entries", self.parameter_entries, 2, 16, "entries")
        within("memory.sram_latency", self.sram_latency, 1, 2, "cycles")


@dataclass(frozen=True, kw_only=True)
class BusConfig:
    """Width in bytes of the three AXI4 ports; powers of two, as AXI4 wants."""

    weight_bytes: int = 64  #: ISCA17: 34 GB/s at 700 MHz is 48.6 B a cycle; the next power of two.
    host_bytes: int = 32  #: ISCA17: PCIe at 14 GiB/s is 21 B a cycle; the next power of two.
    instruction_bytes: int = 16  #: Bytes a cycle of instruction fetch; a choice.

    def __post_init__(self) -> None:
        power_of_two("bus.weight_bytes", self.weight_bytes, 1, 128, "bytes")
        power_of_two("bus.host_bytes", self.host_bytes, 1, 128, "bytes")
        power_of_two("bus.instruction_bytes", self.instruction_bytes, 1, 32, "bytes")


@dataclass(frozen=True, kw_only=True)
class DramConfig:
    """The memory that simulation puts behind the ports; no part of the RTL of the NPU."""

    latency_cycles: int = 20  #: From a burst's address to its first data; a choice.
    weight_millibytes_per_cycle: int = 48600  #: ISCA17: 34 GB/s at 700 MHz.
    host_millibytes_per_cycle: int = 21000  #: ISCA17: 14 GiB/s at 700 MHz.

    def __post_init__(self) -> None:
        within("dram.latency_cycles", self.latency_cycles, 2, 1000, "cycles")
        within("dram.weight_millibytes_per_cycle", self.weight_millibytes_per_cycle, 1, 1 << 20)
        within("dram.host_millibytes_per_cycle", self.host_millibytes_per_cycle, 1, 1 << 20)

    @property
    def weight_bytes_per_cycle(self) -> Fraction:
        """Bytes a cycle of the weight and instruction ports."""
        return Fraction(self.weight_millibytes_per_cycle, 1000)

    @property
    def host_bytes_per_cycle(self) -> Fraction:
        """Bytes a cycle of the host port, each way."""
        return Fraction(self.host_millibytes_per_cycle, 1000)


@dataclass(frozen=True, kw_only=True)
class TpuV1Config:
    """All parameters of one TPU v1 style NPU; derived quantities are properties.

    Lanes. The unified buffer has one byte lane a channel of a *block* of `block_channels`
    channels. The lanes come in `lane_groups` groups of `group_lanes`: with at least as many rows
    as columns each group takes the results of one pass of the array (`write_groups`), with more
    columns than rows each group feeds one pass (`read_groups`). A square array has one group.
    """

    family = "tpu_v1"

    array: ArrayConfig = field(default_factory=ArrayConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    bus: BusConfig = field(default_factory=BusConfig)
    dram: DramConfig = field(default_factory=DramConfig)
    queue_depth: int = 4  #: Instructions that wait before each unit; a choice.
    requantiser_latency: int = 4  #: Registers from accumulator to int8; a choice (Fmax).
    clock_mhz: int = 700  #: Used to turn cycles into seconds; ISCA17: 700.

    def __post_init__(self) -> None:
        power_of_two("queue_depth", self.queue_depth, 2, 16, "instructions")
        within("requantiser_latency", self.requantiser_latency, 1, 8, "cycles")
        within("clock_mhz", self.clock_mhz, 1, 10_000, "MHz")

    @property
    def group_lanes(self) -> int:
        """Lanes of one group of the unified buffer."""
        return min(self.array.rows, self.array.cols)

    @property
    def write_groups(self) -> int:
        """Results of the array (a pass each) that fit side by side in a row of the buffer."""
        return max(1, self.array.rows // self.array.cols)

    @property
    def read_groups(self) -> int:
        """Passes of the array that one row of the buffer feeds."""
        return max(1, -(-self.array.cols // self.array.rows))

    @property
    def lane_groups(self) -> int:
        """Groups of lanes in the unified buffer."""
        return self.write_groups * self.read_groups

    @property
    def lanes(self) -> int:
        """Byte lanes of the unified buffer."""
        return self.lane_groups * self.group_lanes

    @property
    def block_channels(self) -> int:
        """Channels that one row of the unified buffer holds."""
        return min(self.lanes, self.write_groups * self.array.cols)

    @property
    def half_rows(self) -> int:
        """Rows of one half of the accumulators: the most rows that one instruction may stream."""
        return self.memory.accumulator_rows // 2

    @property
    def host_row_beats(self) -> int:
        """Beats of the host port that one row of the unified buffer takes in DRAM."""
        return -(-self.lanes // self.bus.host_bytes)

    @property
    def host_row_bytes(self) -> int:
        """Bytes that one row of the unified buffer takes in DRAM."""
        return self.host_row_beats * self.bus.host_bytes

    @property
    def weight_row_beats(self) -> int:
        """Beats of the weight port that one row of a tile takes in DRAM."""
        return -(-self.array.cols // self.bus.weight_bytes)

    @property
    def tile_bytes(self) -> int:
        """Bytes of one weight tile in DRAM, padding of its rows included."""
        return self.array.rows * self.weight_row_beats * self.bus.weight_bytes

    @property
    def unified_buffer_bytes(self) -> int:
        """Capacity of the unified buffer."""
        return self.memory.unified_buffer_rows * self.lanes

    @property
    def peak_macs_per_cycle(self) -> int:
        """Multiply-adds of the array in one cycle."""
        return self.array.rows * self.array.cols

    @property
    def digest(self) -> int:
        """32-bit fingerprint of the parameters that the RTL depends on (register CONFIG_HASH)."""
        values = asdict(self)
        del values["dram"], values["clock_mhz"]
        text = json.dumps({"family": self.family, **values}, sort_keys=True)
        return int.from_bytes(sha256(text.encode()).digest()[:4], "little")


#: Proportions of the small sizes: accumulator rows 16 N, buffer rows 384 N, weight bus near N / 5
#: bytes a cycle, as in the published size; the array edge N is the choice.
PRESETS: dict[str, TpuV1Config] = {
    "sim": TpuV1Config(
        array=ArrayConfig(rows=8, cols=8),
        memory=MemoryConfig(unified_buffer_rows=3072, accumulator_rows=128),
        bus=BusConfig(weight_bytes=2, host_bytes=2, instruction_bytes=4),
        dram=DramConfig(
            latency_cycles=8, weight_millibytes_per_cycle=2000, host_millibytes_per_cycle=2000
        ),
    ),
    "fpga": TpuV1Config(
        array=ArrayConfig(rows=16, cols=16, multiplier_latency=3),
        memory=MemoryConfig(unified_buffer_rows=6144, accumulator_rows=256, sram_latency=2),
        bus=BusConfig(weight_bytes=4, host_bytes=4, instruction_bytes=4),
        dram=DramConfig(
            latency_cycles=16, weight_millibytes_per_cycle=4000, host_millibytes_per_cycle=4000
        ),
        requantiser_latency=8,
        clock_mhz=125,
    ),
    "silicon": TpuV1Config(),
}
