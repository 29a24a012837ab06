"""Kill workers of this machine while a run with `--workers` goes on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.cli_runners import run_cli, running_program
from tests.wait_with_deadline import wait_until


def list_worker_processes(pid: int) -> list[psutil.Process]:
    """Return the processes that multiprocessing started for a process."""
    workers = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):  # it ended while it was looked at
            if "spawn_main" in " ".join(child.cmdline()):
                workers.append(child)
    return workers


def cpu_time_s(process: psutil.Process) -> float:
    """Return the processor time of a process, in seconds; next to none right after its
    start.
    """
    cpu_times = process.cpu_times()
    return float(cpu_times.user + cpu_times.system)


def kill_workers(
    run: Any, output: Path, kill_counts: Sequence[int], timeout: float
) -> int:
    """Kill the busiest worker whenever this many recordings are noted as done.

    Returns how many were killed by the end of the run.
    """
    journal = output.with_name(f".{output.name}.unfinished")
    remaining = list(kill_counts)

    def has_ended() -> bool:
        if run.poll() is not None:
            return True
        is_due = remaining and journal.exists()
        # The first line is of the run.
        if is_due and journal.read_bytes().count(b"\n") > remaining[0]:
            with suppress(psutil.Error, ValueError):  # it ended while it was looked at
                max(list_worker_processes(run.pid), key=cpu_time_s).kill()
                remaining.pop(0)
        return False

    wait_until(has_ended, "the run with workers has ended", timeout)
    return len(kill_counts) - len(remaining)


def check_same_output_while_killed(
    args: Sequence[str], folder: Path, kill_counts: Sequence[int], timeout: float
) -> str:
    """Check that `rlxweb welch` writes the same bytes in this process and with two
    workers that are killed.

    args  of `welch`, without what the results are written to
    kill_counts  as in `kill_workers`
    Returns what the second run told.
    """
    args = ["welch", *args, "--device", "cpu", "-q", "--out"]
    undisturbed_output = folder / "peace.parquet"
    disturbed_output = folder / "war.parquet"
    single_run = run_cli(*args, str(undisturbed_output), timeout=timeout)
    assert single_run.code == 0, single_run.err
    with running_program(
        "-m", "rlxweb", *args, disturbed_output, "--workers", "2"
    ) as run:
        killed = kill_workers(run, disturbed_output, kill_counts, timeout)
        err = run.stderr.read()
        assert run.wait(timeout) == 0, err
    assert killed == len(kill_counts)
    assert disturbed_output.read_bytes() == undisturbed_output.read_bytes()
    return err
