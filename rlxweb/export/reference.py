"""What a graph must give, and how far a page may be from it: NumPy in float64.

The allowance is measured, not guessed: every step is computed again with errors as
large as its op's tolerance allows, and what comes out of that is how far a right engine
may end. Integers and bools must be equal; where rounding alone decides them, that is
told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.agreement import allowed_of, in_double, oracle, rounding
from rlxweb.backends.protocol import Array
from rlxweb.ir.dtype import DType, cast_to
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Tolerance, registry

TRIES = 3
"""How often the steps are computed with errors of another sign and size."""
# How many times what those brought out, and what NumPy in float32 is off by.
_SPREAD, _ROUNDING = 2.0, 8.0
_LEAST = Tolerance(rtol=1e-6)


@dataclass(frozen=True, slots=True)
class Expected:
    """One output of one case.

    array      in the output's own dtype
    rtol, atol |got - want| <= atol + rtol * |want|; both 0: equal
    is_stable  no rounding decides an integer or a bool of it
    """

    array: Array
    rtol: float
    atol: float
    is_stable: bool = True

    @property
    def is_finite(self) -> bool:
        return self.array.dtype.kind != "f" or bool(np.isfinite(self.array).all())


def expected(graph: Graph, feeds: Mapping[str, Array]) -> list[Expected]:
    """Every output of a graph on these inputs and params.

    Errors   IndexRefused, InputError: what the ops refuse of their operands.
    """
    with np.errstate(all="ignore"):
        exact, off = oracle(graph, feeds), rounding(graph, feeds)
    shaken = [_shaken(graph, feeds, seed) for seed in range(TRIES)]
    found = []
    for at, node_id in enumerate(graph.outputs):
        node = graph.node(node_id)
        others = [one[at] for one in shaken]
        found.append(_one(node, exact[at], off[at], others))
    return found


def _one(
    node: Node, exact: Array, off: Array, shaken: Sequence[NDArray[Any]]
) -> Expected:
    kind = node.type.dtype
    with np.errstate(all="ignore"):
        want = np.ascontiguousarray(cast_to(exact, kind))
    if not kind.is_float:
        is_stable = all(np.array_equal(one, exact) for one in shaken)
        return Expected(want, 0.0, 0.0, is_stable)
    own = allowed_of(kind, registry.get(node.op).tolerance)
    right = exact.astype(np.float64)
    peak = _most(np.abs(right)) if own.relative_to_peak else 1.0
    rtol = max(own.rtol, _LEAST.rtol)
    with np.errstate(invalid="ignore"):
        # Where the allowance of the op is not enough, as much as is missing there.
        relative = rtol * np.abs(right)
        least = [_most(_SPREAD * np.abs(one - right) - relative) for one in shaken]
        least.append(_most(_ROUNDING * off - relative))
    return Expected(want, rtol, max(own.atol * peak, *least))


def _most(values: NDArray[Any]) -> float:
    """The largest that is finite; 0 where none is."""
    finite = values[np.isfinite(values)]
    return float(finite.max(initial=0.0))


def _shaken(graph: Graph, feeds: Mapping[str, Array], seed: int) -> list[NDArray[Any]]:
    """The outputs, where every step is off by what its op may be."""
    rng = np.random.default_rng(seed)
    values: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for node in graph.nodes():
            values[node.id] = _value(node, values, feeds, rng)
    return [np.asarray(values[i]) for i in graph.outputs]


def _value(
    node: Node,
    values: Mapping[int, Any],
    feeds: Mapping[str, Array],
    rng: np.random.Generator,
) -> Any:
    is_float = node.type.dtype.is_float
    if node.op in ("input", "param"):
        value = np.asarray(feeds[node.name])
        return in_double(value) if is_float else value
    attrs = dict(node.attrs)
    if attrs.get("to") in (DType.BF16, DType.F16, DType.F32):
        attrs["to"] = DType.F64
    op = registry.get(node.op)
    value = np.asarray(op.reference(np, attrs, *(values[i] for i in node.inputs)))
    if not is_float:
        return value
    value = value.astype(np.float64)
    own = allowed_of(node.type.dtype, op.tolerance)
    if not (own.rtol or own.atol):
        return value
    peak = _most(np.abs(value)) if own.relative_to_peak else 1.0
    signs = rng.uniform(-1.0, 1.0, value.shape)
    return value + signs * (own.rtol * np.abs(value) + own.atol * peak)
