"""Workers of this machine, killed while a run with `--workers` goes on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.command_line import running, spawn
from tests.waiting import until


def workers_of(pid: int) -> list[psutil.Process]:
    """The processes that multiprocessing started for a process."""
    found = []
    for one in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):  # it ended while it was looked at
            if "spawn_main" in " ".join(one.cmdline()):
                found.append(one)
    return found


def worked_s(one: psutil.Process) -> float:
    """The processor time of a process, next to none where it just starts."""
    used = one.cpu_times()
    return float(used.user + used.system)


def kill_workers(run: Any, output: Path, done: Sequence[int], timeout: float) -> int:
    """Kill whoever worked most, whenever so many recordings are noted as done.

    Returns how many were killed by the end of the run.
    """
    notes = output.with_name(f".{output.name}.unfinished")
    left = list(done)

    def has_ended() -> bool:
        if run.poll() is not None:
            return True
        is_due = left and notes.exists()
        # The first line is of the run.
        if is_due and notes.read_bytes().count(b"\n") > left[0]:
            with suppress(psutil.Error, ValueError):  # it ended while it was looked at
                max(workers_of(run.pid), key=worked_s).kill()
                left.pop(0)
        return False

    until(has_ended, "the run with workers has ended", timeout)
    return len(done) - len(left)


def same_while_killed(
    args: Sequence[str], folder: Path, done: Sequence[int], timeout: float
) -> str:
    """`rlxweb welch` in this process, then by two workers that are killed: same bytes.

    args  of `welch`, without what the results are written to
    done  as in `kill_workers`
    Returns what the second run told.
    """
    args = ["welch", *args, "--device", "cpu", "-q", "--out"]
    peace, war = folder / "peace.parquet", folder / "war.parquet"
    alone = spawn(*args, str(peace), timeout=timeout)
    assert alone.code == 0, alone.err
    with running("-m", "rlxweb", *args, war, "--workers", "2") as run:
        killed = kill_workers(run, war, done, timeout)
        err = run.stderr.read()
        assert run.wait(timeout) == 0, err
    assert killed == len(done)
    assert war.read_bytes() == peace.read_bytes()
    return err
