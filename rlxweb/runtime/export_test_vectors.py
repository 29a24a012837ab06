"""Test vectors for `export_web`: a number of them, or the caller's own inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlxweb.core.errors import UsageError, shown
from rlxweb.engines.protocol import Array
from rlxweb.export.js_name_validation import check_output_names
from rlxweb.export.plan_test_vectors import (
    MAX_VECTORS,
    PlanTestVector,
    vector_from_inputs,
)
from rlxweb.ir.graph import Graph
from rlxweb.runtime.input_validation import validate_feeds


def resolve_vectors(
    graph: Graph,
    params: Mapping[str, Array],
    outputs: Sequence[str] | None,
    vectors: object,
    context: str,
) -> int | list[PlanTestVector]:
    """Return a number as it is, or a test vector for each mapping of arrays.

    Errors   those of a run for arrays that do not fit; UsageError for anything else.
    """
    if isinstance(vectors, int):
        return vectors
    cases = [vectors] if isinstance(vectors, Mapping) else vectors
    if not isinstance(cases, Sequence) or isinstance(cases, str):
        rule = (
            "expected a number of vectors, a dict of arrays by input name, or a list "
            "of such dicts"
        )
        raise UsageError(context, f"vectors is {shown(vectors)}", rule)
    if len(cases) > MAX_VECTORS:
        rule = f"at most {MAX_VECTORS} are allowed"
        raise UsageError(context, f"vectors has {len(cases)} cases", rule)
    names = check_output_names(graph, outputs, context)
    return [_make_vector(graph, params, names, feeds) for feeds in cases]


def _make_vector(
    graph: Graph, params: Mapping[str, Array], names: Sequence[str], feeds: Any
) -> PlanTestVector:
    """Compute the test vector of one mapping of inputs."""
    valid_inputs = validate_feeds(graph, graph.named("input"), feeds)
    arrays = {name: np.array(array, order="C") for name, array in valid_inputs.items()}
    return vector_from_inputs(graph, params, names, arrays)
