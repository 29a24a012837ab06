"""Products of float32 on the CPU as machine code, and what is done with them after.

Owns which products are taken and how they are shared out. A product that only an
elementwise region reads is made together with it: the product itself never leaves the
caches. BLAS computes until the code is there, and what the code is not better at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.cpu_region_text import KINDS, why_not
from rlxweb.backends.cpu_regions import (
    Region,
    RegionCall,
    RegionCode,
    about_region,
    region_kernels,
    rows_of,
)
from rlxweb.backends.cpu_together import Shared
from rlxweb.host.arrays import pool
from rlxweb.host.compiled import address
from rlxweb.host.row_blocks import usable_cpus
from rlxweb.host.variants import Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape import Shape
from rlxweb.machine import library
from rlxweb.machine.jobs import address_of, packed
from rlxweb.machine.making import code_of, fast_mode
from rlxweb.machine.products import (
    MOST_OPERANDS,
    PART,
    Tile,
    product_text,
    room_for,
    tiles,
)
from rlxweb.machine.workshop import Workshop

Array = NDArray[Any]
Work = tuple[Node, Callable[..., Any], tuple[int, ...]]

LEAST: Final = 1 << 18
"""Multiplications from which BLAS would start its threads, which turn round and round
for a while after each call and keep the processors from ours.
"""
_THREADED: Final = 1 << 19
_IN_CACHE: Final = 1 << 17
"""Elements of a block of rows, which lies there beside a panel."""
_TASKS: Final = 4
"""For each thread at least, so that none waits long for the last."""


def _made(about: object) -> Shared:
    assert isinstance(about, Tile)
    return function_of(code_of(product_text(about, library.processor().nbytes)))


def function_of(code: library.Code) -> Shared:
    """What a module of a product exports, as `machine/products.py` says."""
    return Shared.of(code, "product")


product_kernels: Workshop[Shared] = Workshop(_made, fast_mode)
"""The compiled products of this process, by their tiles."""


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


def is_open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Of float32, and large enough."""
    if any(one.dtype is not DType.F32 for one in inputs):
        return False
    sizes = sizes_of(inputs[0].shape, inputs[1].shape)
    return sizes is not None and shares_for(sizes) is not None


class Tail(NamedTuple):
    """A region that is done with a product.

    reads   the nodes it reads, the product first
    steps   for the result and each of them, bytes from one row, one column and one
            matrix to the next
    """

    region: Region
    reads: tuple[int, ...]
    steps: tuple[tuple[int, int, int], ...]
    out: Node


def tail_of(
    graph: Graph, product: Node, ids: Sequence[int], reads: Sequence[int]
) -> Tail | None:
    """The region as what is done with a product; None where it does not fit."""
    out = graph.node(ids[-1])
    sizes = sizes_of(*(graph.node(i).type.shape for i in product.inputs))
    if sizes is None or out.type.shape != product.type.shape:
        return None
    kinds = {graph.node(i).type.dtype for i in reads}
    known = kinds <= set(KINDS) and not why_not([graph.node(i) for i in ids])
    if out.type.dtype is not DType.F32 or len(reads) + 1 > MOST_OPERANDS or not known:
        return None
    ordered = (product.id, *(i for i in reads if i != product.id))
    shapes = [graph.node(i).type.shape for i in ordered]
    rows = rows_of(out.type.shape, shapes)
    if rows is None or rows.blocks:
        return None
    columns, count = sizes.columns, sizes.batch * sizes.rows
    if (rows.outer, rows.inner) == (count, columns):
        steps = rows.steps
    elif (rows.outer, rows.inner) == (1, count * columns):
        steps = tuple(0 if one else columns for one in rows.spread)
    else:
        return None
    widths = [graph.node(i).type.dtype.numpy.itemsize for i in ordered]
    told = [(4 * columns, 4, 4 * columns * sizes.rows)] + [
        (step * width, 0 if one else width, step * width * sizes.rows)
        for step, one, width in zip(steps, rows.spread, widths, strict=True)
    ]
    about = about_region(graph, ids, ordered)
    region = Region(about, rows.spread, graph, tuple(ids), ordered)
    return Tail(region, ordered, tuple(told), out)


def computed(
    kernel: Shared,
    sizes: Sizes,
    shares: Shares,
    x: Array,
    y: Array,
    out: Array,
    tail: tuple[Tail, RegionCode, Sequence[Array]] | None = None,
) -> None:
    """The product, or what is done with it, into an array.

    x, out  lie element by element
    y       so do rows of it
    tail    the region, its code, and what it reads beside the product
    """
    lanes = library.processor().nbytes // 4
    own, operands = (0, 0, 0), np.zeros(1, np.int64)
    if tail is not None:
        region, code, given = tail
        words = [
            (address(one) if one is not None else 0, *steps)
            for one, steps in zip((out, None, *given), region.steps, strict=True)
        ]
        operands = np.array(words, np.int64).reshape(-1)
        own = address_of(code.call), address(operands), len(words)
    threaded = sizes.batch * sizes.rows * sizes.terms * sizes.columns >= _THREADED
    count = shares.panels * shares.blocks * sizes.batch
    last = sizes.rows - (shares.blocks - 1) * shares.each
    floats = room_for(shares.tile, lanes, max(shares.each, last))
    room = pool.empty((floats * (usable_cpus() if threaded else 1),), np.float32)
    taken = np.zeros(2, np.int64)
    job = np.array(
        [
            *(address(x), address(y), address(out), *own),
            *(count, shares.panels, shares.blocks),
            *(shares.each, sizes.rows, sizes.columns, sizes.terms),
            *(sizes.terms, y.strides[-2] // 4, sizes.columns),
            sizes.rows * sizes.terms,
            0 if sizes.shared else sizes.terms * sizes.columns,
            sizes.rows * sizes.columns,
        ],
        np.int64,
    )
    told = packed(address(job), address(room), floats, address(taken))
    kernel(told, threaded=threaded and count > 1)


def multiply(x: Array, y: Array, out: Array) -> None:
    """`numpy.matmul` of two matrices into a third, which lies element by element."""
    sizes = Sizes(1, x.shape[0], x.shape[1], y.shape[1], True)
    shares = shares_for(sizes)
    plain = x.dtype == np.float32 and x.flags.c_contiguous and out.flags.c_contiguous
    if shares is None or not plain or not _lies_well(sizes, y):
        np.matmul(x, y, out=out)
        return
    kernel = product_kernels.ready(shares.tile)
    if kernel is not None:
        computed(kernel, sizes, shares, x, y, out)
        return
    begun = perf_counter()
    np.matmul(x, y, out=out)
    product_kernels.spent(shares.tile, perf_counter() - begun)


def shares_for(sizes: Sizes) -> Shares | None:
    """How a product is shared out; None where it is BLAS's."""
    if not product_kernels.is_open or product_kernels.why_not:
        return None
    lanes = library.processor().nbytes // 4
    return _shares(sizes, lanes, usable_cpus())


@lru_cache(maxsize=256)
def _shares(sizes: Sizes, lanes: int, threads: int) -> Shares | None:
    if sizes.batch * sizes.rows * sizes.terms * sizes.columns < LEAST:
        return None
    return shares_of(sizes, lanes, threads)


def _lies_well(sizes: Sizes, y: Array) -> bool:
    """Do rows of the right matrix lie element by element, and matrices in a row?"""
    if not sizes.shared:
        return y.flags.c_contiguous
    row, column = y.strides
    return column == 4 and row >= 4 * sizes.columns and row % 4 == 0


class ProductCall:
    """A product as a function of its operands, and of what a tail reads beside it.

    slowly   the same by NumPy: (operands, what else is read) → the result
    """

    def __init__(
        self,
        inputs: Types,
        shape: Shape,
        slowly: Callable[..., Array],
        tail: Tail | None = None,
    ) -> None:
        sizes = sizes_of(inputs[0].shape, inputs[1].shape)
        assert sizes is not None  # `is_open` asked
        shares = shares_for(sizes)
        assert shares is not None
        self.sizes, self.shares, self.shape = sizes, shares, shape
        self.slowly, self.tail = slowly, tail

    def __call__(self, attrs: object, x: Array, y: Array, *rest: Array) -> Array:
        kernel = product_kernels.ready(self.shares.tile)
        code = None if self.tail is None else region_kernels.ready(self.tail.region)
        there = kernel is not None and (self.tail is None or code is not None)
        if kernel is not None and there and _lies_well(self.sizes, y):
            tail = None
            if self.tail is not None and code is not None:
                tail = self.tail, code, [np.ascontiguousarray(one) for one in rest]
            out = pool.empty(self.shape, np.float32)
            x = np.ascontiguousarray(x)
            computed(kernel, self.sizes, self.shares, x, y, out, tail)
            return out
        begun = perf_counter()
        made = self.slowly(attrs, x, y, *rest)
        spent = perf_counter() - begun
        product_kernels.spent(self.shares.tile, spent)
        if self.tail is not None:
            region_kernels.spent(self.tail.region, spent)
        return made


def is_joined(function: object) -> bool:
    """Is it a product with what is done after it?"""
    return isinstance(function, ProductCall) and function.tail is not None


def _planned(inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Array]:
    reference = registry.get("matmul").reference

    def slowly(attrs: Attrs, x: Array, y: Array) -> Array:
        made: Array = reference(np, attrs, x, y)
        return made

    return ProductCall(inputs, out.shape, slowly)


def joined(
    graph: Graph, product: Work, region: Work, by_region: RegionCall
) -> Work | None:
    """A product and the region that alone reads it as one call; None where they
    cannot be.
    """
    node, function, inputs = product
    assert isinstance(function, ProductCall)
    reads = region[2]
    tail = tail_of(graph, node, by_region.region.ids, reads)
    if tail is None:
        return None

    def slowly(attrs: Attrs, x: Array, y: Array, *rest: Array) -> Array:
        known = dict(
            zip(tail.reads, (function.slowly(attrs, x, y), *rest), strict=True)
        )
        return by_region(attrs, *(known[i] for i in reads))

    types = tuple(graph.node(i).type for i in inputs)
    call = ProductCall(types, region[0].type.shape, slowly, tail)
    return region[0], call, (*inputs, *tail.reads[1:])


COMPILED: Final = (
    Variant("matmul, compiled", "matmul", is_open, _planned, planned=True),
)
"""The row, before NumPy's."""
