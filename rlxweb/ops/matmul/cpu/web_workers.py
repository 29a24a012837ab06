"""Browser web workers that compute beside Python, in a memory that they share.

Python's own memory is its thread's alone, so a second one is theirs: weights lie in it,
what a job reads is copied there and its result back. `workers.js` has the Workers, here
is what they are asked for. There are none where a page is not isolated from others (the
headers COOP and COEP), where there is one processor, and before they have started.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.native_calls import array_address
from rlxweb.codegen.wasm_builder import IN_BROWSER
from rlxweb.core.environment import jit_mode

MAX_WORKERS: Final = 7
"""Maximum number of workers beside Python's thread."""
PAGE_NBYTES: Final = 1 << 16
MAX_PAGES: Final = (1 << 14, 1 << 12)
"""Maximum pages of the memory: 1 GiB, or a quarter of it where a browser does not
reserve so much.
"""
MAX_SCRATCH_NBYTES: Final = 1 << 28
"""Maximum bytes that jobs overwrite: such a memory never shrinks."""
_SPIN_MS: Final = 0.5
"""Time a worker looks for the next job before it sleeps."""
_ALIGNMENT: Final = 64
_STALE_VIEW, _WORKERS_LOST = -1, -2


class SharedMemoryAllocator:
    """First-fit allocator of a memory that grows."""

    def __init__(self, first: int) -> None:
        self._free: list[tuple[int, int]] = []
        self.end = first
        """Up to there it is in use."""

    def allocate(self, nbytes: int) -> tuple[int, int]:
        """Allocate a block; return its address and its size."""
        size = -(-max(nbytes, 1) // _ALIGNMENT) * _ALIGNMENT
        for index, (address, free_size) in enumerate(self._free):
            if free_size >= size:
                self._free.pop(index)
                if free_size > size:
                    insort(self._free, (address + size, free_size - size))
                return address, size
        address, self.end = self.end, self.end + size
        return address, size

    def free(self, address: int, size: int) -> None:
        """Free a block and merge it with its free neighbours."""
        insort(self._free, (address, size))
        merged: list[tuple[int, int]] = []
        for block in self._free:
            if merged and sum(merged[-1]) == block[0]:
                merged[-1] = merged[-1][0], merged[-1][1] + block[1]
            else:
                merged.append(block)
        if merged and sum(merged[-1]) == self.end:
            self.end = merged.pop()[0]
        self._free = merged


class SharedMemoryBlock:
    """Block of the shared memory, freed with this object."""

    def __init__(self, shelf: SharedMemoryAllocator, nbytes: int) -> None:
        self.address, size = shelf.allocate(nbytes)
        self.end = self.address + size
        finalize(self, shelf.free, self.address, size)


class WebWorkers:
    """Web workers of this page, or of the worker that Python runs in.

    js       what `workers.js` made
    threads  they and Python's
    """

    def __init__(self, js: Any, threads: int) -> None:
        self._js, self._is_started, self.threads = js, False, threads
        self._allocator = SharedMemoryAllocator(PAGE_NBYTES)
        self._scratch_block: SharedMemoryBlock | None = None
        self._memory_view: NDArray[Any] = np.zeros(16, np.uint8)

    @property
    def is_ready(self) -> bool:
        """True if at least one worker has started."""
        if not self._is_started:
            self._is_started = self._js.there() > 0
        return self._is_started

    def scratch(self, nbytes: int) -> int | None:
        """Return the address of memory that jobs overwrite; None where there is not so
        much.
        """
        if nbytes > MAX_SCRATCH_NBYTES:
            return None
        if (
            self._scratch_block is None
            or self._scratch_block.end - self._scratch_block.address < nbytes
        ):
            self._scratch_block = None
            self._scratch_block = self._allocate(nbytes)
        return None if self._scratch_block is None else self._scratch_block.address

    def copy_in(self, array: NDArray[Any]) -> SharedMemoryBlock | None:
        """Copy a contiguous array into shared memory; None where there is no room for
        it.
        """
        block = self._allocate(array.nbytes)
        if block is not None:
            self._call_js(
                self._js.put, array_address(array), block.address, array.nbytes
            )
        return block

    def load_region(self, code: bytes) -> tuple[int, SharedMemoryBlock] | None:
        """Load a compiled region into every worker's table; return its index and its
        block, None where no entry is left.
        """
        block = self.copy_in(np.frombuffer(code, np.uint8))
        if block is None:
            return None
        index = self._js.loaded(block.address, len(code))
        return (index, block) if index else None

    def run(self, job: NDArray[np.uint32]) -> bool:
        """Run a job as `encode_job` encodes it; return whether it was done. If not, the
        workers are gone.
        """
        if self._call_js(self._js.run, array_address(job)) != _WORKERS_LOST:
            return True
        self._is_started = False
        return False

    def _allocate(self, nbytes: int) -> SharedMemoryBlock | None:
        """Allocate a block, growing the memory; None where it cannot grow."""
        block = SharedMemoryBlock(self._allocator, nbytes)
        return block if self._js.grown(-(-self._allocator.end // PAGE_NBYTES)) else None

    def _call_js(self, function: Any, *arguments: int) -> int:
        """Call a JavaScript function; renew its view of Python's memory if that has
        grown, and repeat.
        """
        answer: int = function(*arguments)
        if answer != _STALE_VIEW:
            return answer
        self._js.held(self._memory_view)
        second_answer: int = function(*arguments)
        return second_answer


def encode_job(
    out: tuple[int, int, int],
    operands: Sequence[tuple[int, int, int]],
    words: Sequence[int],
) -> NDArray[np.uint32]:
    """Encode a job as `Workers.run` takes it.

    out       where the result is made, where it goes to, and its bytes
    operands  where each lies, where it goes to, and its bytes
    words     those of `wasm_threaded.py`
    """
    header = [len(words), *out, len(operands)]
    for operand in operands:
        header += operand
    return np.array([*header, *words], np.uint32)


def available_web_workers() -> WebWorkers | None:
    """Return the web workers, which may still be starting; None where there can be
    none.
    """
    return _start_web_workers() if IN_BROWSER and jit_mode() != "off" else None


@cache
def _start_web_workers() -> WebWorkers | None:
    """Start the web workers of this process, once."""
    import js
    from pyodide.code import run_js
    from pyodide.ffi import JsException, to_js

    navigator = getattr(js, "navigator", None)
    count = min(MAX_WORKERS, getattr(navigator, "hardwareConcurrency", 1) - 1)
    if count < 1 or not getattr(js, "crossOriginIsolated", False):
        return None
    from rlxweb.ops.matmul.cpu.wasm_threaded import threaded_matmul_module

    start_workers = run_js(Path(__file__).with_name("workers.js").read_text("utf-8"))
    for fused, pages in product((True, False), MAX_PAGES):
        code = to_js(threaded_matmul_module(fused=fused))
        try:
            return WebWorkers(start_workers(code, count, pages, _SPIN_MS), count + 1)
        except JsException:  # no such additions, or memory, or no Workers
            continue
    return None
