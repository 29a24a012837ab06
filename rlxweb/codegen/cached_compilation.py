"""Cached compilation: machine code is loaded from the disk cache or compiled in this
process, as the JIT mode allows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from rlxweb.codegen import code_disk_cache, llvm_compiler
from rlxweb.codegen.background_jit_cache import JitMode
from rlxweb.core.lazy_names import load_provider


def jit_mode() -> JitMode:
    """Return the JIT mode set by RLX_FAST."""
    return _jit_mode_reader()()


@cache
def _jit_mode_reader() -> Callable[[], JitMode]:
    """Return the cached reader of the JIT mode; the look-up is too slow for small
    batches.
    """
    reader: Callable[[], JitMode] = load_provider("jit_mode_from_env")
    return reader


def kernel_folder() -> Path | None:
    """Return the folder of the compiled-code cache; None if there is no cache
    folder.
    """
    folder: Path | None = load_provider("cache_folder")()
    return None if folder is None else folder / "kernels"


def compile_cached(text: str) -> llvm_compiler.LoadedCode:
    """Load a module's machine code, compiling the text if the code is not on disk.

    Errors   AdapterMissing; RuntimeError of the library for text that it refuses.
    """
    cpu = llvm_compiler.host_cpu()
    name = code_disk_cache.code_file_name(
        text, cpu.llvm_version, cpu.name, cpu.features
    )
    code = code_disk_cache.load_code(kernel_folder(), name)
    if code is None:
        code = llvm_compiler.compile_object(text)
        code_disk_cache.save_code(kernel_folder(), name, code)
    return llvm_compiler.LoadedCode(code)
