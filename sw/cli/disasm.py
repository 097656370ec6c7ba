"""``npulse disasm``: the programs of an image as text."""

from importlib import import_module

from npulse.hw.spec.isa import Isa
from npulse.sw import image
from npulse.sw.cli.options import ImageArgument, JsonOption, write_json
from npulse.sw.targets.executable import Executable, NpuSegment

__all__ = ["disasm"]


def disasm(path: ImageArgument, json_file: JsonOption = None) -> None:
    """Print the instructions of an image; the text assembles to the same bytes."""
    executable = image.load(path)
    isa: Isa = import_module(f"npulse.hw.spec.{executable.npu.family}_isa").ISA
    listing = {
        segment.name: [str(i) for i in isa.disassemble(_words(executable, segment, isa))]
        for segment in executable.segments
        if isinstance(segment, NpuSegment)
    }
    write_json(json_file, {"npu": executable.npu.name, "programs": listing})
    if json_file == "-":
        return
    for segment in executable.segments:
        print(f"# {segment.name}: ", end="")
        if not isinstance(segment, NpuSegment):
            print(f"host, {', '.join(segment.inputs)} -> {', '.join(segment.outputs)}")
            continue
        print(f"{segment.instructions} instructions at {segment.program_address:#x}")
        for index, line in enumerate(listing[segment.name]):
            print(f"{line}  # {index}")


def _words(executable: Executable, segment: NpuSegment, isa: Isa) -> bytes:
    start = segment.program_address - executable.memory.program.address
    return executable.program[start : start + segment.instructions * isa.word_bytes]
