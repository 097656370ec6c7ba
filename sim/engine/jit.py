"""LLVM IR text to native functions through llvmlite, with the objects cached on disk."""

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from npulse.sim.engine.cache import ObjectCache, default_cache

__all__ = ["CompiledModule", "compile_text", "host_key"]


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


def compile_text(
    text: str, *, level: int = 1, vectorise: bool = False, cache: ObjectCache | None = None
) -> CompiledModule:
    """Compile a module for this machine, or load it from the cache.

    Parameters
    ----------
    level : int
        0 to 3. 1 suits control logic; 3 with `vectorise` suits the loops of grids.
    """
    cache = default_cache() if cache is None else cache
    key = cache.key(f"{host_key()}; level {level} {vectorise}", text)
    found = cache.load(key)
    if found is None:
        found = object_code(text, level=level, vectorise=vectorise)
        cache.store(key, found)
        return CompiledModule(_link(found, level), cached=False)
    return CompiledModule(_link(found, level), cached=True)


def optimised(text: str, *, level: int = 3, vectorise: bool = True) -> str:
    """Return the IR after the pass pipeline, for tests and the curious."""
    return str(_optimise(text, _machine(level), level, vectorise))


def object_code(text: str, *, level: int, vectorise: bool) -> bytes:
    """Run the passes and the code generator."""
    machine = _machine(level)
    return bytes(machine.emit_object(_optimise(text, machine, level, vectorise)))


def _optimise(text: str, machine: Any, level: int, vectorise: bool) -> Any:
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


def _link(code: bytes, level: int) -> Any:
    empty = llvm.parse_assembly("")
    engine = llvm.create_mcjit_compiler(empty, _machine(level))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine
