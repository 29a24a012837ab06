"""Save a graph as a model of ONNX: what is built here, others run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rlxweb.compile.rewrites import composition, rebuild
from rlxweb.errors import InputError, Unsupported, shown
from rlxweb.ir.fitting import fitted, unknown
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import registry
from rlxweb.ir.output_names import output_names
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.verify import verify
from rlxweb.onnx import library
from rlxweb.onnx.writer import Writer, form_of
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.whole_file import written_to

Array = npt.NDArray[Any]

OPSET = 21
OPSETS = (20, 25)
"""The versions that can be written, least and most."""
_ROUNDS = 32


def save(
    graph: Graph | CompiledGraph,
    file: str | PathLike[str] | IO[bytes],
    params: Mapping[str, Any] | None = None,
    *,
    outputs: Sequence[str] | None = None,
    opset: int = OPSET,
) -> None:
    """Write a graph with its params as a model of ONNX.

    graph    a Graph, or a CompiledGraph, whose params are written as they are set
    file     a path, where it appears whole or not at all; or an open binary file
    params   arrays by name, for a Graph
    outputs  names of the outputs; None: out0, out1 … or what the nodes are called
    opset    the version of ONNX's ops, 20 to 25

    ONNX's checker looks at the model before it is written. Ops that ONNX has not are
    written as others; where it says nothing (a float beyond an integer type, an index
    outside its table) other programs may do otherwise than rlxweb.
    Errors   Unsupported, which names every op that has no form in ONNX, and for a graph
    of more than 2 GiB; InputError for a param without a value; UnknownName, DTypeError,
    ShapeError.

    Example  rlx.onnx.save(graph, "model.onnx", {"w": w})
    """
    if isinstance(graph, CompiledGraph):
        params = graph.params() if params is None else params
        graph = graph.graph
    doing = f"save graph {shown(graph.name)} as ONNX"
    library.package(doing)
    verify(graph)
    if not OPSETS[0] <= opset <= OPSETS[1]:
        raise Unsupported(
            doing, f"opset {opset}", f"{OPSETS[0]} to {OPSETS[1]} can be written"
        )
    names = output_names(graph, outputs, doing)
    arrays = _checked(graph, params or {}, doing)
    data = _written(_in_forms(graph, opset, doing), names, arrays, opset, doing)
    with written_to(file, doing) as out:
        out.write(data)


def _checked(graph: Graph, params: Mapping[str, Any], doing: str) -> dict[str, Array]:
    """An array for every param of the graph."""
    known, found = graph.named("param"), {}
    for name in params:
        if name not in known:
            raise unknown(doing, "param", str(name), known)
    for name, node in known.items():
        at = f"{doing}, param '{name}'"
        if name not in params:
            raise InputError(at, "it has no value", "a model holds its weights")
        found[name] = fitted(at, params[name], node.type)
    return found


def _in_forms(graph: Graph, opset: int, doing: str) -> Graph:
    """The graph of ops that have a form. Errors  Unsupported, naming all that have not.

    An op without one is replaced by those that it is composed of.
    """

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        how = composition(registry.get(node.op))
        if node.id not in foreign or how is None:
            return out.copied(node, operands)
        made: Tensor = how.build(out, node.attrs, *operands)
        return made

    for _ in range(_ROUNDS):
        w = Writer(graph, opset)
        foreign = {n.id: n.op for n in graph.nodes() if not _has_form(w, n)}
        open_ = {op for op in foreign.values() if composition(registry.get(op))}
        if not open_:
            break
        graph = rebuild(graph, rewrite)
    if foreign:
        counts = Counter(foreign.values())
        raise Unsupported(
            doing,
            "ONNX has no form for "
            + ", ".join(f"{o} ({n})" for o, n in counts.items()),
            f"opset {opset}",
            "save it with graph.save, or leave these to another graph",
        )
    return graph


def _has_form(w: Writer, node: Node) -> bool:
    return registry.get(node.op).has("leaf") or form_of(w, node) is not None


def _written(
    graph: Graph,
    names: Sequence[str],
    params: Mapping[str, Array],
    opset: int,
    doing: str,
) -> bytes:
    leaves = {n.name for n in graph.nodes() if n.op in ("input", "param")}
    w = Writer(graph, opset, taken=frozenset(leaves | {*names}))
    values: dict[int, str] = {}
    for node in graph.nodes():
        operands = [values[i] for i in node.inputs]
        if node.op in ("input", "param"):
            values[node.id] = node.name
        elif node.op == "constant":
            values[node.id] = w.hold(node.attrs["value"].array)
        else:
            form = form_of(w, node)
            assert form is not None
            values[node.id] = form(w, node, *operands)
    for name, at in zip(names, graph.outputs, strict=True):
        w.nodes.append(library.made_node("Identity", [values[at]], [name], {}))
    inputs = [(n.name, n.type) for n in graph.named("input").values()]
    outs = [(n, graph.node(i).type) for n, i in zip(names, graph.outputs, strict=True)]
    weights = {**{n: np.asarray(a) for n, a in params.items()}, **w.weights}
    return library.made_model(
        graph.name, w.nodes, (_kinds(inputs), _kinds(outs)), weights, opset, doing
    )


def _kinds(values: Any) -> list[tuple[str, np.dtype[Any], tuple[int, ...]]]:
    return [(name, kind.dtype.numpy, kind.shape) for name, kind in values]
