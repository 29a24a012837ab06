"""Tiles of an array, each small enough for a core's cache, processed one by one on a
few threads.

What is computed box by box stays in a core's cache, however many steps it takes, where
whole arrays walk memory once a step. The boxes follow from the shape alone. Threads
that call NumPy hand Python's lock to and fro: their boxes must be large.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Final

import numpy as np

from rlxweb.core.thread_tasks import Task, run_tasks
from rlxweb.ir.shape_arithmetic import Shape

Tile = tuple[slice, ...]

TILE_ELEMENTS: Final = 1 << 17
"""Elements of a tile where threads share the tiles."""


def split_into_tiles(shape: Shape, max_elements: int) -> list[Tile]:
    """Split a shape into tiles of at most `max_elements` elements that keep the last
    axes whole.
    """
    first_whole_axis = len(shape)
    while first_whole_axis and prod(shape[first_whole_axis - 1 :]) <= max_elements:
        first_whole_axis -= 1
    whole_slices = [slice(0, size) for size in shape[first_whole_axis:]]
    if not first_whole_axis:
        return [tuple(whole_slices)]
    tile_length = max_elements // prod(shape[first_whole_axis:])
    axes = [
        [slice(i, i + 1) for i in range(size)] for size in shape[: first_whole_axis - 1]
    ]
    axes.append(
        [
            slice(i, i + tile_length)
            for i in range(0, shape[first_whole_axis - 1], tile_length)
        ]
    )
    return [(*leading, *whole_slices) for leading in product(*axes)]


def parallel_for(count: int, body: Task, *, threaded: bool) -> None:
    """Call `body` with 0 … count - 1, on the caller's thread or on the thread pool.

    NumPy is silent about what is not finite, as it is to the caller.
    """

    def run_index(index: int) -> None:
        # Threads of the pool have NumPy's own settings.
        with np.errstate(all="ignore"):
            body(index)

    def make_worker() -> Task:
        """Return the task of one thread."""
        return run_index

    run_tasks(count, make_worker, threads=None if threaded else 1)
