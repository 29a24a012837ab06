"""Tasks run once each, on all available threads, and their errors are raised."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rlxweb.core import thread_tasks
from rlxweb.core.thread_tasks import run_tasks, usable_cpus


@pytest.mark.parametrize("threads", [1, 2, 7, None])
@pytest.mark.parametrize("n_tasks", [0, 1, 2, 300])
def test_every_task_runs_once(threads: int | None, n_tasks: int) -> None:
    counts = np.zeros(n_tasks, np.int64)

    def work(task: int) -> None:
        counts[task] += 1

    run_tasks(n_tasks, lambda: work, threads=threads)
    assert (counts == 1).all()


def test_scratch_belongs_to_one_thread() -> None:
    foreign_owners = []

    def make_worker() -> Callable[[int], None]:
        owner = threading.get_ident()

        def work(_: int) -> None:
            if threading.get_ident() != owner:
                foreign_owners.append(owner)

        return work

    run_tasks(200, make_worker, threads=4)
    assert foreign_owners == []


@pytest.mark.parametrize("threads", [1, 4])
def test_an_error_in_a_task_is_raised(threads: int) -> None:
    """The caller sees the task's own error, and the next run is not harmed."""

    def work(task: int) -> None:
        if task == 17:
            raise KeyError(task)

    with pytest.raises(KeyError, match="17"):
        run_tasks(40, lambda: work, threads=threads)
    run_tasks(40, lambda: lambda task: None, threads=threads)


def test_tasks_may_run_tasks() -> None:
    """A nested run ends, though every thread of the pool is busy."""
    finished: list[int] = []

    def outer(_: int) -> None:
        run_tasks(3, lambda: finished.append, threads=3)

    run_tasks(8, lambda: outer, threads=8)
    assert sorted(finished) == sorted([0, 1, 2] * 8)


def test_a_closed_pool_only_costs_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller does all the work if no thread can be started."""
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    monkeypatch.setattr(thread_tasks, "_thread_pool", lambda pid: closed)
    finished: list[int] = []
    run_tasks(5, lambda: finished.append, threads=3)
    assert finished == [0, 1, 2, 3, 4]


def test_a_browser_tab_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pyodide cannot start threads."""
    monkeypatch.setattr("sys.platform", "emscripten")
    assert usable_cpus.__wrapped__() == 1
