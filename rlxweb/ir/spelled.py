"""One op where a graph spells it out in several.

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
class Found:
    """A node whose value one op gives of earlier ones.

    reads         ids of the values that it takes
    types, attrs  the op's own, by which a device tells whether it has it; attributes
                  that are left out have their defaults
    build         (graph, those values) → the node's value, in shape and dtype
    """

    reads: tuple[int, ...]
    types: Types
    attrs: Attrs
    build: Callable[[Graph, tuple[Tensor, ...]], Tensor]


Spelled = Callable[[Graph, Node, Mapping[int, int]], Found | None]
"""(graph, a node, how many read each value) → what it is, or None"""


def only_read_here(graph: Graph, id_: int, uses: Mapping[int, int]) -> Node | None:
    """The node of a value that one node reads and nobody else; else None."""
    is_out = id_ in graph.outputs
    return None if is_out or uses.get(id_, 0) != 1 else graph.node(id_)
