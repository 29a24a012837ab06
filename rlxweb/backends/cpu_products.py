"""Products of float32 on the CPU as machine code: which, and how they are shared out.

OpenBLAS is as fast alone; its threads turn round and round for a while after each call
and keep the processors from ours and from everybody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.cpu_regions import (
    Region,
    RegionCode,
)
from rlxweb.host.arrays import pool
from rlxweb.host.compiled import address
from rlxweb.host.row_blocks import usable_cpus
from rlxweb.host.shared_code import Shared
from rlxweb.ir.shape import Shape
from rlxweb.machine import library
from rlxweb.machine.jobs import address_of, packed
from rlxweb.machine.making import code_of, fast_mode
from rlxweb.machine.products import (
    FIELDS,
    PART,
    Tile,
    product_text,
    room_for,
    tiles,
)
from rlxweb.machine.workshop import Workshop

Array = NDArray[Any]

LEAST: Final = 1 << 18
"""Multiplications from which BLAS would start its threads, which turn round and round
for a while after each call and keep the processors from ours.
"""
_FEW: Final = 4
_LEAST_OF_FEW: Final = 1 << 19
"""The same of fewer rows than `_FEW`, where BLAS alone is quicker up to there."""
_THREADED: Final = 1 << 19
_IN_CACHE: Final = 1 << 17
"""Elements of a block of rows, which lies there beside a panel."""
_TASKS: Final = 4
"""For each thread at least, so that none waits long for the last."""


class Kind(NamedTuple):
    """What a product is compiled for.

    gathered  its right matrix is the windows of a convolution
    """

    tile: Tile
    gathered: bool = False


def _made(about: object) -> Shared:
    assert isinstance(about, Kind)
    tile, gathered = about
    nbytes = library.processor().nbytes
    return function_of(code_of(product_text(tile, nbytes, gathered=gathered)))


def function_of(code: library.Code) -> Shared:
    """What a module of a product exports, as `machine/products.py` says."""
    return Shared.of(code, "product")


product_kernels: Workshop[Shared] = Workshop(_made, fast_mode)
"""The compiled products of this process, by their kinds."""


class Sizes(NamedTuple):
    """So many products of [rows, terms] by [terms, columns].

    shared  all have the same right matrix
    """

    batch: int
    rows: int
    terms: int
    columns: int
    shared: bool


class Shares(NamedTuple):
    """How a product is shared out: panels, blocks of rows, and rows of a block."""

    tile: Tile
    panels: int
    blocks: int
    each: int


def sizes_of(x: Shape, y: Shape) -> Sizes | None:
    """The sizes of a product; None where matrices meet in other ways."""
    if len(x) < 2 or len(y) < 2:
        return None
    if len(y) == 2:  # the rows of all are one matrix's
        return Sizes(1, prod(x[:-1]), x[-1], y[1], True)
    if x[:-2] != y[:-2]:
        return None
    return Sizes(prod(x[:-2]), x[-2], x[-1], y[-1], False)


def shares_of(sizes: Sizes, lanes: int, threads: int) -> Shares | None:
    """The tile that wastes least; None where there are too few rows or columns."""
    found = [
        one
        for one in tiles(4 * lanes)
        if one.rows <= sizes.rows and one.vectors * lanes <= sizes.columns
    ]
    if not found:
        return None
    tile = min(found, key=lambda one: _cycles(sizes, one, lanes))
    panels = -(-sizes.columns // (tile.vectors * lanes))
    wanted = _TASKS * threads if threads > 1 else 1
    blocks = max(
        -(-sizes.rows * min(sizes.terms, PART) // _IN_CACHE),
        -(-wanted // (panels * sizes.batch)),
    )
    each = -(-sizes.rows // blocks)
    each = -(-each // tile.rows) * tile.rows
    blocks = -(-sizes.rows // each)
    if sizes.rows - (blocks - 1) * each < tile.rows:
        blocks = max(1, blocks - 1)
    return Shares(tile, panels, blocks, min(each, sizes.rows))


def _cycles(sizes: Sizes, tile: Tile, lanes: int) -> float:
    """About how long a term of all takes: products, and loads beside them."""
    rows, vectors = tile
    turns = -(-sizes.rows // rows) * -(-sizes.columns // (vectors * lanes))
    return turns * (rows * vectors + 0.1 * (rows + vectors) + 0.5 * vectors)


class Tail(NamedTuple):
    """A region that is done with a product.

    reads   the nodes it reads, the product first
    steps   for the result and each of them, bytes from one row, one column and one
            matrix to the next
    """

    region: Region
    reads: tuple[int, ...]
    steps: tuple[tuple[int, int, int], ...]


class Done(NamedTuple):
    """What is done with a product: the region, its code, what it reads beside it."""

    tail: Tail
    code: RegionCode
    given: Sequence[Array]


class Gathered(NamedTuple):
    """Where b and the result lie, in elements: places of terms and columns of b and of
    columns of the result, as tables; then from one matrix of b, one row and one matrix
    of the result to the next.
    """

    terms: NDArray[np.int32]
    columns: NDArray[np.int32]
    out: NDArray[np.int32]
    b_batch: int
    out_row: int
    out_batch: int


def computed(
    kernel: Shared,
    sizes: Sizes,
    shares: Shares,
    given: tuple[Array, Array],
    out: Array,
    done: Done | None = None,
    gathered: Gathered | None = None,
) -> None:
    """The product, or what is done with it, into an array.

    given     [batch, rows, terms] and [batch or 1, terms, columns] of float32; they and
              the result lie element by element, but rows of the right one may lie
              apart, or come as `in_panels`, of rank 3
    done      what is done with the product
    gathered  how the right matrix and the result lie where they are no matrices
    """
    (x, y), how = given, _how(sizes, shares, gathered is not None, usable_cpus())
    job = how.job.copy()
    job[:3] = address(x), address(y), address(out)
    if done is not None:
        operands = _operands(done.tail.steps).copy()
        operands[0, 0] = address(out)
        for at, one in enumerate(done.given):
            operands[2 + at, 0] = address(one)
        job[_TAIL] = address_of(done.code.call)
        job[_OPERANDS], job[_COUNT] = address(operands), len(operands)
    if gathered is not None:
        job[_TABLES] = tuple(map(address, gathered[:3]))
        job[_B_BATCH], job[_OUT_ROW], job[_OUT_BATCH] = gathered[3:]
    else:
        job[_B_ROW] = y.strides[-2] // 4
        if sizes.shared and y.ndim == 3:
            job[_B_PANEL] = y.strides[0] // 4
    room, taken = pool.empty((how.room,), np.float32), np.zeros(2, np.int64)
    told = packed(address(job), address(room), how.floats, address(taken))
    kernel(told, threaded=how.threaded)


_AT: Final = {name: at for at, name in enumerate(FIELDS)}
_TAIL, _OPERANDS, _COUNT = _AT["tail"], _AT["operands"], _AT["count"]
_B_ROW, _B_BATCH, _B_PANEL = _AT["b_row"], _AT["b_batch"], _AT["b_panel"]
_OUT_ROW, _OUT_BATCH = _AT["out_row"], _AT["out_batch"]
_TABLES: Final = slice(_AT["terms_at"], _AT["out_at"] + 1)


class _How(NamedTuple):
    """What is the same for every product of some sizes.

    job     without addresses
    floats  of a thread's room; `room` of all
    """

    job: NDArray[np.int64]
    floats: int
    room: int
    threaded: bool


@lru_cache(maxsize=512)
def _how(sizes: Sizes, shares: Shares, gathered: bool, threads: int) -> _How:
    batch, rows, terms, columns, shared = sizes
    lanes = library.processor().nbytes // 4
    count = shares.panels * shares.blocks * batch
    known = {
        "tasks": count,
        "panels": shares.panels,
        "blocks": shares.blocks,
        "each": shares.each,
        "rows": rows,
        "columns": columns,
        "terms": terms,
        "a_row": terms,
        "out_row": columns,
        "a_batch": rows * terms,
        "b_batch": 0 if shared else terms * columns,
        "out_batch": rows * columns,
    }
    job = np.array([known.get(name, 0) for name in FIELDS], np.int64)
    most = max(shares.each, rows - (shares.blocks - 1) * shares.each)
    floats = room_for(shares.tile, lanes, most, gathered=gathered)
    threaded = batch * rows * terms * columns >= _THREADED and count > 1
    return _How(job, floats, floats * (threads if threaded else 1), threaded)


@lru_cache(maxsize=512)
def _operands(steps: tuple[tuple[int, int, int], ...]) -> NDArray[np.int64]:
    return np.array([(0, *one) for one in steps], np.int64)


def lies_well(sizes: Sizes, y: Array) -> bool:
    """Do rows of the right matrix lie element by element, and matrices in a row?"""
    if not sizes.shared:
        return y.flags.c_contiguous
    row, column = y.strides
    return column == 4 and row >= 4 * sizes.columns and row % 4 == 0


def multiply(x: Array, y: Array, out: Array) -> None:
    """`numpy.matmul` of two matrices into a third, which lies element by element."""
    sizes = Sizes(1, x.shape[0], x.shape[1], y.shape[1], True)
    shares = shares_for(sizes)
    plain = x.dtype == np.float32 and x.flags.c_contiguous and out.flags.c_contiguous
    if shares is None or not plain or not lies_well(sizes, y):
        np.matmul(x, y, out=out)
        return
    kernel = product_kernels.ready(Kind(shares.tile))
    if kernel is not None:
        computed(kernel, sizes, shares, (x, y), out)
        return
    begun = perf_counter()
    np.matmul(x, y, out=out)
    product_kernels.spent(Kind(shares.tile), perf_counter() - begun)


def shares_for(sizes: Sizes) -> Shares | None:
    """How a product is shared out; None where it is BLAS's."""
    if not product_kernels.is_open or product_kernels.why_not:
        return None
    lanes = library.processor().nbytes // 4
    return _shares(sizes, lanes, usable_cpus())


@lru_cache(maxsize=256)
def _shares(sizes: Sizes, lanes: int, threads: int) -> Shares | None:
    least = LEAST if sizes.rows >= _FEW else _LEAST_OF_FEW
    if sizes.batch * sizes.rows * sizes.terms * sizes.columns < least:
        return None
    return shares_of(sizes, lanes, threads)
