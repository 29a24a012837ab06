"""An elementwise region as one loop of machine code, from what its ops declare.

The expressions are those of the shaders, read by `machine/wgsl.py`; an operand is read
along the innermost axis or is one number for all of it. What cannot be said in vectors
of 32 bits is refused, and NumPy computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from rlxweb.errors import Unsupported
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import registry
from rlxweb.kernels.expression import expression
from rlxweb.kernels.source import shader_text, with_needs
from rlxweb.machine import library
from rlxweb.machine.jobs import job_text
from rlxweb.machine.lowering import Lowering
from rlxweb.machine.text import Shape, Value, Whole, Writer
from rlxweb.machine.trees import Of, Result, Walk
from rlxweb.machine.wgsl import Function, Library, library_of, tree_of

KINDS: Final = {
    DType.F32: "F",
    DType.F16: "F",
    DType.I32: "I",
    DType.U32: "U",
    DType.BOOL: "B",
}
# What an expression that is right on any GPU may leave out, and NumPy does not.
_BY_NUMPY: Final = {"pow": "its expression takes denormal numbers for 0"}
# What an expression takes pains with on a GPU, and a processor does by itself.
_BY_PROCESSOR: Final = {"round_divide": Expr("round(x / y)")}
_STORED: Final = {"F": "float", "H": "half", "I": "i32", "U": "i32", "B": "i8"}
_SIZE: Final = {"float": 4, "half": 2, "i32": 4, "i8": 1}
_SIGNATURE: Final = "void @region(ptr noalias %job, i64 %outer, i64 %inner)"


@lru_cache(maxsize=64)
def library_for(uses: tuple[str, ...]) -> Library:
    """The functions that expressions may call."""
    functions: dict[str, Function] = {}
    records: dict[str, tuple[str, ...]] = {}
    for name in with_needs(uses):
        part = library_of(shader_text(f"include/{name}"))
        functions |= part.functions
        records |= part.records
    return Library(functions, records)


def region_text(
    graph: Graph,
    ids: Sequence[int],
    reads: Sequence[int],
    spread: Sequence[bool],
    nbytes: int,
) -> str:
    """@region(job, outer, inner): so many rows of so many elements, lanes at least; and
    @region_job, as `machine/jobs.py` says.

    job      addresses of the output and of each read, then their bytes from row to row
    reads    the nodes that are read
    spread   which of them are one number for a whole row
    nbytes   of a vector
    Errors   Unsupported.
    """
    nodes = [graph.node(i) for i in ids]
    uses: dict[str, None] = {}
    for node in nodes:
        uses |= dict.fromkeys(declared(node).uses)
    shape = Shape("float", nbytes // 4)
    w = Writer(_SIGNATURE, shape)
    to = Lowering(w, library_for(tuple(uses)))
    kinds = [stored_as(graph.node(i)) for i in (ids[-1], *reads)]
    bases = [w.one("%job", k, "ptr") for k in range(len(kinds))]
    steps = [w.one("%job", len(kinds) + k, "i64") for k in range(len(kinds))]
    some = w.let(f"udiv i64 {w.sum('%inner', shape.lanes - 1)}, {shape.lanes}")
    last = w.difference("%inner", shape.lanes)

    def row(i: Whole) -> None:
        rows = [
            w.at(base, w.multiple(i, step), "i8")
            for base, step in zip(bases, steps, strict=True)
        ]
        both = list(zip(reads, kinds[1:], rows[1:], spread, strict=True))
        fixed = {n: _one(to, kind, at) for n, kind, at, is_one in both if is_one}

        def vector(j: Whole) -> None:
            # What is left of a row is done with some of what was done before.
            first = w.least(w.multiple(j, shape.lanes), last)
            loaded = {
                n: _load(to, kind, at, first)
                for n, kind, at, is_one in both
                if not is_one
            }
            made = value_of(to, graph, nodes, {**fixed, **loaded})
            _store(to, made, kinds[0], rows[0], first)

        w.loop(some, vector)

    w.loop("%outer", row)
    w.say("ret void")
    return w.text + job_text(_SIGNATURE)


def why_not(nodes: Sequence[Node]) -> str:
    """Why elementwise nodes cannot be said in vectors of 32 bits; "" where they can."""
    try:
        for node in nodes:
            declared(node)
            kind_of(node)
    except Unsupported as error:
        return str(error)
    return ""


def declared(node: Node) -> Expr:
    """What is computed for a node. Errors  Unsupported."""
    lower = registry.get(node.op).lower
    if not isinstance(lower, Expr) or not registry.is_ours(node.op):
        raise Unsupported(f"compile {node}", "it is no expression of ours")
    if node.op in _BY_NUMPY:
        raise Unsupported(f"compile {node}", _BY_NUMPY[node.op])
    return _BY_PROCESSOR.get(node.op, lower)


def kind_of(node: Node) -> str:
    """The kind of its values. Errors  Unsupported."""
    kind = KINDS.get(node.type.dtype)
    if kind is None or (node.type.dtype is DType.F16 and not library.has_halves()):
        raise Unsupported(f"compile {node}", f"{node.type.dtype} is computed by NumPy")
    return kind


def stored_as(node: Node) -> str:
    """The kind of its values in memory: H is half of an F. Errors  Unsupported."""
    return "H" if node.type.dtype is DType.F16 else kind_of(node)


def value_of(to: Walk, graph: Graph, nodes: Sequence[Node], known: dict[int, Of]) -> Of:
    """The last node's value, each node's once."""
    for node in nodes:
        kind, types = kind_of(node), tuple(graph.node(i).type for i in node.inputs)
        names: dict[str, Result] = {}
        for i in node.inputs:
            names[f"v{i}"] = known[i] if i in known else _literal(to, graph.node(i))
        operands = [f"v{i}" for i in node.inputs]
        dtypes = [one.dtype for one in types]
        text = expression(declared(node), operands, dtypes, node, (types, node.type))
        found = to.of(tree_of(text), names)
        made = to.converted(kind, found)
        known[node.id] = to.rounded(made) if node.type.dtype is DType.F16 else made
    return known[nodes[-1].id]


def _literal(to: Walk, node: Node) -> Of:
    if not node.is_literal:
        raise Unsupported(f"compile {node}", "it is no number")
    value = node.attrs["value"].array.reshape(-1)[0].item()
    return to.splat(kind_of(node), value)


def _load(to: Lowering, kind: str, base: Value, index: Whole) -> Of:
    stored = _STORED[kind]
    vector = f"<{to.w.shape.lanes} x {stored}>"
    where = to.w.at(base, index, stored)
    found = to.w.let(f"load {vector}, ptr {where}, align {_SIZE[stored]}")
    return _read(to, kind, found, vector)


def _one(to: Lowering, kind: str, where: Value) -> Of:
    stored = _STORED[kind]
    vector = f"<{to.w.shape.lanes} x {stored}>"
    found = to.w.spread(to.w.one(where, 0, stored), stored)
    return _read(to, kind, found, vector)


def _read(to: Lowering, kind: str, found: Value, vector: str) -> Of:
    if kind == "H":
        return Of("F", to.w.let(f"fpext {vector} {found} to {to.w.shape.vector}"))
    return Of(kind, _as_truth(to, found, vector) if kind == "B" else found)


def _as_truth(to: Lowering, value: Value, vector: str) -> Value:
    return to.w.let(f"icmp ne {vector} {value}, zeroinitializer")


def _store(to: Lowering, made: Of, kind: str, base: Value, index: Whole) -> None:
    stored, value = _STORED[kind], made.value
    vector = f"<{to.w.shape.lanes} x {stored}>"
    if made.kind == "B":
        value = to.w.let(f"zext {to.type_of('B')} {value} to {vector}")
    if kind == "H":
        value = to.w.let(f"fptrunc {to.w.shape.vector} {value} to {vector}")
    where = to.w.at(base, index, stored)
    to.w.say(f"store {vector} {value}, ptr {where}, align {_SIZE[stored]}")
