"""Arrays as boxes of some elements each, done one by one on a few threads.

What is computed box by box stays in a core's cache, however many steps it takes, where
whole arrays walk memory once a step. The boxes follow from the shape alone. Threads
that call NumPy hand Python's lock to and fro: their boxes must be large.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Final

import numpy as np

from rlxweb.host.row_blocks import Task, run_tasks
from rlxweb.ir.shape import Shape

Box = tuple[slice, ...]

SHARE: Final = 1 << 17
"""Elements of a box where threads share them."""


def boxes_of(shape: Shape, most: int) -> list[Box]:
    """The elements of a shape as boxes of at most so many, the last axes whole."""
    cut = len(shape)
    while cut and prod(shape[cut - 1 :]) <= most:
        cut -= 1
    behind = [slice(0, size) for size in shape[cut:]]
    if not cut:
        return [tuple(behind)]
    step = most // prod(shape[cut:])
    axes = [[slice(i, i + 1) for i in range(size)] for size in shape[: cut - 1]]
    axes.append([slice(i, i + step) for i in range(0, shape[cut - 1], step)])
    return [(*lead, *behind) for lead in product(*axes)]


def for_each(count: int, body: Task, *, threaded: bool) -> None:
    """`body` of 0 … count - 1, on the caller's thread or on all there are.

    NumPy is silent about what is not finite, as it is to the caller.
    """

    def task(at: int) -> None:
        # Threads of the pool have NumPy's own settings.
        with np.errstate(all="ignore"):
            body(at)

    def make_worker() -> Task:
        return task

    run_tasks(count, make_worker, threads=None if threaded else 1)
