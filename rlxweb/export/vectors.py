"""Cases by which a page checks itself: inputs, and what must come of them.

    file, nbytes
    cases [{inputs  {name: [from, nbytes]}: as stored; where it is shorter than the
                    input, its bytes repeat from the beginning
            outputs {name: {from, nbytes, dtype, rtol, atol, repeats}}}]

|got - want| <= atol + rtol * |want| for every element whose `want` is finite; with both
0 they are equal. `repeats`: an output longer than what is stored repeats it, else only
so many elements are compared. Arrays are drawn from a seed, in a range in which every
index finds its row and every result is finite, if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlxweb.arguments import whole
from rlxweb.backends.protocol import Array
from rlxweb.backends.webgpu_buffers import as_stored
from rlxweb.backends.webgpu_narrow import held_as
from rlxweb.errors import InputError, RlxError, UsageError
from rlxweb.export.reference import Expected, expected
from rlxweb.export.weights import Weights
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.sample import Drawn

MOST_CASES = 16
STORED_BYTES = 1 << 20
"""Of one array of a case; a drawn input repeats what is stored, an output is cut."""
_TRIES = 4
# Whole numbers up to these, floats between those: wide first, then ever more careful.
_RANGES: tuple[tuple[int, float, float], ...] = (
    (8, -2.0, 2.0),
    (1, -1.0, 1.0),
    (1, 0.1, 1.0),
    (0, 0.1, 1.0),
    (0, 1.0, 2.0),
)


@dataclass(frozen=True, slots=True)
class Stored:
    """One output of a case as it is stored.

    repeats   the whole output is this again and again
    """

    array: Array
    rtol: float = 0.0
    atol: float = 0.0
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Vector:
    """One case; `notes` say what it does not prove."""

    inputs: dict[str, Array]
    outputs: dict[str, Stored]
    notes: list[str] = field(default_factory=list)


def drawn_cases(
    graph: Graph,
    params: Mapping[str, Array],
    names: Sequence[str],
    count: int,
    doing: str,
) -> list[Vector]:
    """So many cases of drawn inputs. Errors  UsageError, InputError."""
    whole("vectors", count, doing)
    if not 0 <= count <= MOST_CASES:
        raise UsageError(doing, f"vectors is {count}", f"it must be 0 to {MOST_CASES}")
    return [_drawn_case(graph, params, names, seed, doing) for seed in range(count)]


def given_case(
    graph: Graph, params: Mapping[str, Array], names: Sequence[str], feeds: Any
) -> Vector:
    """The case of the caller's own inputs, which are checked. Errors  of the ops."""
    return _case(names, dict(feeds), expected(graph, {**params, **feeds}))


def _drawn_case(
    graph: Graph,
    params: Mapping[str, Array],
    names: Sequence[str],
    seed: int,
    doing: str,
) -> Vector:
    """The first draw of which every result is finite and decided; else the best."""
    best: tuple[int, dict[str, Array], list[Expected]] | None = None
    refused: RlxError | None = None
    nodes = graph.named("input")
    for most, low, high in _RANGES:
        for turn in range(_TRIES):
            rng = np.random.default_rng((seed, turn, most))
            stored = {n: _draw(node, rng, most, low, high) for n, node in nodes.items()}
            feeds = {n: _filled(stored[n], node) for n, node in nodes.items()}
            try:
                found = expected(graph, {**params, **feeds})
            except RlxError as error:
                refused = error
                break
            odd = sum(not (one.is_stable and one.is_finite) for one in found)
            if best is None or odd < best[0]:
                best = odd, stored, found
            if not odd:
                return _case(names, stored, found)
    if best is None:
        raise InputError(
            doing,
            f"no inputs could be drawn for its vectors ({refused})",
            f"{len(_RANGES)} ranges were tried",
            "give `vectors` a list of inputs, or 0 for none",
        ) from refused
    return _case(names, *best[1:])


def _draw(
    node: Node, rng: np.random.Generator, most: int, low: float, high: float
) -> Array:
    """Of one input, as much as is stored."""
    kind = node.type
    n = min(kind.numel, STORED_BYTES // 4)
    if kind.dtype.is_integer:
        return Drawn((n,), kind.dtype, 0, most).draw(rng)
    return Drawn((n,), kind.dtype, low, high).draw(rng)


def _filled(stored: Array, node: Node) -> Array:
    if stored.size == node.type.numel:
        return stored.reshape(node.type.shape)
    return np.resize(stored, node.type.shape)


def _case(
    names: Sequence[str], inputs: dict[str, Array], found: Sequence[Expected]
) -> Vector:
    outputs, notes = {}, []
    for name, one in zip(names, found, strict=True):
        if not one.is_stable:
            notes.append(f"output '{name}' is not compared: rounding decides it")
            continue
        if not one.is_finite:
            count = int(np.count_nonzero(~np.isfinite(one.array)))
            notes.append(f"{count} of {one.array.size} of '{name}' are not finite")
        flat = one.array.reshape(-1)
        kept = flat[: max(1, STORED_BYTES // 4)]
        if kept.size < flat.size:
            notes.append(f"of '{name}' {kept.size:,} of {flat.size:,} are compared")
        outputs[name] = Stored(kept, one.rtol, one.atol)
    return Vector(inputs, outputs, notes)


def as_json(cases: Sequence[Vector], data: Weights) -> dict[str, Any] | None:
    """The record of the plan; the arrays go into `data`."""
    if not cases:
        return None
    made = [
        {
            "inputs": {
                name: list(data.add_array(_as_page(array)))
                for name, array in case.inputs.items()
            },
            "outputs": {
                name: _as_output(one, data) for name, one in case.outputs.items()
            },
        }
        for case in cases
    ]
    return {"file": "vectors.bin", "nbytes": data.nbytes, "cases": made}


def _as_page(array: Array) -> Array:
    """As buffers hold it, so that a page reads either alike; doubles stay doubles."""
    dtype = as_dtype(array.dtype)
    if dtype.is_integer:
        array = array.astype(held_as(dtype).numpy, copy=False)
    return as_stored(array)


def _as_output(one: Stored, data: Weights) -> dict[str, Any]:
    start, nbytes = data.add_array(_as_page(one.array))
    kind = one.array.dtype
    return {
        "from": start,
        "nbytes": nbytes,
        "dtype": DType(_label(kind)).label,
        "rtol": one.rtol,
        "atol": one.atol,
        "repeats": one.repeats,
    }


def _label(kind: np.dtype[Any]) -> str:
    return "bool" if kind == np.bool_ else f"{kind.kind}{8 * kind.itemsize}"
