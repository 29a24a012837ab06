"""The tasks: one chunk through `welch_peaks` or `welch`, wherever Dask runs it.

A worker picks its device by its own calibration and opens it once; both are the
business of the functions called here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.dask.piece import Asker, Piece, check_worker, only, ran_here
from rlxweb.signal.numbering import rows_from
from rlxweb.signal.picked import ready
from rlxweb.signal.result import WelchPeaks
from rlxweb.signal.welch import welch_and_pick
from rlxweb.signal.welch_peaks import welch_peaks

OF_ALL = ("bins", "hz", "power", "count")


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """What all chunks share: sent once, as a node of the graph.

    given     the arguments, by name, but for the samples and their axis
    axis      of time, 0 … rank - 1
    by        who asks
    empty     what a chunk without rows gives: for each array the shape behind the
              batch's axes, and the dtype
    """

    given: Mapping[str, Any]
    axis: int
    by: Asker
    empty: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]


def peaks_of_chunk(call: Call, where: Sequence[slice], block: Any) -> Piece:
    """The peaks of a chunk's rows.

    where    the rows of the batch, a slice per axis
    """
    x = _checked(block, call, "welch_peaks")
    batch = x.shape[: call.axis] + x.shape[call.axis + 1 :]
    if 0 in batch:
        return _empty(batch, len(batch), call)
    with rows_from(_first(where)):
        found = welch_peaks(x, axis=call.axis, **call.given)
    values = {name: getattr(found, name) for name in OF_ALL}
    if found.prominence is not None:
        values["prominence"] = found.prominence
    ran = ran_here(
        found.count.size,
        found.device.label,
        _adapter(found) or call.given["adapter"],
        found.engine,
        found.decision,
    )
    return Piece(values, ran)


def power_of_chunk(call: Call, where: Sequence[slice], block: Any) -> Piece:
    """The spectra of a chunk's rows, their frequencies where time was."""
    x = _checked(block, call, "welch")
    batch = x.shape[: call.axis] + x.shape[call.axis + 1 :]
    if 0 in batch:
        return _empty(batch, call.axis, call)
    with rows_from(_first(where)):
        (_, power), pick = welch_and_pick(x, axis=call.axis, **call.given)
    ran = ran_here(
        x.size // x.shape[call.axis],
        pick.device.label,
        pick.candidate.adapter,
        ready(pick)[1].name,
        pick.decision,
    )
    return Piece({"power": power}, ran)


def _checked(block: Any, call: Call, doing: str) -> NDArray[Any]:
    """The samples, in a process that computes as the one that asks would."""
    check_worker(call.by, doing)
    return np.asarray(only(block))


def _first(where: Sequence[slice]) -> tuple[int, ...]:
    return tuple(one.start for one in where)


def _adapter(found: WelchPeaks) -> str:
    ways = found.decision.candidates
    return next((way.adapter for way in ways if way.engine == found.engine), "")


def _empty(batch: tuple[int, ...], at: int, call: Call) -> Piece:
    """What no rows give; the further axes stand at a place among those of the batch."""
    arrays = {
        name: np.empty(batch[:at] + more + batch[at:], dtype)
        for name, (more, dtype) in call.empty.items()
    }
    return Piece(arrays, None)
