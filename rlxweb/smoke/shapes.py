"""Shapes chosen to hurt: the ends of workgroups, primes, tails, very many rows, halves.

The samples of an op are few and small. These go on where kernels are cut into groups,
vectors, tiles and dispatches, for the ops that have kernels of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from typing import Any

from rlxweb.backends.agreement import feeds_of, one_op
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape
from rlxweb.smoke.case import Case, Level, Trial, trial_of, types_of

ENDS = (1, 2, 3, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1021, 1024, 4099)
"""Lengths around the sizes of workgroups and vectors, and primes."""
GRID = (65_535, 65_536, 65_537)
"""Around the most workgroups that one axis of a grid may have."""
LENGTHS = (1, 2, 3, 5, 7, 16, 31, 60, 64, 97, 128, 251, 256, 500, 512, 1009, 1024, 4096)
"""Of transforms: powers of two, products of small primes, primes."""
PRODUCTS = (
    *((1, 1, 1), (1, 64, 1), (64, 1, 64), (17, 33, 65), (15, 16, 17), (31, 129, 3)),
    *((64, 64, 64), (127, 128, 129), (256, 256, 256), (65_537, 4, 3), (2, 3001, 2)),
)
"""m, k, n of a product."""
HALVES = ("f32", "f16")
MANY_ROWS = 65_537
LARGE = (1 << 22) - 3
"""Elements of the large cases of the full level."""

Row = tuple[str, tuple[Drawn, ...], Mapping[str, Any]]
"""Op, inputs, attributes."""


def shape_cases(level: Level) -> Iterator[Case]:
    """The cases; the full level adds large ones."""
    for op, inputs, attrs in _rows(level == "full"):
        sample = Sample(inputs, attrs)
        shapes = "-".join("x".join(map(str, one.shape)) or "1" for one in inputs)
        words = [shapes, *(f"{k}={v}" for k, v in attrs.items()), inputs[0].dtype.value]
        name = f"shapes/{op}/{'/'.join(words)}".replace(" ", "")
        made = partial(_trial, op, sample)
        yield Case(name, "shapes", op, made, types_of(sample), attrs)


def _trial(op: str, sample: Sample) -> Trial:
    arrays = sample.draw(prod(sample.inputs[0].shape) % 1009)
    return trial_of(one_op(registry.get(op), sample, arrays), feeds_of(arrays))


def _rows(with_large: bool) -> Iterator[Row]:
    large = (LARGE,) if with_large else ()
    for dtype in map(DType, HALVES):
        for n in (*ENDS, *GRID, *large):
            yield "add", (Drawn((n,), dtype), Drawn((n,), dtype)), {}
            yield "exp", (Drawn((n,), dtype),), {}
        yield from _reductions(dtype, large)
        yield from _lines(dtype)
        for m, k, n in PRODUCTS:
            yield "matmul", (Drawn((m, k), dtype), Drawn((k, n), dtype)), {}
        yield "matmul", (Drawn((5, 7, 9), dtype), Drawn((5, 9, 3), dtype)), {}
    yield from _movements()
    yield from _transforms()


def _reductions(dtype: DType, large: tuple[int, ...]) -> Iterator[Row]:
    for op in ("sum", "max"):
        for n in (*ENDS, MANY_ROWS, *large):
            yield op, (Drawn((n,), dtype),), {"axes": (0,)}
        for rows, columns in ((MANY_ROWS, 3), (3, MANY_ROWS), (1021, 31)):
            for axis in (0, 1):
                yield op, (Drawn((rows, columns), dtype),), {"axes": (axis,)}


def _lines(dtype: DType) -> Iterator[Row]:
    for n in (*ENDS, MANY_ROWS):
        yield "softmax", (Drawn((3, n), dtype),), {}
    for rows, n in ((MANY_ROWS, 3), (5, 1), (7, 257), (2, 4099)):
        yield "softmax", (Drawn((rows, n), dtype),), {"axis": 0}
        x, w = Drawn((rows, n), dtype), Drawn((n,), dtype)
        for op in ("layer_norm", "rms_norm"):
            yield op, (x, w, w), {"eps": 0.1}


def _movements() -> Iterator[Row]:
    for n in (*ENDS, MANY_ROWS):
        yield "cumsum", (Drawn((2, n), whole=True),), {}
        yield "topk", (Drawn((2, n)),), {"k": min(n, 17)}
    for shape, perm in _PERMUTED:
        yield "transpose", (Drawn(shape),), {"perm": perm}
    for rows in (1, 3, MANY_ROWS):
        table, at = Drawn((rows, 3)), Drawn((257,), DType.I32, 0, rows - 1)
        yield "gather", (table, at), {"axis": 0}


_PERMUTED: tuple[tuple[Shape, Shape], ...] = (
    ((1021, 31), (1, 0)),
    ((MANY_ROWS, 2), (1, 0)),
    ((2, MANY_ROWS), (1, 0)),
    ((7, 33, 65), (2, 0, 1)),
    ((2, 3, 5, 7, 11), (4, 2, 0, 3, 1)),
)


def _transforms() -> Iterator[Row]:
    for n in LENGTHS:
        yield "fft", (Drawn((9, 2 * n)),), {}
        yield "rfft", (Drawn((9, n)),), {}
        yield "irfft", (Drawn((9, 2 * (n // 2 + 1))),), {"n": n}
    for n in (8, 16):
        yield "rfft", (Drawn((MANY_ROWS, n)),), {}
    for rows, width, n in (
        (1, 256, 256),
        (33, 1000, 64),
        (3, 5003, 512),
        (5000, 64, 16),
    ):
        window = Drawn((n,), DType.F32, 0.1, 1.0)
        welch = {"hop": max(1, n // 2)}
        yield "welch_power", (Drawn((rows, width)), window), welch
        yield "welch_row_peaks", (Drawn((rows, width)), window), {**welch, "k": 3}


def over_the_binding(nbytes: int) -> Iterator[Case]:
    """One array of more bytes than the device binds at once, element by element."""
    n = nbytes // 4 + 1021
    for op in ("neg", "sum"):
        attrs = {"axes": (0,)} if op == "sum" else {}
        sample = Sample((Drawn((n,), whole=True),), attrs)
        made = partial(_trial, op, sample)
        yield Case(f"limits/{op}/binding", "limits", op, made, types_of(sample), attrs)
