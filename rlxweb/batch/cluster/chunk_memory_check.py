"""Check that chunks fit into the memory of the current cluster's workers, if there is
one.

Dask ends a worker that holds more than its limit and gives its work to the next, which
ends as well; only what is sure to end so is refused.
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any

from rlxweb.core.errors import OutOfMemory

_MEMORY_DIVISOR = 10
"""Advised chunks take at most this part (1/n) of a worker's memory."""


def check_chunk_memory(x: Any, axes: tuple[int, ...], name: str, context: str) -> None:
    """Refuse chunks that are larger than the memory of the smallest worker.

    axes     those that may be cut
    Errors   OutOfMemory with both numbers, and the `rechunk` that fits.
    """
    limit = min_worker_memory()
    largest = prod(map(max, x.chunks)) * x.dtype.itemsize if x.size else 0
    if not limit or largest <= limit:
        return
    raise OutOfMemory(
        context,
        f"a chunk of {name} is too large: {_format_nbytes(largest)}",
        f"a worker may use {_format_nbytes(limit)} (`--memory-limit` of `dask worker`)",
        smaller_rechunk_hint(x, axes, name, limit),
    )


def min_worker_memory() -> int:
    """Return the bytes that a worker of the current cluster may use; 0 where there is
    no limit.
    """
    if "distributed" not in sys.modules:
        return 0
    from distributed import default_client

    try:
        client = default_client()
    except ValueError:
        return 0
    if client.asynchronous:
        return 0
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return min((int(worker["memory_limit"] or 0) for worker in workers), default=0)


def smaller_rechunk_hint(x: Any, axes: tuple[int, ...], name: str, limit: int) -> str:
    """Return the `rechunk` call that makes chunks a small part of a worker's memory."""
    max_nbytes = limit // _MEMORY_DIVISOR
    sizes = [max(axis_chunks) for axis_chunks in x.chunks]
    changed = {}
    for axis in axes:
        chunk_nbytes = prod(sizes) * x.dtype.itemsize
        if chunk_nbytes <= max_nbytes:
            break
        new_size = max(1, sizes[axis] * max_nbytes // chunk_nbytes)
        if new_size < sizes[axis]:
            sizes[axis] = changed[axis] = new_size
    if not changed or prod(sizes) * x.dtype.itemsize > limit:
        return (
            f"increase the worker memory: a single row needs more than "
            f"{_format_nbytes(limit)}"
        )
    text = ", ".join(f"{axis}: {n}" for axis, n in sorted(changed.items()))
    return f"use smaller chunks: {name}.rechunk({{{text}}})"


def _format_nbytes(n: int) -> str:
    return f"{n / 1e9:.3g} GB" if n >= 10**8 else f"{n / 1e6:.3g} MB"
