"""LLVM through llvmlite: compiles IR to object code and loads object code as functions.

The one file that imports it, and only when a kernel is wanted. What the code may use of
this processor is asked once. LLVM's own threads are the caller's: it frees Python's
lock while it works. llvmlite has one lock for all calls of a process, those of Numba
included: a fork waits for it, so that a child can compile.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, Final

from rlxweb.core.errors import AdapterMissing
from rlxweb.core.fork_safety import LibraryForkLock

MIN_LLVM_VERSION: Final = 20
"""Oldest LLVM version whose IR syntax the kernels use (llvmlite 0.45)."""
_ERROR_CONTEXT: Final = "compile a kernel for the CPU"
_HINT: Final = "pip install 'rlxweb[fast]'; without it NumPy computes instead"


@lru_cache(maxsize=1)
def is_installed() -> bool:
    """Return whether llvmlite can be found, without importing it."""
    if sys.platform == "emscripten":
        return False
    try:
        return find_spec("llvmlite") is not None
    except (ImportError, ValueError):  # one that was put into sys.modules by hand
        return "llvmlite" in sys.modules


@dataclass(frozen=True, slots=True)
class TargetCpu:
    """Target CPU of compiled code.

    name      LLVM's name of it
    features  what it has, as LLVM spells that
    vector_nbytes  of its vectors
    llvm_version  the compiler's version
    """

    name: str
    features: str
    vector_nbytes: int
    llvm_version: str

    @property
    def description(self) -> str:
        """Human-readable description: "LLVM 22.1.0, vectors of 64 bytes"."""
        return f"LLVM {self.llvm_version}, vectors of {self.vector_nbytes} bytes"


def _llvmlite_lock() -> Any:
    """Return the lock of llvmlite's calls; None while it is not loaded.

    Errors   AttributeError where this version keeps it elsewhere.
    """
    ffi = sys.modules.get("llvmlite.binding.ffi")
    lib = getattr(ffi, "lib", None)  # None: it is being imported
    return None if lib is None else lib._lock._lock


llvm_calls: Final = LibraryForkLock(_llvmlite_lock, timeout_s=10.0)
"""Gate between LLVM calls and forks: the largest kernels take LLVM about a second."""


def fork_failure() -> str:
    """Return why this process must not call LLVM; "" if it may."""
    if not llvm_calls.broken_by_pid:
        return ""
    return (
        f"process {llvm_calls.broken_by_pid} forked this process during a call to LLVM"
    )


def _get_llvm() -> Any:
    """Return the LLVM library, ready to compile for this processor. Errors
    AdapterMissing.
    """
    if reason := fork_failure():
        raise AdapterMissing(
            _ERROR_CONTEXT,
            reason,
            f"fork() waits at most {llvm_calls.timeout_s:g} s for a running LLVM call",
            'start processes with "spawn" (multiprocessing.set_start_method)',
        )
    return _load_llvm()


@cache
def _load_llvm() -> Any:
    """Import llvmlite and initialize LLVM. Errors  AdapterMissing."""
    try:
        import llvmlite
        import llvmlite.binding as llvm

        if llvm.llvm_version_info[0] < MIN_LLVM_VERSION:
            version = llvmlite.__version__
            raise AdapterMissing(
                _ERROR_CONTEXT,
                f"llvmlite {version} is too old",
                "expected 0.45 or newer",
                _HINT,
            )
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    except AdapterMissing:
        raise
    except Exception as error:  # a library without its native half raises its own kinds
        message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise AdapterMissing(
            _ERROR_CONTEXT, "llvmlite cannot be loaded", message, _HINT
        ) from error
    return llvm


@cache
def host_cpu() -> TargetCpu:
    """Return the CPU of this machine. Errors  AdapterMissing without llvmlite."""
    llvm = _get_llvm()
    features = llvm.get_host_cpu_features()
    vector_nbytes = (
        64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    )
    version = ".".join(map(str, llvm.llvm_version_info))
    return TargetCpu(
        llvm.get_host_cpu_name(), features.flatten(), vector_nbytes, version
    )


@cache
def has_float16() -> bool:
    """Return whether the processor has float16 load and store instructions."""
    if not is_installed():
        return False
    features = host_cpu().features.split(",")
    return "+f16c" in features or "+fullfp16" in features


def _target_machine() -> Any:
    llvm, cpu = _get_llvm(), host_cpu()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu.name, features=cpu.features, opt=3)


def compile_object(text: str) -> bytes:
    """Compile the LLVM IR of a module to object code for this processor.

    Errors   AdapterMissing; RuntimeError of the library for text that it refuses.
    """
    llvm, target = _get_llvm(), _target_machine()
    # In a context of its own, whose types and constants go with it.
    with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
        # The text is vectors already: what finds such in loops would only take time.
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.slp_vectorization = options.loop_vectorization = (
            options.loop_unrolling
        ) = False
        builder = llvm.create_pass_builder(target, options)
        passes = builder.getModulePassManager()
        try:
            passes.run(module, builder)
        finally:
            _free_pass_manager(passes)
        code: bytes = target.emit_object(module)
    return code


def _free_pass_manager(passes: Any) -> None:
    """Free a pass manager with all its passes, half a megabyte.

    llvmlite 0.45 to 0.50 frees none: `ObjectRef._dispose`, which does nothing, comes
    before the one that would.
    """
    passes_class, base = type(passes), _get_llvm().ffi.ObjectRef
    if passes_class._dispose is base._dispose:
        for ancestor in passes_class.__mro__:
            dispose = vars(ancestor).get("_dispose")
            if ancestor is not base and dispose is not None:
                dispose(passes)
                passes.detach()
                return
    passes.close()


class LoadedCode:
    """Object code loaded into this process; it stays loaded as long as one of its
    functions is referenced.

    Errors   AdapterMissing; RuntimeError of the library for what is no object.
    """

    def __init__(self, code: bytes) -> None:
        llvm = _get_llvm()
        self._engine = llvm.create_mcjit_compiler(
            llvm.parse_assembly(""), _target_machine()
        )
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def __del__(
        self, gate: LibraryForkLock = llvm_calls
    ) -> None:  # globals may be gone by then
        engine = getattr(self, "_engine", None)
        if engine is not None and gate.broken_by_pid:
            engine.detach()  # to free it waits for ever

    def keep_loaded(self) -> None:
        """Never unload this code."""
        self._engine.detach()

    def get_function(
        self, name: str, result: Any, *arguments: Any
    ) -> Callable[..., Any]:
        """Return an exported function; it is called without the GIL."""
        address = self._engine.get_function_address(name)
        if not address:
            raise RuntimeError(f"the compiled code has no function {name}")
        function: Any = ctypes.CFUNCTYPE(result, *arguments)(address)
        function.code = self  # whoever has the function keeps what it is in
        return function  # type: ignore[no-any-return]
