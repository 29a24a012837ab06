"""Build a graph with a few builder calls and evaluate it with the reference
implementations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlxweb.engines.evaluate import evaluate
from rlxweb.ir.graph import Graph


def run_graph(build: Callable[..., Any], *arrays: Any) -> Any:
    """Return the outputs of `build(graph, *tensors)` for these arrays; a list if it
    returns several.
    """
    graph = Graph()
    inputs = [np.asarray(array) for array in arrays]
    xs = [
        graph.input(f"x{k}", array.shape, array.dtype) for k, array in enumerate(inputs)
    ]
    outs = build(graph, *xs)
    has_many_outputs = isinstance(outs, list | tuple)
    graph.set_outputs(list(outs) if has_many_outputs else [outs])
    feeds = {f"x{k}": array for k, array in enumerate(inputs)}
    results = evaluate(graph, feeds)
    return list(results) if has_many_outputs else results[0]
