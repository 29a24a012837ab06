"""File jobs that fail, hang, exit or get killed as the file's name says, importable by
a worker process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rlxweb.batch.recording_analysis import FileProgress
from rlxweb.batch.recording_conversion import ConversionJob, ConversionResult
from rlxweb.core.atomic_file import AtomicFiles
from rlxweb.core.errors import RecordingError
from rlxweb.core.thread_tasks import usable_cpus


class FileOutcome(NamedTuple):
    """Result of one file: its path, the process that took it, and that process's share
    of processors.
    """

    path: str
    pid: int
    n_cpus: int
    left_out: tuple[tuple[str, str], ...] = ()


def act_by_file_name(path: str, progress: FileProgress | None = None) -> FileOutcome:
    """Perform the action that the file's name begins with."""
    name = Path(path).name
    for prefix, action in ACTIONS.items():
        if name.startswith(prefix):
            action(path)
    if progress is not None:
        progress(10, 10)
    return FileOutcome(path, os.getpid(), usable_cpus())


def _be_killed(path: str) -> None:
    """Write half of a file and be killed, as the system does without memory."""
    with AtomicFiles() as files:
        files.open(f"{path}.out").write(b"half")
        os.kill(os.getpid(), signal.SIGKILL)


def _raise_recording_error(path: str) -> None:
    raise RecordingError(f"reading {path!r}", "it is bad")


def _raise_unexpected_error(path: str) -> None:
    raise ZeroDivisionError("nobody thought of that")


def _exit_process(path: str) -> None:
    os._exit(3)


ACTIONS: dict[str, Callable[[str], object]] = {
    "kill": _be_killed,
    "bad": _raise_recording_error,
    "stumble": _raise_unexpected_error,
    "leave": _exit_process,
}


class Waiting(ConversionJob):
    """Conversion that holds a half-written file, reports so into a pipe, and never
    ends.
    """

    def __call__(
        self, path: str, progress: FileProgress | None = None
    ) -> ConversionResult:
        with AtomicFiles() as files, open(f"{path}.pipe", "w") as pipe:
            files.open(self.targets[path]).write(b"half")
            pipe.write("at work\n")
            pipe.flush()
            while True:
                assert progress is not None
                progress(1 << 30, 1)


class Deaf(ConversionJob):
    """Conversion that holds a half-written file and blocks in a call that never
    returns.
    """

    def __call__(
        self, path: str, progress: FileProgress | None = None
    ) -> ConversionResult:
        with AtomicFiles() as files, open(f"{path}.pipe", "w") as pipe:
            files.open(self.targets[path]).write(b"half")
            pipe.write("at work\n")
            pipe.flush()
            reader, _writer = os.pipe()
            os.read(reader, 1)
        raise AssertionError("nothing comes out of that pipe")
