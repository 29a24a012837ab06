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

from tests.command_line import environment
from tests.fork_server import Forked, server
from tests.waiting import until

Process = subprocess.Popen[bytes] | Forked
START_S = 60
STOP_S = 10
TRIES = 100
"""Ports that are tried, of ten thousand."""
SPARING = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver",
}
"""A cluster that idles until the last test would take a tenth of a processor, and a
nanny would start a fresh interpreter for each worker.
"""


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of two workers, processes of one thread each."""
    processes = Started(tmp_path_factory.mktemp("dask"))
    with closing(processes):
        scheduler = processes.scheduler()
        for _ in range(2):
            processes.worker(scheduler.address, "--memory-limit", "2GiB")
        with Client(scheduler.address, timeout=START_S) as one:
            one.wait_for_workers(2, timeout=START_S)
            yield one


@pytest.fixture(scope="session")
def by_process() -> Iterator[dict[str, Any]]:
    """Options of Dask's `compute` for one worker process that all tests share.

    Dask's own pool starts as many as there are processors, anew for each call.
    """
    pool = ProcessPoolExecutor(1, get_context("spawn"))
    with pool:
        pool.submit(int).result(START_S)  # the process starts for the first who asks
        yield {"scheduler": "processes", "pool": pool}


@pytest.fixture(autouse=True)
def no_threads_of_dask() -> Iterator[None]:
    """End the threads that Dask keeps for the next who computes in this process."""
    yield
    pool, dask.threaded.default_pool = dask.threaded.default_pool, None
    if pool is not None:
        pool.shutdown()


class Started:
    """Processes of one test, by the command line of Dask; they end with it.

    scratch  folder for what workers write and for what all of them say
    """

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._open = ExitStack()
        self._count = 0

    def scheduler(self, *args: object, port: int = 0, **more: str) -> Scheduler:
        """`dask scheduler` on a port, a free one when left out."""
        port = port or free_port()
        where = f"--host 127.0.0.1 --port {port} --no-dashboard".split()
        process = self._process("scheduler", [*where, *args], more)
        scheduler = Scheduler(process, f"tcp://127.0.0.1:{port}", port)
        until(lambda: is_open(port), f"{scheduler.address} is open")
        return scheduler

    def worker(
        self, scheduler: str, *args: object, nanny: bool = False, **more: str
    ) -> Process:
        """`dask worker` of one thread; `more` is environment.

        nanny  another takes the place of one that ends
        """
        where = [scheduler, "--nthreads", 1, "--host", "127.0.0.1", "--no-dashboard"]
        where += ["--local-directory", self.scratch]
        where += ["--nanny" if nanny else "--no-nanny"]
        return self._process("worker", [*where, *args], more)

    def said(self) -> str:
        """The logs of all processes, one after the other."""
        logs = sorted(self.scratch.glob("*.log"))
        return "\n".join(log.read_text(errors="replace") for log in logs)

    def close(self) -> None:
        self._open.close()

    def _process(self, kind: str, args: list[object], more: dict[str, str]) -> Process:
        self._count += 1
        log = self._open.enter_context(
            (self.scratch / f"{self._count}-{kind}.log").open("wb")
        )
        words = ["-m", "dask", kind, *map(str, args)]
        variables = environment(**{**SPARING, **more})
        process: Process
        if there := server(variables):
            process = Forked(
                there, words, variables, folder=self.scratch, own_session=True, log=log
            )
        else:
            process = subprocess.Popen(
                [sys.executable, *words],
                env=variables,
                cwd=self.scratch,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._open.callback(_end, process)
        return process


class Scheduler:
    """A scheduler in a process of its own."""

    def __init__(self, process: Process, address: str, port: int) -> None:
        self.process, self.address, self.port = process, address, port


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Schedulers and workers of a test's own."""
    scratch = tmp_path / "dask"
    scratch.mkdir()
    mine = Started(scratch)
    try:
        yield mine
    finally:
        mine.close()


def free_port() -> int:
    """A port that nobody listens at.

    Not one that systems give away by themselves: where a scheduler is gone, another
    connection of this machine must not come upon its port, nor a client upon itself.
    """
    for port in SystemRandom().sample(range(20_000, 30_000), TRIES):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"none of {TRIES} ports is free")


def is_open(port: int) -> bool:
    """Does somebody listen at a port of this machine?"""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _end(process: Process) -> None:
    """The process, and what it started: a nanny's worker is of its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_S)
