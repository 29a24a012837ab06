"""MLX as an engine: on Apple's GPUs by Metal, on the CPU of any Mac or Linux machine.

Imported when one of its devices is opened and never before. It computes lazily: a run
is one graph of its own, evaluated where the results are read; on a GPU the plan goes
through `mx.compile` as a whole. MLX has float64 on the CPU alone and complex numbers of
two float32 everywhere, so the engine has no float64 at all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from math import inf, prod
from typing import Any

import numpy as np

from rlxweb.backends.array import array_target, quiet
from rlxweb.backends.array_faults import around_library
from rlxweb.backends.array_forks import LibraryThreads
from rlxweb.backends.array_library import first_named, library, tried
from rlxweb.backends.mlx_variants import mlx_variants
from rlxweb.backends.protocol import Array, Backend
from rlxweb.backends.traced import TracedArrayBackend
from rlxweb.errors import AdapterMissing
from rlxweb.ir.dtype import DType

INSTALL = "pip install 'rlxweb[mlx]' (macOS and Linux)"
DTYPES = frozenset(DType) - {DType.F64}
# Terms that the sum over a product of integers holds at once.
AT_ONCE = 1 << 22
# Values that are added up one after the other.
BLOCK = 256
threads = LibraryThreads("MLX")


class MlxArrays:
    """NumPy's names and arguments over MLX's functions."""

    def __init__(self, mx: Any) -> None:
        self._mx = mx

    def __getattr__(self, name: str) -> Any:
        if name == "float64":
            raise AttributeError(name)
        found = getattr(self._mx, name)
        setattr(self, name, found)
        return found

    def argsort(self, x: Any, axis: int, stable: bool) -> Any:
        return self._mx.argsort(x, axis=axis)  # which is stable

    def floor_divide(self, x: Any, y: Any) -> Any:
        """Of the least integer by -1, too, at which a processor raises a signal."""
        mx = self._mx
        if not mx.issubdtype(x.dtype, mx.signedinteger):
            return mx.floor_divide(x, y)
        flips = y == -1
        return mx.where(flips, -x, mx.floor_divide(x, mx.where(flips, -y, y)))

    def prod(self, x: Any, axis: Any, keepdims: bool, dtype: Any) -> Any:
        return self._mx.prod(_filled(self._mx, x, axis, dtype, 1), axis, keepdims)

    def mean(self, x: Any, axis: Any, keepdims: bool = False, dtype: Any = None) -> Any:
        count = prod(x.shape[a] for a in _axes(axis))
        return self.sum(x, axis, keepdims, dtype) / count

    def sum(self, x: Any, axis: Any, keepdims: bool = False, dtype: Any = None) -> Any:
        """A sum in blocks: MLX adds up one value after the other, in float32."""
        mx = self._mx
        x = _filled(mx, x, axis, x.dtype if dtype is None else dtype, 0)
        for axis_ in _axes(axis):
            while x.shape[axis_] > BLOCK and mx.issubdtype(x.dtype, mx.inexact):
                x = mx.sum(_blocks(mx, x, axis_), axis=axis_ % x.ndim + 1)
        return mx.sum(x, axis, keepdims)

    def cumsum(self, x: Any, axis: int, dtype: Any) -> Any:
        """Running sums within blocks, on top of those of the blocks before."""
        mx, n, at = self._mx, x.shape[axis], axis % x.ndim
        x = x.astype(dtype)
        if n <= BLOCK or not mx.issubdtype(x.dtype, mx.inexact):
            return mx.cumsum(x, axis=at)
        within = mx.cumsum(_blocks(mx, x, at), axis=at + 1)
        lead = (slice(None),) * at
        totals = within[(*lead, slice(None), -1)]
        before = self.cumsum(totals[(*lead, slice(0, -1))], at, dtype)
        first = mx.zeros_like(totals[(*lead, slice(0, 1))])
        before = mx.expand_dims(mx.concat([first, before], axis=at), at + 1)
        shape = (*x.shape[:at], -1, *x.shape[at + 1 :])
        return mx.reshape(within + before, shape)[(*lead, slice(0, n))]

    def cumprod(self, x: Any, axis: int, dtype: Any) -> Any:
        return self._mx.cumprod(x.astype(dtype), axis=axis)

    def matmul(self, x: Any, y: Any) -> Any:
        """A product; of integers, which MLX does not multiply so, term by term."""
        mx = self._mx
        if mx.issubdtype(x.dtype, mx.inexact):
            return mx.matmul(x, y)
        out = mx.zeros((1,), dtype=x.dtype)
        size = max(1, x.shape[-2] * y.shape[-1])
        each = max(1, AT_ONCE // size)
        for at in range(0, max(1, x.shape[-1]), each):
            left = x[..., :, at : at + each, None]
            terms = left * y[..., None, at : at + each, :]
            out = out + mx.sum(terms, axis=-2)
        return out


def _axes(axis: Any) -> tuple[int, ...]:
    return axis if isinstance(axis, tuple) else (axis,)


def _filled(mx: Any, x: Any, axis: Any, dtype: Any, value: int) -> Any:
    """The array, one of `value` alone where it is empty: MLX reads past its end."""
    if 0 not in x.shape:
        return x.astype(dtype)
    gone = [a % x.ndim for a in _axes(axis)]
    shape = [1 if a in gone and not d else d for a, d in enumerate(x.shape)]
    return mx.full(shape, value, dtype=dtype)


def _blocks(mx: Any, x: Any, axis: int) -> Any:
    """The axis as two: blocks, and BLOCK values in each, zeros at the end."""
    n, at = x.shape[axis], axis % x.ndim
    pads = [(0, 0)] * x.ndim
    pads[at] = (0, -n % BLOCK)
    return mx.reshape(mx.pad(x, pads), (*x.shape[:at], -1, BLOCK, *x.shape[at + 1 :]))


async def open_mlx(
    kind: str = "cpu", adapter: str = "", *, traced: bool | None = None
) -> Backend:
    """The engine on "cpu" or "gpu" (Metal; CUDA in MLX's build for it).

    adapter   part of the name of the GPU, or ""
    traced    whether plans go through `mx.compile`; None: on a GPU they do. On the CPU
              MLX would call the machine's C++ compiler for each.

    Errors   AdapterMissing with the reason, for whatever is missing or broken.
    """
    doing = f"open MLX on '{kind}'"
    threads.begin(doing)
    mx = library("mlx.core", doing, INSTALL)
    name = tried(
        lambda: _name(mx, kind, adapter, doing),
        doing,
        "MLX was asked for its devices and failed",
        INSTALL,
    )
    whole = kind == "gpu" if traced is None else traced
    return _engine(mx, kind, name, whole)


def _name(mx: Any, kind: str, adapter: str, doing: str) -> str:
    name = "MLX on the CPU"
    if kind != "cpu":
        if not mx.is_available(mx.gpu):
            raise AdapterMissing(doing, "MLX sees no GPU here", hint=INSTALL)
        name = str(mx.device_info(mx.gpu).get("device_name", "GPU"))
    first_named(doing, [name], adapter)
    return name


def _engine(mx: Any, kind: str, name: str, traced: bool) -> TracedArrayBackend:
    version = f"MLX {mx.__version__}"
    device = mx.cpu if kind == "cpu" else mx.gpu
    by = "" if kind == "cpu" else ", Metal" if mx.metal.is_available() else ", CUDA"

    title = version if kind == "cpu" else f"{name} ({version})"
    xp = MlxArrays(mx)
    return TracedArrayBackend(
        xp,
        array_target(version, DTYPES),
        trace=partial(_compiled, mx) if traced else None,
        settle=mx.eval,
        name=title,
        adapter=name,
        api="mlx",
        driver=f"{version}{by}",
        software=kind == "cpu",
        to_device=lambda array: mx.array(_native(array)),
        to_host=np.array,
        copied=mx.array,
        from_dlpack=mx.from_dlpack,
        variants=mlx_variants(mx, xp),
        why_lost=lambda: threads.why_not,
        room=_memory() if kind == "cpu" else inf,
        around=partial(
            around_library, title, threads, quiet, partial(mx.stream, device)
        ),
    )


def _memory() -> int:
    """Bytes of the machine's memory: on a CPU MLX reads and writes at address 0 where
    it is given none.
    """
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _compiled(mx: Any, whole: Callable[..., Any]) -> Callable[..., Any]:
    """The function through `mx.compile`, anew for each thread: streams are theirs."""
    of_thread = threading.local()

    def run(arrays: Sequence[Any]) -> Any:
        if not hasattr(of_thread, "run"):
            of_thread.run = mx.compile(whole)
        return of_thread.run(arrays)

    return run


def _native(array: Array) -> Array:
    """The same values in this machine's byte order, row by row."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(
        array.shape
    )
