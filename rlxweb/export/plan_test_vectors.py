"""Test vectors by which a page checks itself: inputs and their expected outputs.

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

from rlxweb.core.argument_validation import coerce_integer
from rlxweb.core.errors import InputError, RlxError, UsageError
from rlxweb.engines.protocol import Array
from rlxweb.engines.webgpu.buffers import as_stored
from rlxweb.engines.webgpu.dtype_demotion import demoted_dtype
from rlxweb.export.binary_array_file import BinaryFile
from rlxweb.export.expected_outputs import ExpectedOutput, compute_expected_outputs
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.sample import Drawn

MAX_VECTORS = 16
MAX_STORED_NBYTES = 1 << 20
"""Maximum stored size of one array; a longer input repeats the stored part, an output
is truncated.
"""
_DRAWS_PER_RANGE = 4
# Whole numbers up to these, floats between those: wide first, then ever more careful.
_VALUE_RANGES: tuple[tuple[int, float, float], ...] = (
    (8, -2.0, 2.0),
    (1, -1.0, 1.0),
    (1, 0.1, 1.0),
    (0, 0.1, 1.0),
    (0, 1.0, 2.0),
)


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """Stored output of a test vector, with its tolerance.

    repeats   the whole output is this again and again
    """

    array: Array
    rtol: float = 0.0
    atol: float = 0.0
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class PlanTestVector:
    """One test vector; `notes` tell what it does not prove."""

    inputs: dict[str, Array]
    outputs: dict[str, StoredOutput]
    notes: list[str] = field(default_factory=list)


def draw_vectors(
    graph: Graph,
    params: Mapping[str, Array],
    names: Sequence[str],
    count: int,
    context: str,
) -> list[PlanTestVector]:
    """Return this many test vectors with random inputs; raise UsageError or InputError
    if that fails.
    """
    coerce_integer("vectors", count, context)
    if not 0 <= count <= MAX_VECTORS:
        raise UsageError(context, f"vectors is {count}", f"expected 0 to {MAX_VECTORS}")
    return [_draw_vector(graph, params, names, seed, context) for seed in range(count)]


def vector_from_inputs(
    graph: Graph, params: Mapping[str, Array], names: Sequence[str], feeds: Any
) -> PlanTestVector:
    """Return the test vector of the caller's own inputs; errors of the ops are
    raised.
    """
    return _make_vector(
        names, dict(feeds), compute_expected_outputs(graph, {**params, **feeds})
    )


def _draw_vector(
    graph: Graph,
    params: Mapping[str, Array],
    names: Sequence[str],
    seed: int,
    context: str,
) -> PlanTestVector:
    """Return the first random vector whose results are all finite and stable under
    rounding, otherwise the best one.
    """
    best: tuple[int, dict[str, Array], list[ExpectedOutput]] | None = None
    last_error: RlxError | None = None
    nodes = graph.named("input")
    for max_integer, low, high in _VALUE_RANGES:
        for draw in range(_DRAWS_PER_RANGE):
            rng = np.random.default_rng((seed, draw, max_integer))
            stored = {
                name: _draw_input(node, rng, max_integer, low, high)
                for name, node in nodes.items()
            }
            feeds = {
                name: _repeat_to_shape(stored[name], node)
                for name, node in nodes.items()
            }
            try:
                expected_outputs = compute_expected_outputs(graph, {**params, **feeds})
            except RlxError as error:
                last_error = error
                break
            n_unusable = sum(
                not (output.is_stable and output.is_finite)
                for output in expected_outputs
            )
            if best is None or n_unusable < best[0]:
                best = n_unusable, stored, expected_outputs
            if not n_unusable:
                return _make_vector(names, stored, expected_outputs)
    if best is None:
        raise InputError(
            context,
            f"the graph fails on all random test inputs ({last_error})",
            f"{len(_VALUE_RANGES)} ranges of values were tried",
            "pass a list of inputs as `vectors`, or 0 for no test vectors",
        ) from last_error
    return _make_vector(names, *best[1:])


def _draw_input(
    node: Node, rng: np.random.Generator, max_integer: int, low: float, high: float
) -> Array:
    """Draw the stored part of one input."""
    tensor_type = node.type
    count = min(tensor_type.numel, MAX_STORED_NBYTES // 4)
    if tensor_type.dtype.is_integer:
        return Drawn((count,), tensor_type.dtype, 0, max_integer).draw(rng)
    return Drawn((count,), tensor_type.dtype, low, high).draw(rng)


def _repeat_to_shape(stored: Array, node: Node) -> Array:
    """Repeat the stored values up to the node's shape."""
    if stored.size == node.type.numel:
        return stored.reshape(node.type.shape)
    return np.resize(stored, node.type.shape)


def _make_vector(
    names: Sequence[str],
    inputs: dict[str, Array],
    expected_outputs: Sequence[ExpectedOutput],
) -> PlanTestVector:
    """Make a test vector, leaving out outputs that rounding decides."""
    outputs, notes = {}, []
    for name, output in zip(names, expected_outputs, strict=True):
        if not output.is_stable:
            notes.append(
                f"output '{name}' is not compared: its values depend on rounding"
            )
            continue
        if not output.is_finite:
            count = int(np.count_nonzero(~np.isfinite(output.array)))
            notes.append(
                f"{count} of {output.array.size} values of '{name}' are not finite"
            )
        flat = output.array.reshape(-1)
        stored = flat[: max(1, MAX_STORED_NBYTES // 4)]
        if stored.size < flat.size:
            counts_text = f"{stored.size:,} of {flat.size:,}"
            notes.append(f"{counts_text} values of '{name}' are compared")
        outputs[name] = StoredOutput(stored, output.rtol, output.atol)
    return PlanTestVector(inputs, outputs, notes)


def vectors_to_json(
    vectors: Sequence[PlanTestVector], data: BinaryFile
) -> dict[str, Any] | None:
    """Return the plan's entry for the test vectors; the arrays are added to `data`."""
    if not vectors:
        return None
    entries = [
        {
            "inputs": {
                name: list(data.add_array(_to_page_array(array)))
                for name, array in vector.inputs.items()
            },
            "outputs": {
                name: _output_json(output, data)
                for name, output in vector.outputs.items()
            },
        }
        for vector in vectors
    ]
    return {"file": "vectors.bin", "nbytes": data.nbytes, "cases": entries}


def _to_page_array(array: Array) -> Array:
    """Return an array in the form buffers hold it; float64 stays float64."""
    dtype = as_dtype(array.dtype)
    if dtype.is_integer:
        array = array.astype(demoted_dtype(dtype).numpy, copy=False)
    return as_stored(array)


def _output_json(output: StoredOutput, data: BinaryFile) -> dict[str, Any]:
    """Add an output's array to the file and return its entry."""
    start, nbytes = data.add_array(_to_page_array(output.array))
    dtype = output.array.dtype
    return {
        "from": start,
        "nbytes": nbytes,
        "dtype": DType(_dtype_label(dtype)).label,
        "rtol": output.rtol,
        "atol": output.atol,
        "repeats": output.repeats,
    }


def _dtype_label(dtype: np.dtype[Any]) -> str:
    """Return the dtype's label, such as "f32"."""
    return "bool" if dtype == np.bool_ else f"{dtype.kind}{8 * dtype.itemsize}"
