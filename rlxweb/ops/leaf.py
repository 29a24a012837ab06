"""Input, param, constant: values that are given, not computed.

A graph adds its leaves itself (`Graph.input`, `.param`, `.constant`), because a leaf's
type comes from the caller and not from operands. The records are here so that every
node of a graph has one in the registry. Knows nothing of where the values live.
"""

from __future__ import annotations

from typing import Any

from rlxweb.errors import GraphError
from rlxweb.ir.lowering import Leaf
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, registry


def _made_by_graph(inputs: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
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


def _stored(xp: Any, attrs: Attrs) -> Any:
    return xp.asarray(attrs["value"].array)


def _leaf(name: str, attr: Attr, reference: Any, doc: str) -> Op:
    return Op(
        name=name,
        arity=0,
        infer=_made_by_graph,
        reference=reference,
        lower=Leaf(),
        attrs=(attr,),
        traits=frozenset({"leaf"}),
        flops=lambda inputs, out, attrs: 0.0,
        doc=doc,
    )


registry.register_all(
    [
        _leaf("input", Attr("name", "str"), _given, "A value given at every run."),
        _leaf("param", Attr("name", "str"), _given, "A value set once and kept."),
        _leaf("constant", Attr("value", "any"), _stored, "An array of the graph."),
    ]
)
