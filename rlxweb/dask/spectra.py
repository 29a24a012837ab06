"""`rlxweb.dask.welch`: the spectrum of every row of a Dask array, lazily."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.arguments import bound
from rlxweb.dask.blocks import as_blocks, check_whole, of_dask
from rlxweb.dask.chunks import Call, power_of_chunk
from rlxweb.dask.lazily import Field, part, pieces
from rlxweb.dask.piece import asker
from rlxweb.dask.room import check_room
from rlxweb.signal.declared import declared_power
from rlxweb.signal.samples import checked_axis
from rlxweb.signal.welch import DOING, nothing
from rlxweb.signal.welch import welch as eager


def welch(
    x: Any, fs: float = 1.0, *arguments: Any, **options: Any
) -> tuple[NDArray[np.float64], Any]:
    """`rlxweb.welch` of every row of a dask.array, chunk by chunk, lazily.

    x        (…, T, …), chunked along any axes but that of time, which lies in one chunk
    options  those of `rlxweb.welch`, in their order. With `device` left out each worker
             picks its own, by its own calibration; `rlxweb.dask.decisions` says which
    returns  the frequencies (F,), and the power as a dask.array with F in the place of
             time. Nothing is computed before that is asked for
    Errors   as `rlxweb.dask.welch_peaks`
    """
    given = dict(bound(eager, "welch", x, fs, *arguments, **options))
    as_blocks(given.pop("x"), "x", DOING)
    axis = checked_axis(given.pop("axis"), x.ndim, DOING)
    if 0 in x.shape:
        hz, power = nothing(x.shape)
        return hz, of_dask.from_array(power, chunks=x.chunks)
    check_whole(x, axis, "x", "the time axis", DOING)
    check_room(x, tuple(one for one in range(x.ndim) if one != axis), "x", DOING)
    declared = declared_power(x.shape, x.dtype, axis, given)
    if isinstance(given["window"], str | tuple):
        given["nperseg"] = declared.nperseg
    field = Field("power", declared.power, axis, declared.hz.shape)
    labels = tuple(range(x.ndim))
    found = pieces(
        "rlxweb-welch",
        power_of_chunk,
        Call(given, axis, asker(), {field.name: (field.more, field.dtype)}),
        [(x, labels)],
        labels[:axis] + labels[axis + 1 :],
    )
    return declared.hz, part(found, field, x.ndim - 1)
