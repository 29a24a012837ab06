"""`rlxweb.dask.welch`: compute the spectrum of every row of a Dask array, lazily."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.batch.cluster.chunk_memory_check import check_chunk_memory
from rlxweb.batch.cluster.chunk_result import current_requirements
from rlxweb.batch.cluster.chunk_validation import (
    check_single_chunk,
    untyped_da,
    validate_dask_array,
)
from rlxweb.batch.cluster.lazy_arrays import (
    ChunkField,
    build_chunk_results,
    extract_field,
)
from rlxweb.batch.cluster.welch_chunk_tasks import WelchChunkSpec, chunk_power
from rlxweb.core.argument_validation import bind_arguments
from rlxweb.signal.sample_input import normalize_axis
from rlxweb.signal.welch import CONTEXT, empty_spectrum
from rlxweb.signal.welch import welch as eager
from rlxweb.signal.welch_result_shapes import declare_power


def welch(
    x: Any, fs: float = 1.0, *arguments: Any, **options: Any
) -> tuple[NDArray[np.float64], Any]:
    """Compute `rlxweb.welch` for every row of a dask.array, chunk by chunk, lazily.

    x        (…, T, …), chunked along any axes but that of time, which lies in one chunk
    options  those of `rlxweb.welch`, in their order. With `device` left out each worker
             picks its own, by its own calibration; `rlxweb.dask.decisions` says which
    returns  the frequencies (F,), and the power as a dask.array with F in the place of
             time. Nothing is computed before that is asked for
    Errors   as `rlxweb.dask.welch_peaks`
    """
    keywords = dict(bind_arguments(eager, "welch", x, fs, *arguments, **options))
    validate_dask_array(keywords.pop("x"), "x", CONTEXT)
    axis = normalize_axis(keywords.pop("axis"), x.ndim, CONTEXT)
    if 0 in x.shape:
        hz, power = empty_spectrum(x.shape)
        return hz, untyped_da.from_array(power, chunks=x.chunks)
    check_single_chunk(x, axis, "x", "the time axis", CONTEXT)
    check_chunk_memory(
        x,
        tuple(batch_axis for batch_axis in range(x.ndim) if batch_axis != axis),
        "x",
        CONTEXT,
    )
    declared = declare_power(x.shape, x.dtype, axis, keywords)
    if isinstance(keywords["window"], str | tuple):
        keywords["nperseg"] = declared.nperseg
    field = ChunkField("power", declared.power_dtype, axis, declared.hz.shape)
    labels = tuple(range(x.ndim))
    results = build_chunk_results(
        "rlxweb-welch",
        chunk_power,
        WelchChunkSpec(
            keywords,
            axis,
            current_requirements(),
            {field.name: (field.extra_shape, field.dtype)},
        ),
        [(x, labels)],
        labels[:axis] + labels[axis + 1 :],
    )
    return declared.hz, extract_field(results, field, x.ndim - 1)
