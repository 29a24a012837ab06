"""Input, param, constant: values that are given, not computed.

A graph adds its leaves itself (`Graph.input`, `.param`, `.constant`), because a leaf's
type comes from the caller and not from operands. The records are here so that every
node of a graph has one in the registry. Knows nothing of where the values live.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rlxweb.bfloat16 import held
from rlxweb.errors import GraphError
from rlxweb.ir.lowering import Leaf
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, no_flops, registry


def _made_by_graph(types: Types, attrs: Attrs) -> TensorType:
    raise GraphError(
        "",
        "a leaf is not added by name",
        hint="call the graph's input, param or constant method",
    )


def _given(xp: Any, attrs: Attrs) -> Any:
    raise GraphError(
        "evaluate a leaf",
        "its value is given by the caller, not computed",
        hint="feed inputs and params by name; constants lie in the graph",
    )


_leaf = partial(
    Op,
    arity=0,
    infer=_made_by_graph,
    reference=_given,
    lower=Leaf(),
    attrs=(Attr("name", "str"),),
    traits=frozenset({"leaf"}),
    flops=no_flops,
)

registry.register_all(
    _leaf(name="input", doc="A value given at every run."),
    _leaf(name="param", doc="A value set once and kept."),
    _leaf(
        name="constant",
        reference=lambda xp, attrs: xp.asarray(held(attrs["value"].array)),
        attrs=(Attr("value", "any"),),
        doc="An array of the graph.",
    ),
)
