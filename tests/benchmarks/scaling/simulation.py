"""A run over recordings on many workers, event by event, from measured costs of a task.

A task of recordings goes through lines that serve one at a time, in the order of
arrival: the client that submits it, the scheduler, the worker that reads and computes
it, the storage that all workers share, the network back, scheduler and client again.
Only so many tasks are on their way at a time, as in `rlxweb.dask.recordings`, and small
recordings share one, as in `rlxweb.dask.packing`. The busiest line is the limit.

Left out: the time until workers are there, faults, work stolen from one worker by
another, and what the garbage collector of a scheduler does to its time per task.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from math import inf

from rlxweb.dask.packing import PART


@dataclass(frozen=True, slots=True)
class Work:
    """One recording.

    compute_s     of one worker, in the mean; `spread` is its relative deviation
    read_nbytes   from the storage
    back_nbytes   of the result
    together      so many share a task, at most
    """

    compute_s: float
    read_nbytes: float
    back_nbytes: float
    spread: float = 0.0
    together: int = 1


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds a task takes beside its work.

    client_s     to submit it and to take its result
    scheduler_s  of the scheduler's one thread
    worker_s     of the worker's process: messages, unpickling, thread
    """

    client_s: float
    scheduler_s: float
    worker_s: float


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes per second: of one reader at most, of all together, and of results home."""

    name: str
    one: float = inf
    together: float = inf
    home: float = inf

    def says(self) -> str:
        """The storage's limits in words."""
        told = (
            (self.one, "{:,.0f} MB/s a worker"),
            (self.together, "{:,.0f} MB/s for all"),
            (self.home, "{:,.0f} MB/s for results"),
        )
        return ", ".join(word.format(v / 1e6) for v, word in told if v < inf)


@dataclass(frozen=True, slots=True)
class Run:
    """A simulated run: `busy` is the share of the time that each line was."""

    n_workers: int
    n_recordings: int
    seconds: float
    busy: dict[str, float]

    @property
    def per_second(self) -> float:
        """Recordings."""
        return self.n_recordings / self.seconds

    @property
    def limit(self) -> str:
        """The busiest line."""
        return max(self.busy, key=lambda name: self.busy[name])


@dataclass(slots=True)
class _Line:
    """Serves one at a time, in the order of arrival; is asked in the order of time."""

    free: float = 0.0
    worked: float = 0.0

    def served(self, now: float, seconds: float) -> float:
        """The time when the line is done with what arrives now."""
        self.free = max(now, self.free) + seconds
        self.worked += seconds
        return self.free


@dataclass(slots=True)
class _Worker:
    waiting: deque[int] = field(default_factory=deque)  # recordings of each task
    is_busy: bool = False
    worked: float = 0.0

    @property
    def load(self) -> int:
        return len(self.waiting) + self.is_busy


class _Simulation:
    """The clock, the lines and what is still to do."""

    def __init__(self, work: Work, costs: Costs, storage: Storage, n: int) -> None:
        self.work, self.costs, self.storage = work, costs, storage
        self.client, self.scheduler, self.disk, self.net = (_Line() for _ in range(4))
        self.workers = [_Worker() for _ in range(n)]
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.order = count()
        self.by_load = [(0, at) for at in range(n)]
        self.chance = random.Random(n)
        self.left = self.done = 0

    def at(self, when: float, what: Callable[[float], None]) -> None:
        heapq.heappush(self.events, (when, next(self.order), what))

    def run(self, n_recordings: int, ahead: int) -> float:
        """Seconds until the last result is home."""
        self.left, now = n_recordings, 0.0
        for _ in range(ahead * len(self.workers)):
            self.submit(now)
        while self.events:
            now, _, what = heapq.heappop(self.events)
            what(now)
        assert self.done == n_recordings
        return now

    def submit(self, now: float) -> None:
        """A task of as many as may share one, unless nothing is left."""
        part = self.left // (PART * len(self.workers))
        n = min(self.left, max(1, min(self.work.together, part)))
        if n:
            self.left -= n
            sent = self.client.served(now, self.costs.client_s / 2)
            self.at(sent, lambda then: self.assign(then, n))

    def assign(self, now: float, n: int) -> None:
        assigned = self.scheduler.served(now, self.costs.scheduler_s / 2)
        self.at(assigned, lambda then: self.queue(then, n))

    def queue(self, now: float, n: int) -> None:
        """Give the task to the worker with the least to do."""
        while True:
            load, at = heapq.heappop(self.by_load)
            worker = self.workers[at]
            if load == worker.load:  # else it was put there again since
                break
        worker.waiting.append(n)
        if not worker.is_busy:
            self.start(now, at)
        heapq.heappush(self.by_load, (worker.load, at))

    def computing(self, n: int) -> float:
        spread, mean = self.work.spread, self.work.compute_s
        if not spread:
            return n * mean
        # Gamma: never below 0, its mean and deviation as asked, for the sum of n.
        return self.chance.gammavariate(n * spread**-2, mean * spread**2)

    def start(self, now: float, at: int) -> None:
        worker = self.workers[at]
        worker.is_busy = True
        n = worker.waiting.popleft()
        seconds = self.computing(n) + self.costs.worker_s
        nbytes = n * self.work.read_nbytes
        shared = self.disk.served(now, nbytes / self.storage.together)
        read = max(shared, now + nbytes / self.storage.one)
        worker.worked += seconds + nbytes / self.storage.one
        self.at(read + seconds, lambda then: self.end(then, at, n))

    def end(self, now: float, at: int, n: int) -> None:
        worker = self.workers[at]
        worker.is_busy = False
        if worker.waiting:
            self.start(now, at)
        heapq.heappush(self.by_load, (worker.load, at))
        home = self.net.served(now, n * self.work.back_nbytes / self.storage.home)
        self.at(home, lambda then: self.told(then, n))

    def told(self, now: float, n: int) -> None:
        told = self.scheduler.served(now, self.costs.scheduler_s / 2)
        self.at(told, lambda then: self.taken(then, n))

    def taken(self, now: float, n: int) -> None:
        taken = self.client.served(now, self.costs.client_s / 2)
        self.at(taken, lambda then: self.finished(then, n))

    def finished(self, now: float, n: int) -> None:
        self.done += n
        self.submit(now)


def simulate(
    n_workers: int,
    work: Work,
    costs: Costs,
    storage: Storage,
    *,
    n_recordings: int,
    ahead: int = 2,
) -> Run:
    """The run of `n_recordings` that are alike.

    ahead   tasks on their way per worker
    """
    one = _Simulation(work, costs, storage, n_workers)
    seconds = one.run(n_recordings, ahead)
    worked = sum(worker.worked for worker in one.workers) / n_workers
    lines = {
        "workers": worked,
        "client": one.client.worked,
        "scheduler": one.scheduler.worked,
        "storage": one.disk.worked,
        "network": one.net.worked,
    }
    busy = {name: worked / seconds for name, worked in lines.items()}
    return Run(n_workers, n_recordings, seconds, busy)
