"""Scheduling of recordings on a cluster: each is done once, whatever happens to the
workers.

Every recording is done once and comes home once. A worker is handed few tasks at a
time, the largest recordings first, so that a scheduler never holds more than the
cluster works on. What a worker held when it ended goes to others, and what it may have
ended over goes alone from then on. A recording that workers end over time and again is
given up; the others only ever wait. A scheduler that comes back finds the rest
submitted again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress

from distributed import Client

from rlxweb.batch.cluster.cluster_messenger import (
    ClusterMessage,
    ClusterMessenger,
    WorkerAnswer,
    WorkerJoined,
    WorkerLeft,
)
from rlxweb.batch.cluster.task_packing import PendingRecording, RecordingQueue
from rlxweb.batch.cluster.worker_death_blame import (
    MAX_DEATHS,
    MAX_DEATHS_AMONG_OTHERS,
    WorkerDeathLog,
)
from rlxweb.batch.cluster.worker_pool import Worker, WorkerPool
from rlxweb.batch.cluster.worker_tasks import TaskReport, analyse_recordings
from rlxweb.batch.cluster.worker_versions import format_addresses
from rlxweb.batch.file_job_protocol import AnalysisOutcome
from rlxweb.batch.settings import Settings
from rlxweb.core.errors import ClusterLost, DeviceLost, RlxError, WorkerFailed

# Workers on which a recording may fail for reasons of theirs, until it is given up.
MAX_TRIES = 3
# How long is waited for a first worker, or for a scheduler to come back.
MAX_WAIT_S = 120.0
# How long a message is waited for before the cluster is looked at.
_POLL_S = 0.5
_WORKER_CHECK_S = 5.0
_CONNECTION_LOST = "scheduler-connection-lost"  # Dask's word for it

Notify = Callable[[str], object]
WorkerCountCallback = Callable[[int], object]


def spread(
    files: Sequence[str],
    settings: Settings,
    client: Client,
    notify: Notify,
    *,
    on_worker_count: WorkerCountCallback = bool,
) -> Generator[tuple[str, AnalysisOutcome], None, None]:
    """Analyse every file on the cluster; yield each with its outcome, as they are done.

    notify   is told what happens to workers and to the scheduler
    on_worker_count  is told how many workers there are, whenever that may have changed
    Errors   ClusterError where no worker can be used; ClusterLost where the scheduler
             or all workers are gone and stay away. What is wrong with a recording is
             its outcome.
    """
    run = _ClusterRun(files, settings, client, notify, on_worker_count)
    try:
        yield from run.outcomes()
    finally:
        run.close()


class _ClusterRun:
    def __init__(
        self,
        files: Sequence[str],
        settings: Settings,
        client: Client,
        notify: Notify,
        on_worker_count: WorkerCountCallback,
    ) -> None:
        self._settings, self._notify, self._on_worker_count = (
            settings,
            notify,
            on_worker_count,
        )
        self._queue = RecordingQueue(files)
        self._submitted: dict[str, tuple[list[PendingRecording], Worker]] = {}
        self._death_log = WorkerDeathLog()
        self._finished: list[tuple[str, AnalysisOutcome]] = []
        self._client, self._owns_client = client, False
        self._messenger = ClusterMessenger(client)
        try:
            self._pool = WorkerPool(self._messenger, settings, notify)
        except BaseException:
            self._messenger.close()
            raise
        self._no_worker_since: float | None = None
        self._is_no_worker_reported = False
        self._is_disconnected = False
        self._next_worker_check = time.monotonic()

    def close(self) -> None:
        self._messenger.close()
        if self._owns_client:
            with suppress(OSError, TimeoutError):
                self._client.close(timeout=_POLL_S)

    def outcomes(self) -> Iterator[tuple[str, AnalysisOutcome]]:
        while self._queue or self._submitted:
            self._assign_tasks()
            self._on_worker_count(len(self._pool.workers))
            for message in self._messenger.receive(_POLL_S):
                self._handle_message(message)
            yield from self._finished
            self._finished.clear()
            self._check_cluster()

    # --- handing out ----------------------------------------------------------------

    def _assign_tasks(self) -> None:
        if not self._queue:
            self._rebalance()
        has_submitted = True
        while has_submitted and self._messenger.is_open:
            has_submitted = False
            for worker in self._pool.workers_with_capacity(len(self._queue)):
                task = self._queue.pop_task(
                    worker.address, self._pool.n_threads, self._pool.has_other_worker
                )
                if task:
                    self._submit(task, worker)
                    has_submitted = True

    def _submit(self, task: list[PendingRecording], worker: Worker) -> None:
        key = self._messenger.submit(
            "rlxweb-recordings",
            worker.address,
            analyse_recordings,
            [pending.recording for pending in task],
            self._settings,
        )
        worker.task_keys[key] = None
        self._submitted[key] = task, worker

    def _rebalance(self) -> None:
        """Move a task that waits behind a long one to an idle worker."""
        key = self._pool.key_to_reassign()
        if key is not None:
            self._queue.push_back(self._withdraw(key))

    def _withdraw(self, key: str) -> list[PendingRecording]:
        """Take a task back from its worker."""
        task, worker = self._submitted.pop(key)
        worker.task_keys.pop(key, None)
        self._messenger.cancel([key])
        return task

    # --- what comes back ------------------------------------------------------------

    def _handle_message(self, message: ClusterMessage) -> None:
        if isinstance(message, WorkerAnswer):
            if (
                not self._pool.handle_probe_answer(message)
                and message.key in self._submitted
            ):
                self._handle_answer(message)
        elif isinstance(message, WorkerJoined):
            with suppress(OSError, TimeoutError):  # counted again before long
                self._pool.add_workers([message.address])
        else:
            self._handle_departure(message)

    def _handle_answer(self, answer: WorkerAnswer) -> None:
        worker = self._submitted[answer.key][1]
        task = self._withdraw(answer.key)
        if isinstance(answer.value, TaskReport):
            self._handle_report(task, worker, answer.value)
        elif _is_transport_error(answer.error):
            # The scheduler forgot it, or is gone itself: nobody is to blame.
            self._is_disconnected |= (
                getattr(answer.error, "reason", "") == _CONNECTION_LOST
            )
            self._queue.push_front(task)
        else:
            for pending in reversed(task):
                self._handle_failure(
                    pending, worker, _task_not_run_error(pending, answer.error)
                )

    def _handle_report(
        self, task: list[PendingRecording], worker: Worker, report: TaskReport
    ) -> None:
        n_done = len(report.outcomes)
        if n_done:
            worker.failed_recordings.clear()
        for pending, outcome in zip(task[:n_done], report.outcomes, strict=True):
            self._finished.append((pending.recording.user_path, outcome))
        if report.failure is not None:
            self._queue.push_front(task[n_done + 1 :])
            self._handle_failure(task[n_done], worker, report.failure)

    def _handle_failure(
        self, pending: PendingRecording, worker: Worker, error: RlxError
    ) -> None:
        """Handle a failure for a reason of the worker's; try another worker as long as
        that is of use.
        """
        pending.failed_workers.append(worker.address)
        self._pool.record_fault(worker, pending.recording.user_path, error.with_flags)
        if len({*pending.failed_workers}) > 1:
            self._pool.clear_fault(pending.recording.user_path)
        if len(pending.failed_workers) < MAX_TRIES:
            self._queue.push_front([pending])  # others tell who is to blame
        else:
            self._finished.append(
                (pending.recording.user_path, _final_error(pending, error))
            )

    def _handle_departure(self, departure: WorkerLeft) -> None:
        running_keys, held_keys = self._pool.remove_worker(departure)
        if running_keys or held_keys:
            self._notify(
                f"worker {departure.address} left; other workers take over its tasks"
            )
        for key in reversed(held_keys):
            self._queue.push_front(self._withdraw(key))
        for key in running_keys:
            self._handle_death(self._withdraw(key), departure.address)

    def _handle_death(self, task: list[PendingRecording], address: str) -> None:
        to_blame = self._death_log.record_death(task, address)
        self._queue.push_back(pending for pending in task if pending not in to_blame)
        self._finished += [
            (pending.recording.user_path, _worker_deaths_error(pending))
            for pending in to_blame
        ]

    # --- the cluster itself ---------------------------------------------------------

    def _check_cluster(self) -> None:
        """Check that the scheduler and at least one worker are there to do the rest."""
        if not self._messenger.is_open or self._is_disconnected:
            self._wait_for_scheduler()
        now = time.monotonic()
        if now >= self._next_worker_check:
            self._next_worker_check = now + _WORKER_CHECK_S
            self._update_workers()
        if self._pool.workers or self._pool.has_pending_probes or not self._queue:
            self._no_worker_since = None
            return
        if self._pool.excluded and not self._pool.has_had_worker:
            raise self._pool.no_worker_error()
        self._wait_for_workers()

    def _update_workers(self) -> None:
        """Compare the workers with those that the scheduler lists; not every change is
        reported.
        """
        with suppress(OSError, TimeoutError):
            present = set(self._client.nthreads())
            for address in self._pool.missing_workers(present):
                self._handle_departure(
                    WorkerLeft(address, frozenset(self._submitted), is_expected=False)
                )
            self._pool.add_workers(present)

    def _wait_for_workers(self) -> None:
        now = time.monotonic()
        if self._no_worker_since is None:
            self._no_worker_since, self._is_no_worker_reported = now, False
        waited_s = now - self._no_worker_since
        # After 3 s: where one dies another often comes at once.
        if waited_s >= MAX_WAIT_S / 40 and not self._is_no_worker_reported:
            self._is_no_worker_reported = True
            self._notify(
                "the cluster has no workers: start one with `dask worker "
                f"{self._messenger.address}`; waiting {MAX_WAIT_S:g} s"
            )
        if waited_s > MAX_WAIT_S:
            raise ClusterLost(
                f"work on the cluster at {self._messenger.address}",
                "the cluster has no workers",
                f"waited {MAX_WAIT_S:g} s",
                f"start one with `dask worker {self._messenger.address}`",
            )

    def _wait_for_scheduler(self) -> None:
        """Wait for the scheduler to come back, then submit all unfinished tasks
        again.
        """
        address = self._messenger.address
        self._notify(f"lost the scheduler at {address}; waiting {MAX_WAIT_S:g} s")
        self._is_disconnected = False
        self._messenger.close()
        submitted = [
            pending for task, _ in self._submitted.values() for pending in task
        ]
        self._submitted.clear()
        self._queue.push_front(submitted)
        self._client = self._reconnect(address)
        self._messenger = ClusterMessenger(self._client)
        self._pool = WorkerPool(self._messenger, self._settings, self._notify)
        self._pool.has_had_worker = True
        self._notify(f"reconnected to the scheduler at {address}")

    def _reconnect(self, address: str) -> Client:
        """Return the client once it is connected again, or a new one in its place."""
        end = time.monotonic() + MAX_WAIT_S
        while (remaining_s := end - time.monotonic()) > 0:
            if self._client.status == "running":
                return self._client
            if self._client.status == "connecting":
                self._messenger.wait(_POLL_S)
                continue
            with suppress(OSError, TimeoutError):
                security = self._client.security
                client = Client(
                    address, timeout=min(remaining_s, 10), security=security
                )
                self._owns_client = True
                return client
        raise ClusterLost(
            f"work on the cluster at {address}",
            "the connection to the scheduler was lost",
            f"waited {MAX_WAIT_S:g} s",
            "restart the scheduler at the same address and run the command again",
        )


def _is_transport_error(error: BaseException | None) -> bool:
    """Return whether an answer was lost on the way; no recording raises such an
    error.
    """
    return isinstance(error, OSError) or not isinstance(error, Exception)


def _task_not_run_error(
    pending: PendingRecording, error: BaseException | None
) -> WorkerFailed:
    """Return the error for a task that Dask could not run."""
    message = " ".join(str(error).split())
    return WorkerFailed(
        f"welch of {pending.recording.user_path!r}",
        f"the worker cannot run the task: {type(error).__name__}: {message}",
        hint="install the same packages on every worker",
    )


def _final_error(pending: PendingRecording, error: RlxError) -> AnalysisOutcome:
    """Return the last error of a recording that is given up; a lost device must not end
    a run whose others succeed.
    """
    if isinstance(error, DeviceLost):
        error = WorkerFailed(error.doing, error.problem, error.rule, error.hint)
    tries = (
        f"tried {MAX_TRIES} times, on "
        f"{format_addresses(list(dict.fromkeys(pending.failed_workers)))}"
    )
    error.rule = "; ".join(filter(None, (error.rule, tries)))
    return error


def _worker_deaths_error(pending: PendingRecording) -> WorkerFailed:
    """Return the error for a recording over which too many workers ended."""
    return WorkerFailed(
        f"welch of {pending.recording.user_path!r}",
        f"{len(pending.ended_workers)} workers died while processing the recording: "
        f"{format_addresses(pending.ended_workers)}",
        f"a recording fails after {MAX_DEATHS} worker deaths, or after "
        f"{MAX_DEATHS_AMONG_OTHERS} if at least as many workers die during other "
        "recordings",
        "increase the memory of the workers (`--memory-limit` of `dask worker`), or "
        "run this recording without a cluster to see whether reading it crashes",
    )
