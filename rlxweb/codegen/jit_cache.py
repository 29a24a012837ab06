"""JIT cache: code compiled once it pays, in the background, and stored on disk."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from rlxweb.codegen import llvm_compiler
from rlxweb.core.cache_folder import cache_folder
from rlxweb.core.environment import JitMode, jit_mode
from rlxweb.core.errors import AdapterMissing, KernelWarning, RlxError
from rlxweb.core.fork_safety import ForkSafeLock, register_child_callback
from rlxweb.core.lru_cache import LruCache

# --- Disk cache of compiled code, so that the next process need not compile it again
#
# A file is known by all that its code depends on, holds its own checksum, and is
# written atomically. It is code that will run: the folder and the file have to be
# ours, and writable by nobody else. Both are checked on what was opened, and names
# are looked up in the folder that was opened, because somebody else may own the
# folder above it and exchange what a path leads to at any moment. Where nothing can
# be kept, code lives as long as the process.

MAX_FILES: Final = 512
"""Maximum number of files, of 10 to 30 KB each; the oldest are removed first."""
_MAX_FILE_NBYTES: Final = 8 << 20
_DIGEST: Final = hashlib.sha256
_O_BINARY: Final = getattr(os, "O_BINARY", 0)
_O_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
# Windows has neither owners of this kind nor files relative to a folder that is open;
# it keeps others out of a user's folders.
_HAS_OWNERS: Final = hasattr(os, "getuid") and os.open in os.supports_dir_fd


class _Folder(NamedTuple):
    """Open folder: `handle` is None, and names are paths, on systems without folder
    handles.
    """

    handle: int | None
    path: Path

    def entry_path(self, name: str) -> str:
        return name if self.handle is not None else str(self.path / name)

    def open(self, name: str, flags: int) -> int:
        all_flags = flags | _O_BINARY | _O_NOFOLLOW
        return os.open(self.entry_path(name), all_flags, 0o600, dir_fd=self.handle)

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self.entry_path(name), dir_fd=self.handle)


def code_file_name(*dependencies: str) -> str:
    """Return the file name for code with these dependencies, a hash of them."""
    return _DIGEST("\0".join(dependencies).encode()).hexdigest()[:40] + ".o"


def load_code(folder: Path | None, name: str) -> bytes | None:
    """Load the code in a file; None if there is no file that can be trusted."""
    if folder is None:
        return None
    try:
        with _open_folder(folder) as open_folder:
            # Not to be waited for, should it be a pipe.
            handle = open_folder.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            with open(handle, "rb") as file:
                _check_private(handle, stat.S_ISREG)
                content = file.read(_MAX_FILE_NBYTES + 1)
    except OSError:
        return None
    size = _DIGEST().digest_size
    digest, code = content[:size], content[size:]
    return code if code and _DIGEST(code).digest() == digest else None


def save_code(folder: Path | None, name: str, code: bytes) -> bool:
    """Save code for later processes. Returns False if it cannot be written."""
    if folder is None:
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _open_folder(folder) as open_folder:
            _write_atomically(open_folder, name, _DIGEST(code).digest() + code)
            _remove_oldest(open_folder)
    except OSError:
        return False
    return True


@contextmanager
def _open_folder(folder: Path) -> Iterator[_Folder]:
    """Open the private cache folder. Errors  OSError if another user owns it or it does
    not exist.
    """
    if not _HAS_OWNERS:
        yield _Folder(None, folder)
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _O_NOFOLLOW)
    try:
        _check_private(handle, stat.S_ISDIR)
        yield _Folder(handle, folder)
    finally:
        os.close(handle)


def _check_private(handle: int, is_kind: Callable[[int], bool]) -> None:
    """Reject a file or folder of the wrong kind, owned by another user or writable by
    others.
    """
    status = os.fstat(handle)
    is_private = not _HAS_OWNERS or (
        status.st_uid == os.getuid() and not status.st_mode & 0o022
    )
    if not is_kind(status.st_mode) or not is_private:
        raise PermissionError(
            "the cache must belong to this user and not be writable by others"
        )


def _write_atomically(folder: _Folder, name: str, content: bytes) -> None:
    temporary = f".rlxweb-{os.urandom(6).hex()}.o"
    handle = folder.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.replace(
            folder.entry_path(temporary),
            folder.entry_path(name),
            src_dir_fd=folder.handle,
            dst_dir_fd=folder.handle,
        )
    except BaseException:
        folder.remove(temporary)
        raise


def _remove_oldest(folder: _Folder) -> None:
    target = folder.path if folder.handle is None else folder.handle
    with suppress(OSError), os.scandir(target) as entries:
        files = [entry for entry in entries if entry.name.endswith(".o")]
        if len(files) > MAX_FILES:
            files.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime)
            for entry in files[: len(files) - MAX_FILES]:
                folder.remove(entry.name)


# --- Cached compilation: machine code is loaded from the disk cache or compiled in
# this process, as the JIT mode allows


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


# --- Background JIT cache: a kernel is compiled on a thread of its own once it has
# proved worth compiling
#
# A caller asks `get_kernel`, computes by other means while it answers None, and
# reports the time that took to `record_fallback_time`. Once a kernel's time reaches
# COMPILE_AFTER_S, a background thread loads it from disk or compiles it, and tries it
# on a small case. Nothing waits for it unless asked to (RLX_FAST=wait). A kernel that
# fails is not tried again; the reason is kept.
#
# The thread ends with the work that there is, so an interpreter that ends waits for
# one kernel at most. A forked child has no such thread and compiles its own kernels;
# if its fork could not wait for LLVM (`llvm_compiler.llvm_calls`) it uses those that
# were there.
#
# Kernels are bounded in number and size, and the least recently used are dropped.
# Their code is unloaded when no caller holds them any more. One that is wanted again
# is read from disk.

K = TypeVar("K")

COMPILE_AFTER_S: Final = 0.02
"""Fallback time after which a kernel is compiled: a fifth of what compiling one takes.
"""
NOT_COMPILED: Final = "its kernel is not compiled yet"
COMPILING: Final = "its kernel is being compiled"
MAX_KERNELS: Final = 512
"""Kernels of one kind that a process keeps; as many of all kinds are kept on disk."""
MAX_KERNEL_NBYTES: Final = 64 << 20
"""Limit on the bytes of the kernels' code and tables."""
KERNEL_CODE_NBYTES: Final = 80_000
"""Memory of a kernel without its tables: 10 to 30 KB of code, and LLVM's records."""
_MAX_NOTES: Final = 4096
"""Limit on the remembered compile failures, and on the kernels whose fallback time is
tracked.
"""


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


def _single_line(error: Exception) -> str:
    message = str(error) if isinstance(error, RlxError) else repr(error)
    return " ".join(message.split())[:400]
