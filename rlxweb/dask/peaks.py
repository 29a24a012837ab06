"""`rlxweb.dask.welch_peaks`: the peaks of every row of a Dask array, lazily."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.base import DaskMethodsMixin
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from rlxweb.arguments import bound
from rlxweb.dask.annotated import Optimise, optimise_of
from rlxweb.dask.blocks import as_blocks, check_whole, of_dask
from rlxweb.dask.chunks import Call, peaks_of_chunk
from rlxweb.dask.lazily import Field, part, pieces, ran_of_all, rebuilt
from rlxweb.dask.piece import asker
from rlxweb.dask.room import check_room
from rlxweb.dask.shares import Decisions, LazyDecisions, table
from rlxweb.signal.declared import DeclaredPeaks, declared_peaks
from rlxweb.signal.samples import checked_axis
from rlxweb.signal.welch_peaks import DOING
from rlxweb.signal.welch_peaks import welch_peaks as eager

_FIELDS = ("bins", "hz", "power", "count", "prominence")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GatheredPeaks:
    """The peaks of every row, computed: as `rlxweb.WelchPeaks`, from many devices.

    decisions   which devices computed, what share, and why
    """

    bins: NDArray[np.int64]
    hz: NDArray[np.float64]
    power: NDArray[Any]
    count: NDArray[np.int64]
    prominence: NDArray[Any] | None
    decisions: Decisions
    fs: float
    mode: str

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.bins.shape))
        return f"GatheredPeaks({shape} {self.mode})\n{self.decisions}"


class LazyPeaks(DaskMethodsMixin):
    """The peaks of every row of a Dask array, not computed yet; a Dask collection.

    bins        (*batch, k) int64, a dask.array; as of `rlxweb.WelchPeaks`, as are
    hz, power, count, prominence
    decisions   the table of devices, lazy as well
    """

    def __init__(
        self, arrays: Mapping[str, Any], ran: Any, declared: DeclaredPeaks
    ) -> None:
        self.bins, self.hz = arrays["bins"], arrays["hz"]
        self.power, self.count = arrays["power"], arrays["count"]
        self.prominence = arrays.get("prominence")
        self.fs, self.mode, self.k = declared.fs, declared.mode, declared.k
        self._arrays, self._ran, self._declared = dict(arrays), ran, declared

    @property
    def decisions(self) -> LazyDecisions:
        return LazyDecisions([self._ran])

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.bins.shape))
        tasks = self._ran.npartitions
        return f"LazyPeaks({shape} {self.mode}, {tasks} task{'s' * (tasks != 1)})"

    def _all(self) -> list[Any]:
        return [*self._arrays.values(), self._ran]

    def __dask_graph__(self) -> HighLevelGraph:
        return HighLevelGraph.merge(*(one.dask for one in self._all()))

    def __dask_keys__(self) -> list[Any]:
        return [one.__dask_keys__() for one in self._all()]

    def __dask_layers__(self) -> tuple[str, ...]:
        return tuple(one.name for one in self._all())

    __dask_tokenize__ = __dask_layers__

    @property
    def __dask_optimize__(self) -> Optimise:
        return optimise_of(self.__dask_graph__())

    def __dask_postcompute__(self) -> tuple[Callable[..., GatheredPeaks], Any]:
        batch = [a.ndim for a in self._arrays.values()]
        return _gathered, (tuple(self._arrays), tuple(batch), self.fs, self.mode)

    def __dask_postpersist__(self) -> tuple[Callable[..., LazyPeaks], Any]:
        return _again, (tuple(self._arrays), tuple(self._all()), self._declared)

    __dask_scheduler__ = staticmethod(da.Array.__dask_scheduler__)


def welch_peaks(
    x: Any, fs: float = 1.0, nperseg: int = 256, k: int = 16, **options: Any
) -> LazyPeaks:
    """`rlxweb.welch_peaks` of every row of a dask.array, chunk by chunk, lazily.

    x        (…, T), chunked along any axes but that of time, which lies in one chunk
    options  those of `rlxweb.welch_peaks`. With `device` left out each worker picks its
             own, by its own calibration; `decisions` of the result says which
    returns  a Dask collection of dask.arrays: `.compute()` gives `GatheredPeaks`,
             `.persist()` keeps it on the workers. Nothing is computed before that
    Errors   UsageError for a time axis that is cut, with the `rechunk` that mends it,
             and as `rlxweb.welch_peaks`; ShapeError for chunks of unknown sizes;
             DTypeError for what is no dask.array of numbers. When it is computed:
             NotFinite, which names the row in the whole array, ClusterError for a
             worker with other versions, and what the devices raise
    """
    given = dict(bound(eager, "welch_peaks", x, fs, nperseg, k, **options))
    as_blocks(given.pop("x"), "x", DOING)
    axis = checked_axis(given.pop("axis"), x.ndim, DOING)
    check_whole(x, axis, "x", "the time axis", DOING)
    check_room(x, tuple(one for one in range(x.ndim) if one != axis), "x", DOING)
    declared = declared_peaks(x.shape, x.dtype, axis, given)
    fields = _fields(declared, x.ndim - 1)
    empty = {one.name: (one.more, one.dtype) for one in fields}
    labels = tuple(range(x.ndim))
    found = pieces(
        "rlxweb-welch-peaks",
        peaks_of_chunk,
        Call(given, axis, asker(), empty),
        [(x, labels)],
        labels[:axis] + labels[axis + 1 :],
    )
    arrays = {one.name: part(found, one, x.ndim - 1) for one in fields}
    return LazyPeaks(arrays, ran_of_all(found), declared)


def _fields(declared: DeclaredPeaks, rank: int) -> list[Field]:
    """The arrays of a piece; rank of the batch."""
    whole, wide, power = np.dtype(np.int64), np.dtype(np.float64), declared.power
    k = (declared.k,)
    fields = [
        Field("bins", whole, rank, k),
        Field("hz", wide, rank, k),
        Field("power", power, rank, k),
        Field("count", whole, rank),
    ]
    if declared.mode == "peaks":
        fields.append(Field("prominence", power, rank, k))
    return fields


def _gathered(
    found: list[Any], names: tuple[str, ...], ranks: tuple[int, ...], *said: Any
) -> GatheredPeaks:
    """What came of the keys, joined."""
    arrays: dict[str, Any] = dict.fromkeys(_FIELDS)
    for name, blocks, rank in zip(names, found, ranks, strict=False):
        arrays[name] = of_dask.core.concatenate3(blocks) if rank else blocks
    return GatheredPeaks(**arrays, decisions=table(found[-1]), fs=said[0], mode=said[1])


def _again(
    graph: Any,
    names: tuple[str, ...],
    arrays: tuple[Any, ...],
    declared: DeclaredPeaks,
    rename: Mapping[str, str] | None = None,
) -> LazyPeaks:
    *values, ran = rebuilt(graph, arrays, rename)
    return LazyPeaks(dict(zip(names, values, strict=True)), ran, declared)
