"""Ctrl-C, and what has to be installed: one line, an exit code, nothing left behind."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from distributed import Client

from tests.cluster.conftest import START_S, Started
from tests.cluster.killing import workers_of
from tests.cluster.night import night
from tests.cluster.test_recordings import tasks_of
from tests.command_line import check_refused, python, running
from tests.waiting import until

PRELOAD = Path(__file__).parent / "preload.py"


def test_ctrl_c_leaves_the_scheduler_clean(started: Started, tmp_path: Path) -> None:
    """Ctrl-C takes back all tasks, that of a busy worker too."""
    scheduler = started.scheduler()
    started.worker(scheduler.address, "--preload", PRELOAD)
    (file,) = night(tmp_path / "night", 1)
    Path(file).rename(endless := tmp_path / "endless.edf")
    args = "welch", endless, "--device", "cpu", "--dask", scheduler.address
    with ExitStack() as stack:
        mine = stack.enter_context(Client(scheduler.address, timeout=START_S))
        mine.wait_for_workers(1, timeout=START_S)
        process = stack.enter_context(running("-m", "rlxweb", *args))
        until(lambda: any(mine.processing().values()), "a worker works")
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=START_S)
        assert (process.returncode, out, err.strip()) == (130, "", "rlxweb: stopped")
        until(lambda: tasks_of(mine) == [], "the scheduler has no task left")
        until(lambda: not any(mine.processing().values()), "no worker works")
        assert len(mine.nthreads()) == 1


@pytest.mark.skipif(os.name != "posix", reason="a terminal's Ctrl-C is its group's")
def test_ctrl_c_ends_the_workers_of_this_machine(tmp_path: Path) -> None:
    """Ctrl-C ends this machine's workers, who say nothing, though it reaches them."""
    (file,) = night(tmp_path / "night", 1)
    Path(file).rename(endless := tmp_path / "endless.edf")
    args = "welch", endless, "--device", "cpu", "--workers", "2"
    loaded = {"DASK_DISTRIBUTED__WORKER__PRELOAD": str(PRELOAD)}
    program = ("-m", "rlxweb", *args)
    with running(*program, own_session=True, **loaded) as process:
        until(lambda: at_work(process.pid), "a worker is at work")
        children = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=START_S)
        assert (process.returncode, out, err.strip()) == (130, "", "rlxweb: stopped")
        until(lambda: not any(map(is_alive, children)), "all children are gone")


@pytest.mark.skipif(os.name != "posix", reason="a terminal's Ctrl-C is its group's")
@pytest.mark.parametrize("n_started", [1, 2])
def test_ctrl_c_while_workers_start(tmp_path: Path, n_started: int) -> None:
    """Ctrl-C while some or all workers start ends them without a word of theirs."""
    files = night(tmp_path / "night", 2)
    program = ("-m", "rlxweb", "welch", *files, "--workers", "2")
    with running(*program, own_session=True) as process:
        until(lambda: len(workers_of(process.pid)) >= n_started, "workers are started")
        children = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=START_S)
        assert (process.returncode, out, err.strip()) == (130, "", "rlxweb: stopped")
        until(lambda: not any(map(is_alive, children)), "all children are gone")


def at_work(pid: int) -> int:
    """How many have used what no start of a worker takes."""
    used = [one.cpu_times() for one in workers_of(pid)]
    return sum(one.user + one.system > 1.0 for one in used)


def is_alive(one: psutil.Process) -> bool:
    return one.is_running() and one.status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("option", [("--workers", "2"), ("--dask", "tcp://a:1")])
def test_without_dask_the_error_says_what_brings_it(
    tmp_path: Path, option: tuple[str, str]
) -> None:
    (file,) = night(tmp_path, 1)
    code = (
        "import sys\n"
        "sys.modules['distributed'] = None\n"
        "from rlxweb.cli.main import main\n"
        f"main(['welch', {file!r}, *{option!r}])\n"
    )
    said = python("-c", code)
    check_refused(said, 2, option[0], "distributed", 'pip install "rlxweb[dask]"')
