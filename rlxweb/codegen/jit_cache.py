"""JIT cache: code compiled once it pays, in the background, and stored on disk.

A caller asks `get_kernel`, computes by other means while it answers None, and reports
the time that took to `record_fallback_time`, as `JitCall` does. Once a kernel's time
reaches COMPILE_AFTER_S, a background thread loads it from disk or compiles it, and
tries it on a small case. Nothing waits for it unless asked to (RLX_FAST=wait). A kernel
that fails is not tried again; the reason is kept.

The thread ends with the work that there is, so an interpreter that ends waits for
one kernel at most. A forked child has no such thread and compiles its own kernels;
if its fork could not wait for LLVM (`llvm_compiler.llvm_calls`) it uses those that
were there.

Kernels are bounded in number and size, and the least recently used are dropped.
Their code is unloaded when no caller holds them any more. One that is wanted again
is read from disk.
"""

from __future__ import annotations

import threading
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Generic, TypeVar

from numpy.typing import NDArray

from rlxweb.codegen import llvm_compiler
from rlxweb.codegen.code_disk_cache import code_file_name, load_code, save_code
from rlxweb.core.cache_folder import cache_folder
from rlxweb.core.environment import JitMode, jit_mode
from rlxweb.core.errors import AdapterMissing, KernelWarning, RlxError
from rlxweb.core.fork_safety import ForkSafeLock, register_child_callback
from rlxweb.core.lru_cache import LruCache

K = TypeVar("K")

COMPILE_AFTER_S: Final = 0.02
"""Fallback time after which a kernel is compiled: a fifth of what compiling one takes.
"""
NOT_COMPILED: Final = "its kernel is not compiled yet"
COMPILING: Final = "its kernel is being compiled"
MAX_KERNELS: Final = 512
"""Maximum number of kernels of one kind in memory."""
MAX_KERNEL_NBYTES: Final = 64 << 20
"""Limit on the bytes of the kernels' code and tables."""
KERNEL_CODE_NBYTES: Final = 80_000
"""Memory of a kernel without its tables: 10 to 30 KB of code, and LLVM's records."""
_MAX_NOTES: Final = 4096
"""Limit on the remembered compile failures, and on the kernels whose fallback time is
tracked.
"""


def kernel_folder() -> Path | None:
    """Return the folder of the compiled-code cache; None if there is no cache
    folder.
    """
    folder = cache_folder()
    return None if folder is None else folder / "kernels"


def compile_cached(text: str) -> llvm_compiler.LoadedCode:
    """Load a module's machine code, compiling the text if the code is not on disk.

    Errors   AdapterMissing; RuntimeError of the library for text that it refuses.
    """
    cpu = llvm_compiler.host_cpu()
    name = code_file_name(text, cpu.llvm_version, cpu.name, cpu.features)
    code = load_code(kernel_folder(), name)
    if code is None:
        code = llvm_compiler.compile_object(text)
        save_code(kernel_folder(), name, code)
    return llvm_compiler.LoadedCode(code)


class JitCache(Generic[K]):
    """JIT cache: the compiled kernels of a process, keyed by their compile parameters.

    compile_kernel  key → tested kernel; raises where it cannot be compiled
    jit_mode  returns the JIT mode
    kernel_nbytes  bytes that a kernel takes
    change_count  kernels compiled or failed, and forks; a choice of kernels that was
                  made at another count is out of date
    """

    def __init__(
        self,
        compile_kernel: Callable[[Hashable], K],
        kernel_nbytes: Callable[[K], int] = lambda kernel: KERNEL_CODE_NBYTES,
        jit_mode: Callable[[], JitMode] = jit_mode,
    ) -> None:
        self._compile_kernel, self._jit_mode, self._kernel_nbytes = (
            compile_kernel,
            jit_mode,
            kernel_nbytes,
        )
        self.change_count = 0
        self._kernels: LruCache[Hashable, K] = LruCache(MAX_KERNELS, MAX_KERNEL_NBYTES)
        self._failures: LruCache[Hashable, str] = LruCache(
            _MAX_NOTES, MAX_KERNEL_NBYTES
        )
        self._fallback_seconds: LruCache[Hashable, float] = LruCache(
            _MAX_NOTES, MAX_KERNEL_NBYTES
        )
        self._queue: deque[Hashable] = deque()
        self._pending: set[Hashable] = set()
        self._thread: threading.Thread | None = None
        self._is_blocking = False
        self._failure_reason = ""
        self._has_warned = False
        self._lock = ForkSafeLock()
        register_child_callback(self, JitCache._reset_after_fork)

    @property
    def _has_compiler(self) -> bool:
        """True if there is a compiler for kernels."""
        return llvm_compiler.is_installed()

    @property
    def disabled_reason(self) -> str:
        """Reason why no kernel is compiled at all; "" if kernels are compiled."""
        if not self._has_compiler:
            return "llvmlite is not installed (install the extra `fast`)"
        if self._jit_mode() == "off":
            return "RLX_FAST=off"
        return self._failure_reason

    @property
    def _needs_blocking(self) -> bool:
        mode = self._jit_mode()
        return mode == "wait" or (self._is_blocking and mode != "off")

    @property
    def is_enabled(self) -> bool:
        """True if there is a compiler and JIT is not off; later failures are reported
        by `missing_reason`.
        """
        return self._has_compiler and self._jit_mode() != "off"

    @contextmanager
    def wait_for_kernels(self) -> Iterator[None]:
        """Make every request inside the context wait for its kernel, unless JIT is
        off.
        """
        was_blocking, self._is_blocking = self._is_blocking, True
        try:
            yield
        finally:
            self._is_blocking = was_blocking

    def get_kernel(self, key: Hashable) -> K | None:
        """Return the kernel if it is compiled; compiles it first if requests block."""
        kernel = self._kernels.get(key)
        if kernel is None and key not in self._failures and self._needs_blocking:
            kernel = self.compile_now(key)
            self._warn_once()
        return kernel

    def missing_reason(self, key: Hashable) -> str:
        """Return why there is no kernel; "" if there is one."""
        if key in self._kernels:
            return ""
        failure = self._failures.get(key)
        if failure is not None:
            return failure
        return self.disabled_reason or (
            COMPILING if key in self._pending else NOT_COMPILED
        )

    def record_fallback_time(self, key: Hashable, seconds: float) -> None:
        """Record the time that the kernel's work took without it; queue the kernel once
        the total is worth compiling it.
        """
        if self._is_known(key) or self.disabled_reason:
            self._warn_once()
            return
        total = (self._fallback_seconds.get(key) or 0.0) + seconds
        self._fallback_seconds.put(key, total, 0)
        self._fallback_seconds.evict()
        if total >= COMPILE_AFTER_S:
            self._enqueue(key)

    def _is_known(self, key: Hashable) -> bool:
        """Return whether the kernel is compiled, failed or queued."""
        return key in self._pending or key in self._kernels or key in self._failures

    def compile_now(self, key: Hashable) -> K | None:
        """Compile the kernel before returning it; None if it cannot be compiled."""
        with self._lock:
            kernel = self._kernels.get(key)
            if kernel is not None or self.disabled_reason or key in self._failures:
                return kernel
            self._pending.add(key)
            return self._compile_and_store(key)

    def wait_until_idle(self, timeout_s: float | None = None) -> None:
        """Wait until all queued kernels are compiled or have failed."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def _warn_once(self) -> None:
        """Warn once if kernels unexpectedly cannot be compiled at all."""
        if self._failure_reason and not self._has_warned:
            self._has_warned = True
            message = "no kernel is compiled for the CPU; NumPy computes instead"
            warnings.warn(KernelWarning(message, self._failure_reason), stacklevel=4)

    def _enqueue(self, key: Hashable) -> None:
        with self._lock:
            if self._is_known(key):
                return
            self._pending.add(key)
            self._fallback_seconds.put(key, 0.0, 0)
            self._queue.append(key)
            if self._thread is not None and self._thread.is_alive():
                return
            # Not a daemon: an interpreter must not tear LLVM down while it compiles.
            thread = threading.Thread(target=self._run_worker, name="rlxweb-kernels")
            try:
                thread.start()
            except RuntimeError:  # the interpreter is ending, or has no thread left
                self._queue.clear()
                self._pending.discard(key)
                return
            self._thread = thread

    def _run_worker(self) -> None:
        while threading.main_thread().is_alive():
            with self._lock:
                if not self._queue:
                    self._thread = None
                    return
                key = self._queue.popleft()
            self._compile_and_store(key)

    def _compile_and_store(self, key: Hashable) -> K | None:
        try:
            kernel = self._compile_kernel(key)
            self._kernels.put(key, kernel, self._kernel_nbytes(kernel))
            self._kernels.evict()
            return kernel
        except Exception as error:
            failure = _single_line(error)
            self._failures.put(key, failure, 0)
            self._failures.evict()
            if isinstance(error, AdapterMissing):  # nor can any other be
                self._failure_reason = failure
            return None
        finally:
            self._pending.discard(key)
            self.change_count += 1

    def _reset_after_fork(self) -> None:
        self._thread = None
        self._queue.clear()
        self._pending.clear()
        self._failure_reason = self._failure_reason or llvm_compiler.fork_failure()
        self.change_count += 1


class WasmJitCache(JitCache[K]):
    """JIT cache for Python in a browser: no compiler to install, no thread; a kernel
    that is worth it is compiled on the spot, in some milliseconds.
    """

    @property
    def _has_compiler(self) -> bool:
        return True

    def _enqueue(self, key: Hashable) -> None:
        self.compile_now(key)


class JitCall(ABC, Generic[K]):
    """Function of arrays that runs a kernel of a JIT cache; NumPy computes it until the
    kernel is compiled.

    fallback   (arrays, in order) → the result
    kernel     stays as long as its call, once it is there
    """

    def __init__(
        self,
        cache: JitCache[K],
        key: Hashable,
        fallback: Callable[..., NDArray[Any]],
    ) -> None:
        self.cache, self.key, self.fallback = cache, key, fallback
        self.kernel: K | None = None

    def __call__(self, attrs: object, *arrays: NDArray[Any]) -> NDArray[Any]:
        if self.kernel is None:
            self.kernel = self.cache.get_kernel(self.key)
        if self.kernel is not None:
            return self._run_kernel(self.kernel, arrays)
        start = perf_counter()
        result = self.fallback(*arrays)
        self.cache.record_fallback_time(self.key, perf_counter() - start)
        return result

    @abstractmethod
    def _run_kernel(self, kernel: K, arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return what the kernel computes from the arrays."""


def _single_line(error: Exception) -> str:
    message = str(error) if isinstance(error, RlxError) else repr(error)
    return " ".join(message.split())[:400]
