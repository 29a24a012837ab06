"""`--jobs`: what becomes of a run whose processes die, and of these without a run."""

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

from rlxweb.cli import children
from rlxweb.cli.children import Children
from rlxweb.errors import ClusterError, RecordingError, RlxError, WorkerFailed
from rlxweb.host.row_blocks import usable_cpus
from tests.command_line import running
from tests.faults.made_jobs import Came, by_name
from tests.recordings import saved
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills as Unix does")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Begin no file in this process, however little it is."""
    monkeypatch.setattr(children, "LITTLE_NBYTES", 0)
    monkeypatch.chdir(tmp_path)


def outcomes(*files: str, jobs: int = 2) -> dict[str, Came | RlxError]:
    for file in files:
        Path(file).touch()
    return dict(Children(by_name, jobs).each(files, lambda *told: None))


def test_files_are_shared_out_and_so_are_the_processors() -> None:
    """Each file is done once, in a process with its share of the processors."""
    told: list[tuple[str, int, int]] = []
    files = [f"good{n}" for n in range(6)]
    found = dict(Children(by_name, 2).each(files, lambda *one: told.append(one)))
    pids = {one.pid for one in found.values() if isinstance(one, Came)}
    assert [*sorted(found)] == files
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids
    share = max(1, usable_cpus() // 2)
    assert {one.n_cpus for one in found.values() if isinstance(one, Came)} == {share}


def test_a_process_that_dies_costs_the_file_it_was_at() -> None:
    """A process that dies costs its file; others do the rest."""
    found = outcomes("kill1", "good1", "leave1", "good2", "bad1", "stumble1", "kill2")
    assert isinstance(found["good1"], Came)
    assert isinstance(found["good2"], Came)
    assert isinstance(found["bad1"], RecordingError)
    for name, words in (
        ("kill1", "SIGKILL, killed (the kernel does so when memory runs out)"),
        ("kill2", "SIGKILL"),
        ("leave1", "the process that did it ended: exit code 3"),
        ("stumble1", "ZeroDivisionError: nobody thought of that"),
    ):
        error = found[name]
        assert isinstance(error, WorkerFailed)
        assert words in str(error)
        assert repr(name) in str(error)
    # What the killed ones had half written is gone.
    assert not [one for one in os.listdir() if one.startswith(".rlxweb")]


def test_a_run_that_ends_early_ends_its_processes() -> None:
    """Whoever iterates leaves at the first outcome."""
    files = [f"good{n}" for n in range(9)]
    own = Children(by_name, 2)
    found: Iterator[tuple[str, Came | RlxError]] = own.each(files, lambda *told: None)
    _, one = next(found)
    assert isinstance(one, Came)
    started_ones = [child._process for child in own._at_work]
    assert started_ones
    found.close()  # type: ignore[attr-defined]
    assert not any(process.is_alive() for process in started_ones)


def test_processes_that_do_not_start_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that do not start are one error, not one for every file."""
    monkeypatch.setattr(children, "serve", os._exit)
    with pytest.raises(
        ClusterError, match=r"one ended at once: exit code.*without --jo"
    ):
        outcomes("good1", "good2")


RUN = """
import sys
from rlxweb.cli import children, convert_command
from rlxweb.cli.signals import signals
from tests.faults import made_jobs
if __name__ == "__main__":
    signals.take()
    children.LITTLE_NBYTES = 0
    convert_command.Conversion = getattr(made_jobs, sys.argv[1])
    from rlxweb.cli.main import main
    main(sys.argv[2:])
"""


class Pipe:
    """The end of a named pipe from which this process reads, without ever waiting."""

    def __init__(self, path: str) -> None:
        self._number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def heard(self) -> bytes | None:
        """Return the bytes since the last call, or None when no writer is left."""
        try:
            return os.read(self._number, 64) or None
        except BlockingIOError:
            return b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._number)


@pytest.mark.parametrize(
    ("job", "number", "to_all"),
    [
        ("Waiting", signal.SIGINT, True),
        ("Deaf", signal.SIGINT, True),
        ("Deaf", signal.SIGTERM, False),
        ("Waiting", signal.SIGKILL, False),
    ],
)
def test_nothing_is_left_of_a_run_that_is_stopped(
    tmp_path: Path, job: str, number: int, to_all: bool
) -> None:
    """No process and no file is left of a run that is stopped.

    Ctrl-C in a terminal reaches all of its processes.
    """
    for name in ("a", "b"):
        saved(f"{name}.npz", np.ones((1, 50)), fs=10)
        os.mkfifo(f"{name}.npz.pipe")
    (tmp_path / "out").mkdir()
    args = "convert", "a.npz", "b.npz", "--to", "wav", "-o", "out/", "--jobs", "2"
    with (
        ExitStack() as stack,
        running("-c", RUN, job, *args, own_session=True) as process,
    ):
        pipes = [stack.enter_context(Pipe(f"{name}.npz.pipe")) for name in ("a", "b")]
        for pipe in pipes:
            until(lambda one=pipe: one.heard() == b"at work\n", "a process is at work")
        assert len(os.listdir("out")) == 2
        (os.killpg if to_all else os.kill)(process.pid, number)
        for pipe in pipes:
            until(lambda one=pipe: one.heard() is None, "a process has ended")
        code = process.wait(60)
        told = process.stderr.read()
    if number == signal.SIGKILL:
        assert code == -number
    else:
        assert code == 128 + number, told
        assert told.strip() == "rlxweb: stopped"
    if number == signal.SIGKILL:  # its processes let go of the pipe, then clear up
        until(lambda: not os.listdir("out"), "no file is left")
    assert os.listdir("out") == []
