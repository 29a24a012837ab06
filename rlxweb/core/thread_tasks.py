"""Tasks on threads, and the cancellation of what runs there."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TypeAlias

import numpy as np

# --- Cancellation of work whose result is no longer wanted
#
# Long loops ask `raise_if_cancelled` between two steps; whoever starts work that can
# be given up says by `cancellation_scope` how it will learn of it.


class Cancelled(BaseException):
    """Raised to end cancelled work; caught only by the code that cancelled it."""


def _never_cancelled() -> bool:
    """Return False: the work cannot be cancelled."""
    return False


_is_cancelled: ContextVar[Callable[[], bool]] = ContextVar(
    "is_cancelled", default=_never_cancelled
)


@contextmanager
def cancellation_scope(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """End work in the block at its next check once `is_cancelled()` returns True."""
    token = _is_cancelled.set(is_cancelled)
    try:
        yield
    finally:
        _is_cancelled.reset(token)


def cancellation_check() -> Callable[[], None] | None:
    """Return `raise_if_cancelled` for a loop of small steps; None if the work cannot be
    cancelled.
    """
    return None if _is_cancelled.get() is _never_cancelled else raise_if_cancelled


def raise_if_cancelled() -> None:
    """Raise Cancelled if the work on this thread was cancelled."""
    if _is_cancelled.get()():
        raise Cancelled


# --- Numbered, independent tasks on a few threads; small work stays on the caller's
# thread
#
# Owns the lazily made thread pool. It must not know what a task computes: every task
# writes its own part of the output, so the answer does not depend on how many threads
# there are, nor on which one takes which task.

Task: TypeAlias = Callable[[int], None]

MAX_THREADS = 32

_process_count = [1]
"""Number of processes that share the CPUs, this one included; see `share_cpus`."""


@lru_cache(maxsize=1)
def usable_cpus() -> int:
    """Return the CPUs this process may use; 1 where threads cannot be started
    (Pyodide).
    """
    if sys.platform == "emscripten":
        return 1
    cpu_count = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cpu_count = len(os.sched_getaffinity(0))
    return min(MAX_THREADS, max(1, cpu_count // _process_count[0]))


def share_cpus(n_processes: int) -> None:
    """Limit this process to its share of the CPUs among `n_processes` working
    processes.

    Said once, before it computes anything.
    """
    _process_count[0] = max(1, n_processes)
    usable_cpus.cache_clear()


@lru_cache(maxsize=1)
def _thread_pool(pid: int) -> ThreadPoolExecutor:
    """Return the thread pool of this process."""
    # Keyed by process: a forked child inherits the object but none of its threads.
    return ThreadPoolExecutor(
        max(1, usable_cpus() - 1), thread_name_prefix=f"rlxweb-{pid}"
    )


def _run_queued_tasks(task_queue: deque[int], make_worker: Callable[[], Task]) -> None:
    """Run queued tasks until none is left; an error empties the queue."""
    try:
        with np.errstate(invalid="ignore"):
            run_task = make_worker()
            while task_queue:
                try:
                    task = task_queue.popleft()
                except IndexError:
                    return
                raise_if_cancelled()
                run_task(task)
    except BaseException:
        task_queue.clear()
        raise


def _submit_workers(
    worker_count: int, task_queue: deque[int], make_worker: Callable[[], Task]
) -> list[Future[None]]:
    """Submit up to `worker_count` workers to the pool; return their futures."""
    futures: list[Future[None]] = []
    for _ in range(worker_count):
        try:
            futures.append(
                _thread_pool(os.getpid()).submit(
                    _run_queued_tasks, task_queue, make_worker
                )
            )
        except RuntimeError:
            # The interpreter is closing or has no thread left to give. The caller
            # works through the same queue, so the answer is the same bits.
            break
    return futures


def run_tasks(
    n_tasks: int, make_worker: Callable[[], Task], *, threads: int | None = None
) -> None:
    """Run tasks 0 … n_tasks - 1; the calling thread takes its share.

    `make_worker` is called once per thread taking part and returns the function that
    does one task, so scratch memory belongs to exactly one thread. `threads=1` keeps
    everything on the caller's thread. The first error of any task is raised. NaN in the
    data may flow through on request, so NumPy does not warn of it here.
    """
    thread_count = min(n_tasks, usable_cpus() if threads is None else threads)
    if thread_count <= 1:
        with np.errstate(invalid="ignore"):
            run_task = make_worker()
            for task in range(n_tasks):
                raise_if_cancelled()
                run_task(task)
        return
    task_queue = deque(range(n_tasks))
    futures = _submit_workers(thread_count - 1, task_queue, make_worker)
    try:
        _run_queued_tasks(task_queue, make_worker)
    finally:
        # Whoever has not begun never will; whoever has begun still writes the output.
        running = [future for future in futures if not future.cancel()]
        wait(running)
    for future in running:
        future.result()


def run_on_all_threads(function: Callable[[], object], threaded: bool) -> None:
    """Call a function on every thread at once; the first caller may do all the work.

    For machine code that shares out its work itself, without Python's lock in between.
    """

    def call_function(_index: int) -> None:
        function()

    def make_worker() -> Task:
        return call_function

    run_tasks(usable_cpus() if threaded else 1, make_worker)
