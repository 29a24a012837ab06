"""Workers of a cluster that take part in a run: which are admitted, what each holds,
and which are excluded.

A worker is asked for its versions, and for the device where one was asked for, before
it is given anything: those that are there at the beginning and those that join later
alike. Owns how much a worker holds at a time. Knows of a piece of work its name only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import version

from rlxweb.batch.cluster.cluster_messenger import (
    ClusterMessenger,
    WorkerAnswer,
    WorkerLeft,
)
from rlxweb.batch.cluster.worker_tasks import try_device
from rlxweb.batch.cluster.worker_versions import (
    MATCHED_PACKAGES,
    WorkerFacts,
    group_by_reason,
    list_workers,
    no_worker_error,
    version_mismatch,
    with_versions,
)
from rlxweb.batch.settings import Settings
from rlxweb.core.errors import ClusterError, RlxError

Notify = Callable[[str], object]

# Failures of a worker's own, one after another, after which it is given nothing more.
MAX_FAULTS = 3
# Workers of one machine that may end while they open a device.
_MAX_PROBE_DEATHS = 3
# What a worker holds for each of its threads: the one at work and the next.
_MAX_TASKS_PER_THREAD = 2


@dataclass(slots=True)
class Worker:
    """Worker that takes part in the run.

    task_keys  keys of what it was given and is not done, in their order
    failed_recordings  recordings that failed there, for a reason of its own, since its
                       last success; and `last_failure` the last did
    """

    address: str
    facts: WorkerFacts
    task_keys: dict[str, None] = field(default_factory=dict)
    failed_recordings: set[str] = field(default_factory=set)
    last_failure: str = ""

    @property
    def running_keys(self) -> list[str]:
        """Keys of the tasks it is working on: the first ones, one per thread."""
        return list(self.task_keys)[: self.facts.nthreads]


class WorkerPool:
    """Workers of one run, and those that are excluded from it.

    workers   by address; those that may be given work
    excluded  by address, why the others may not
    has_had_worker  was there ever one who may
    """

    def __init__(
        self, messenger: ClusterMessenger, settings: Settings, notify: Notify
    ) -> None:
        self._messenger, self._settings, self._notify = messenger, settings, notify
        self.workers: dict[str, Worker] = {}
        self.excluded: dict[str, str] = {}
        self._unreported_exclusions: dict[str, str] = {}
        self._faulty_workers: dict[str, Worker] = {}
        self._probed_workers: dict[str, Worker] = {}
        self._probe_deaths: dict[str, int] = {}
        self._only_version_mismatches = True
        self.has_had_worker = False
        self._probe_versions(list_workers(messenger.client))

    # --- who comes and goes ---------------------------------------------------------

    def add_workers(self, addresses: Iterable[str]) -> None:
        """Probe workers that joined after the start."""
        known_addresses = {*self.workers, *self.excluded, *self._probed_addresses}
        new_addresses = [
            address for address in addresses if address not in known_addresses
        ]
        if new_addresses:
            self._probe_versions(list_workers(self._messenger.client, new_addresses))

    def _probe_versions(self, workers: dict[str, WorkerFacts]) -> None:
        """Ask workers for the versions of their packages."""
        for address, facts in workers.items():
            key = self._messenger.query(address, version, MATCHED_PACKAGES)
            self._probed_workers[key] = Worker(address, facts)

    def missing_workers(self, present: set[str]) -> list[str]:
        """Return the admitted and probed workers that are not among the addresses
        present.
        """
        return [
            address
            for address in (*self.workers, *self._probed_addresses)
            if address not in present
        ]

    @property
    def _probed_addresses(self) -> set[str]:
        return {worker.address for worker in self._probed_workers.values()}

    def _admit(self, worker: Worker) -> None:
        if self._settings.requested_device == "auto":
            self._add_to_pool(worker)
            return
        host = worker.facts.host
        if self._probe_deaths.get(host, 0) >= _MAX_PROBE_DEATHS:
            device = self._settings.requested_device
            self._only_version_mismatches = False
            self._exclude(
                {worker.address: f"workers on {host} die when they open {device!r}"}
            )
            return
        key = self._messenger.submit(
            "rlxweb-device", worker.address, try_device, self._settings
        )
        self._probed_workers[key] = worker

    def _add_to_pool(self, worker: Worker) -> None:
        self.workers[worker.address] = worker
        self.has_had_worker = True
        self._exclude_faulty()

    def handle_probe_answer(self, answer: WorkerAnswer) -> bool:
        """Admit or exclude a worker by its answer to a probe; False if the answer is to
        something else.
        """
        worker = self._probed_workers.pop(answer.key, None)
        if worker is None:
            return False
        if not worker.facts.versions:
            self._handle_versions(worker, answer)
        elif answer.error is None and answer.value is None:
            self._add_to_pool(worker)
        else:
            why = answer.value or answer.error
            self._only_version_mismatches = False
            message = why.with_flags if isinstance(why, RlxError) else repr(why)
            self._exclude({worker.address: message})
        self._report_exclusions()
        return True

    def _handle_versions(self, worker: Worker, answer: WorkerAnswer) -> None:
        answers = answer.value if isinstance(answer.value, list) else []
        worker.facts = with_versions(
            worker.facts, answers or [answer.error] * len(MATCHED_PACKAGES)
        )
        if why := version_mismatch(worker.facts):
            self._exclude({worker.address: why})
        else:
            self._admit(worker)

    def remove_worker(self, departure: WorkerLeft) -> tuple[list[str], list[str]]:
        """Remove a worker that is gone; return the keys it was working on, and those it
        only held.
        """
        for key, worker in list(self._probed_workers.items()):
            if worker.address == departure.address:
                del self._probed_workers[key]
                self._messenger.cancel([key])
                host = worker.facts.host
                is_probe_death = (
                    bool(worker.facts.versions) and not departure.is_expected
                )
                deaths = self._probe_deaths.get(host, 0)
                self._probe_deaths[host] = deaths + is_probe_death
        self._report_exclusions()
        self.excluded.pop(departure.address, None)
        self._faulty_workers.pop(departure.address, None)
        departed_worker = self.workers.pop(departure.address, None)
        if departed_worker is None:
            return [], []
        # What was done, and is lost with its worker, is not what the worker ended over.
        unfinished = [
            key for key in departed_worker.task_keys if key in departure.unfinished_keys
        ]
        running_keys = (
            []
            if departure.is_expected
            else unfinished[: departed_worker.facts.nthreads]
        )
        return running_keys, [
            key for key in departed_worker.task_keys if key not in running_keys
        ]

    def _exclude(self, reasons: dict[str, str]) -> None:
        self.excluded |= reasons
        self._unreported_exclusions |= reasons
        self._report_exclusions()

    def _report_exclusions(self) -> None:
        """Report excluded workers once all have told their versions: a line per reason,
        not per worker.
        """
        if all(worker.facts.versions for worker in self._probed_workers.values()):
            for line in group_by_reason(self._unreported_exclusions):
                self._notify(f"excluded {line}")
            self._unreported_exclusions.clear()

    # --- who is given work ----------------------------------------------------------

    @property
    def has_pending_probes(self) -> bool:
        """Return whether a worker has not yet answered its probes."""
        return bool(self._probed_workers)

    @property
    def n_threads(self) -> int:
        """Number of threads of all admitted workers."""
        return sum(worker.facts.nthreads for worker in self.workers.values())

    def no_worker_error(self) -> ClusterError:
        """Return the error for a cluster whose workers are all excluded."""
        return no_worker_error(
            self.excluded, same_versions=self._only_version_mismatches
        )

    def workers_with_capacity(self, n_waiting: int) -> list[Worker]:
        """Return the workers that may be given more tasks, the least loaded first.

        A second one for a thread that is at work is only given while there is enough
        for all, so that at the end nothing waits behind a long one.
        """
        max_per_thread = _MAX_TASKS_PER_THREAD if n_waiting > self.n_threads else 1
        free = [
            worker
            for worker in self.workers.values()
            if _tasks_per_thread(worker) < max_per_thread
        ]
        return sorted(free, key=_tasks_per_thread)

    def has_other_worker(self, tried: Iterable[str]) -> bool:
        """Return whether there is a worker besides those tried, or may be one in a
        moment.
        """
        return self.has_pending_probes or bool(self.workers.keys() - set(tried))

    def key_to_reassign(self) -> str | None:
        """Return the key of a task that waits while another worker is idle; None if
        there is none.
        """
        if not any(_tasks_per_thread(worker) < 1 for worker in self.workers.values()):
            return None
        busiest = max(self.workers.values(), key=_tasks_per_thread)
        return list(busiest.task_keys)[-1] if _tasks_per_thread(busiest) > 1 else None

    def record_fault(self, worker: Worker, recording: str, why: str) -> None:
        """Record a failure that is the worker's own; the last worker is never
        excluded.
        """
        worker.failed_recordings.add(recording)
        worker.last_failure = why
        self._exclude_faulty()

    def clear_fault(self, recording: str) -> None:
        """Clear a recording's failure from all workers, as it fails on several, and
        readmit workers excluded for it.
        """
        for worker in (*self.workers.values(), *self._faulty_workers.values()):
            worker.failed_recordings.discard(recording)
        for address, worker in list(self._faulty_workers.items()):
            if len(worker.failed_recordings) < MAX_FAULTS:
                del self._faulty_workers[address], self.excluded[address]
                self.workers[address] = worker
                self._notify(
                    f"readmitted worker {address}: the same recordings also fail on "
                    "other workers"
                )

    def _exclude_faulty(self) -> None:
        for address, worker in list(self.workers.items()):
            if len(worker.failed_recordings) >= MAX_FAULTS and len(self.workers) > 1:
                self._faulty_workers[address] = self.workers.pop(address)
                self._only_version_mismatches = False
                message = (
                    f"{MAX_FAULTS} consecutive recordings failed on the worker; last "
                    f"error: {worker.last_failure}"
                )
                self._exclude({address: message})


def _tasks_per_thread(worker: Worker) -> float:
    """Return the number of tasks that a worker holds for each of its threads."""
    return len(worker.task_keys) / worker.facts.nthreads
