"""Discrete-event simulation of many workers that analyse recordings, from measured task
costs.

A task of recordings goes through lines that serve one at a time, in the order of
arrival: the client that submits it, the scheduler, the worker that reads and computes
it, the storage that all workers share, the network back, scheduler and client again.
Only so many tasks are on their way at a time, as in `rlxweb.batch.cluster.recordings`,
and small recordings share one, as in `rlxweb.batch.cluster.task_packing`. The busiest
line is the limit.

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

from rlxweb.batch.cluster.task_packing import TASKS_LEFT_PER_THREAD


@dataclass(frozen=True, slots=True)
class RecordingWork:
    """Work of one recording.

    compute_s     of one worker, in the mean; `spread` is its relative deviation
    read_nbytes   from the storage
    result_nbytes  of the result
    max_per_task  so many share a task, at most
    """

    compute_s: float
    read_nbytes: float
    result_nbytes: float
    spread: float = 0.0
    max_per_task: int = 1


@dataclass(frozen=True, slots=True)
class TaskCosts:
    """Seconds that a task takes beside its work.

    client_s     to submit it and to take its result
    scheduler_s  of the scheduler's one thread
    worker_s     of the worker's process: messages, unpickling, thread
    """

    client_s: float
    scheduler_s: float
    worker_s: float


@dataclass(frozen=True, slots=True)
class StorageRates:
    """Rates in bytes per second: of one worker, of all together, and of results on
    their way back.
    """

    name: str
    per_worker: float = inf
    total: float = inf
    results: float = inf

    def describe(self) -> str:
        """Return the storage's limits in words."""
        limits = (
            (self.per_worker, "{:,.0f} MB/s a worker"),
            (self.total, "{:,.0f} MB/s for all"),
            (self.results, "{:,.0f} MB/s for results"),
        )
        return ", ".join(template.format(v / 1e6) for v, template in limits if v < inf)


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """Simulated run, with the share of the time that each resource was busy."""

    n_workers: int
    n_recordings: int
    seconds: float
    busy_shares: dict[str, float]

    @property
    def per_second(self) -> float:
        """Recordings per second."""
        return self.n_recordings / self.seconds

    @property
    def limit(self) -> str:
        """Name of the busiest resource."""
        return max(self.busy_shares, key=lambda name: self.busy_shares[name])


@dataclass(slots=True)
class _FifoServer:
    """First-in, first-out server; requests must come in the order of time."""

    free_at: float = 0.0
    busy_s: float = 0.0

    def serve(self, now: float, seconds: float) -> float:
        """Return the time at which a request that arrives now is done."""
        self.free_at = max(now, self.free_at) + seconds
        self.busy_s += seconds
        return self.free_at


@dataclass(slots=True)
class _Worker:
    task_queue: deque[int] = field(default_factory=deque)  # recordings of each task
    is_busy: bool = False
    busy_s: float = 0.0

    @property
    def load(self) -> int:
        return len(self.task_queue) + self.is_busy


class _Simulation:
    """State of a simulation: the clock, the servers and the remaining work."""

    def __init__(
        self, work: RecordingWork, costs: TaskCosts, storage: StorageRates, n: int
    ) -> None:
        self.work, self.costs, self.storage = work, costs, storage
        self.client, self.scheduler, self.disk, self.network = (
            _FifoServer() for _ in range(4)
        )
        self.workers = [_Worker() for _ in range(n)]
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.order = count()
        self.by_load = [(0, worker) for worker in range(n)]
        self.rng = random.Random(n)
        self.n_remaining = self.n_done = 0

    def schedule(self, event_time: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self.events, (event_time, next(self.order), action))

    def run(self, n_recordings: int, tasks_per_worker: int) -> float:
        """Simulate all recordings and return the seconds until the last result
        arrives.
        """
        self.n_remaining, now = n_recordings, 0.0
        for _ in range(tasks_per_worker * len(self.workers)):
            self.submit_task(now)
        while self.events:
            now, _, action = heapq.heappop(self.events)
            action(now)
        assert self.n_done == n_recordings
        return now

    def submit_task(self, now: float) -> None:
        """Submit a task of as many recordings as may share one, unless none is left."""
        fair_share = self.n_remaining // (TASKS_LEFT_PER_THREAD * len(self.workers))
        n = min(self.n_remaining, max(1, min(self.work.max_per_task, fair_share)))
        if n:
            self.n_remaining -= n
            submitted_at = self.client.serve(now, self.costs.client_s / 2)
            self.schedule(submitted_at, lambda time: self.assign_task(time, n))

    def assign_task(self, now: float, n: int) -> None:
        assigned_at = self.scheduler.serve(now, self.costs.scheduler_s / 2)
        self.schedule(assigned_at, lambda time: self.enqueue_task(time, n))

    def enqueue_task(self, now: float, n: int) -> None:
        """Give the task to the worker with the smallest load."""
        while True:
            load, index = heapq.heappop(self.by_load)
            worker = self.workers[index]
            if load == worker.load:  # else it was put there again since
                break
        worker.task_queue.append(n)
        if not worker.is_busy:
            self.start_task(now, index)
        heapq.heappush(self.by_load, (worker.load, index))

    def draw_compute_s(self, n: int) -> float:
        spread, mean = self.work.spread, self.work.compute_s
        if not spread:
            return n * mean
        # Gamma: never below 0, its mean and deviation as asked, for the sum of n.
        return self.rng.gammavariate(n * spread**-2, mean * spread**2)

    def start_task(self, now: float, index: int) -> None:
        worker = self.workers[index]
        worker.is_busy = True
        n = worker.task_queue.popleft()
        seconds = self.draw_compute_s(n) + self.costs.worker_s
        nbytes = n * self.work.read_nbytes
        storage_done_at = self.disk.serve(now, nbytes / self.storage.total)
        read_at = max(storage_done_at, now + nbytes / self.storage.per_worker)
        worker.busy_s += seconds + nbytes / self.storage.per_worker
        self.schedule(read_at + seconds, lambda time: self.end_task(time, index, n))

    def end_task(self, now: float, index: int, n: int) -> None:
        worker = self.workers[index]
        worker.is_busy = False
        if worker.task_queue:
            self.start_task(now, index)
        heapq.heappush(self.by_load, (worker.load, index))
        sent_at = self.network.serve(
            now, n * self.work.result_nbytes / self.storage.results
        )
        self.schedule(sent_at, lambda time: self.notify_scheduler(time, n))

    def notify_scheduler(self, now: float, n: int) -> None:
        notified_at = self.scheduler.serve(now, self.costs.scheduler_s / 2)
        self.schedule(notified_at, lambda time: self.receive_result(time, n))

    def receive_result(self, now: float, n: int) -> None:
        received_at = self.client.serve(now, self.costs.client_s / 2)
        self.schedule(received_at, lambda time: self.finish_task(time, n))

    def finish_task(self, now: float, n: int) -> None:
        self.n_done += n
        self.submit_task(now)


def simulate(
    n_workers: int,
    work: RecordingWork,
    costs: TaskCosts,
    storage: StorageRates,
    *,
    n_recordings: int,
    tasks_per_worker: int = 2,
) -> SimulatedRun:
    """Simulate a run of `n_recordings` equal recordings.

    tasks_per_worker  tasks on their way per worker
    """
    simulation = _Simulation(work, costs, storage, n_workers)
    seconds = simulation.run(n_recordings, tasks_per_worker)
    busy_s = sum(worker.busy_s for worker in simulation.workers) / n_workers
    busy_times = {
        "workers": busy_s,
        "client": simulation.client.busy_s,
        "scheduler": simulation.scheduler.busy_s,
        "storage": simulation.disk.busy_s,
        "network": simulation.network.busy_s,
    }
    busy = {name: busy_s / seconds for name, busy_s in busy_times.items()}
    return SimulatedRun(n_workers, n_recordings, seconds, busy)
