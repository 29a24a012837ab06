"""What `export_web` is given as `vectors`: a number, or inputs of the caller's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlxweb.backends.protocol import Array
from rlxweb.errors import UsageError, shown
from rlxweb.export.names import output_names
from rlxweb.export.vectors import MOST_CASES, Vector, given_case
from rlxweb.ir.graph import Graph
from rlxweb.runtime.feeds import check_feeds


def cases_of(
    graph: Graph,
    params: Mapping[str, Array],
    outputs: Sequence[str] | None,
    vectors: object,
    doing: str,
) -> int | list[Vector]:
    """A number as it is; a case for each mapping of arrays.

    Errors   those of a run for arrays that do not fit; UsageError for anything else.
    """
    if isinstance(vectors, int):
        return vectors
    every = [vectors] if isinstance(vectors, Mapping) else vectors
    if not isinstance(every, Sequence) or isinstance(every, str):
        rule = "a number is wanted, arrays by name, or a list of those"
        raise UsageError(doing, f"vectors is {shown(vectors)}", rule)
    if len(every) > MOST_CASES:
        rule = f"at most {MOST_CASES}"
        raise UsageError(doing, f"vectors has {len(every)} cases", rule)
    names = output_names(graph, outputs, doing)
    return [_given(graph, params, names, feeds) for feeds in every]


def _given(
    graph: Graph, params: Mapping[str, Array], names: Sequence[str], feeds: Any
) -> Vector:
    given = check_feeds(graph, graph.named("input"), feeds)
    arrays = {name: np.array(one, order="C") for name, one in given.items()}
    return given_case(graph, params, names, arrays)
