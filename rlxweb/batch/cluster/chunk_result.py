"""Result of one chunk: its arrays, and a record of where they were computed."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from numpy.typing import NDArray

from rlxweb.batch.cluster.resource_annotations import (
    annotated_resources,
    check_worker_resources,
)
from rlxweb.batch.cluster.worker_versions import MATCHED_PACKAGES, local_versions
from rlxweb.core.errors import ClusterError
from rlxweb.cost.decision import Decision


@dataclass(frozen=True, slots=True)
class ChunkRunInfo:
    """Record of where a chunk was computed.

    worker   the address of a worker of a cluster; elsewhere host and process
    decision without the other ways there were, which would weigh more than the answer
    """

    rows: int
    device: str
    adapter: str
    engine: str
    decision: Decision
    worker: str


@dataclass(frozen=True, slots=True, eq=False)
class ChunkResult:
    """Arrays of a chunk by name; `run_info` is None where it has no rows."""

    values: Mapping[str, NDArray[Any]]
    run_info: ChunkRunInfo | None

    def __sizeof__(self) -> int:
        """Return the size in bytes; Dask plans its memory by it."""
        return 512 + sum(array.nbytes for array in self.values.values())


def current_run_info(
    rows: int, device: str, adapter: str, engine: str, decision: Decision
) -> ChunkRunInfo:
    """Return the record of a chunk computed in this process."""
    stripped_decision = replace(decision, candidates=())
    return ChunkRunInfo(
        rows, device, adapter, engine, stripped_decision, _worker_name()
    )


def chunk_array(nested: Any, name: str) -> NDArray[Any]:
    """Return one of the arrays of a chunk, whose result may be nested as
    `unwrap_single` takes it.
    """
    result: ChunkResult = unwrap_single(nested)
    return result.values[name]


def chunk_run_info(result: ChunkResult) -> list[ChunkRunInfo | None]:
    """Return where a chunk was computed; in a list, for Dask joins what it takes for
    arrays.
    """
    return [result.run_info]


def unwrap_single(nested: Any) -> Any:
    """Unwrap the nested lists of one element that Dask passes where axes were
    joined.
    """
    while isinstance(nested, list):
        (nested,) = nested
    return nested


@dataclass(frozen=True, slots=True)
class WorkerRequirements:
    """Requirements on a worker: the same package versions as the process that builds
    the graph, and its annotated resources.
    """

    versions: Mapping[str, str]
    resources: Mapping[str, float]


def current_requirements() -> WorkerRequirements:
    """Return the requirements of this process, which builds a graph."""
    return WorkerRequirements(local_versions(), annotated_resources())


def check_worker(requirements: WorkerRequirements, context: str) -> None:
    """Refuse to compute with other package versions than required, or without the
    required resources.

    Errors   ClusterError naming this worker and both versions, or both numbers.
    """
    check_worker_resources(requirements.resources, context)
    own_versions, required_versions = _own_versions(), requirements.versions
    mismatches = [
        f"{name} is {own_versions[name] or 'not installed'} on the worker and "
        f"{required_versions[name] or 'not installed'} on the client"
        for name in MATCHED_PACKAGES
        if own_versions[name] != required_versions[name]
    ]
    if mismatches:
        install_list = " ".join(
            f"{name}=={version}"
            for name, version in required_versions.items()
            if version
        )
        raise ClusterError(
            context,
            f"worker {_worker_name()} has different package versions",
            ", ".join(mismatches),
            f"install the client's versions on the workers: {install_list}",
        )


@cache
def _own_versions() -> dict[str, str]:
    return local_versions()


def _worker_name() -> str:
    """Return the address of the worker that runs this task, or the host and process."""
    if "distributed" in sys.modules:
        from distributed import get_worker

        try:
            return str(get_worker().address)
        except ValueError:
            pass
    return f"{platform.node()}, process {os.getpid()}"
