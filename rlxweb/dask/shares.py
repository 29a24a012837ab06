"""Where the chunks of arrays were computed, counted per device: a table, and why.

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

from rlxweb.dask.annotated import Optimise, optimise_of
from rlxweb.dask.blocks import of_dask
from rlxweb.dask.decided import Tally
from rlxweb.dask.lazily import is_of_pieces, ran_of_all, rebuilt
from rlxweb.dask.piece import Ran
from rlxweb.errors import UsageError, shown

DOING = "decisions"


@dataclass(frozen=True, slots=True)
class Share:
    """What ran on one engine of one device.

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
        """Plain data."""
        fields = ("device", "adapter", "engine", "rows", "tasks", "row_share")
        more = {name: getattr(self, name) for name in (*fields, "task_share", "why")}
        return {**more, "workers": list(self.workers)}


@dataclass(frozen=True, slots=True, repr=False)
class Decisions(Sequence[Share]):
    """The devices, most rows first."""

    shares: tuple[Share, ...]

    def __len__(self) -> int:
        return len(self.shares)

    def __getitem__(self, at: Any) -> Any:
        return self.shares[at]

    def __str__(self) -> str:
        """`71 % ran on cuda, 29 % on cpu`, then a line for each with its reason."""
        if not self.shares:
            return "nothing ran: there are no rows"
        parts = [f"{100 * one.row_share:.3g} % on {one.device}" for one in self.shares]
        first = parts[0].replace(" on ", " ran on ", 1)
        lines = [", ".join([first, *parts[1:]])]
        for one in self.shares:
            rows, tasks = _many(one.rows, "row"), _many(one.tasks, "task")
            workers = _many(len(one.workers), "worker")
            what = f"{rows} in {tasks} on {workers}, {one.engine}"
            lines.append(f"  {one.device}: {what}: {one.why}")
        return "\n".join(lines)

    __repr__ = __str__

    def as_json(self) -> dict[str, Any]:
        """Plain data: a list of the devices, most rows first."""
        return {"devices": [one.as_json() for one in self.shares]}


def _many(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"


def counted(pieces: Iterable[Ran]) -> Decisions:
    """Where pieces ran, whatever their order."""
    by_engine: dict[tuple[str, str, str], list[Ran]] = {}
    for one in pieces:
        by_engine.setdefault((one.device, one.adapter, one.engine), []).append(one)
    rows = sum(one.rows for ran in by_engine.values() for one in ran)
    tasks = sum(map(len, by_engine.values()))
    shares = [_share(*at, ran, rows, tasks) for at, ran in by_engine.items()]
    shares.sort(key=lambda one: (-one.rows, one.device, one.adapter, one.engine))
    return Decisions(tuple(shares))


def _share(
    device: str, adapter: str, engine: str, ran: list[Ran], rows: int, tasks: int
) -> Share:
    mine, why = sum(one.rows for one in ran), Tally()
    for one in ran:
        why.note(one.device, one.decision)
    return Share(
        device,
        adapter,
        engine,
        mine,
        len(ran),
        mine / rows,
        len(ran) / tasks,
        why.shares()[0].why,
        tuple(sorted({one.worker for one in ran})),
    )


class LazyDecisions(DaskMethodsMixin):
    """The table of work that is yet to be done; `compute` gives `Decisions`.

    A Dask collection: computed together with its arrays, in one `dask.compute`, it
    costs nothing.
    """

    def __init__(self, ran: Sequence[Any]) -> None:
        self._ran = tuple(ran)

    def __repr__(self) -> str:
        tasks = sum(one.npartitions for one in self._ran)
        return f"LazyDecisions({tasks} task{'s' * (tasks != 1)})"

    def __dask_graph__(self) -> HighLevelGraph:
        return HighLevelGraph.merge(*(one.dask for one in self._ran))

    def __dask_keys__(self) -> list[Any]:
        return [one.__dask_keys__() for one in self._ran]

    def __dask_layers__(self) -> tuple[str, ...]:
        return tuple(one.name for one in self._ran)

    __dask_tokenize__ = __dask_layers__

    @property
    def __dask_optimize__(self) -> Optimise:
        return optimise_of(self.__dask_graph__())

    def __dask_postcompute__(self) -> tuple[Callable[..., Decisions], tuple[()]]:
        return table, ()

    def __dask_postpersist__(self) -> tuple[Callable[..., LazyDecisions], Any]:
        return _decisions_again, (self._ran,)

    __dask_scheduler__ = staticmethod(da.Array.__dask_scheduler__)


def table(nested: Any) -> Decisions:
    """What came of the keys, as nested lists, counted."""
    return counted(one for one in _flat(nested) if one is not None)


def _flat(nested: Any) -> Iterator[Ran | None]:
    if isinstance(nested, list):
        for one in nested:
            yield from _flat(one)
    else:
        yield nested


def _decisions_again(
    graph: Any, arrays: Sequence[Any], rename: Mapping[str, str] | None = None
) -> LazyDecisions:
    return LazyDecisions(rebuilt(graph, arrays, rename))


def decisions(*results: Any) -> LazyDecisions:
    """Where the chunks of results run, and why: lazily, a table per device.

    results  what `rlxweb.dask.welch_peaks`, `welch`, `run` gave, or arrays made of it
    returns  a Dask collection: `.compute()` gives `Decisions`, whose text is "71 % ran
             on cuda, 29 % on cpu" with the reasons. Asked for together with the arrays,
             `dask.compute(power, rlxweb.dask.decisions(power))`, it computes nothing
             twice
    Errors   UsageError for what none of them gave; an array that was persisted alone
             has forgotten: `dask.persist(power, rlxweb.dask.decisions(power))`.
    """
    found = {ran.name: ran for one in results for ran in _known(one)}
    if not found:
        raise UsageError(DOING, "no result was given", "one or more are wanted")
    return LazyDecisions(list(found.values()))


def _known(result: Any) -> Sequence[Any]:
    if isinstance(result, LazyDecisions):
        return result._ran
    if isinstance(own := getattr(result, "decisions", None), LazyDecisions):
        return own._ran
    if isinstance(result, tuple | list):
        arrays = [one for one in result if isinstance(one, da.Array)]
        return [ran for one in arrays for ran in _known(one)]
    layers = result.dask.layers if isinstance(result, da.Array) else {}
    found = [_ran_of(result.dask, name) for name in layers if is_of_pieces(name)]
    if not found:
        raise UsageError(
            DOING,
            f"{shown(result)} does not come of a lazy result of rlxweb.dask",
            "what was persisted or computed alone has forgotten where that was",
            "ask for both at once: dask.persist(y, rlxweb.dask.decisions(y))",
        )
    return found


def _ran_of(graph: Any, name: str) -> Any:
    layer = graph.layers[name]
    chunks = [(1,) * layer.dims[i] for i in layer.output_indices]
    meta = np.empty((0,) * len(chunks), object)
    return ran_of_all(of_dask.Array(graph, name, chunks, meta=meta))
