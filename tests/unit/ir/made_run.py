"""A few lines of builder calls run by the references, for what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlxweb.backends.evaluate import evaluate
from rlxweb.ir.graph import Graph


def made(build: Callable[..., Any], *arrays: Any) -> Any:
    """What `build(graph, *tensors)` gives for these arrays; a list of a list."""
    graph = Graph()
    given = [np.asarray(one) for one in arrays]
    xs = [graph.input(f"x{k}", one.shape, one.dtype) for k, one in enumerate(given)]
    outs = build(graph, *xs)
    many = isinstance(outs, list | tuple)
    graph.set_outputs(list(outs) if many else [outs])
    feeds = {f"x{k}": one for k, one in enumerate(given)}
    found = evaluate(graph, feeds)
    return list(found) if many else found[0]
