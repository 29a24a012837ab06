"""Check Ctrl-C and missing packages: one line, an exit code, nothing left behind."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from distributed import Client

from tests.cli_runners import check_rejected, run_python, running_program
from tests.cluster.conftest import START_S, ClusterProcesses
from tests.cluster.edf_recordings import write_edf_recordings
from tests.cluster.test_recordings_on_cluster import scheduler_tasks
from tests.cluster.worker_killing import list_worker_processes
from tests.wait_with_deadline import wait_until

PRELOAD = Path(__file__).parent / "faulty_worker_preload.py"


def test_ctrl_c_leaves_the_scheduler_clean(
    cluster_processes: ClusterProcesses, tmp_path: Path
) -> None:
    """Ctrl-C takes back all tasks, that of a busy worker too."""
    scheduler = cluster_processes.scheduler()
    cluster_processes.worker(scheduler.address, "--preload", PRELOAD)
    (file,) = write_edf_recordings(tmp_path / "night", 1)
    Path(file).rename(endless_file := tmp_path / "endless.edf")
    args = "welch", endless_file, "--device", "cpu", "--dask", scheduler.address
    with ExitStack() as stack:
        scheduler_client = stack.enter_context(
            Client(scheduler.address, timeout=START_S)
        )
        scheduler_client.wait_for_workers(1, timeout=START_S)
        process = stack.enter_context(running_program("-m", "rlxweb", *args))
        wait_until(
            lambda: any(scheduler_client.processing().values()), "a worker works"
        )
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=START_S)
        assert (process.returncode, out, err.strip()) == (130, "", "rlxweb: stopped")
        wait_until(
            lambda: scheduler_tasks(scheduler_client) == [],
            "the scheduler has no task left",
        )
        wait_until(
            lambda: not any(scheduler_client.processing().values()), "no worker works"
        )
        assert len(scheduler_client.nthreads()) == 1


@pytest.mark.skipif(os.name != "posix", reason="a terminal's Ctrl-C is its group's")
def test_ctrl_c_ends_the_workers_of_this_machine(tmp_path: Path) -> None:
    """Ctrl-C ends this machine's workers, who say nothing, though it reaches them."""
    (file,) = write_edf_recordings(tmp_path / "night", 1)
    Path(file).rename(endless_file := tmp_path / "endless.edf")
    args = "welch", endless_file, "--device", "cpu", "--workers", "2"
    preload_setting = {"DASK_DISTRIBUTED__WORKER__PRELOAD": str(PRELOAD)}
    program = ("-m", "rlxweb", *args)
    with running_program(*program, own_session=True, **preload_setting) as process:
        wait_until(lambda: count_busy_workers(process.pid), "a worker is at work")
        children = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=START_S)
        assert (process.returncode, out, err.strip()) == (130, "", "rlxweb: stopped")
        wait_until(lambda: not any(map(is_alive, children)), "all children are gone")


@pytest.mark.skipif(os.name != "posix", reason="a terminal's Ctrl-C is its group's")
@pytest.mark.parametrize("n_started", [1, 2])
def test_ctrl_c_while_workers_start(tmp_path: Path, n_started: int) -> None:
    """Ctrl-C while some or all workers start ends them without a word of theirs."""
    files = write_edf_recordings(tmp_path / "night", 2)
    program = ("-m", "rlxweb", "welch", *files, "--workers", "2")
    with running_program(*program, own_session=True) as process:
        wait_until(
            lambda: len(list_worker_processes(process.pid)) >= n_started,
            "workers are started",
        )
        children = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=START_S)
        assert (process.returncode, out, err.strip()) == (130, "", "rlxweb: stopped")
        wait_until(lambda: not any(map(is_alive, children)), "all children are gone")


def count_busy_workers(pid: int) -> int:
    """Return the number of workers that have used more processor time than a start
    takes.
    """
    cpu_times = [process.cpu_times() for process in list_worker_processes(pid)]
    return sum(process.user + process.system > 1.0 for process in cpu_times)


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("option", [("--workers", "2"), ("--dask", "tcp://a:1")])
def test_missing_dask_error_names_the_extra(
    tmp_path: Path, option: tuple[str, str]
) -> None:
    (file,) = write_edf_recordings(tmp_path, 1)
    code = (
        "import sys\n"
        "sys.modules['distributed'] = None\n"
        "from rlxweb.cli.main import main\n"
        f"main(['welch', {file!r}, *{option!r}])\n"
    )
    run_result = run_python("-c", code)
    check_rejected(
        run_result, 2, option[0], "distributed", 'pip install "rlxweb[dask]"'
    )
