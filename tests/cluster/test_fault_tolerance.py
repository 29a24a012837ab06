"""Check that every recording is done once, whatever happens to workers and schedulers.

Real processes, really killed. A worker's preload, Dask's own door for code of a site,
makes what no recording can be made to do: end the process that reads it.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from distributed import Client

from rlxweb.batch.cluster import cluster_clients, recordings
from rlxweb.batch.cluster.cluster_clients import connect_to_scheduler
from rlxweb.batch.cluster.recordings import spread
from rlxweb.batch.cluster.worker_death_blame import MAX_DEATHS
from rlxweb.batch.cluster.worker_versions import local_versions
from rlxweb.batch.file_job_protocol import AnalysisOutcome, analyse_sequentially
from rlxweb.batch.results import FileResult
from rlxweb.batch.settings import Settings
from rlxweb.core.errors import (
    ClusterError,
    ClusterLost,
    OutOfMemory,
    RlxError,
    WorkerFailed,
)
from tests.cli_runners import CommandRunner, check_rejected
from tests.cluster.conftest import START_S, ClusterProcesses, Scheduler, free_port
from tests.cluster.edf_recordings import write_edf_recordings
from tests.cluster.test_recordings_on_cluster import ON_CPU, is_identical
from tests.cluster.test_worker_versions import make_fake_rlxweb
from tests.conftest import require_engine
from tests.wait_with_deadline import wait_until

PRELOAD = Path(__file__).parent / "faulty_worker_preload.py"
LIMITED_WORKER_OPTIONS = "--preload", PRELOAD, "--memory-limit", "400MB"


@pytest.fixture
def scheduler(cluster_processes: ClusterProcesses) -> Scheduler:
    """Start a scheduler for the test, without a worker."""
    return cluster_processes.scheduler()


@pytest.fixture
def scheduler_client(scheduler: Scheduler) -> Iterator[Client]:
    """Yield a client of the test's own scheduler."""
    with Client(scheduler.address, timeout=START_S) as dask_client:
        yield dask_client


def check_outcomes(
    outcomes: list[tuple[str, AnalysisOutcome]], files: list[str]
) -> None:
    """Check that each file came once, with the bits of a run without a cluster."""
    assert sorted(name for name, _ in outcomes) == sorted(files)
    local_outcomes = dict(analyse_sequentially(files, ON_CPU))
    for name, outcome in outcomes:
        assert isinstance(outcome, FileResult), outcome
        assert is_identical(outcome, local_outcomes[name]), name


def kill_process(pid: int) -> None:
    """Kill the process."""
    os.kill(pid, signal.SIGKILL)


def live_worker_pid(client: Client) -> int:
    """Return the process id of a live worker; the first may have to be started
    again.
    """
    pids: list[int] = []

    def has_answered() -> bool:
        pids.extend(client.run(os.getpid, on_error="ignore").values())
        return bool(pids)

    wait_until(has_answered, "a worker answers")
    return pids[0]


def test_killed_workers_lose_no_recording(
    cluster_processes: ClusterProcesses,
    scheduler: Scheduler,
    scheduler_client: Client,
    tmp_path: Path,
) -> None:
    """Every recording is done once although a worker is killed at each fourth
    result.
    """
    for _ in range(2):
        cluster_processes.worker(scheduler.address, nanny=True)
    scheduler_client.wait_for_workers(2, timeout=START_S)
    files = write_edf_recordings(tmp_path / "night", 12)
    messages: list[str] = []
    outcomes = []
    for outcome in spread(files, ON_CPU, scheduler_client, messages.append):
        outcomes.append(outcome)
        if len(outcomes) % 4 == 0 and len(outcomes) < len(files):
            kill_process(live_worker_pid(scheduler_client))
    check_outcomes(outcomes, files)
    assert any("left; other workers take over its tasks" in line for line in messages)


@pytest.fixture(scope="module")
def faulty_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Yield a client of two workers on which recordings fail as their names say.

    They have little memory, which only one that is hungry takes.
    """
    processes = ClusterProcesses(tmp_path_factory.mktemp("odd"))
    with closing(processes):
        scheduler = processes.scheduler()
        for _ in range(2):
            processes.worker(scheduler.address, *LIMITED_WORKER_OPTIONS, nanny=True)
        with Client(scheduler.address, timeout=START_S) as dask_client:
            dask_client.wait_for_workers(2, timeout=START_S)
            yield dask_client


def test_recording_that_kills_every_worker_is_given_up(
    faulty_client: Client, tmp_path: Path
) -> None:
    """A recording over which so many workers end is reported; the others are done."""
    files = write_edf_recordings(tmp_path / "night", 10)
    deadly = str(tmp_path / "night/deadly.edf")
    Path(files[3]).rename(deadly)
    files[3] = deadly
    outcomes = dict(spread(files, ON_CPU, faulty_client, print))
    error = outcomes.pop(deadly)
    check_outcomes(list(outcomes.items()), [f for f in files if f != deadly])
    assert isinstance(error, WorkerFailed)
    assert f"{MAX_DEATHS} workers died while processing the recording" in str(error)
    assert "--memory-limit" in str(error)


def test_recordings_failing_on_a_broken_worker_are_retried_elsewhere(
    cluster_processes: ClusterProcesses,
    scheduler: Scheduler,
    scheduler_client: Client,
    tmp_path: Path,
) -> None:
    """A worker whose disk is full is soon left out; others do its recordings."""
    cluster_processes.worker(scheduler.address, "--preload", PRELOAD, RLX_TEST_FULL="1")
    scheduler_client.wait_for_workers(1, timeout=START_S)
    full_worker = next(iter(scheduler_client.nthreads()))
    cluster_processes.worker(scheduler.address)
    scheduler_client.wait_for_workers(2, timeout=START_S)
    files = write_edf_recordings(tmp_path / "night", 12)
    messages: list[str] = []
    check_outcomes(
        list(spread(files, ON_CPU, scheduler_client, messages.append)), files
    )
    (line,) = messages
    assert (
        f"excluded worker {full_worker}: 3 consecutive recordings failed on the worker"
        in line
    )
    assert "No space left on device" in line


def test_missing_files_exclude_no_worker(
    cluster_processes: ClusterProcesses,
    scheduler: Scheduler,
    scheduler_client: Client,
    tmp_path: Path,
) -> None:
    """Missing files leave no worker out for good, however many they are."""
    for _ in range(2):
        cluster_processes.worker(scheduler.address)
    scheduler_client.wait_for_workers(2, timeout=START_S)
    files = write_edf_recordings(tmp_path / "night", 8)
    missing_files = [str(tmp_path / f"night/gone-{number}.edf") for number in range(8)]
    messages: list[str] = []
    worker_counts: list[int] = []
    outcomes = dict(
        spread(
            [*missing_files, *files],
            ON_CPU,
            scheduler_client,
            messages.append,
            on_worker_count=worker_counts.append,
        )
    )
    errors = [outcomes.pop(name) for name in missing_files]
    check_outcomes(list(outcomes.items()), files)
    for error in errors:
        assert isinstance(error, WorkerFailed)
        assert "tried 3 times" in str(error)
    left_out_messages = [line for line in messages if line.startswith("excluded")]
    readmitted_messages = [
        line
        for line in messages
        if line.endswith("the same recordings also fail on other workers")
    ]
    assert len(messages) == len(left_out_messages) + len(readmitted_messages)
    assert len(left_out_messages) == len(readmitted_messages)
    assert worker_counts[-1] == 2


def test_out_of_memory_on_every_worker_is_the_recordings_error(
    faulty_client: Client, tmp_path: Path
) -> None:
    """Running out of memory on every worker is the recording's error; the others are
    done.
    """
    files = write_edf_recordings(tmp_path / "night", 12)
    huge = str(tmp_path / "night/huge.edf")
    Path(files[1]).rename(huge)
    files[1] = huge
    outcomes = dict(spread(files, ON_CPU, faulty_client, print))
    error = outcomes.pop(huge)
    check_outcomes(list(outcomes.items()), [f for f in files if f != huge])
    assert isinstance(error, OutOfMemory)
    assert "tried 3 times, on worker" in str(error)


@pytest.mark.slow
def test_a_worker_over_its_memory_limit(faulty_client: Client, tmp_path: Path) -> None:
    """A recording that is over every worker's memory limit is given up."""
    files = write_edf_recordings(tmp_path / "night", 4)
    Path(files[0]).rename(hungry := str(tmp_path / "night/hungry.edf"))
    outcomes = dict(spread([hungry, *files[1:]], ON_CPU, faulty_client, print))
    error = outcomes.pop(hungry)
    check_outcomes(list(outcomes.items()), files[1:])
    assert isinstance(error, WorkerFailed)
    assert "increase the memory of the workers" in str(error)


def test_run_resumes_when_scheduler_returns(
    cluster_processes: ClusterProcesses, scheduler: Scheduler, tmp_path: Path
) -> None:
    """A scheduler that was killed and started again is given the rest again.

    It is started again once the loss was reported: the client may otherwise reconnect
    by itself first, and then neither message is sent.
    """
    files = write_edf_recordings(tmp_path / "night", 12)
    cluster_processes.worker(scheduler.address)
    loss_message = f"lost the scheduler at {scheduler.address}; waiting"
    messages: list[str] = []
    outcomes = []

    def record_message(message: str) -> None:
        messages.append(message)
        if message.startswith(loss_message):
            new_scheduler = cluster_processes.scheduler(port=scheduler.port)
            cluster_processes.worker(new_scheduler.address)

    with Client(scheduler.address, timeout=START_S) as scheduler_client:
        scheduler_client.wait_for_workers(1, timeout=START_S)
        for outcome in spread(files, ON_CPU, scheduler_client, record_message):
            outcomes.append(outcome)
            if len(outcomes) == 3:
                kill_process(scheduler.process.pid)
                scheduler.process.wait(START_S)
    check_outcomes(outcomes, files)
    assert any(message.startswith(loss_message) for message in messages)
    assert f"reconnected to the scheduler at {scheduler.address}" in messages


def test_run_fails_when_scheduler_stays_away(
    cluster_processes: ClusterProcesses,
    scheduler: Scheduler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recordings, "MAX_WAIT_S", 1.0)
    cluster_processes.worker(scheduler.address)
    files = write_edf_recordings(tmp_path / "night", 12)
    with Client(scheduler.address, timeout=START_S) as scheduler_client:
        scheduler_client.wait_for_workers(1, timeout=START_S)
        outcomes = spread(files, ON_CPU, scheduler_client, print)
        next(iter(outcomes))
        kill_process(scheduler.process.pid)
        with pytest.raises(
            ClusterLost, match=f"{scheduler.port}.*connection to the scheduler was lost"
        ):
            list(outcomes)


def test_a_cluster_without_a_worker(
    scheduler_client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "MAX_WAIT_S", 1.0)
    messages: list[str] = []
    with pytest.raises(
        ClusterLost, match="the cluster has no workers; waited 1 s; start one"
    ):
        list(
            spread(
                write_edf_recordings(tmp_path, 1),
                ON_CPU,
                scheduler_client,
                messages.append,
            )
        )
    assert messages == [
        "the cluster has no workers: start one with `dask worker "
        f"{scheduler_client.scheduler.address}`; waiting 1 s"
    ]


def test_missing_scheduler_is_refused(
    tmp_path: Path, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_clients, "CONNECT_TIMEOUT_S", 0.5)
    address = f"tcp://127.0.0.1:{free_port()}"
    run_result = call("welch", write_edf_recordings(tmp_path, 1)[0], "--dask", address)
    messages = ("no scheduler responds", "waited 0.5 s", "dask scheduler")
    check_rejected(run_result, 3, address, *messages)


def test_silent_service_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that listens and says nothing holds nobody up."""
    monkeypatch.setattr(cluster_clients, "CONNECT_TIMEOUT_S", 0.5)
    monkeypatch.setattr(cluster_clients, "_HANDSHAKE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        address = f"tcp://127.0.0.1:{silent_server.getsockname()[1]}"
        with (
            pytest.raises(ClusterError, match="the server does not respond"),
            connect_to_scheduler(address, print),
        ):
            pass


@pytest.mark.parametrize("address", ["tcp://", "ftp://a:1", "tls://127.0.0.1:1"])
def test_invalid_address_is_refused(address: str) -> None:
    with (
        pytest.raises(ClusterError) as error_info,
        connect_to_scheduler(address, print),
    ):
        pass
    assert f"connect to the scheduler at '{address}'" in str(error_info.value)


def test_workers_of_other_versions_are_left_out(
    cluster_processes: ClusterProcesses,
    scheduler: Scheduler,
    scheduler_client: Client,
    tmp_path: Path,
) -> None:
    """Workers of other versions do nothing; it is an error where all differ.

    That holds for those there and for those that join.
    """
    old_rlxweb = make_fake_rlxweb(tmp_path / "old", "0.0.9")
    files = write_edf_recordings(tmp_path / "night", 30)
    why = (
        f"rlxweb is 0.0.9 on the worker and {local_versions()['rlxweb']} on the client"
    )
    cluster_processes.worker(scheduler.address, PYTHONPATH=old_rlxweb)
    scheduler_client.wait_for_workers(1, timeout=START_S)
    first = next(iter(scheduler_client.nthreads()))
    with pytest.raises(ClusterError, match="no worker can be used") as error_info:
        list(spread(files, ON_CPU, scheduler_client, print))
    assert f"worker {first}: {why}" in str(error_info.value)
    assert f"rlxweb=={local_versions()['rlxweb']}" in str(error_info.value)
    cluster_processes.worker(scheduler.address)
    scheduler_client.wait_for_workers(2, timeout=START_S)
    messages: list[str] = []
    outcomes = []
    for outcome in spread(files, ON_CPU, scheduler_client, messages.append):
        outcomes.append(outcome)
        if len(outcomes) == 1:
            cluster_processes.worker(scheduler.address, PYTHONPATH=old_rlxweb)
            scheduler_client.wait_for_workers(3, timeout=START_S)
    check_outcomes(outcomes, files)
    assert messages[0] == f"excluded worker {first}: {why}"
    assert len(messages) == 2
    assert messages[1].endswith(why)


def test_worker_without_requested_adapter_is_left_out(
    cluster_processes: ClusterProcesses,
    scheduler: Scheduler,
    scheduler_client: Client,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """A worker without the adapter is left out and named.

    Where no worker has the adapter, that is an error.
    """
    require_engine("swiftshader", request.config)
    settings = Settings(device="gpu", adapter="SwiftShader", nperseg=128)
    files = write_edf_recordings(tmp_path / "night", 3, longest_s=10)
    cluster_processes.worker(scheduler.address, VK_ICD_FILENAMES=os.devnull)
    scheduler_client.wait_for_workers(1, timeout=START_S)
    worker = next(iter(scheduler_client.nthreads()))
    with pytest.raises(ClusterError, match="no worker can be used") as error_info:
        list(spread(files, settings, scheduler_client, print))
    assert "SwiftShader" in str(error_info.value)
    assert "==" not in str(error_info.value)
    cluster_processes.worker(scheduler.address)
    scheduler_client.wait_for_workers(2, timeout=START_S)
    messages: list[str] = []
    outcomes = list(spread(files, settings, scheduler_client, messages.append))
    assert sorted(name for name, _ in outcomes) == files
    local_outcomes = dict(analyse_sequentially(files, settings))
    for name, outcome in outcomes:
        assert isinstance(outcome, FileResult)
        assert "SwiftShader" in outcome.groups[0].engine
        assert is_identical(outcome, local_outcomes[name])
    (line,) = messages
    assert line.startswith(f"excluded worker {worker}: ")


def test_unexpected_error_fails_one_recording(
    faulty_client: Client, tmp_path: Path
) -> None:
    files = write_edf_recordings(tmp_path / "night", 2)
    Path(files[0]).rename(failing_file := str(tmp_path / "odd.edf"))
    outcomes = dict(spread([failing_file, files[1]], ON_CPU, faulty_client, print))
    check_outcomes([(files[1], outcomes[files[1]])], [files[1]])
    error = outcomes[failing_file]
    assert isinstance(error, RlxError)
    assert "ZeroDivisionError on worker tcp://" in str(error)
