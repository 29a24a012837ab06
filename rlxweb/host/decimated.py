"""Rows through a low-pass filter that keeps one sample of so many.

Machine code where the extra `fast` is installed, else one product of matrices: blocks
of a row against the filter's places in a block, whose ends are added to the block
before. At the ends of a row, where there are no samples, its own are taken turned about
the last: a level and a slope go on.
"""

from __future__ import annotations

from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.arrays import pool
from rlxweb.host.compiled import address
from rlxweb.host.shared_code import Shared
from rlxweb.machine.jobs import packed
from rlxweb.machine.making import code_of, fast_mode
from rlxweb.machine.workshop import Workshop
from rlxweb.recipes.decimation_plan import LowPass

if TYPE_CHECKING:
    from collections.abc import Callable

    from rlxweb.machine.text import Real

    _Part = tuple[int, int, int, int]
    """Rows [low, high), outputs [first, stop)."""
    from rlxweb.machine.decimation import Decimation

    Kernel = tuple[Shared, Decimation]

_TASK: Final = 1 << 17
"""Samples that a thread takes at a time."""
_THREADED: Final = 1 << 20
_BLOCK: Final = 128
"""Samples of a block of the product; more where the filter is long."""
_REALS: Final[dict[np.dtype[Any], Real]] = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
}


def _made(about: object) -> Kernel:
    """What a module of `machine/decimation.py` exports, tried. Errors  as it says."""
    from rlxweb.machine import library
    from rlxweb.machine.decimation import NAME, Decimation

    real, step, count = cast("tuple[Real, int, int]", about)
    own = Decimation(real, step, count, library.processor().nbytes)
    return Shared.of(code_of(own.text()), NAME), own


decimation_kernels: Workshop[Kernel] = Workshop(_made, fast_mode)
"""The compiled filters of this process, by (real, step, taps)."""


def kernel_key(filter_: LowPass, dtype: np.dtype[Any]) -> tuple[Real, int, int]:
    """What a filter's code is known by."""
    return _REALS[dtype], filter_.step, len(filter_.taps)


def decimated(x: NDArray[Any], filter_: LowPass) -> NDArray[Any]:
    """Rows x (B, T), float32 or float64, contiguous → (B, T // step) of that dtype."""
    n_rows, width = x.shape
    count = width // filter_.step
    out = pool.empty((n_rows, count), x.dtype)
    if not out.size:
        return out
    key, begun = kernel_key(filter_, x.dtype), perf_counter()
    kernel = decimation_kernels.ready(key) if decimation_kernels.is_open else None
    first, stop = _inside(filter_, width)
    if first >= stop:
        first = stop = count
    _ends(x, filter_, out, 0, min(first, count))
    _ends(x, filter_, out, stop, count)
    if first < stop and kernel is not None:
        _by_code(kernel, x, filter_, out, first, stop)
    elif first < stop:
        work = _by_product(x, filter_, out)
        for part in _tasks(n_rows, first, stop, filter_.step):
            work(*part)
    if kernel is None and decimation_kernels.is_open:
        decimation_kernels.spent(key, perf_counter() - begun)
    return out


def _tasks(n_rows: int, first: int, stop: int, step: int) -> list[_Part]:
    """Parts of about `_TASK` samples: some rows, or a stretch of one."""
    each = max(1, _TASK // step)
    rows = max(1, each // (stop - first))
    return [
        (low, min(n_rows, low + rows), at, min(stop, at + each))
        for low in range(0, n_rows, rows)
        for at in range(first, stop, each)
    ]


def _inside(filter_: LowPass, width: int) -> tuple[int, int]:
    """Outputs [first, stop) whose samples all lie in the row."""
    step, taps = filter_.step, len(filter_.taps)
    first = -(-filter_.before // step)
    return first, max(0, (width - taps + filter_.before) // step + 1)


def _ends(
    x: NDArray[Any], filter_: LowPass, out: NDArray[Any], first: int, stop: int
) -> None:
    """Outputs whose samples lie beyond an end of the row, in part, and the few that
    fill no block.
    """
    if first < stop:
        low, matrix = _end_matrix(filter_, x.shape[1], first, stop)
        out[:, first:stop] = x[:, low : low + len(matrix)].astype(np.float64) @ matrix


@lru_cache(maxsize=256)
def _end_matrix(
    filter_: LowPass, width: int, first: int, stop: int
) -> tuple[int, NDArray[np.float64]]:
    """What each sample of a row adds to outputs [first, stop): the first sample that
    does, and (samples, outputs).

    A row goes on as it was, seen from its end: 2 x(end) - x(mirrored).
    """
    starts = np.arange(first, stop)[:, None] * filter_.step - filter_.before
    places = starts + np.arange(len(filter_.taps))
    before, after = places < 0, places >= width
    mirrored = np.abs(places)
    mirrored = np.where(mirrored < width, mirrored, 2 * (width - 1) - mirrored)
    mirrored = np.clip(mirrored, 0, width - 1)
    low = 0 if before.any() else int(mirrored.min())
    high = width if after.any() else int(mirrored.max()) + 1
    made = np.zeros((high - low, stop - first))
    taps = np.broadcast_to(filter_.taps, places.shape)
    outputs = np.broadcast_to(np.arange(stop - first)[:, None], places.shape)
    signs = np.where(before | after, -taps, taps)
    np.add.at(made, (mirrored - low, outputs), signs)
    made[0] += 2.0 * np.where(before, taps, 0.0).sum(axis=1)
    made[-1] += 2.0 * np.where(after, taps, 0.0).sum(axis=1)
    return low, made


def _by_code(
    kernel: Kernel,
    x: NDArray[Any],
    filter_: LowPass,
    out: NDArray[Any],
    first: int,
    stop: int,
) -> None:
    run, made = kernel
    taps = filter_.taps.astype(x.dtype)
    size, (n_rows, width), step = x.itemsize, x.shape, filter_.step
    # What is read beyond the last sample that counts must lie in the row.
    most = (width - made.beyond + filter_.before) // step + 1
    count = max(0, min(stop, most) - first)
    whole = count // made.block * made.block
    # The last block may go over what was made before: the same numbers.
    parts = [(first, whole)] if whole else []
    if whole and count > whole:
        parts.append((first + count - made.block, made.block))
    for at, length in parts:
        stretches = -(-length // made.stretch)
        share = max(1, _TASK // (made.stretch * step))
        taken = np.zeros(1, np.int64)
        job = packed(
            address(x) + (at * step - filter_.before) * size,
            address(out) + at * size,
            address(taps),
            length,
            n_rows,
            width,
            out.shape[1],
            -(-stretches // share),
            share,
            address(taken),
        )
        run(job, threaded=length * n_rows * step >= _THREADED)
    _ends(x, filter_, out, first + (count if whole else 0), stop)


@lru_cache(maxsize=64)
def _block_matrix(filter_: LowPass, dtype: np.dtype[Any]) -> NDArray[Any]:
    """(L, L / step + reach): what each sample of a block adds to which output.

    The first `reach` of these are the last outputs of the block before.
    """
    step, taps = filter_.step, len(filter_.taps)
    reach = -(-(taps - step) // step)
    outputs = max(-(-_BLOCK // step), reach)
    sample = np.arange(outputs * step)[:, None]
    tap = sample - (np.arange(reach + outputs) - reach)[None, :] * step
    inside = (tap >= 0) & (tap < taps)
    return np.where(inside, filter_.taps[np.clip(tap, 0, taps - 1)], 0.0).astype(dtype)


def _by_product(
    x: NDArray[Any], filter_: LowPass, out: NDArray[Any]
) -> Callable[..., None]:
    matrix = _block_matrix(filter_, x.dtype)
    samples = len(matrix)
    outputs = samples // filter_.step
    reach = matrix.shape[1] - outputs

    def work(low: int, high: int, first: int, stop: int) -> None:
        start = first * filter_.step - filter_.before
        blocks = (x.shape[1] - start) // samples
        # The last block's sums want what comes after it.
        whole = max(0, min(stop - first, blocks * outputs - reach))
        if whole:
            cut = x[low:high, start : start + blocks * samples].reshape(-1, samples)
            sums = (cut @ matrix).reshape(high - low, blocks, -1)
            made = sums[:, :, reach:]
            made[:, :-1, outputs - reach :] += sums[:, 1:, :reach]
            out[low:high, first : first + whole] = made.reshape(high - low, -1)[
                :, :whole
            ]
        _ends(x[low:high], filter_, out[low:high], first + whole, stop)

    return work
