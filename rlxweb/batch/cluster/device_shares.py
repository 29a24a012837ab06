"""Table of the devices that computed the chunks of arrays, with shares and reasons.

Which device a chunk went to is an answer of the task that computed it, like its arrays:
lazy until it is computed, kept by `persist`, and never computed twice beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.base import DaskMethodsMixin
from dask.highlevelgraph import HighLevelGraph

from rlxweb.batch.cluster.chunk_result import ChunkRunInfo
from rlxweb.batch.cluster.chunk_validation import untyped_da
from rlxweb.batch.cluster.device_usage_counts import DeviceTally
from rlxweb.batch.cluster.lazy_arrays import (
    collect_run_infos,
    is_chunk_layer,
    rebuild_arrays,
)
from rlxweb.batch.cluster.resource_annotations import (
    OptimizeFunction,
    collection_optimizer,
)
from rlxweb.core.errors import UsageError, shown

CONTEXT = "decisions"


@dataclass(frozen=True, slots=True)
class Share:
    """Share of the work that ran on one engine of one device.

    rows, tasks   how many; row_share of all rows, task_share of all tasks, 0 to 1
    adapter       as it was asked for; the engine names the one it found
    why           the reason given most often, with the numbers of the first
    workers       where, in alphabetical order
    """

    device: str
    adapter: str
    engine: str
    rows: int
    tasks: int
    row_share: float
    task_share: float
    why: str
    workers: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the share as plain data."""
        fields = ("device", "adapter", "engine", "rows", "tasks", "row_share")
        values = {name: getattr(self, name) for name in (*fields, "task_share", "why")}
        return {**values, "workers": list(self.workers)}


@dataclass(frozen=True, slots=True, repr=False)
class Decisions(Sequence[Share]):
    """Table of the devices, most rows first."""

    shares: tuple[Share, ...]

    def __len__(self) -> int:
        return len(self.shares)

    def __getitem__(self, index: Any) -> Any:
        return self.shares[index]

    def __str__(self) -> str:
        """Return `71 % ran on cuda, 29 % on cpu`, then a line for each device with its
        reason.
        """
        if not self.shares:
            return "nothing ran: the input has no rows"
        parts = [
            f"{100 * share.row_share:.3g} % on {share.device}" for share in self.shares
        ]
        first = parts[0].replace(" on ", " ran on ", 1)
        lines = [", ".join([first, *parts[1:]])]
        for share in self.shares:
            rows = _count_text(share.rows, "row")
            tasks = _count_text(share.tasks, "task")
            workers = _count_text(len(share.workers), "worker")
            summary = f"{rows} in {tasks} on {workers}, {share.engine}"
            lines.append(f"  {share.device}: {summary}: {share.why}")
        return "\n".join(lines)

    __repr__ = __str__

    def as_json(self) -> dict[str, Any]:
        """Return plain data: a list of the devices, most rows first."""
        return {"devices": [share.as_json() for share in self.shares]}


def _count_text(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"


def tabulate_runs(run_infos: Iterable[ChunkRunInfo]) -> Decisions:
    """Tabulate where chunks ran, whatever their order."""
    by_engine: dict[tuple[str, str, str], list[ChunkRunInfo]] = {}
    for info in run_infos:
        by_engine.setdefault((info.device, info.adapter, info.engine), []).append(info)
    rows = sum(info.rows for infos in by_engine.values() for info in infos)
    tasks = sum(map(len, by_engine.values()))
    shares = [
        _build_share(*engine_key, infos, rows, tasks)
        for engine_key, infos in by_engine.items()
    ]
    shares.sort(key=lambda info: (-info.rows, info.device, info.adapter, info.engine))
    return Decisions(tuple(shares))


def _build_share(
    device: str,
    adapter: str,
    engine: str,
    run_infos: list[ChunkRunInfo],
    rows: int,
    tasks: int,
) -> Share:
    own_rows, tally = sum(info.rows for info in run_infos), DeviceTally()
    for info in run_infos:
        tally.add(info.device, info.decision)
    return Share(
        device,
        adapter,
        engine,
        own_rows,
        len(run_infos),
        own_rows / rows,
        len(run_infos) / tasks,
        tally.shares()[0].why,
        tuple(sorted({info.worker for info in run_infos})),
    )


class LazyDecisions(DaskMethodsMixin):
    """Table of devices for work that is yet to be done; `compute` gives `Decisions`.

    A Dask collection: computed together with its arrays, in one `dask.compute`, it
    costs nothing.
    """

    def __init__(self, run_infos: Sequence[Any]) -> None:
        self._run_infos = tuple(run_infos)

    def __repr__(self) -> str:
        tasks = sum(collection.npartitions for collection in self._run_infos)
        return f"LazyDecisions({tasks} task{'s' * (tasks != 1)})"

    def __dask_graph__(self) -> HighLevelGraph:
        return HighLevelGraph.merge(
            *(collection.dask for collection in self._run_infos)
        )

    def __dask_keys__(self) -> list[Any]:
        return [collection.__dask_keys__() for collection in self._run_infos]

    def __dask_layers__(self) -> tuple[str, ...]:
        return tuple(collection.name for collection in self._run_infos)

    __dask_tokenize__ = __dask_layers__

    @property
    def __dask_optimize__(self) -> OptimizeFunction:
        return collection_optimizer(self.__dask_graph__())

    def __dask_postcompute__(self) -> tuple[Callable[..., Decisions], tuple[()]]:
        return decisions_from_nested, ()

    def __dask_postpersist__(self) -> tuple[Callable[..., LazyDecisions], Any]:
        return _rebuild_decisions, (self._run_infos,)

    __dask_scheduler__ = staticmethod(da.Array.__dask_scheduler__)


def decisions_from_nested(nested: Any) -> Decisions:
    """Tabulate the run records in the nested lists that Dask computes."""
    return tabulate_runs(info for info in _flatten(nested) if info is not None)


def _flatten(nested: Any) -> Iterator[ChunkRunInfo | None]:
    if isinstance(nested, list):
        for item in nested:
            yield from _flatten(item)
    else:
        yield nested


def _rebuild_decisions(
    graph: Any, arrays: Sequence[Any], rename: Mapping[str, str] | None = None
) -> LazyDecisions:
    return LazyDecisions(rebuild_arrays(graph, arrays, rename))


def decisions(*results: Any) -> LazyDecisions:
    """Return the table of devices on which the chunks of results run, and why, lazily.

    results  what `rlxweb.dask.welch_peaks`, `welch`, `run` gave, or arrays made of it
    returns  a Dask collection: `.compute()` gives `Decisions`, whose text is "71 % ran
             on cuda, 29 % on cpu" with the reasons. Asked for together with the arrays,
             `dask.compute(power, rlxweb.dask.decisions(power))`, it computes nothing
             twice
    Errors   UsageError for what none of them gave; an array that was persisted alone
             has forgotten: `dask.persist(power, rlxweb.dask.decisions(power))`.
    """
    run_infos_by_name = {
        run_infos.name: run_infos
        for result in results
        for run_infos in _find_run_infos(result)
    }
    if not run_infos_by_name:
        raise UsageError(CONTEXT, "got no result", "expected one or more")
    return LazyDecisions(list(run_infos_by_name.values()))


def _find_run_infos(result: Any) -> Sequence[Any]:
    if isinstance(result, LazyDecisions):
        return result._run_infos
    if isinstance(decisions_table := getattr(result, "decisions", None), LazyDecisions):
        return decisions_table._run_infos
    if isinstance(result, tuple | list):
        arrays = [item for item in result if isinstance(item, da.Array)]
        return [run_info for item in arrays for run_info in _find_run_infos(item)]
    layers = result.dask.layers if isinstance(result, da.Array) else {}
    run_infos = [
        _layer_run_infos(result.dask, name) for name in layers if is_chunk_layer(name)
    ]
    if not run_infos:
        raise UsageError(
            CONTEXT,
            f"{shown(result)} is not computed from a lazy result of rlxweb.dask",
            "decisions are lost when a result is persisted or computed without them",
            "persist the result and its decisions in one call: "
            "dask.persist(y, rlxweb.dask.decisions(y))",
        )
    return run_infos


def _layer_run_infos(graph: Any, name: str) -> Any:
    layer = graph.layers[name]
    chunks = [(1,) * layer.dims[i] for i in layer.output_indices]
    meta = np.empty((0,) * len(chunks), object)
    return collect_run_infos(untyped_da.Array(graph, name, chunks, meta=meta))
