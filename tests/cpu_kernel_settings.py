"""Settings under which the CPU's kernels are compared: every gate that is about time
opened, and code for other processors, by threads, or not compiled yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from rlxweb.codegen import (
    jit_cache,
    llvm_compiler,
    native_elementwise,
    native_row_reduction,
)
from rlxweb.codegen.jit_cache import JitCache
from rlxweb.codegen.wasm_builder import IN_BROWSER
from rlxweb.core.errors import AdapterMissing
from rlxweb.engines import cpu_float16_via_float32, cpu_native_program
from rlxweb.engines.cpu import JIT_CACHES
from rlxweb.ops import cache_blocking, composed_row_kernel
from rlxweb.ops.attention.cpu import native as attention
from rlxweb.ops.attention.cpu import wasm as wasm_attention
from rlxweb.ops.conv.cpu import native as conv
from rlxweb.ops.conv.cpu import native_phase_split as phase_split
from rlxweb.ops.conv.cpu import wasm as wasm_conv
from rlxweb.ops.kernel_variant import KernelTable, KernelVariant
from rlxweb.ops.matmul.cpu import native as matmul
from rlxweb.ops.matmul.cpu import wasm as wasm_matmul
from rlxweb.ops.recurrent.cpu import native as recurrent
from rlxweb.ops.reduce.cpu import native as reduce
from rlxweb.ops.reduce.cpu import numpy as numpy_reduce

WORTHWHILE_SIZES: list[tuple[Any, str, int]] = [
    (composed_row_kernel, "MIN_ELEMENTS", 1),
    (attention, "MIN_ELEMENTS", 1),
    (reduce, "MIN_ELEMENTS", 1),
    (numpy_reduce, "_MIN_ELEMENTS", 1),
    (conv, "MIN_WORK", 1),
    (conv, "_MIN_POINTWISE_WORK", 1),
    (conv, "_MANY_CHANNELS", 1 << 20),
    (matmul, "MIN_WORK", 1),
    (matmul, "_MIN_WORK_FEW_ROWS", 1),
    (wasm_attention, "MIN_ELEMENTS", 1),
    (wasm_conv, "MIN_MULTIPLICATIONS", 1),
    (wasm_matmul, "MIN_MULTIPLICATIONS", 1),
    (native_elementwise, "MIN_WORK", 1),
    (cpu_native_program, "MIN_STEPS", 0),
    (cache_blocking, "MIN_BLOCKED_ELEMENTS", 1),
    (cache_blocking, "TILE_ELEMENTS", 256),
]
"""Module, constant and value that lets every size through."""
THREADED_SIZES: list[tuple[Any, str, int]] = [
    (native_row_reduction, "MIN_THREADED_ELEMENTS", 1),
    (native_row_reduction, "MIN_TASK_ELEMENTS", 1 << 8),
    (attention, "_MIN_THREADED_WORK", 1),
    (conv, "_MIN_THREADED_WORK", 1),
    (phase_split, "_MIN_THREADED_ELEMENTS", 1),
    (matmul, "_MIN_THREADED_WORK", 1),
    (recurrent, "_MIN_THREADED_WORK", 1),
    (reduce, "_MIN_THREADED_ELEMENTS", 1),
    (reduce, "_TASK_ELEMENTS", 1 << 8),
    (reduce, "_SPLIT_ELEMENTS", 1 << 10),
    (cpu_float16_via_float32, "_MIN_THREADED_ELEMENTS", 1),
]
"""Module, constant and value with which threads share whatever they can."""


def _vector_settings() -> list[str]:
    """Return a setting for each width of vectors below that of this processor."""
    try:
        host_nbytes = llvm_compiler.host_cpu().vector_nbytes
    except AdapterMissing:
        return []
    return [f"{nbytes}-byte vectors" for nbytes in (16, 32) if nbytes < host_nbytes]


SETTINGS = ("here", "threads", *_vector_settings(), "not compiled")
COMPILED = (
    *("compiled", "as a row kernel", "windows in cache", "in a native program"),
    "halves in float32",
)
"""Ends of the names of the kernels that use compiled code."""


def is_compiled(kernel: KernelVariant) -> bool:
    """Return whether a kernel uses code that is compiled for this processor."""
    return not IN_BROWSER and kernel.name.endswith(COMPILED)


def settings_of(kernel: KernelVariant) -> Sequence[str]:
    """Return the settings that make a difference to a kernel."""
    return SETTINGS if is_compiled(kernel) else SETTINGS[:1]


@contextmanager
def without_compiled_code() -> Iterator[None]:
    """Compile anew what is used inside, and again what is used afterwards."""

    def drop_compiled_code() -> None:
        for cache in JIT_CACHES:
            cache._kernels.clear()

    drop_compiled_code()
    try:
        yield
    finally:
        drop_compiled_code()


@contextmanager
def narrow_vectors(nbytes: int) -> Iterator[None]:
    """Compile for a processor like this one whose vectors have so many bytes."""
    narrowed = replace(llvm_compiler.host_cpu(), vector_nbytes=nbytes)
    with without_compiled_code(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(llvm_compiler, "host_cpu", lambda: narrowed)
        yield


@contextmanager
def size_thresholds(*thresholds: tuple[Any, str, int]) -> Iterator[None]:
    """Set constants that say from which size on a kernel runs, or by threads.

    Tilings and launches of products depend on them, and are cached.
    """

    def forget_products() -> None:
        matmul._cached_tiling.cache_clear()
        matmul._matmul_launch.cache_clear()

    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in thresholds:
            patch.setattr(module, name, value)
        forget_products()
        try:
            yield
        finally:
            forget_products()


@contextmanager
def cpu_setting(setting: str) -> Iterator[list[bool]]:
    """Open the gates under a setting; yield a list of whether each kernel that was
    asked for was there.
    """
    answers: list[bool] = []
    get_kernel = JitCache.get_kernel

    def note_answer(cache: JitCache[Any], key: Any) -> Any:
        kernel = get_kernel(cache, key)
        answers.append(kernel is not None)
        return kernel

    threaded_sizes = THREADED_SIZES if setting == "threads" else []
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("RLX_FAST", "background" if setting == "not compiled" else "wait")
        patch.setattr(jit_cache, "COMPILE_AFTER_S", float("inf"))
        patch.setattr(JitCache, "get_kernel", note_answer)
        stack.enter_context(size_thresholds(*WORTHWHILE_SIZES, *threaded_sizes))
        if setting == "not compiled":
            stack.enter_context(without_compiled_code())
        if setting.endswith("vectors"):
            nbytes = int(setting.partition("-")[0])
            stack.enter_context(narrow_vectors(nbytes))
        yield answers


@contextmanager
def only_program_kernels(kernels: Sequence[KernelVariant]) -> Iterator[list[None]]:
    """Have native programs take these kernels alone; yield a list that grows with each
    run of a program.
    """
    runs: list[None] = []
    run = cpu_native_program.NativeProgram.run

    def note_run(program: Any, values: Any) -> None:
        runs.append(None)
        run(program, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_native_program, "_KERNELS", KernelTable(kernels))
        patch.setattr(cpu_native_program.NativeProgram, "run", note_run)
        yield runs
