"""What windows of a convolution read, laid out for them by machine code.

`host/phases.py` says how; NumPy does it until the code is there.
"""

from __future__ import annotations

from math import prod
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.arrays import pool
from rlxweb.host.compiled import address
from rlxweb.host.phases import lengths_of, phases_of
from rlxweb.host.row_blocks import usable_cpus
from rlxweb.host.shared_code import Shared
from rlxweb.machine import library
from rlxweb.machine.jobs import packed
from rlxweb.machine.making import code_of, fast_mode
from rlxweb.machine.phases import FIELDS, STRIDES, phases_text
from rlxweb.machine.workshop import Workshop
from rlxweb.recipes.windows import Windows

Array = NDArray[Any]

_THREADED: Final = 1 << 16
"""Elements from which threads share them."""
_TASKS: Final = 4
"""For each thread, so that none waits long for the last."""


def _made(about: object) -> Shared:
    assert isinstance(about, int)
    return function_of(code_of(phases_text(about, library.processor().nbytes)))


def function_of(code: library.Code) -> Shared:
    """What a module of phases exports, as `machine/phases.py` says."""
    return Shared.of(code, "phases")


phase_kernels: Workshop[Shared] = Workshop(_made, fast_mode)
"""The compiled copies of this process, by the stride of the last axis."""


class PhasesCall:
    """`phases_of` of arrays of float32 [N, C, three axes], of one size.

    shape  what it makes of them
    """

    def __init__(self, batch: int, channels: int, windows: Windows) -> None:
        self.windows = windows
        lengths = lengths_of(windows)
        self.shape = batch, channels, *windows.strides, *lengths
        still = windows.strides == (1, 1, 1) and lengths == windows.size
        self.is_there = still and not any(windows.before)
        if self.is_there:
            return
        stride = windows.strides[2]
        self.kind = stride if stride in STRIDES else 0
        self.threaded = prod(self.shape) >= _THREADED
        count, self.table = batch * channels, _table(windows)
        wanted = _TASKS * usable_cpus() if self.threaded else 1
        known = {
            "table": address(self.table),
            "channels": count,
            "each": max(1, count // wanted),
            "given": prod(windows.size),
            "lines": len(self.table),
            "length": lengths[2],
            "stride": stride,
        }
        self.job = np.array([known.get(name, 0) for name in FIELDS], np.int64)

    def __call__(self, x: Array) -> Array:
        """Values [N, C, three phases, three axes]."""
        if self.is_there:
            return np.ascontiguousarray(x).reshape(self.shape)
        kernel = phase_kernels.ready(self.kind)
        if kernel is None:
            begun = perf_counter()
            made = phases_of(x, self.windows)
            phase_kernels.spent(self.kind, perf_counter() - begun)
            return made
        x, out = np.ascontiguousarray(x), pool.empty(self.shape, np.float32)
        job, taken = self.job.copy(), np.zeros(1, np.int64)
        job[:2] = address(x), address(out)
        kernel(packed(address(job), address(taken)), threaded=self.threaded)
        return out


def _table(w: Windows) -> NDArray[np.int32]:
    """Of each line of a channel what `machine/phases.py` wants, from a channel whose
    elements are their own places and a zero is none.
    """
    places = np.arange(1, prod(w.size) + 1).reshape(1, 1, *w.size)
    laid = phases_of(places, w)
    lines = laid.reshape(-1, laid.shape[-1])
    is_there = lines != 0
    front, count = is_there.argmax(axis=1), is_there.sum(axis=1)
    first = np.maximum(lines[np.arange(len(lines)), front] - 1, 0)
    return np.stack([first, front, count], axis=1).astype(np.int32)
