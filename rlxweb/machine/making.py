"""How code is made in this process: as the user wishes, and from disk where it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from rlxweb.machine import library, store
from rlxweb.machine.workshop import Mode
from rlxweb.names import from_above


def fast_mode() -> Mode:
    """What RLX_FAST says."""
    return _asked()()


@cache
def _asked() -> Callable[[], Mode]:
    """Who reads it: a small batch would feel the search for that."""
    asked: Callable[[], Mode] = from_above("fast_mode_from_env")
    return asked


def kernel_folder() -> Path | None:
    """Where compiled code is kept; None where there is no cache folder."""
    folder: Path | None = from_above("cache_folder")()
    return None if folder is None else folder / "kernels"


def code_of(text: str) -> library.Code:
    """A module's code, compiled if it is not on disk.

    Errors   AdapterMissing; RuntimeError of the library for text that it refuses.
    """
    here = library.processor()
    name = store.file_name(text, here.llvm, here.name, here.features)
    code = store.kept(kernel_folder(), name)
    if code is None:
        code = library.object_code(text)
        store.keep(kernel_folder(), name, code)
    return library.Code(code)
