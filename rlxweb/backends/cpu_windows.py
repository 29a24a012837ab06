"""Convolutions of float32 on the CPU as products with windows that are gathered.

The windows of a panel are laid side by side in a thread's own room, so no array of all
of them is made; positions of all images are the columns of one product. A bias for each
channel and an activation are done with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.cpu_products import (
    Gathered,
    Shares,
    Sizes,
    Tail,
    shares_for,
)
from rlxweb.backends.cpu_regions import Region
from rlxweb.backends.cpu_tails import Compiled, may_follow
from rlxweb.host.convolution import with_padding
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.layout import row_major
from rlxweb.ir.shape import Shape
from rlxweb.recipes.conv_calls import Convolution

Array = NDArray[Any]

MOST_PLACES: Final = (1 << 31) - 1
"""Elements that a table of places can tell."""


def sizes_of(one: Convolution) -> Sizes:
    """A product for each group: channels, terms of a window, all images' positions."""
    (c, m), w = one.channels, one.windows
    return Sizes(one.groups, m, c * prod(w.kernel), one.batch * prod(w.out), False)


def shares_of(one: Convolution) -> Shares | None:
    """How it is shared out; None where it is no work for this way."""
    elements = one.batch * one.groups * one.channels[0] * prod(one.windows.reach)
    results = one.batch * one.groups * one.channels[1] * prod(one.windows.out)
    return shares_for(sizes_of(one)) if max(elements, results) <= MOST_PLACES else None


@lru_cache(maxsize=64)
def _places(one: Convolution) -> Gathered:
    (c, m), w = one.channels, one.windows
    steps = row_major((one.batch, one.groups, c, *w.reach))
    positions = prod(w.out)

    def spread(*axes: tuple[int, int]) -> NDArray[np.int32]:
        """Places of all steps along some axes, (count, elements apart)."""
        made = np.zeros(1, np.int64)
        for count, apart in axes:
            made = (made[:, None] + np.arange(count) * apart).reshape(-1)
        return made.astype(np.int32)

    taps = [
        (k, d * step)
        for k, d, step in zip(w.kernel, w.dilations, steps[3:], strict=True)
    ]
    moves = [
        (o, s * step) for o, s, step in zip(w.out, w.strides, steps[3:], strict=True)
    ]
    return Gathered(
        spread((c, steps[2]), *taps),
        spread((one.batch, steps[0]), *moves),
        spread((one.batch, one.groups * m * positions), (positions, 1)),
        steps[1],
        positions,
        m * positions,
    )


class ConvCall(Compiled):
    """A convolution of an array [N, C, …] and weights."""

    def __init__(
        self,
        one: Convolution,
        shares: Shares,
        shape: Shape,
        slowly: Callable[..., Array],
    ) -> None:
        super().__init__(sizes_of(one), shares, shape, slowly, _places(one))
        self.one = one

    def given(self, x: Array, y: Array) -> tuple[Array, Array]:
        """The weights, and the array in its padding."""
        x = x.reshape(*x.shape[:2], *self.one.windows.size)
        return np.ascontiguousarray(y), with_padding(x, self.one.windows)

    def tail_of(
        self, graph: Graph, node: Node, ids: Sequence[int], reads: Sequence[int]
    ) -> Tail | None:
        """With operands that are one number, or one for each channel."""
        if not may_follow(graph, node, ids, reads):
            return None
        ordered = (node.id, *(i for i in reads if i != node.id))
        m, width = self.sizes.rows, 4
        steps = [(0, 0, 0), (0, 0, 0)]
        for i in ordered[1:]:
            kind = graph.node(i).type
            rank = node.type.rank
            shape = (1,) * (rank - kind.rank) + tuple(kind.shape)
            if prod(shape) not in (1, shape[1]):
                return None
            width = kind.dtype.numpy.itemsize if prod(shape) > 1 else 0
            steps.append((width, 0, width * m))
        spread = (False, *(True for _ in ordered[1:]))
        region = Region.of(graph, ids, ordered, spread)
        return Tail(region, ordered, tuple(steps))
