"""Lays out DRAM: weights, parameters, tensors that cross a segment's border, programs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.ir import SSAValue

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_isa import ISA
from npulse.hw.spec.tpu_v1_layout import tensor_rows
from npulse.sw.ir.types import type_of
from npulse.sw.passes.partition import Segment
from npulse.sw.passes.views import image_shape
from npulse.sw.targets.executable import DramMap, DramRange, NpuSegment, TensorBinding
from npulse.sw.targets.tpu_v1.constants import Constants
from npulse.sw.targets.tpu_v1.lower_graph import Border

__all__ = ["ALIGNMENT", "Memory", "lay_out"]

#: Bytes to which ranges are aligned: the widest port that a configuration may have.
ALIGNMENT = 128


def _align(address: int) -> int:
    return -(-address // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Places in DRAM, with those of the programs once their lengths are known."""

    config: TpuV1Config
    map: DramMap
    weight_image: bytes
    slots: tuple[DramRange, ...]
    borders: tuple[Border, ...]
    instructions: tuple[int, ...] = ()  #: Of each program.

    @property
    def tiles(self) -> int:
        """Byte address of the first weight tile."""
        return self.map.weights.address

    @property
    def parameters(self) -> int:
        """Byte address of the first parameter entry."""
        return self.map.parameters.address

    def with_programs(self, instructions: Sequence[int]) -> "Memory":
        """Copy with room for programs of so many instructions, one behind the other."""
        length = sum(instructions) * ISA.word_bytes
        program = replace(self.map.program, length_bytes=length)
        return replace(
            self,
            map=replace(self.map, program=program, total_bytes=_align(program.end)),
            instructions=tuple(instructions),
        )

    def segment(self, index: int, name: str, segment: Segment) -> NpuSegment:
        """What the driver needs to run a program."""
        before = sum(self.instructions[:index])
        return NpuSegment(
            name=name,
            program_address=self.map.program.address + before * ISA.word_bytes,
            instructions=self.instructions[index],
            inputs=tuple(self._binding(index, value) for value in segment.inputs),
            outputs=tuple(self._binding(index, value) for value in segment.outputs),
        )

    def _binding(self, index: int, value: SSAValue) -> TensorBinding:
        border = self.borders[index]
        place = self.slots[border.slots[value]]
        return TensorBinding(
            value=border.names[value],
            shape=_image(value),
            array_shape=type_of(value).get_shape(),
            address=place.address,
            length_bytes=place.length_bytes,
        )


def lay_out(config: TpuV1Config, constants: Constants, borders: Sequence[Border]) -> Memory:
    """Place everything but the programs, which come last because their length is not known yet."""
    tiles, parameters = constants.tiles, constants.parameters
    weights = DramRange(name="weights", address=0, length_bytes=len(tiles))
    entries = DramRange(name="parameters", address=weights.end, length_bytes=len(parameters))
    slots, at = [], _align(entries.end)
    for border in borders:
        for value in border.slots:
            length = tensor_rows(config, *_image(value)) * config.host_row_bytes
            slots.append(DramRange(name=border.names[value], address=at, length_bytes=length))
            at = _align(at + length)
    program = DramRange(name="program", address=at, length_bytes=0)
    return Memory(
        config=config,
        map=DramMap(
            program=program,
            weights=weights,
            parameters=entries,
            tensors=tuple(slots),
            total_bytes=at,
        ),
        weight_image=tiles + parameters,
        slots=tuple(slots),
        borders=tuple(borders),
    )


def _image(value: SSAValue) -> tuple[int, int, int]:
    image = image_shape(type_of(value).get_shape())
    assert image is not None, "the rules let the NPU read and write images only"
    return image
