"""Products with weights in a browser, shared with Workers, and what is done after them.

An elementwise region that alone reads such a product is done part by part where the
product is made: a bias, an activation, what is added to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.cpu_products import Tail
from rlxweb.backends.cpu_regions import Region
from rlxweb.backends.cpu_tails import Tailed, tail_of
from rlxweb.host.variants import Variant
from rlxweb.host.wasm_products import Product, is_open, may_share
from rlxweb.host.wasm_shared import MOST_OPERANDS, Done, fits
from rlxweb.host.workers import Place, workers
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.machine.making import fast_mode
from rlxweb.machine.wasm import IN_A_TAB
from rlxweb.machine.workshop import WasmWorkshop, Workshop

Array = NDArray[Any]


class SharedRegion(NamedTuple):
    """Its place in the tables of all threads, and its module in their memory."""

    place: int
    module: Place


def _made(about: object) -> SharedRegion:
    """Errors  Unsupported; MemoryError where it has no place."""
    from rlxweb.backends.wasm_region_text import region_module

    assert isinstance(about, Region)
    what = about.graph, about.ids, about.reads, about.spread
    there = workers()
    made = there and there.region(region_module(*what, shared=True))
    if not made:
        raise MemoryError("the Workers of this page have no place for another region")
    return SharedRegion(*made)


shared_regions: Workshop[SharedRegion] = WasmWorkshop(_made, fast_mode)
"""The regions that Workers know."""


class SharedCall(Tailed):
    """A product of matrices, the right one a weight.

    product  the same without a tail
    """

    def __init__(
        self, product: Product, shape: tuple[int, ...], slowly: Callable[..., Array]
    ) -> None:
        super().__init__(shape, slowly)
        self.product = product

    def __call__(self, attrs: Attrs, x: Array, y: Array, *rest: Array) -> Array:
        if self.tail is None:
            return self.slowly(attrs, x, y)
        code = shared_regions.ready(self.tail.region)
        if code is not None:
            others = [np.ascontiguousarray(one) for one in rest]
            done = Done(code.place, self.tail.steps, others)
            made = self.product.by_all(x, y, done)
            if made is not None:
                return made
        begun = perf_counter()
        made = self.slowly(attrs, x, y, *rest)
        if self.product.is_shared:
            shared_regions.spent(self.tail.region, perf_counter() - begun)
        return made

    def tail_of(
        self, graph: Graph, node: Node, ids: Sequence[int], reads: Sequence[int]
    ) -> Tail | None:
        found = tail_of(graph, node, ids, reads)
        if found is None or len(found.steps) > MOST_OPERANDS:
            return None
        return found if fits(self.shape[-1]) else None


def _open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Are there Workers, or will there be, and is it worth them?"""
    if not IN_A_TAB or not is_open(inputs, out, attrs):
        return False
    return may_share(inputs, out) and workers() is not None


def _planned(inputs: Types, out: TensorType, attrs: Attrs) -> SharedCall:
    product = Product(inputs, out, attrs)
    return SharedCall(product, out.shape, product)


SHARED: Final = (Variant("matmul, by Workers too", "matmul", _open, _planned, True),)
"""The row, before that of one thread."""
