"""Products of float32 with what is done with them after, as calls of a program.

A product that only an elementwise region reads is made together with it: the product
itself never leaves the caches. BLAS computes until the code is there, and what the code
is not better at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.cpu_panels import PANELS
from rlxweb.backends.cpu_products import (
    Done,
    Gathered,
    Kind,
    Shares,
    Sizes,
    Tail,
    computed,
    lies_well,
    product_kernels,
    shares_for,
    sizes_of,
)
from rlxweb.backends.cpu_region_text import KINDS, why_not
from rlxweb.backends.cpu_regions import (
    Region,
    RegionCall,
    RegionCode,
    region_kernels,
    rows_of,
)
from rlxweb.host.arrays import pool
from rlxweb.host.laid_out import Steady
from rlxweb.host.variants import Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape import Shape
from rlxweb.machine.products import MOST_OPERANDS

Array = NDArray[Any]
Work = tuple[Node, Callable[..., Any], tuple[int, ...]]

_FEW_ROWS: Final = 96
"""Up to which weights are read about as often as they come from memory: they are kept
in panels as well.
"""


def is_open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Of float32, and large enough."""
    if any(one.dtype is not DType.F32 for one in inputs):
        return False
    sizes = sizes_of(inputs[0].shape, inputs[1].shape)
    return sizes is not None and shares_for(sizes) is not None


def may_follow(
    graph: Graph, product: Node, ids: Sequence[int], reads: Sequence[int]
) -> bool:
    """Is a region of the product's shape, float32, and can it be said?"""
    out = graph.node(ids[-1]).type
    kinds = {graph.node(i).type.dtype for i in reads}
    known = kinds <= set(KINDS) and not why_not([graph.node(i) for i in ids])
    same = out.shape == product.type.shape and out.dtype is DType.F32
    return known and same and len(reads) < MOST_OPERANDS


def tail_of(
    graph: Graph, product: Node, ids: Sequence[int], reads: Sequence[int]
) -> Tail | None:
    """The region as what is done with a product; None where it does not fit."""
    out = graph.node(ids[-1])
    sizes = sizes_of(*(graph.node(i).type.shape for i in product.inputs))
    if sizes is None or not may_follow(graph, product, ids, reads):
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
    region = Region.of(graph, ids, ordered, rows.spread)
    return Tail(region, ordered, tuple(told))


class Tailed(ABC):
    """A product as a function of its operands, and of what a tail reads beside it.

    slowly  the same by other means: (operands, what else is read) → the result
    """

    def __init__(self, shape: Shape, slowly: Callable[..., Array]) -> None:
        self.shape, self.slowly = shape, slowly
        self.tail: Tail | None = None
        self.code: RegionCode | None = None  # of the tail; stays as long as its call

    @abstractmethod
    def __call__(self, attrs: Attrs, x: Array, y: Array, *rest: Array) -> Array:
        """The product, or what is done with it."""

    @abstractmethod
    def tail_of(
        self, graph: Graph, node: Node, ids: Sequence[int], reads: Sequence[int]
    ) -> Tail | None:
        """A region as what is done with it; None where it does not fit."""

    def with_tail(
        self, tail: Tail, shape: Shape, slowly: Callable[..., Array]
    ) -> Tailed:
        """The same with what is done after it."""
        made = copy(self)
        made.tail, made.shape, made.slowly = tail, shape, slowly
        made.code = None
        return made


class Compiled(Tailed):
    """By compiled code, once that is there.

    places  where the right matrix and the result lie if they are no matrices
    """

    def __init__(
        self,
        sizes: Sizes,
        shares: Shares,
        shape: Shape,
        slowly: Callable[..., Array],
        places: Gathered | None = None,
    ) -> None:
        super().__init__(shape, slowly)
        self.sizes, self.shares, self.places = sizes, shares, places
        self.kind = Kind(shares.tile, places is not None)

    def __call__(self, attrs: Attrs, x: Array, y: Array, *rest: Array) -> Array:
        kernel = product_kernels.ready(self.kind)
        code = self.code
        if code is None and self.tail is not None:
            code = self.code = region_kernels.ready(self.tail.region)
        there = kernel is not None and (self.tail is None or code is not None)
        given = self.given(x, y) if there else None
        if kernel is not None and given is not None:
            done = None
            if self.tail is not None and code is not None:
                others = [np.ascontiguousarray(one) for one in rest]
                done = Done(self.tail, code, others)
            out = pool.empty(self.shape, np.float32)
            how = self.sizes, self.shares, given, out, done, self.places
            computed(kernel, *how)
            return out
        begun = perf_counter()
        made = self.slowly(attrs, x, y, *rest)
        spent = perf_counter() - begun
        product_kernels.spent(self.kind, spent)
        if self.tail is not None:
            region_kernels.spent(self.tail.region, spent)
        return made

    @abstractmethod
    def given(self, x: Array, y: Array) -> tuple[Array, Array] | None:
        """The operands as the code takes them; None where they do not lie so."""


class ProductCall(Compiled):
    """A product of matrices.

    is_weight  the right one is the same from run to run, until a param is set
    """

    is_weight = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._steady = Steady()

    def given(self, x: Array, y: Array) -> tuple[Array, Array] | None:
        well = lies_well(self.sizes, y)
        few = self.sizes.rows <= _FEW_ROWS
        if self.is_weight and self.sizes.shared and (few or not well):
            root = self._steady.root(y)
            laid = None if root is None else PANELS.in_panels(root, y, self.shares)
            if laid is not None:
                return np.ascontiguousarray(x), laid
        return (np.ascontiguousarray(x), y) if well else None

    def tail_of(
        self, graph: Graph, node: Node, ids: Sequence[int], reads: Sequence[int]
    ) -> Tail | None:
        return tail_of(graph, node, ids, reads)


def is_joined(function: object) -> bool:
    """Is it a product with what is done after it?"""
    return isinstance(function, Tailed) and function.tail is not None


def _planned(inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Array]:
    reference = registry.get("matmul").reference

    def slowly(attrs: Attrs, x: Array, y: Array) -> Array:
        made: Array = reference(np, attrs, x, y)
        return made

    sizes = sizes_of(inputs[0].shape, inputs[1].shape)
    shares = None if sizes is None else shares_for(sizes)
    assert sizes is not None  # `is_open` asked
    assert shares is not None
    return ProductCall(sizes, shares, out.shape, slowly)


def joined(
    graph: Graph, product: Work, region: Work, by_region: RegionCall
) -> Work | None:
    """A product and the region that alone reads it as one call; None where they
    cannot be.
    """
    node, function, inputs = product
    assert isinstance(function, Tailed)
    reads = region[2]
    tail = function.tail_of(graph, node, by_region.region.ids, reads)
    if tail is None:
        return None

    def slowly(attrs: Attrs, x: Array, y: Array, *rest: Array) -> Array:
        made = function.slowly(node.attrs, x, y)
        known = dict(zip(tail.reads, (made, *rest), strict=True))
        return by_region(attrs, *(known[i] for i in reads))

    call = function.with_tail(tail, region[0].type.shape, slowly)
    return region[0], call, (*inputs, *tail.reads[1:])


COMPILED: Final = (
    Variant("matmul, compiled", "matmul", is_open, _planned, planned=True),
)
"""The row, before NumPy's."""
