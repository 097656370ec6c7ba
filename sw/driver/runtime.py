"""Runs an executable on a device and compares every value that the device made with golden.

Golden is `npulse.sw.interpret` on the graph that the executable carries: it knows nothing of
tiles, addresses or hardware. Equality is of every element, bit by bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from npulse.sw.driver.device import Device, DeviceError, Progress, RunStats
from npulse.sw.errors import UserError
from npulse.sw.interpret import interpret_module
from npulse.sw.ir.graph import Graph
from npulse.sw.targets.executable import Executable, HostSegment, NpuSegment

__all__ = ["Mismatch", "RunResult", "Runtime", "cycle_limit"]

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """A value that is not as golden has it."""

    value: str
    wrong: int  #: Elements that differ.
    total: int  #: Elements in all.
    first: tuple[int, ...]  #: Index of the first that differs.
    got: float
    expected: float

    def __str__(self) -> str:
        return (
            f"{self.value} differs from golden in {self.wrong} of {self.total} values, first at "
            f"{list(self.first)}: {self.got:g} instead of {self.expected:g}"
        )


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What one run gave."""

    outputs: dict[str, Array]  #: By name, in the order of the model.
    stats: RunStats  #: Sum over the NPU segments.
    segment_stats: dict[str, RunStats] = field(default_factory=dict)
    checked: int = 0  #: Elements that were compared with golden, 0 without a check.
    mismatches: tuple[Mismatch, ...] = ()


def cycle_limit(executable: Executable) -> int:
    """Cycles after which a program certainly hangs: 20 times the work and the transfers."""
    dram = executable.npu.config.dram
    slowest = min(dram.weight_millibytes_per_cycle, dram.host_millibytes_per_cycle)
    transfers = executable.memory.total_bytes * 1000 // slowest
    return 50_000 + 20 * (executable.summary.estimated_cycles + transfers)


class Runtime:
    """An executable on a device, which may be None where no segment needs one.

    Raises
    ------
    DeviceError
        The device is another one than the executable was made for.
    """

    def __init__(self, executable: Executable, device: Device | None) -> None:
        self.executable = executable
        self._layout = import_module(f"npulse.hw.spec.{executable.npu.family}_layout")
        self._graph = parse_graph(executable.graph)
        self._host = {
            segment.name: parse_graph(segment.module)
            for segment in executable.segments
            if isinstance(segment, HostSegment)
        }
        self._device = device
        if device is not None:
            self._check_device(device)
            self.load()

    @property
    def device(self) -> Device:
        """The device; `ValueError` if there is none."""
        if self._device is None:
            raise ValueError("device must not be None for an executable with programs")
        return self._device

    def _check_device(self, device: Device) -> None:
        npu, stated = self.executable.npu, device.config_hash
        due = npu.config.digest
        if stated != due:
            raise DeviceError(
                f"the device must be {npu.name} with parameters of digest {due:08x}, but states "
                f"{stated:08x}; compile the model for this device"
            )

    def load(self) -> None:
        """Put program and weights into memory; needed again after a reset or another program."""
        memory = self.executable.memory
        self.device.write(memory.program.address, self.executable.program)
        self.device.write(memory.weights.address, self.executable.weight_image)

    def run(
        self,
        inputs: Mapping[str, Array],
        *,
        check: bool = False,
        progress: Progress | None = None,
    ) -> RunResult:
        """Compute the outputs of the model.

        Parameters
        ----------
        inputs : mapping of str to array
            One array for each input of the model.
        check : bool
            Compare every value that the NPU made, and every output, with golden.
        progress : callable or None
            Called with the cycles of this run that have passed.

        Raises
        ------
        UserError
            An input is missing or is not as the model wants it.
        DeviceError
            The program did not end, or ended with an error.
        """
        arrays = self._arrays(inputs)
        values = dict(zip(self.executable.input_values, arrays, strict=True))
        made: dict[str, Array] = {}
        stats: dict[str, RunStats] = {}
        for segment in self.executable.segments:
            if isinstance(segment, HostSegment):
                operands = [values[name] for name in segment.inputs]
                module = self._host[segment.name]
                results = interpret_module(module, dict(self.executable.weights), operands)
                values.update(zip(segment.outputs, results, strict=True))
                continue
            before = sum(s.cycles for s in stats.values())
            shifted = None if progress is None else _after(progress, before)
            fresh, stats[segment.name] = self._run_npu(segment, values, shifted)
            values.update(fresh)
            made.update(fresh)
        outputs = self._named(values)
        checked, mismatches = self._check(arrays, made, outputs) if check else (0, ())
        return RunResult(
            outputs=outputs,
            stats=sum(stats.values(), RunStats()),
            segment_stats=stats,
            checked=checked,
            mismatches=mismatches,
        )

    def golden(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the outputs by golden alone."""
        weights = dict(self.executable.weights)
        results = interpret_module(self._graph, weights, self._arrays(inputs))
        infos = self.executable.outputs
        return {info.name: result for info, result in zip(infos, results, strict=True)}

    def _arrays(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Inputs in the order of the model, each checked; a state left out begins anew."""
        infos = self.executable.inputs
        starts = {
            i.name: self.executable.weights[i.initial] for i in infos if i.initial is not None
        }
        inputs = starts | dict(inputs)
        known = ", ".join(info.name for info in infos)
        for name in inputs:
            if name not in {info.name for info in infos}:
                raise UserError(f"input {name} does not exist; the inputs of the model are {known}")
        for info in infos:
            if info.name not in inputs:
                raise UserError(
                    f"input {info.name} is missing; the inputs of the model are {known}"
                )
            problem = info.check(inputs[info.name])
            if problem is not None:
                raise UserError(problem)
        return [inputs[info.name] for info in infos]

    def _named(self, values: Mapping[str, Array]) -> dict[str, Array]:
        names = zip(self.executable.outputs, self.executable.output_values, strict=True)
        return {info.name: values[value] for info, value in names}

    def _run_npu(
        self, segment: NpuSegment, values: Mapping[str, Array], progress: Progress | None
    ) -> tuple[dict[str, Array], RunStats]:
        """Values that a program makes, and its counters."""
        config = self.executable.npu.config
        for binding in segment.inputs:
            block = values[binding.value].reshape(binding.shape)
            self.device.write(binding.address, self._layout.pack_activations(config, block))
        self.device.start(segment.program_address, segment.instructions)
        stats = self.device.wait(cycle_limit(self.executable), progress)
        made = {}
        for binding in segment.outputs:
            raw = self.device.read(binding.address, binding.length_bytes)
            block = self._layout.unpack_activations(config, raw, binding.shape)
            made[binding.value] = block.reshape(binding.array_shape)
        return made, stats

    def _check(
        self, arrays: list[Array], made: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> tuple[int, tuple[Mismatch, ...]]:
        """Elements compared, and what differs."""
        trace: dict[str, Array] = {}
        weights = dict(self.executable.weights)
        results = interpret_module(self._graph, weights, arrays, trace)
        pairs = [(name, array, trace[name]) for name, array in made.items()]
        pairs += zip(outputs, outputs.values(), results, strict=True)
        found = [compare(name, got, due) for name, got, due in pairs]
        return sum(due.size for _, _, due in pairs), tuple(m for m in found if m is not None)


def _after(progress: Progress, cycles: int) -> Progress:
    return lambda passed: progress(cycles + passed)


def parse_graph(text: str) -> ModuleOp:
    """Read the text of a graph module."""
    context = Context()
    for dialect in (Builtin, Func, Graph):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


def compare(name: str, got: Array, expected: Array) -> Mismatch | None:
    """Say how two arrays of one type and shape differ in any bit; None if they do not."""
    got, expected = np.asarray(got), np.asarray(expected)
    if got.dtype != expected.dtype or got.shape != expected.shape:
        raise ValueError(
            f"{name} must be {expected.dtype} of {expected.shape}, not {got.dtype} of {got.shape}"
        )
    bits = f"u{got.dtype.itemsize}"
    different = got.reshape(-1).view(bits) != expected.reshape(-1).view(bits)
    if not different.any():
        return None
    first = np.unravel_index(int(different.argmax()), got.shape)
    return Mismatch(
        value=name,
        wrong=int(different.sum()),
        total=different.size,
        first=tuple(int(i) for i in first),
        got=float(got[first]),
        expected=float(expected[first]),
    )
