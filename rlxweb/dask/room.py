"""Does a chunk fit into a worker? Asked of the cluster that is current, if any.

Dask ends a worker that holds more than its limit and gives its work to the next, which
ends as well; only what is sure to end so is refused.
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any

from rlxweb.errors import OutOfMemory

_SHARE = 10
"""A chunk that is advised takes this part of a worker's memory."""


def check_room(x: Any, axes: tuple[int, ...], name: str, doing: str) -> None:
    """Refuse chunks that are larger than the memory of the least worker.

    axes     those that may be cut
    Errors   OutOfMemory with both numbers, and the `rechunk` that fits.
    """
    limit = least_memory()
    largest = prod(map(max, x.chunks)) * x.dtype.itemsize if x.size else 0
    if not limit or largest <= limit:
        return
    raise OutOfMemory(
        doing,
        f"a chunk of {name} has {_shown(largest)}",
        f"a worker may use {_shown(limit)} (`--memory-limit` of `dask worker`)",
        smaller(x, axes, name, limit),
    )


def least_memory() -> int:
    """Bytes that a worker of the current cluster may use; 0 where there is no limit."""
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
    return min((int(one["memory_limit"] or 0) for one in workers), default=0)


def smaller(x: Any, axes: tuple[int, ...], name: str, limit: int) -> str:
    """The `rechunk` to chunks of a small part of a worker's memory."""
    most = limit // _SHARE
    sizes = [max(one) for one in x.chunks]
    changed = {}
    for axis in axes:
        held = prod(sizes) * x.dtype.itemsize
        if held <= most:
            break
        less = max(1, sizes[axis] * most // held)
        if less < sizes[axis]:
            sizes[axis] = changed[axis] = less
    if not changed or prod(sizes) * x.dtype.itemsize > limit:
        return f"a row alone takes more: give the workers more than {_shown(limit)}"
    text = ", ".join(f"{axis}: {n}" for axis, n in sorted(changed.items()))
    return f"{name}.rechunk({{{text}}})"


def _shown(n: int) -> str:
    return f"{n / 1e9:.3g} GB" if n >= 10**8 else f"{n / 1e6:.3g} MB"
