"""Leaf ops input, param and constant, whose values are supplied rather than computed.

A graph adds its leaves itself (`Graph.input`, `.param`, `.constant`), because a leaf's
type comes from the caller and not from operands. The records are here so that every
node of a graph has one in the registry. Knows nothing of where the values live.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rlxweb.core.bfloat16 import widen_bfloat16
from rlxweb.core.errors import GraphError
from rlxweb.ir.lowering import Leaf
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, no_flops, registry


def _refuse_inference(types: Types, attrs: Attrs) -> TensorType:
    """Raise an error, because leaves are not added by name."""
    raise GraphError(
        "",
        "an input, param or constant cannot be added by op name",
        hint="call the graph's input, param or constant method",
    )


def _refuse_evaluation(xp: Any, attrs: Attrs) -> Any:
    """Raise an error, because the caller supplies the value of a leaf."""
    raise GraphError(
        "evaluate an input or param",
        "the caller passes the value; it is not computed",
        hint="pass the values of inputs and params by name",
    )


_leaf_op = partial(
    Op,
    arity=0,
    infer=_refuse_inference,
    reference=_refuse_evaluation,
    lower=Leaf(),
    attrs=(Attr("name", "str"),),
    traits=frozenset({"leaf"}),
    flops=no_flops,
)

registry.register_all(
    _leaf_op(name="input", doc="A value passed to every run."),
    _leaf_op(name="param", doc="A value that is set once and used in every run."),
    _leaf_op(
        name="constant",
        reference=lambda xp, attrs: xp.asarray(widen_bfloat16(attrs["value"].array)),
        attrs=(Attr("value", "any"),),
        doc="An array stored in the graph.",
    ),
)
