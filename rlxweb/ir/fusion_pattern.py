"""Fusion patterns: several nodes of a graph that one op can replace.

Files of others know fewer ops than devices have kernels for: attention comes as two
products with a softmax between them. How an op looks that way is said on its record;
the compiler asks where one kernel beats many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Attrs, Types
from rlxweb.ir.tensor import Tensor


@dataclass(frozen=True, slots=True)
class FusionMatch:
    """Match of a fusion pattern: a node whose value one op computes from earlier
    values.

    input_ids     ids of the values that it takes
    types, attrs  the op's own, by which a device tells whether it has it; attributes
                  that are left out have their defaults
    build         (graph, those values) → the node's value, in shape and dtype
    """

    input_ids: tuple[int, ...]
    types: Types
    attrs: Attrs
    build: Callable[[Graph, tuple[Tensor, ...]], Tensor]


FusionPattern = Callable[[Graph, Node, Mapping[int, int]], FusionMatch | None]
"""Fusion pattern of an op: (graph, a node, number of readers of each value) → its
match, or None.
"""


def single_use_node(
    graph: Graph, value_id: int, uses: Mapping[int, int]
) -> Node | None:
    """Return the node of a value that has one reader and is no output; else None."""
    is_output = value_id in graph.outputs
    return None if is_output or uses.get(value_id, 0) != 1 else graph.node(value_id)
