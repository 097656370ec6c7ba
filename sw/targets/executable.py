"""What the compiler hands on: programs, DRAM contents, host segments, and why each is where it is.

An `Executable` is all that a driver needs to run a model and all that a report needs to explain
it. Segments run in order and pass *values* on by name. A value is a numpy array with the shape and
dtype that it has in the graph. Running one is::

    values = dict(zip(executable.input_values, inputs))
    for segment in executable.segments:
        HostSegment: evaluate `module` on values[n] for n in segment.inputs
        NpuSegment:  write pack_activations(config, values[b.value].reshape(b.shape)) to b.address
                     for b in segment.inputs, start at `program_address`, wait for the end, then
                     values[b.value] = unpack_activations(config, DRAM at b.address, b.shape)
                     .reshape(b.array_shape) for b in segment.outputs
    outputs = [values[n] for n in executable.output_values]
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from npulse.hw.spec.flavours import Npu
from npulse.sw.frontends.model import TensorInfo

__all__ = [
    "DramMap",
    "DramRange",
    "Executable",
    "HostSegment",
    "Layer",
    "NpuSegment",
    "Placement",
    "Summary",
    "TensorBinding",
]


@dataclass(frozen=True, kw_only=True)
class DramRange:
    """Bytes of DRAM with one purpose."""

    name: str
    address: int  #: First byte.
    length_bytes: int

    @property
    def end(self) -> int:
        """First byte after the range."""
        return self.address + self.length_bytes


@dataclass(frozen=True, kw_only=True)
class DramMap:
    """Where everything lies in DRAM; ranges do not overlap, and all start on whole port words."""

    program: DramRange  #: Instructions of all NPU segments.
    weights: DramRange  #: Weight tiles.
    parameters: DramRange  #: Requantisation parameters; directly behind the weights.
    #: One for each input and output of each NPU segment, and each tensor that the buffer has no
    #: room for.
    tensors: tuple[DramRange, ...]
    total_bytes: int  #: A DRAM from address 0 of this length holds all of it.


@dataclass(frozen=True, kw_only=True)
class TensorBinding:
    """A value that an NPU segment reads from or writes to DRAM."""

    value: str  #: Name of the value.
    shape: tuple[int, int, int]  #: (H, W, C) as `pack_activations` takes it.
    array_shape: tuple[int, ...]  #: Shape of the array in the graph.
    address: int  #: First byte in DRAM.
    length_bytes: int


@dataclass(frozen=True, kw_only=True)
class NpuSegment:
    """A program of the NPU, which ends with its own Halt."""

    name: str
    program_address: int  #: Byte address of its first instruction in DRAM.
    instructions: int
    inputs: tuple[TensorBinding, ...]
    outputs: tuple[TensorBinding, ...]


@dataclass(frozen=True, kw_only=True)
class HostSegment:
    """Operators that the host evaluates with the golden kernels."""

    name: str
    module: str  #: Text of a graph module; its ``main`` takes `inputs` and returns `outputs`.
    inputs: tuple[str, ...]  #: Values, in the order of the arguments.
    outputs: tuple[str, ...]  #: Values, in the order of the results.


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where one operator of the graph runs, and why."""

    node: str  #: Node of the model.
    op: str  #: Operator of the graph dialect, or kind of a host operator.
    placed: str  #: ``npu`` or ``host``.
    rule: str  #: Id of the rule that decided; for the NPU the way in which it is carried out.
    attribute: str  #: Attribute or shape that decided, with its value.
    remedy: str  #: What would put it on the NPU; empty when it is there.
    fallback: bool  #: Whether ``--strict`` refuses it: on the host, and not by design.
    estimated_cycles: int  #: Transfers, fill and drain included; 0 on the host.


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One operator on the NPU in figures."""

    node: str
    op: str
    macs: int  #: Multiply-adds of the mathematics, padding included, unused lanes not.
    instructions: int
    tiles: int  #: Weight tiles in DRAM.
    tile_reads: int  #: Weight tiles that the program reads.
    estimated_cycles: int


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What was compiled, in figures."""

    layers: tuple[Layer, ...]
    instructions: int
    weight_bytes: int  #: Tiles and parameters in DRAM.
    sram_peak_rows: int  #: Rows of the unified buffer that the placement uses.
    sram_lower_bound_rows: int  #: Most rows that are live at one time.
    sram_capacity_rows: int
    row_bytes: int  #: Bytes of one row of the unified buffer.
    macs: int
    estimated_cycles: int


@dataclass(frozen=True, kw_only=True)
class Executable:
    """A compiled model."""

    npu: Npu
    segments: tuple[NpuSegment | HostSegment, ...]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    input_values: tuple[str, ...]  #: Names of the values that the inputs become.
    output_values: tuple[str, ...]  #: Names of the values that are the outputs.
    memory: DramMap
    program: bytes  #: Contents of ``memory.program``.
    weight_image: bytes  #: Contents of ``memory.weights`` and ``memory.parameters``, back to back.
    reasons: tuple[Placement, ...]
    summary: Summary
    graph: str  #: Text of the graph module of the model, for the golden run.
    weights: Mapping[str, NDArray[Any]]  #: Arrays that `graph` and host segments name.
    source: str  #: File of the model as the user gave it.
    origin: str  #: Front-end: ``onnx`` or ``tflite``.
    sha256: str  #: Of the file of the model.
    notes: tuple[str, ...]  #: What importer and compiler decided by themselves.
