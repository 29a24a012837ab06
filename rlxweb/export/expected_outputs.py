"""Expected outputs of a graph in float64 by NumPy, and the tolerance of a page's
results.

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

from rlxweb.engines.protocol import Array
from rlxweb.engines.reference_comparison import (
    as_float64,
    dtype_tolerance,
    reference_outputs,
    rounding_errors,
)
from rlxweb.ir.dtype import DType, cast_array
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Tolerance, registry

PERTURBED_RUNS = 3
"""Number of evaluations with errors of different sign and size."""
# How many times what those brought out, and what NumPy in float32 is off by.
_PERTURBATION_FACTOR, _ROUNDING_FACTOR = 2.0, 8.0
_MIN_TOLERANCE = Tolerance(rtol=1e-6)


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """Expected array of one output of a test vector, and its tolerance.

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
        """True if every element is finite."""
        return self.array.dtype.kind != "f" or bool(np.isfinite(self.array).all())


def compute_expected_outputs(
    graph: Graph, feeds: Mapping[str, Array]
) -> list[ExpectedOutput]:
    """Return the expected outputs of a graph for these inputs and params.

    Errors   IndexRefused, InputError: what the ops refuse of their operands.
    """
    with np.errstate(all="ignore"):
        exact = reference_outputs(graph, feeds)
        error_bounds = rounding_errors(graph, feeds)
    perturbed_runs = [
        _perturbed_outputs(graph, feeds, seed) for seed in range(PERTURBED_RUNS)
    ]
    outputs = []
    for index, node_id in enumerate(graph.outputs):
        node = graph.node(node_id)
        perturbed = [run[index] for run in perturbed_runs]
        outputs.append(
            _expected_output(node, exact[index], error_bounds[index], perturbed)
        )
    return outputs


def _expected_output(
    node: Node, exact: Array, rounding_error: Array, perturbed: Sequence[NDArray[Any]]
) -> ExpectedOutput:
    """Return the expected array of an output with a tolerance that covers rounding and
    the perturbed runs.
    """
    dtype = node.type.dtype
    with np.errstate(all="ignore"):
        expected_array = np.ascontiguousarray(cast_array(exact, dtype))
    if not dtype.is_float:
        is_stable = all(np.array_equal(outcome, exact) for outcome in perturbed)
        return ExpectedOutput(expected_array, 0.0, 0.0, is_stable)
    tolerance = dtype_tolerance(dtype, registry.get(node.op).tolerance)
    exact_f64 = exact.astype(np.float64)
    peak = _max_finite(np.abs(exact_f64)) if tolerance.relative_to_peak else 1.0
    rtol = max(tolerance.rtol, _MIN_TOLERANCE.rtol)
    with np.errstate(invalid="ignore"):
        # Where the allowance of the op is not enough, as much as is missing there.
        relative_tolerance = rtol * np.abs(exact_f64)
        min_atols = [
            _max_finite(
                _PERTURBATION_FACTOR * np.abs(outcome - exact_f64) - relative_tolerance
            )
            for outcome in perturbed
        ]
        min_atols.append(
            _max_finite(_ROUNDING_FACTOR * rounding_error - relative_tolerance)
        )
    return ExpectedOutput(expected_array, rtol, max(tolerance.atol * peak, *min_atols))


def _max_finite(values: NDArray[Any]) -> float:
    """Return the largest finite value; 0 if there is none."""
    finite = values[np.isfinite(values)]
    return float(finite.max(initial=0.0))


def _perturbed_outputs(
    graph: Graph, feeds: Mapping[str, Array], seed: int
) -> list[NDArray[Any]]:
    """Return the outputs if every step has errors as large as its op's tolerance
    allows.
    """
    rng = np.random.default_rng(seed)
    values: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for node in graph.nodes():
            values[node.id] = _perturbed_value(node, values, feeds, rng)
    return [np.asarray(values[i]) for i in graph.outputs]


def _perturbed_value(
    node: Node,
    values: Mapping[int, Any],
    feeds: Mapping[str, Array],
    rng: np.random.Generator,
) -> Any:
    """Return a node's value in float64 with random errors within the tolerance of its
    op.
    """
    is_float = node.type.dtype.is_float
    if node.op in ("input", "param"):
        value = np.asarray(feeds[node.name])
        return as_float64(value) if is_float else value
    attrs = dict(node.attrs)
    if attrs.get("to") in (DType.BF16, DType.F16, DType.F32):
        attrs["to"] = DType.F64
    op = registry.get(node.op)
    value = np.asarray(op.reference(np, attrs, *(values[i] for i in node.inputs)))
    if not is_float:
        return value
    value = value.astype(np.float64)
    tolerance = dtype_tolerance(node.type.dtype, op.tolerance)
    if not (tolerance.rtol or tolerance.atol):
        return value
    peak = _max_finite(np.abs(value)) if tolerance.relative_to_peak else 1.0
    signs = rng.uniform(-1.0, 1.0, value.shape)
    return value + signs * (tolerance.rtol * np.abs(value) + tolerance.atol * peak)
