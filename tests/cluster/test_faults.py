"""Every recording is done once, whatever happens to workers and schedulers.

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

from rlxweb.dask import connect, recordings
from rlxweb.dask.connect import connected
from rlxweb.dask.deaths import MOST_DEATHS
from rlxweb.dask.recordings import spread
from rlxweb.dask.workers import here
from rlxweb.errors import ClusterError, ClusterLost, OutOfMemory, RlxError, WorkerFailed
from rlxweb.jobs.results import FileResult
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.spreading import Outcome, one_by_one
from tests.cluster.conftest import START_S, Scheduler, Started, free_port
from tests.cluster.night import night
from tests.cluster.test_recordings import ON_CPU, same
from tests.cluster.test_workers import another_rlxweb
from tests.command_line import Call, check_refused
from tests.conftest import demand
from tests.waiting import until

PRELOAD = Path(__file__).parent / "preload.py"
LIMIT = "--preload", PRELOAD, "--memory-limit", "400MB"


@pytest.fixture
def scheduler(started: Started) -> Scheduler:
    """One of the test's own, without a worker."""
    return started.scheduler()


@pytest.fixture
def mine(scheduler: Scheduler) -> Iterator[Client]:
    """A client of it."""
    with Client(scheduler.address, timeout=START_S) as one:
        yield one


def check_same(there: list[tuple[str, Outcome]], files: list[str]) -> None:
    """Check that each file came once, with the bits of a run without a cluster."""
    assert sorted(name for name, _ in there) == sorted(files)
    here = dict(one_by_one(files, ON_CPU))
    for name, outcome in there:
        assert isinstance(outcome, FileResult), outcome
        assert same(outcome, here[name]), name


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def one_pid(client: Client) -> int:
    """The pid of a worker that is alive; the first may have to be started again."""
    pids: list[int] = []

    def answered() -> bool:
        pids.extend(client.run(os.getpid, on_error="ignore").values())
        return bool(pids)

    until(answered, "a worker answers")
    return pids[0]


def test_workers_that_are_killed_cost_nothing(
    started: Started, scheduler: Scheduler, mine: Client, tmp_path: Path
) -> None:
    """Every recording is done once where a worker is killed at each fourth result."""
    for _ in range(2):
        started.worker(scheduler.address, nanny=True)
    mine.wait_for_workers(2, timeout=START_S)
    files = night(tmp_path / "night", 12)
    told: list[str] = []
    there = []
    for outcome in spread(files, ON_CPU, mine, told.append):
        there.append(outcome)
        if len(there) % 4 == 0 and len(there) < len(files):
            end(one_pid(mine))
    check_same(there, files)
    assert any("is gone; others do what it held" in line for line in told)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of two workers on which recordings do what their names say.

    They have little memory, which only one that is hungry takes.
    """
    processes = Started(tmp_path_factory.mktemp("odd"))
    with closing(processes):
        scheduler = processes.scheduler()
        for _ in range(2):
            processes.worker(scheduler.address, *LIMIT, nanny=True)
        with Client(scheduler.address, timeout=START_S) as one:
            one.wait_for_workers(2, timeout=START_S)
            yield one


def test_a_recording_that_ends_every_worker_is_given_up(
    odd: Client, tmp_path: Path
) -> None:
    """A recording over which so many workers end is reported; the others are done."""
    files = night(tmp_path / "night", 10)
    deadly = str(tmp_path / "night/deadly.edf")
    Path(files[3]).rename(deadly)
    files[3] = deadly
    there = dict(spread(files, ON_CPU, odd, print))
    error = there.pop(deadly)
    check_same(list(there.items()), [f for f in files if f != deadly])
    assert isinstance(error, WorkerFailed)
    assert f"{MOST_DEATHS} workers ended while they worked on it" in str(error)
    assert "--memory-limit" in str(error)


def test_what_is_wrong_with_a_worker_is_tried_elsewhere(
    started: Started, scheduler: Scheduler, mine: Client, tmp_path: Path
) -> None:
    """A worker whose disk is full is left out before long; others do its recordings."""
    started.worker(scheduler.address, "--preload", PRELOAD, RLX_TEST_FULL="1")
    mine.wait_for_workers(1, timeout=START_S)
    full = next(iter(mine.nthreads()))
    started.worker(scheduler.address)
    mine.wait_for_workers(2, timeout=START_S)
    files = night(tmp_path / "night", 12)
    told: list[str] = []
    check_same(list(spread(files, ON_CPU, mine, told.append)), files)
    (line,) = told
    assert f"left out worker {full}: 3 recordings in a row failed there" in line
    assert "No space left on device" in line


def test_names_that_exist_nowhere_cost_no_worker(
    started: Started, scheduler: Scheduler, mine: Client, tmp_path: Path
) -> None:
    """Names that exist nowhere leave no worker out for good, however many they are."""
    for _ in range(2):
        started.worker(scheduler.address)
    mine.wait_for_workers(2, timeout=START_S)
    files = night(tmp_path / "night", 8)
    gone = [str(tmp_path / f"night/gone-{at}.edf") for at in range(8)]
    told: list[str] = []
    seen: list[int] = []
    there = dict(spread([*gone, *files], ON_CPU, mine, told.append, watch=seen.append))
    errors = [there.pop(name) for name in gone]
    check_same(list(there.items()), files)
    for error in errors:
        assert isinstance(error, WorkerFailed)
        assert "tried 3 times" in str(error)
    left_out = [line for line in told if line.startswith("left out")]
    taken_back = [line for line in told if line.endswith("others fail on the same")]
    assert len(told) == len(left_out) + len(taken_back)
    assert len(left_out) == len(taken_back)
    assert seen[-1] == 2


def test_where_every_worker_is_out_of_memory_the_error_comes_home(
    odd: Client, tmp_path: Path
) -> None:
    """Out of memory on every worker is the recording's error; the others are done."""
    files = night(tmp_path / "night", 12)
    huge = str(tmp_path / "night/huge.edf")
    Path(files[1]).rename(huge)
    files[1] = huge
    there = dict(spread(files, ON_CPU, odd, print))
    error = there.pop(huge)
    check_same(list(there.items()), [f for f in files if f != huge])
    assert isinstance(error, OutOfMemory)
    assert "tried 3 times, on worker" in str(error)


@pytest.mark.slow
def test_a_worker_over_its_memory_limit(odd: Client, tmp_path: Path) -> None:
    """A recording that is over every worker's memory limit is given up."""
    files = night(tmp_path / "night", 4)
    Path(files[0]).rename(hungry := str(tmp_path / "night/hungry.edf"))
    there = dict(spread([hungry, *files[1:]], ON_CPU, odd, print))
    error = there.pop(hungry)
    check_same(list(there.items()), files[1:])
    assert isinstance(error, WorkerFailed)
    assert "more memory than a worker has" in str(error)


def test_a_scheduler_that_comes_back(
    started: Started, scheduler: Scheduler, tmp_path: Path
) -> None:
    """A scheduler that was killed and started again is given the rest again.

    It is started again once the loss was reported: the client may otherwise reconnect
    by itself first, and then neither message is sent.
    """
    files = night(tmp_path / "night", 12)
    started.worker(scheduler.address)
    gone = f"the scheduler at {scheduler.address} is gone; waiting"
    told: list[str] = []
    there = []

    def tell(message: str) -> None:
        told.append(message)
        if message.startswith(gone):
            again = started.scheduler(port=scheduler.port)
            started.worker(again.address)

    with Client(scheduler.address, timeout=START_S) as mine:
        mine.wait_for_workers(1, timeout=START_S)
        for outcome in spread(files, ON_CPU, mine, tell):
            there.append(outcome)
            if len(there) == 3:
                end(scheduler.process.pid)
                scheduler.process.wait(START_S)
    check_same(there, files)
    assert any(message.startswith(gone) for message in told)
    assert f"the scheduler at {scheduler.address} is back" in told


def test_a_scheduler_that_stays_away(
    started: Started,
    scheduler: Scheduler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recordings, "PATIENCE_S", 1.0)
    started.worker(scheduler.address)
    files = night(tmp_path / "night", 12)
    with Client(scheduler.address, timeout=START_S) as mine:
        mine.wait_for_workers(1, timeout=START_S)
        outcomes = spread(files, ON_CPU, mine, print)
        next(iter(outcomes))
        end(scheduler.process.pid)
        with pytest.raises(ClusterLost, match=f"{scheduler.port}.*did not come back"):
            list(outcomes)


def test_a_cluster_without_a_worker(
    mine: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "PATIENCE_S", 1.0)
    told: list[str] = []
    with pytest.raises(ClusterLost, match="it has no worker; waited 1 s; start one"):
        list(spread(night(tmp_path, 1), ON_CPU, mine, told.append))
    assert told == [
        "the cluster has no worker: start one with `dask worker "
        f"{mine.scheduler.address}`; waiting 1 s"
    ]


def test_no_scheduler_there(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "FIND_S", 0.5)
    address = f"tcp://127.0.0.1:{free_port()}"
    said = call("welch", night(tmp_path, 1)[0], "--dask", address)
    words = ("there is none", "looked for 0.5 s", "dask scheduler")
    check_refused(said, 3, address, *words)


def test_what_listens_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that listens and says nothing holds nobody up."""
    monkeypatch.setattr(connect, "FIND_S", 0.5)
    monkeypatch.setattr(connect, "_HEAR_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with (
            pytest.raises(ClusterError, match="what listens there says nothing"),
            connected(address, print),
        ):
            pass


@pytest.mark.parametrize("address", ["tcp://", "ftp://a:1", "tls://127.0.0.1:1"])
def test_no_address(address: str) -> None:
    with pytest.raises(ClusterError) as refused, connected(address, print):
        pass
    assert f"connect to the scheduler at '{address}'" in str(refused.value)


def test_workers_of_other_versions_do_nothing(
    started: Started, scheduler: Scheduler, mine: Client, tmp_path: Path
) -> None:
    """Workers of other versions do nothing; it is an error where all differ.

    That holds for those there and for those that join.
    """
    old = another_rlxweb(tmp_path / "old", "0.0.9")
    files = night(tmp_path / "night", 30)
    why = f"rlxweb is 0.0.9 there and {here()['rlxweb']} here"
    started.worker(scheduler.address, PYTHONPATH=old)
    mine.wait_for_workers(1, timeout=START_S)
    first = next(iter(mine.nthreads()))
    with pytest.raises(ClusterError, match="none of its workers can be used") as none:
        list(spread(files, ON_CPU, mine, print))
    assert f"worker {first}: {why}" in str(none.value)
    assert f"rlxweb=={here()['rlxweb']}" in str(none.value)
    started.worker(scheduler.address)
    mine.wait_for_workers(2, timeout=START_S)
    told: list[str] = []
    there = []
    for outcome in spread(files, ON_CPU, mine, told.append):
        there.append(outcome)
        if len(there) == 1:
            started.worker(scheduler.address, PYTHONPATH=old)
            mine.wait_for_workers(3, timeout=START_S)
    check_same(there, files)
    assert told[0] == f"left out worker {first}: {why}"
    assert len(told) == 2
    assert told[1].endswith(why)


def test_a_worker_without_the_adapter_that_is_asked_for(
    started: Started,
    scheduler: Scheduler,
    mine: Client,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """A worker without the adapter is left out and named.

    Where no worker has the adapter, that is an error.
    """
    demand("swiftshader", request.config)
    asked = Settings(device="gpu", adapter="SwiftShader", nperseg=128)
    files = night(tmp_path / "night", 3, longest_s=10)
    started.worker(scheduler.address, VK_ICD_FILENAMES=os.devnull)
    mine.wait_for_workers(1, timeout=START_S)
    without = next(iter(mine.nthreads()))
    with pytest.raises(ClusterError, match="none of its workers can be used") as none:
        list(spread(files, asked, mine, print))
    assert "SwiftShader" in str(none.value)
    assert "==" not in str(none.value)
    started.worker(scheduler.address)
    mine.wait_for_workers(2, timeout=START_S)
    told: list[str] = []
    there = list(spread(files, asked, mine, told.append))
    assert sorted(name for name, _ in there) == files
    here = dict(one_by_one(files, asked))
    for name, outcome in there:
        assert isinstance(outcome, FileResult)
        assert "SwiftShader" in outcome.groups[0].engine
        assert same(outcome, here[name])
    (line,) = told
    assert line.startswith(f"left out worker {without}: ")


def test_an_error_of_no_kind_of_ours_costs_one_recording(
    odd: Client, tmp_path: Path
) -> None:
    files = night(tmp_path / "night", 2)
    Path(files[0]).rename(bug := str(tmp_path / "odd.edf"))
    there = dict(spread([bug, files[1]], ON_CPU, odd, print))
    check_same([(files[1], there[files[1]])], [files[1]])
    error = there[bug]
    assert isinstance(error, RlxError)
    assert "ZeroDivisionError on the worker tcp://" in str(error)
