"""LLVM through llvmlite: text in, object code out; object code in, functions out.

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

from rlxweb.errors import AdapterMissing
from rlxweb.forked import ForkGate

OLDEST: Final = 20
"""LLVM from whose language on the kernels are written (llvmlite 0.45)."""
_DOING: Final = "compile a kernel for the CPU"
_HINT: Final = "pip install 'rlxweb[fast]'; without it NumPy computes"


@lru_cache(maxsize=1)
def is_installed() -> bool:
    """Can llvmlite be found? It is not imported."""
    if sys.platform == "emscripten":
        return False
    try:
        return find_spec("llvmlite") is not None
    except (ImportError, ValueError):  # one that was put into sys.modules by hand
        return "llvmlite" in sys.modules


@dataclass(frozen=True, slots=True)
class Processor:
    """What code is made for.

    name      LLVM's name of it
    features  what it has, as LLVM spells that
    nbytes    of its vectors
    llvm      the compiler's version
    """

    name: str
    features: str
    nbytes: int
    llvm: str

    @property
    def words(self) -> str:
        """For people: "LLVM 22.1.0, vectors of 64 bytes"."""
        return f"LLVM {self.llvm}, vectors of {self.nbytes} bytes"


def _lock() -> Any:
    """The lock of llvmlite's calls; None while it is not loaded.

    Errors   AttributeError where this version keeps it elsewhere.
    """
    ffi = sys.modules.get("llvmlite.binding.ffi")
    lib = getattr(ffi, "lib", None)  # None: it is being imported
    return None if lib is None else lib._lock._lock


calls: Final = ForkGate(_lock, wait_s=10.0)
"""Calls of LLVM and forks: the largest kernels take LLVM about a second."""


def lost_by_fork() -> str:
    """Return why this process must not call LLVM, "" where it may."""
    if not calls.torn_by:
        return ""
    return f"process {calls.torn_by} forked this one while LLVM was at work"


def _llvm() -> Any:
    """The library, ready to make code for this processor. Errors  AdapterMissing."""
    if lost := lost_by_fork():
        raise AdapterMissing(
            _DOING,
            lost,
            f"a fork waits {calls.wait_s:g} s for a call to end",
            'start processes with "spawn" (multiprocessing.set_start_method)',
        )
    return _loaded()


@cache
def _loaded() -> Any:
    """Load the library. Errors  AdapterMissing."""
    try:
        import llvmlite
        import llvmlite.binding as llvm

        if llvm.llvm_version_info[0] < OLDEST:
            version = llvmlite.__version__
            raise AdapterMissing(
                _DOING, f"llvmlite {version} is too old", "0.45 is the oldest", _HINT
            )
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    except AdapterMissing:
        raise
    except Exception as error:  # a library without its native half raises its own kinds
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise AdapterMissing(
            _DOING, "llvmlite cannot be loaded", said, _HINT
        ) from error
    return llvm


@cache
def processor() -> Processor:
    """The one we run on. Errors  AdapterMissing without the library."""
    llvm = _llvm()
    has = llvm.get_host_cpu_features()
    nbytes = 64 if has.get("avx512f") else 32 if has.get("avx2") else 16
    version = ".".join(map(str, llvm.llvm_version_info))
    return Processor(llvm.get_host_cpu_name(), has.flatten(), nbytes, version)


@cache
def has_halves() -> bool:
    """Has the processor instructions that read and write floats of 16 bits?"""
    if not is_installed():
        return False
    features = processor().features.split(",")
    return "+f16c" in features or "+fullfp16" in features


def _target() -> Any:
    llvm, own = _llvm(), processor()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=own.name, features=own.features, opt=3)


def object_code(text: str) -> bytes:
    """A module as code for this processor.

    Errors   AdapterMissing; RuntimeError of the library for text that it refuses.
    """
    llvm, target = _llvm(), _target()
    # In a context of its own, whose types and constants go with it.
    with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
        # The text is vectors already: what finds such in loops would only take time.
        how = llvm.create_pipeline_tuning_options(speed_level=2)
        how.slp_vectorization = how.loop_vectorization = how.loop_unrolling = False
        builder = llvm.create_pass_builder(target, how)
        passes = builder.getModulePassManager()
        try:
            passes.run(module, builder)
        finally:
            _free(passes)
        code: bytes = target.emit_object(module)
    return code


def _free(passes: Any) -> None:
    """Free a pass manager with all that its passes hold, half a megabyte.

    llvmlite 0.45 to 0.50 frees none: `ObjectRef._dispose`, which does nothing, comes
    before the one that would.
    """
    kind, base = type(passes), _llvm().ffi.ObjectRef
    if kind._dispose is base._dispose:
        for one in kind.__mro__:
            dispose = vars(one).get("_dispose")
            if one is not base and dispose is not None:
                dispose(passes)
                passes.detach()
                return
    passes.close()


class Code:
    """Object code in this process; it stays as long as one of its functions.

    Errors   AdapterMissing; RuntimeError of the library for what is no object.
    """

    def __init__(self, code: bytes) -> None:
        llvm = _llvm()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def __del__(self, calls: ForkGate = calls) -> None:  # globals may be gone by then
        engine = getattr(self, "_engine", None)
        if engine is not None and calls.torn_by:
            engine.detach()  # to free it waits for ever

    def keep(self) -> None:
        """As long as there is the process, whatever becomes of its functions."""
        self._engine.detach()

    def function(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        """One that the code exports, called without Python's lock."""
        address = self._engine.get_function_address(name)
        if not address:
            raise RuntimeError(f"the code has no function {name}")
        function: Any = ctypes.CFUNCTYPE(result, *arguments)(address)
        function.code = self  # whoever has the function keeps what it is in
        return function  # type: ignore[no-any-return]
