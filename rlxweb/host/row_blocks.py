"""Runs numbered, independent tasks on a few threads; small work stays on one.

Owns the lazily made thread pool. It must not know what a task computes: every task
writes its own part of the output, so the answer does not depend on how many threads
there are, nor on which one takes which task.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from rlxweb.stopping import check_stopped

Task: TypeAlias = Callable[[int], None]

MOST_THREADS = 32


_sharing = [1]
"""Processes that share the CPUs with this one, itself among them; see `share_cpus`."""


@lru_cache(maxsize=1)
def usable_cpus() -> int:
    """CPUs this process may use; 1 where threads cannot be started (Pyodide)."""
    if sys.platform == "emscripten":
        return 1
    there = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        there = len(os.sched_getaffinity(0))
    return min(MOST_THREADS, max(1, there // _sharing[0]))


def share_cpus(n_processes: int) -> None:
    """Take a share of the CPUs: so many processes are at work, this one among them.

    Said once, before it computes anything.
    """
    _sharing[0] = max(1, n_processes)
    usable_cpus.cache_clear()


@lru_cache(maxsize=1)
def _pool(pid: int) -> ThreadPoolExecutor:
    # Keyed by process: a forked child inherits the object but none of its threads.
    return ThreadPoolExecutor(
        max(1, usable_cpus() - 1), thread_name_prefix=f"rlxweb-{pid}"
    )


def _drain(todo: deque[int], make_worker: Callable[[], Task]) -> None:
    try:
        with np.errstate(invalid="ignore"):
            work = make_worker()
            while todo:
                try:
                    task = todo.popleft()
                except IndexError:
                    return
                check_stopped()
                work(task)
    except BaseException:
        todo.clear()
        raise


def _enlist(
    how_many: int, todo: deque[int], make_worker: Callable[[], Task]
) -> list[Future[None]]:
    enlisted: list[Future[None]] = []
    for _ in range(how_many):
        try:
            enlisted.append(_pool(os.getpid()).submit(_drain, todo, make_worker))
        except RuntimeError:
            # The interpreter is closing or has no thread left to give. The caller
            # works through the same queue, so the answer is the same bits.
            break
    return enlisted


def run_tasks(
    n_tasks: int, make_worker: Callable[[], Task], *, threads: int | None = None
) -> None:
    """Run tasks 0 … n_tasks - 1; the calling thread takes its share.

    `make_worker` is called once per thread taking part and returns the function that
    does one task, so scratch memory belongs to exactly one thread. `threads=1` keeps
    everything on the caller's thread. The first error of any task is raised. NaN in the
    data may flow through on request, so NumPy does not warn of it here.
    """
    width = min(n_tasks, usable_cpus() if threads is None else threads)
    if width <= 1:
        with np.errstate(invalid="ignore"):
            work = make_worker()
            for task in range(n_tasks):
                check_stopped()
                work(task)
        return
    todo = deque(range(n_tasks))
    enlisted = _enlist(width - 1, todo, make_worker)
    try:
        _drain(todo, make_worker)
    finally:
        # Whoever has not begun never will; whoever has begun still writes the output.
        running = [future for future in enlisted if not future.cancel()]
        wait(running)
    for future in running:
        future.result()


def together(call: Callable[[], object], threaded: bool) -> None:
    """`call` on every thread at once: who calls first may do it all.

    For machine code that shares out its work itself, without Python's lock in between.
    """

    def task(at: int) -> None:
        call()

    def make_worker() -> Task:
        return task

    run_tasks(usable_cpus() if threaded else 1, make_worker)
