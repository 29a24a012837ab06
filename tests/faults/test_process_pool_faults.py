"""`--jobs`: runs whose worker processes die, and worker processes whose run is
killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import numpy as np
import pytest

from rlxweb.cli import process_pool
from rlxweb.cli.process_pool import ProcessPool
from rlxweb.core.errors import ClusterError, RecordingError, RlxError, WorkerFailed
from rlxweb.core.thread_tasks import usable_cpus
from tests.cli_runners import running_program
from tests.edf_bdf_recordings import save_recording
from tests.faults.misbehaving_jobs import FileOutcome, act_by_file_name
from tests.wait_with_deadline import wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills as Unix does")


@pytest.fixture(autouse=True)
def start_processes_for_small_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Process no file in this process, however small it is."""
    monkeypatch.setattr(process_pool, "MIN_PARALLEL_NBYTES", 0)
    monkeypatch.chdir(tmp_path)


def run_files(*files: str, jobs: int = 2) -> dict[str, FileOutcome | RlxError]:
    for file in files:
        Path(file).touch()
    return dict(
        ProcessPool(act_by_file_name, jobs).process_files(files, lambda *progress: None)
    )


def test_files_and_processors_are_shared() -> None:
    """Each file is done once, in a process with its share of the processors."""
    progress: list[tuple[str, int, int]] = []
    files = [f"good{n}" for n in range(6)]
    outcomes_by_file = dict(
        ProcessPool(act_by_file_name, 2).process_files(
            files, lambda *outcome: progress.append(outcome)
        )
    )
    pids = {
        outcome.pid
        for outcome in outcomes_by_file.values()
        if isinstance(outcome, FileOutcome)
    }
    assert [*sorted(outcomes_by_file)] == files
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids
    share = max(1, usable_cpus() // 2)
    assert {
        outcome.n_cpus
        for outcome in outcomes_by_file.values()
        if isinstance(outcome, FileOutcome)
    } == {share}


def test_dead_process_loses_only_its_current_file() -> None:
    """A process that dies loses its current file; others do the rest."""
    outcomes_by_file = run_files(
        "kill1", "good1", "leave1", "good2", "bad1", "stumble1", "kill2"
    )
    assert isinstance(outcomes_by_file["good1"], FileOutcome)
    assert isinstance(outcomes_by_file["good2"], FileOutcome)
    assert isinstance(outcomes_by_file["bad1"], RecordingError)
    for name, expected in (
        ("kill1", "SIGKILL, killed (sent by the kernel when memory runs out)"),
        ("kill2", "SIGKILL"),
        ("leave1", "the worker process ended with exit code 3"),
        ("stumble1", "ZeroDivisionError: nobody thought of that"),
    ):
        error = outcomes_by_file[name]
        assert isinstance(error, WorkerFailed)
        assert expected in str(error)
        assert repr(name) in str(error)
    # What the killed ones had half written is gone.
    assert not [
        name_on_disk
        for name_on_disk in os.listdir()
        if name_on_disk.startswith(".rlxweb")
    ]


def test_early_exit_ends_the_processes() -> None:
    """Closing the iterator after the first outcome ends the processes."""
    files = [f"good{n}" for n in range(9)]
    pool = ProcessPool(act_by_file_name, 2)
    results: Iterator[tuple[str, FileOutcome | RlxError]] = pool.process_files(
        files, lambda *progress: None
    )
    _, outcome = next(results)
    assert isinstance(outcome, FileOutcome)
    processes = [child._process for child in pool._workers]
    assert processes
    results.close()  # type: ignore[attr-defined]
    assert not any(process.is_alive() for process in processes)


def test_processes_that_do_not_start_are_one_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processes that do not start are one error, not one for every file."""
    monkeypatch.setattr(process_pool, "serve_files", os._exit)
    with pytest.raises(
        ClusterError,
        match=r"a worker process ended during startup with exit code.*omit --jobs",
    ):
        run_files("good1", "good2")


CONVERT_PROGRAM = """
import sys
from rlxweb.cli import process_pool, convert_command
from rlxweb.cli.termination_signals import process_signals
from tests.faults import misbehaving_jobs
if __name__ == "__main__":
    process_signals.install_handlers()
    process_pool.MIN_PARALLEL_NBYTES = 0
    convert_command.ConversionJob = getattr(misbehaving_jobs, sys.argv[1])
    from rlxweb.cli.main import main
    main(sys.argv[2:])
"""


class NamedPipeReader:
    """Reading end of a named pipe that never blocks."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def read_available(self) -> bytes | None:
        """Return the bytes since the last call, or None when no writer is left."""
        try:
            return os.read(self._descriptor, 64) or None
        except BlockingIOError:
            return b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)


@pytest.mark.parametrize(
    ("job", "number", "to_all"),
    [
        ("Waiting", signal.SIGINT, True),
        ("Deaf", signal.SIGINT, True),
        ("Deaf", signal.SIGTERM, False),
        ("Waiting", signal.SIGKILL, False),
    ],
)
def test_stopped_run_leaves_no_process_and_no_file(
    tmp_path: Path, job: str, number: int, to_all: bool
) -> None:
    """No process and no file is left of a run that is stopped.

    Ctrl-C in a terminal reaches all of its processes.
    """
    for name in ("a", "b"):
        save_recording(f"{name}.npz", np.ones((1, 50)), fs=10)
        os.mkfifo(f"{name}.npz.pipe")
    (tmp_path / "out").mkdir()
    args = "convert", "a.npz", "b.npz", "--to", "wav", "-o", "out/", "--jobs", "2"
    with (
        ExitStack() as stack,
        running_program("-c", CONVERT_PROGRAM, job, *args, own_session=True) as process,
    ):
        pipes = [
            stack.enter_context(NamedPipeReader(f"{name}.npz.pipe"))
            for name in ("a", "b")
        ]
        for pipe in pipes:
            wait_until(
                lambda named_pipe=pipe: named_pipe.read_available() == b"at work\n",
                "a process is at work",
            )
        assert len(os.listdir("out")) == 2
        (os.killpg if to_all else os.kill)(process.pid, number)
        for pipe in pipes:
            wait_until(
                lambda named_pipe=pipe: named_pipe.read_available() is None,
                "a process has ended",
            )
        code = process.wait(60)
        stderr = process.stderr.read()
    if number == signal.SIGKILL:
        assert code == -number
    else:
        assert code == 128 + number, stderr
        assert stderr.strip() == "rlxweb: stopped"
    if number == signal.SIGKILL:  # its processes let go of the pipe, then clear up
        wait_until(lambda: not os.listdir("out"), "no file is left")
    assert os.listdir("out") == []
