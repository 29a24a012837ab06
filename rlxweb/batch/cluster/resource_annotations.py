"""Keep `dask.annotate(resources=…)` where Dask's own optimization would lose it.

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

from rlxweb.core.errors import ClusterError

OptimizeFunction = Callable[..., Any]


def annotated_resources() -> dict[str, float]:
    """Return the resources in Dask's annotations that are active now."""
    return dict(get_annotations().get("resources") or {})


def collection_optimizer(graph: Any) -> OptimizeFunction:
    """Return the function that optimizes a collection over this graph: Dask's array
    optimization, or a cull alone if a layer is annotated.
    """
    if any(layer.annotations for layer in graph.layers.values()):
        return _cull_without_fusing
    optimize: OptimizeFunction = da.Array.__dask_optimize__
    return optimize


def _cull_without_fusing(graph: Any, keys: Any, **options: Any) -> Any:
    """Keep only the tasks that the keys need; Dask's fusions would lose annotations."""
    return graph.cull(set(flatten([keys])))


def check_worker_resources(required: Mapping[str, float], context: str) -> None:
    """Refuse to run on a worker of a cluster that lacks a required resource.

    Errors   ClusterError with both numbers.
    """
    if not required or "distributed" not in sys.modules:
        return
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return
    available = worker.state.total_resources
    for name, amount in required.items():
        if available.get(name, 0) < amount:
            raise ClusterError(
                context,
                f"worker {worker.address} has {available.get(name, 0):g} of resource "
                f"{name}",
                f"the chunk requires {amount:g} of resource {name}; Dask dropped this "
                "requirement when it fused tasks",
                "disable task fusion: y.compute(optimize_graph=False)",
            )
