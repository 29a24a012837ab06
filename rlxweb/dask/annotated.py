"""`dask.annotate(resources=…)` kept, where Dask's own optimisation would lose it.

Fusing tasks, as Dask does with arrays and with what reads them, drops what layers were
annotated with. Collections of ours are not fused where anything is annotated; a task
that lost its annotation all the same finds that its worker has not what it was to have,
and says so rather than run elsewhere in silence.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import dask.array as da
from dask.base import get_annotations
from dask.core import flatten

from rlxweb.errors import ClusterError

Optimise = Callable[..., Any]


def asked_resources() -> dict[str, float]:
    """The resources that what is made now is annotated with."""
    return dict(get_annotations().get("resources") or {})


def optimise_of(graph: Any) -> Optimise:
    """How a collection over this graph is optimised: as arrays, in the common case."""
    if any(layer.annotations for layer in graph.layers.values()):
        return _unfused
    optimise: Optimise = da.Array.__dask_optimize__
    return optimise


def _unfused(graph: Any, keys: Any, **how: Any) -> Any:
    """What is needed, and no more: each of Dask's fusions loses some annotation."""
    return graph.cull(set(flatten([keys])))


def check_resources(wanted: Mapping[str, float], doing: str) -> None:
    """Refuse to run on a worker of a cluster that lacks a resource.

    Errors   ClusterError with both numbers.
    """
    if not wanted or "distributed" not in sys.modules:
        return
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return
    has = worker.state.total_resources
    for name, amount in wanted.items():
        if has.get(name, 0) < amount:
            raise ClusterError(
                doing,
                f"worker {worker.address} has {has.get(name, 0):g} of {name}",
                f"the chunk was annotated with {name} {amount:g}, which Dask lost when"
                " it fused tasks",
                "compute it unfused: y.compute(optimize_graph=False)",
            )
