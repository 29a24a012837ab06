"""Clusters of real processes on the loopback address, with a deadline on everything.

They are forked from one that has loaded Dask and the package, but for those whose
environment is read when Python starts, and the workers that a nanny starts.

`client` is one cluster of two workers for all tests that do it no harm. A test that
kills, or needs other workers, starts its own: `a_scheduler` and `a_worker` are the
commands that an administrator would give.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, suppress
from multiprocessing import get_context
from pathlib import Path
from random import SystemRandom
from typing import Any

import dask.threaded
import pytest
from distributed import Client

from tests.cli_runners import subprocess_environment
from tests.pytest_fork_server import ForkedProcess, find_server
from tests.wait_with_deadline import wait_until

Process = subprocess.Popen[bytes] | ForkedProcess
START_S = 60
STOP_S = 10
MAX_PORT_TRIES = 100
"""Number of ports that are tried, of ten thousand."""
LIGHT_DASK_SETTINGS = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver",
}
"""Dask settings that keep an idle cluster from using a tenth of a processor, and
nannies from starting a fresh interpreter for each worker.
"""


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Yield a client of two workers, which are processes of one thread each."""
    processes = ClusterProcesses(tmp_path_factory.mktemp("dask"))
    with closing(processes):
        scheduler = processes.scheduler()
        for _ in range(2):
            processes.worker(scheduler.address, "--memory-limit", "2GiB")
        with Client(scheduler.address, timeout=START_S) as dask_client:
            dask_client.wait_for_workers(2, timeout=START_S)
            yield dask_client


@pytest.fixture(scope="session")
def by_process() -> Iterator[dict[str, Any]]:
    """Yield options of Dask's `compute` for one worker process that all tests share.

    Dask's own pool starts as many as there are processors, anew for each call.
    """
    pool = ProcessPoolExecutor(1, get_context("spawn"))
    with pool:
        pool.submit(int).result(START_S)  # the process starts for the first who asks
        yield {"scheduler": "processes", "pool": pool}


@pytest.fixture(autouse=True)
def shut_down_dask_threads() -> Iterator[None]:
    """End the threads that Dask keeps for the next who computes in this process."""
    yield
    pool, dask.threaded.default_pool = dask.threaded.default_pool, None
    if pool is not None:
        pool.shutdown()


class ClusterProcesses:
    """Processes of one test, started with Dask's command line; they end with the test.

    scratch  folder for what workers write and for what all of them say
    """

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._exit_stack = ExitStack()
        self._count = 0

    def scheduler(
        self, *args: object, port: int = 0, **environment_variables: str
    ) -> Scheduler:
        """Start `dask scheduler` on a port, a free one by default."""
        port = port or free_port()
        options = f"--host 127.0.0.1 --port {port} --no-dashboard".split()
        process = self._process("scheduler", [*options, *args], environment_variables)
        scheduler = Scheduler(process, f"tcp://127.0.0.1:{port}", port)
        wait_until(lambda: is_open(port), f"{scheduler.address} is open")
        return scheduler

    def worker(
        self,
        scheduler: str,
        *args: object,
        nanny: bool = False,
        **environment_variables: str,
    ) -> Process:
        """Start `dask worker` with one thread and these environment variables.

        nanny  another takes the place of one that ends
        """
        options = [scheduler, "--nthreads", 1, "--host", "127.0.0.1", "--no-dashboard"]
        options += ["--local-directory", self.scratch]
        options += ["--nanny" if nanny else "--no-nanny"]
        return self._process("worker", [*options, *args], environment_variables)

    def read_logs(self) -> str:
        """Return the logs of all processes, one after the other."""
        logs = sorted(self.scratch.glob("*.log"))
        return "\n".join(log.read_text(errors="replace") for log in logs)

    def close(self) -> None:
        self._exit_stack.close()

    def _process(
        self, kind: str, args: list[object], environment_variables: dict[str, str]
    ) -> Process:
        self._count += 1
        log = self._exit_stack.enter_context(
            (self.scratch / f"{self._count}-{kind}.log").open("wb")
        )
        arguments = ["-m", "dask", kind, *map(str, args)]
        variables = subprocess_environment(
            **{**LIGHT_DASK_SETTINGS, **environment_variables}
        )
        process: Process
        if fork_server := find_server(variables):
            process = ForkedProcess(
                fork_server,
                arguments,
                variables,
                folder=self.scratch,
                own_session=True,
                log=log,
            )
        else:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                env=variables,
                cwd=self.scratch,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._exit_stack.callback(_kill_session, process)
        return process


class Scheduler:
    """Scheduler in a process of its own."""

    def __init__(self, process: Process, address: str, port: int) -> None:
        self.process, self.address, self.port = process, address, port


@pytest.fixture
def cluster_processes(tmp_path: Path) -> Iterator[ClusterProcesses]:
    """Yield a starter of schedulers and workers for one test."""
    scratch = tmp_path / "dask"
    scratch.mkdir()
    own_processes = ClusterProcesses(scratch)
    try:
        yield own_processes
    finally:
        own_processes.close()


def free_port() -> int:
    """Return a port that nobody listens at.

    Not one that systems give away by themselves: where a scheduler is gone, another
    connection of this machine must not come upon its port, nor a client upon itself.
    """
    for port in SystemRandom().sample(range(20_000, 30_000), MAX_PORT_TRIES):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"none of {MAX_PORT_TRIES} ports is free")


def is_open(port: int) -> bool:
    """Return whether a process listens at a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _kill_session(process: Process) -> None:
    """Kill the process and everything in its session, such as a nanny's worker."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_S)
