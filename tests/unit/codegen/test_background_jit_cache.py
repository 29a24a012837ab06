"""JIT cache: kernels are compiled once, in the background or on request."""

from __future__ import annotations

import threading
from collections.abc import Hashable

import pytest

from rlxweb.codegen import jit_cache, llvm_compiler
from rlxweb.codegen.jit_cache import COMPILE_AFTER_S, COMPILING, NOT_COMPILED, JitCache
from rlxweb.core.environment import JitMode
from rlxweb.core.errors import DeviceError, KernelWarning


class JitCacheHarness:
    """JIT cache whose kernels are their names, compiled while the gate is open."""

    def __init__(self, mode: JitMode = "background") -> None:
        self.mode: JitMode = mode
        self.compiled: list[Hashable] = []
        self.gate = threading.Event()
        self.gate.set()
        self.cache: JitCache[str] = JitCache(
            self.compile_kernel, jit_mode=lambda: self.mode
        )

    def compile_kernel(self, key: Hashable) -> str:
        assert self.gate.wait(30)
        self.compiled.append(key)
        if key == "bad":
            raise DeviceError("compile it", "the code is wrong")
        return f"kernel of {key}"


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm_compiler, "is_installed", lambda: True)


def test_repeated_work_triggers_compilation() -> None:
    """One short call compiles nothing; much work compiles the kernel once."""
    harness = JitCacheHarness()
    harness.cache.record_fallback_time("a", COMPILE_AFTER_S / 2)
    assert harness.cache.missing_reason("a") == NOT_COMPILED
    assert harness.cache.get_kernel("a") is None
    harness.gate.clear()
    harness.cache.record_fallback_time("a", COMPILE_AFTER_S / 2)
    assert harness.cache.missing_reason("a") == COMPILING
    harness.cache.record_fallback_time("a", 1.0)
    assert harness.cache.get_kernel("a") is None
    harness.gate.set()
    harness.cache.wait_until_idle(30)
    assert harness.cache.get_kernel("a") == "kernel of a"
    assert (
        harness.compiled,
        harness.cache.missing_reason("a"),
        harness.cache.change_count,
    ) == (["a"], "", 1)


def test_kernels_are_compiled_in_order() -> None:
    """Kernels are compiled in the order of requests, also after the first thread has
    ended.
    """
    harness = JitCacheHarness()
    harness.gate.clear()
    for key in "abc":
        harness.cache.record_fallback_time(key, 1.0)
    harness.gate.set()
    harness.cache.wait_until_idle(30)
    harness.cache.record_fallback_time("d", 1.0)
    harness.cache.wait_until_idle(30)
    assert harness.compiled == [*"abcd"]


def test_a_failed_compilation_is_not_retried() -> None:
    """A kernel that fails to compile is reported with the reason and not tried
    again.
    """
    harness = JitCacheHarness()
    for _ in range(3):
        harness.cache.record_fallback_time("bad", 1.0)
        harness.cache.wait_until_idle(30)
    assert harness.cache.get_kernel("bad") is None
    assert "the code is wrong" in harness.cache.missing_reason("bad")
    assert (harness.compiled, harness.cache.change_count) == (["bad"], 1)


def test_wait_mode_compiles_on_the_first_call() -> None:
    """With RLX_FAST=wait the first call has the compiled kernel."""
    harness = JitCacheHarness("wait")
    assert harness.cache.get_kernel("a") == "kernel of a"
    assert harness.cache.get_kernel("bad") is None
    assert harness.compiled == ["a", "bad"]


def test_a_disabled_cache_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that is off, or lacks the library, compiles nothing."""
    harness = JitCacheHarness("off")
    harness.cache.compile_now("a")
    harness.cache.record_fallback_time("a", 1.0)
    assert not harness.cache.is_enabled
    assert harness.cache.missing_reason("a") == "RLX_FAST=off"
    harness.mode = "wait"
    monkeypatch.setattr(llvm_compiler, "is_installed", lambda: False)
    assert harness.cache.get_kernel("a") is None
    assert "extra `fast`" in harness.cache.missing_reason("a")
    assert not harness.compiled


def test_a_process_without_threads_uses_the_fallback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that cannot start threads is served by NumPy, and tries again later."""

    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    harness = JitCacheHarness()
    monkeypatch.setattr(jit_cache.threading, "Thread", NoThread)
    harness.cache.record_fallback_time("a", 1.0)
    assert harness.cache.missing_reason("a") == NOT_COMPILED
    monkeypatch.undo()
    monkeypatch.setattr(llvm_compiler, "is_installed", lambda: True)
    harness.cache.record_fallback_time("a", 1.0)
    harness.cache.wait_until_idle(30)
    assert harness.cache.get_kernel("a") is not None


def test_a_forked_child_compiles_its_own_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A forked child compiles again what its parent's thread had under way or pending.

    Where LLVM was in the middle of a call, it uses the kernels that are there.
    """
    harness = JitCacheHarness()
    harness.cache.compile_now("there")
    harness.gate.clear()
    for key in "ab":  # the first is being made, the second waits for it
        harness.cache.record_fallback_time(key, 1.0)
    assert (
        harness.cache.missing_reason("a")
        == harness.cache.missing_reason("b")
        == COMPILING
    )
    harness.gate.set()
    harness.cache.wait_until_idle(30)
    harness.cache._pending.update("cd")
    harness.cache._queue.append("d")
    harness.cache._reset_after_fork()
    assert (harness.cache.missing_reason("c"), harness.cache.missing_reason("d")) == (
        NOT_COMPILED,
        NOT_COMPILED,
    )
    assert harness.cache.disabled_reason == ""
    monkeypatch.setattr(llvm_compiler.llvm_calls, "broken_by_pid", 1)
    harness.cache._reset_after_fork()
    with pytest.warns(KernelWarning, match="during a call to LLVM"):
        harness.cache.record_fallback_time("c", 1.0)
    harness.cache.record_fallback_time("c", 1.0)  # said once
    assert "during a call to LLVM" in harness.cache.missing_reason("c")
    assert harness.cache.get_kernel("there") == "kernel of there"
    assert harness.compiled == ["there", *"ab"]


def test_kernels_are_bounded_by_number_and_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The least recently used kernel is evicted, and compiled again on request."""
    monkeypatch.setattr(jit_cache, "MAX_KERNELS", 3)
    harness = JitCacheHarness("wait")
    for key in ("a", "b", "c", "a", "d"):
        assert harness.cache.get_kernel(key) == f"kernel of {key}"
    changes = harness.cache.change_count
    harness.mode = "background"
    assert [harness.cache.get_kernel(key) is None for key in "abcd"] == [0, 1, 0, 0]
    assert harness.cache.missing_reason("b") == NOT_COMPILED
    assert harness.cache.compile_now("b") == "kernel of b"
    assert (harness.compiled, harness.cache.change_count) == ([*"abcdb"], changes + 1)
    monkeypatch.setattr(jit_cache, "MAX_KERNEL_NBYTES", 10)
    heavy: JitCache[str] = JitCache(str, len, lambda: "wait")
    for key in ("four", "five", "six"):
        heavy.compile_now(key)
    assert heavy.get_kernel("six") == "six"
    assert len(heavy._kernels) == 2


def test_hundreds_of_sizes_compile_each_kernel_once() -> None:
    """Hundreds of sizes in turn keep their kernels; none is dropped before its use."""
    harness = JitCacheHarness("wait")
    sizes = [str(size) for size in range(500)]
    for key in sizes + sizes:
        assert harness.cache.get_kernel(key) == f"kernel of {key}"
    assert harness.compiled == sizes


def test_records_of_kernels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of kernels that fail, or are not yet profitable, are bounded."""
    monkeypatch.setattr(jit_cache, "_MAX_NOTES", 5)

    def fail_to_compile(key: Hashable) -> str:
        raise DeviceError("compile it", "the code is wrong")

    cache: JitCache[str] = JitCache(fail_to_compile, jit_mode=lambda: "wait")
    for key in range(20):
        cache.record_fallback_time(key, COMPILE_AFTER_S / 2)
        assert cache.get_kernel(key) is None
    assert (
        len(cache._fallback_seconds),
        len(cache._failures),
        len(cache._pending),
    ) == (5, 5, 0)
