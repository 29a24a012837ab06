"""Jobs that misbehave, in a module that a process of its own can import."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rlxweb.errors import RecordingError
from rlxweb.host.row_blocks import usable_cpus
from rlxweb.jobs.analysis import FileProgress
from rlxweb.jobs.conversion import Conversion, Converted
from rlxweb.whole_file import WholeFiles


class Came(NamedTuple):
    """What came of a file, and where."""

    path: str
    pid: int
    n_cpus: int
    left_out: tuple[tuple[str, str], ...] = ()


def by_name(path: str, progress: FileProgress | None = None) -> Came:
    """Does what the name of the file says."""
    name = Path(path).name
    for word, act in ACTS.items():
        if name.startswith(word):
            act(path)
    if progress is not None:
        progress(10, 10)
    return Came(path, os.getpid(), usable_cpus())


def _killed(path: str) -> None:
    """Write half of a file and be killed, as the system does without memory."""
    with WholeFiles() as files:
        files.open(f"{path}.out").write(b"half")
        os.kill(os.getpid(), signal.SIGKILL)


def _bad(path: str) -> None:
    raise RecordingError(f"reading {path!r}", "it is bad")


def _stumbles(path: str) -> None:
    raise ZeroDivisionError("nobody thought of that")


def _leaves(path: str) -> None:
    os._exit(3)


ACTS: dict[str, Callable[[str], object]] = {
    "kill": _killed,
    "bad": _bad,
    "stumble": _stumbles,
    "leave": _leaves,
}


class Waiting(Conversion):
    """Holds a half-written file, says so into a pipe, and goes on for ever."""

    def __call__(self, path: str, progress: FileProgress | None = None) -> Converted:
        with WholeFiles() as files, open(f"{path}.pipe", "w") as pipe:
            files.open(self.targets[path]).write(b"half")
            pipe.write("at work\n")
            pipe.flush()
            while True:
                assert progress is not None
                progress(1 << 30, 1)


class Deaf(Conversion):
    """The same in a call that does not come back, whatever the other process does."""

    def __call__(self, path: str, progress: FileProgress | None = None) -> Converted:
        with WholeFiles() as files, open(f"{path}.pipe", "w") as pipe:
            files.open(self.targets[path]).write(b"half")
            pipe.write("at work\n")
            pipe.flush()
            reader, _writer = os.pipe()
            os.read(reader, 1)
        raise AssertionError("nothing comes out of that pipe")
