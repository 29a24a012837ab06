"""Cases at boundary shapes: around workgroup and vector sizes, primes, and very many
rows.

The samples of an op are few and small. These go on where kernels are cut into groups,
vectors, tiles and dispatches, for the ops that have kernels of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from typing import Any

from rlxweb.engines.reference_comparison import named_feeds, single_op_graph
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.smoke.case import Level, PreparedCase, SmokeCase, input_types, prepared_case

BOUNDARY_LENGTHS = (1, 2, 3, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1021, 1024, 4099)
"""Lengths around the sizes of workgroups and vectors, and primes."""
GRID_LENGTHS = (65_535, 65_536, 65_537)
"""Lengths around the maximum number of workgroups per grid axis."""
FFT_LENGTHS = (
    1,
    2,
    3,
    5,
    7,
    16,
    31,
    60,
    64,
    97,
    128,
    251,
    256,
    500,
    512,
    1009,
    1024,
    4096,
)
"""Lengths of transforms: powers of two, products of small primes, primes."""
MATMUL_SIZES = (
    *((1, 1, 1), (1, 64, 1), (64, 1, 64), (17, 33, 65), (15, 16, 17), (31, 129, 3)),
    *((64, 64, 64), (127, 128, 129), (256, 256, 256), (65_537, 4, 3), (2, 3001, 2)),
)
"""Sizes m, k, n of matrix products."""
FLOAT_DTYPES = ("f32", "f16")
MANY_ROWS = 65_537
LARGE_LENGTH = (1 << 22) - 3
"""Elements of the large cases of the full level."""

ShapeRow = tuple[str, tuple[Drawn, ...], Mapping[str, Any]]
"""Op, inputs and attributes of a case."""


def shape_cases(level: Level) -> Iterator[SmokeCase]:
    """Yield the cases; the full level adds large ones."""
    for op, inputs, attrs in _shape_rows(level == "full"):
        sample = Sample(inputs, attrs)
        shapes = "-".join(
            "x".join(map(str, operand.shape)) or "1" for operand in inputs
        )
        name_parts = [
            shapes,
            *(f"{k}={v}" for k, v in attrs.items()),
            inputs[0].dtype.value,
        ]
        name = f"shapes/{op}/{'/'.join(name_parts)}".replace(" ", "")
        prepare = partial(_prepare, op, sample)
        yield SmokeCase(name, "shapes", op, prepare, input_types(sample), attrs)


def _prepare(op: str, sample: Sample) -> PreparedCase:
    """Prepare a case with arrays drawn for its sample."""
    arrays = sample.draw(prod(sample.inputs[0].shape) % 1009)
    return prepared_case(
        single_op_graph(registry.get(op), sample, arrays), named_feeds(arrays)
    )


def _shape_rows(with_large: bool) -> Iterator[ShapeRow]:
    """Yield the rows of all op groups."""
    large = (LARGE_LENGTH,) if with_large else ()
    for dtype in map(DType, FLOAT_DTYPES):
        for n in (*BOUNDARY_LENGTHS, *GRID_LENGTHS, *large):
            yield "add", (Drawn((n,), dtype), Drawn((n,), dtype)), {}
            yield "exp", (Drawn((n,), dtype),), {}
        yield from _reduction_rows(dtype, large)
        yield from _softmax_norm_rows(dtype)
        for m, k, n in MATMUL_SIZES:
            yield "matmul", (Drawn((m, k), dtype), Drawn((k, n), dtype)), {}
        yield "matmul", (Drawn((5, 7, 9), dtype), Drawn((5, 9, 3), dtype)), {}
    yield from _data_movement_rows()
    yield from _transform_rows()


def _reduction_rows(dtype: DType, large: tuple[int, ...]) -> Iterator[ShapeRow]:
    """Yield sums and maxima of many lengths and row counts."""
    for op in ("sum", "max"):
        for n in (*BOUNDARY_LENGTHS, MANY_ROWS, *large):
            yield op, (Drawn((n,), dtype),), {"axes": (0,)}
        for rows, columns in ((MANY_ROWS, 3), (3, MANY_ROWS), (1021, 31)):
            for axis in (0, 1):
                yield op, (Drawn((rows, columns), dtype),), {"axes": (axis,)}


def _softmax_norm_rows(dtype: DType) -> Iterator[ShapeRow]:
    """Yield softmaxes and norms of many lengths and row counts."""
    for n in (*BOUNDARY_LENGTHS, MANY_ROWS):
        yield "softmax", (Drawn((3, n), dtype),), {}
    for rows, n in ((MANY_ROWS, 3), (5, 1), (7, 257), (2, 4099)):
        yield "softmax", (Drawn((rows, n), dtype),), {"axis": 0}
        x, w = Drawn((rows, n), dtype), Drawn((n,), dtype)
        for op in ("layer_norm", "rms_norm"):
            yield op, (x, w, w), {"eps": 0.1}


def _data_movement_rows() -> Iterator[ShapeRow]:
    """Yield cumulative sums, top-k, transposes and gathers."""
    for n in (*BOUNDARY_LENGTHS, MANY_ROWS):
        yield "cumsum", (Drawn((2, n), whole=True),), {}
        yield "topk", (Drawn((2, n)),), {"k": min(n, 17)}
    for shape, perm in _TRANSPOSE_CASES:
        yield "transpose", (Drawn(shape),), {"perm": perm}
    for rows in (1, 3, MANY_ROWS):
        table, indices = Drawn((rows, 3)), Drawn((257,), DType.I32, 0, rows - 1)
        yield "gather", (table, indices), {"axis": 0}


_TRANSPOSE_CASES: tuple[tuple[Shape, Shape], ...] = (
    ((1021, 31), (1, 0)),
    ((MANY_ROWS, 2), (1, 0)),
    ((2, MANY_ROWS), (1, 0)),
    ((7, 33, 65), (2, 0, 1)),
    ((2, 3, 5, 7, 11), (4, 2, 0, 3, 1)),
)


def _transform_rows() -> Iterator[ShapeRow]:
    """Yield FFTs and Welch estimates of many lengths."""
    for n in FFT_LENGTHS:
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
        welch_attrs = {"hop": max(1, n // 2)}
        yield "welch_power", (Drawn((rows, width)), window), welch_attrs
        yield "welch_row_peaks", (Drawn((rows, width)), window), {**welch_attrs, "k": 3}


def binding_limit_cases(nbytes: int) -> Iterator[SmokeCase]:
    """Yield cases with one array larger than the device binds at once."""
    n = nbytes // 4 + 1021
    for op in ("neg", "sum"):
        attrs = {"axes": (0,)} if op == "sum" else {}
        sample = Sample((Drawn((n,), whole=True),), attrs)
        prepare = partial(_prepare, op, sample)
        yield SmokeCase(
            f"limits/{op}/binding", "limits", op, prepare, input_types(sample), attrs
        )
