"""LLVM IR text to native functions through llvmlite, with the objects cached on disk."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm

from npulse.sim.engine.cache import ObjectCache, default_cache

__all__ = ["CompiledModule", "Source", "compile_sources", "compile_text", "host_key", "optimised"]


@cache
def _setup() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _machine(level: int) -> Any:
    _setup()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=level,
        codemodel="jitdefault",
        jit=True,
    )


@cache
def host_key() -> str:
    """What machine code depends on besides the text: LLVM and the processor."""
    _setup()
    version = ".".join(map(str, llvm.llvm_version_info))
    features = llvm.get_host_cpu_features().flatten()
    return f"llvm {version}; {llvm.get_default_triple()}; {llvm.get_host_cpu_name()}; {features}"


@dataclass
class CompiledModule:
    """Native code of one module; functions stay valid as long as this object lives."""

    engine: Any
    cached: bool

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        """Return a ctypes function; its calls release the interpreter lock."""
        address = self.engine.get_function_address(name)
        return ctypes.CFUNCTYPE(result, *arguments)(address)

    def address(self, name: str) -> int:
        """Return where a function lies."""
        return int(self.engine.get_function_address(name))


class Source(NamedTuple):
    """Text of one module and how to compile it.

    `level` is 0 or 1; with `vectorise` loops of grids are vectorised too. From level 2 on LLVM 22
    runs aggressive-instcombine, which makes an illegal extension of integers of odd widths and
    ends the process; it brought neither control logic nor grids any speed.
    """

    text: str
    level: int = 1
    vectorise: bool = False


def compile_text(text: str, *, level: int = 1, cache: ObjectCache | None = None) -> CompiledModule:
    """Compile one module for this machine, or load it from the cache."""
    return compile_sources([Source(text, level)], cache)


def compile_sources(
    sources: Sequence[Source], cache: ObjectCache | None = None, *, fresh: bool = False
) -> CompiledModule:
    """Compile modules that call each other and link them.

    Parameters
    ----------
    cache : ObjectCache, optional
        The user's by default.
    fresh : bool
        Compile even what is in the cache.
    """
    store = default_cache() if cache is None else cache
    objects, cached = [], True
    for source in sources:
        key = store.key(f"{host_key()}; level {source.level} {source.vectorise}", source.text)
        found = None if fresh else store.load(key)
        if found is None:
            found = object_code(source)
            store.store(key, found)
            cached = False
        objects.append(found)
    return CompiledModule(_link(objects), cached)


def optimised(text: str, *, level: int = 1, vectorise: bool = True) -> str:
    """Return the IR after the pass pipeline, for tests and the curious."""
    return str(_optimise(text, _machine(level), level, vectorise))


def object_code(source: Source) -> bytes:
    """Run the passes and the code generator."""
    machine = _machine(source.level)
    module = _optimise(source.text, machine, source.level, source.vectorise)
    return bytes(machine.emit_object(module))


def _optimise(text: str, machine: Any, level: int, vectorise: bool) -> Any:
    if level not in (0, 1):
        raise ValueError(f"level must be 0 or 1, not {level!r}")
    module = llvm.parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    tuning = llvm.create_pipeline_tuning_options(speed_level=level)
    tuning.loop_vectorization = vectorise
    tuning.slp_vectorization = False
    tuning.loop_interleaving = vectorise
    tuning.loop_unrolling = vectorise
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    return module


def _link(objects: Sequence[bytes]) -> Any:
    empty = llvm.parse_assembly("")
    engine = llvm.create_mcjit_compiler(empty, _machine(1))
    for code in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine
