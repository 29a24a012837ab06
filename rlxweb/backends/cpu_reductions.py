"""Reductions of float32 on the CPU by machine code, along lines or down columns."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from math import prod
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.host import short_sums
from rlxweb.host.compiled import address
from rlxweb.host.row_blocks import usable_cpus
from rlxweb.host.shared_code import Shared
from rlxweb.host.variants import Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape import Shape, normal_axes
from rlxweb.machine import library
from rlxweb.machine.jobs import packed
from rlxweb.machine.making import code_of, fast_mode
from rlxweb.machine.workshop import Workshop

LEAST: Final = 1 << 12
"""Elements from which a call of ours is faster than NumPy's."""
_SHORTEST: Final = 16
"""Elements of a line, or columns: the lanes of the widest vectors."""
_TASK: Final = 1 << 15
_COLUMNS: Final = 1 << 12
"""Side by side: what they have so far stays in the nearest cache."""
_SHARE: Final = 1 << 9
"""Columns of a thread, at least."""
_THREADED: Final = 1 << 18
"""Elements from which a second thread gives more than its start takes."""
_LONG: Final = 1 << 21
"""Elements of few lines from which each is shared out."""
_FEWEST: Final = 8
"""Rows from which columns are worth what is kept for them."""
_FIRST: Final = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}
_WIDE: Final = ("sum", "prod")


class Axes(NamedTuple):
    """A reduction as one along the middle of three axes."""

    outer: int
    length: int
    inner: int


def axes_of(shape: Shape, reduced: tuple[int, ...]) -> Axes | None:
    """Three axes for those of a shape, or None where those left are not in two runs."""
    told = [(at in reduced, size) for at, size in enumerate(shape) if size != 1]
    runs = [
        (is_reduced, prod(size for _, size in some))
        for is_reduced, some in groupby(told, key=lambda one: one[0])
    ]
    sizes = [size for _, size in runs]
    pattern = "".join("r" if is_reduced else "k" for is_reduced, _ in runs)
    outer = sizes[0] if pattern[:1] == "k" else 1
    inner = sizes[-1] if pattern[-1:] == "k" else 1
    if pattern not in ("r", "kr", "rk", "krk"):
        return None
    return Axes(outer, sizes[pattern.index("r")], inner)


def _made(about: object) -> Shared:
    from rlxweb.machine.reductions import reduction_text

    assert isinstance(about, tuple)
    fold, lines = about
    return function_of(code_of(reduction_text(fold, lines, library.processor().nbytes)))


def function_of(code: library.Code) -> Shared:
    """What a module of a reduction exports, as `machine/reductions.py` says."""
    return Shared.of(code, "reduce")


reduction_kernels: Workshop[Shared] = Workshop(_made, fast_mode)
"""The compiled reductions of this process, by fold and by whether along lines."""


def _axes(shape: Shape, attrs: Attrs) -> Axes | None:
    axes = axes_of(shape, normal_axes(attrs["axes"], len(shape)))
    if axes is None:
        return None
    if axes.inner == 1:
        return axes if axes.length >= _SHORTEST else None
    fits = axes.inner >= _SHORTEST and axes.length >= _FEWEST
    return axes if fits else None


def _open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    x = inputs[0]
    if x.dtype is not DType.F32 or x.numel < LEAST or not reduction_kernels.is_open:
        return False
    return _axes(x.shape, attrs) is not None


def _run(op: str) -> Callable[..., Any]:
    fold = "sum" if op == "mean" else op

    def run(attrs: Attrs, x: NDArray[Any]) -> NDArray[Any]:
        axes = _axes(x.shape, attrs)
        assert axes is not None  # the gate asked
        about = fold, axes.inner == 1
        kernel = reduction_kernels.ready(about)
        if kernel is None:
            begun = perf_counter()
            made = _by_numpy(op, attrs, x)
            reduction_kernels.spent(about, perf_counter() - begun)
            return made
        kept = _computed(kernel, fold, axes, np.ascontiguousarray(x))
        if op == "mean":
            kept /= axes.length
        gone = normal_axes(attrs["axes"], x.ndim)
        shape = [1 if at in gone else size for at, size in enumerate(x.shape)]
        if not attrs["keep_dim"]:
            shape = [size for at, size in enumerate(x.shape) if at not in gone]
        return kept.astype(np.float32, copy=False).reshape(shape)

    return run


def _by_numpy(op: str, attrs: Attrs, x: NDArray[Any]) -> NDArray[Any]:
    types = (TensorType(x.shape, DType.F32),)
    own = registry.get(op)
    if op in ("sum", "mean") and short_sums.is_open(types, types[0], attrs):
        return short_sums.in_runs(op)(attrs, x)
    made: NDArray[Any] = own.reference(np, attrs, x)
    return made


def _computed(kernel: Shared, fold: str, axes: Axes, x: NDArray[Any]) -> NDArray[Any]:
    """The reduction, (outer · inner,), as wide as it is kept."""
    outer, count, inner = axes
    kind = np.float64 if fold in _WIDE else np.float32
    if inner == 1 and count >= _LONG and outer < 8:  # shares of each line
        lines = x.reshape(outer, count)
        share = count // 16
        cut = [
            np.append(
                _computed(kernel, fold, Axes(16, share, 1), line[: 16 * share]),
                _rest(fold, line[16 * share :], kind),
            )
            for line in lines
        ]
        how = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
        found: NDArray[Any] = how[fold].reduce(np.array(cut), axis=1)
        return found
    out = np.full(outer * inner, _FIRST[fold], kind)
    threaded = x.size >= _THREADED
    if inner == 1:
        each = max(1, _TASK // count)
    else:
        share = -(-inner // usable_cpus()) if threaded else inner
        each = min(_COLUMNS, max(_SHARE, share))
    taken = np.zeros(1, np.int64)
    job = packed(address(x), address(out), *axes, each, address(taken))
    kernel(job, threaded=threaded and outer * inner > each)
    return out


def _rest(fold: str, line: NDArray[Any], kind: type) -> NDArray[Any]:
    """The few elements that shares of one length leave."""
    start = np.array([_FIRST[fold]])
    return np.append(start, line).astype(kind)


COMPILED: Final = tuple(
    Variant(f"{op}, compiled", op, _open, _run(op))
    for op in ("sum", "mean", "max", "min", "prod")
)
"""The rows, before NumPy's."""
