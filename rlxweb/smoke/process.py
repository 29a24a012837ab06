"""A child process that answers line by line, and what becomes of one that does not.

Owns deadlines, the watch over its memory, and its end: a process group of its own, of
which nothing is left. Every way to fail is an `Ending` with a word and a reason.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from rlxweb.library_probe import exit_meaning
from rlxweb.printable import abridged, printable
from rlxweb.smoke.memory import resident_nbytes

EndWord = Literal["", "crashed", "hung", "out of memory"]
_LOOK_S = 0.05 if sys.platform == "linux" else 0.5
_REST_S = 5.0
_TAIL = 4096
_MOST_WORDS = 300
# The child finds the very package that this is, from wherever it was run.
_ROOT = str(Path(__file__).resolve().parents[2])
# JAX would take three quarters of a GPU's memory as soon as it sees one.
_PROGRAM = f"""import os, sys
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
from importlib import import_module
{_ROOT!r} in sys.path or sys.path.insert(0, {_ROOT!r})
import_module(sys.argv[1]).main()"""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended; the word is "" where it did as it was told."""

    word: EndWord = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a child may take.

    start_s   from its begin until it knows its cases: the engine opens in between
    case_s    for one case
    total_s   for all cases of an engine, over however many children
    nbytes    of memory
    """

    start_s: float = 120.0
    case_s: float = 60.0
    total_s: float = 600.0
    nbytes: int = 8 << 30


class Child:
    """One process; `lines` gives what it says, `ending` how it ended.

    module   whose `main` it runs: reads one line of JSON, answers with lines of it
    """

    def __init__(
        self,
        asked: Mapping[str, Any],
        bounds: Bounds,
        environment: Mapping[str, str] | None = None,
        module: str = "rlxweb.smoke.child",
    ) -> None:
        self.bounds = bounds
        self.ending = Ending()
        self._tail = b""
        self._said = _Lines()
        windows = sys.platform == "win32"
        group = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)  # Windows has it
        self._process = subprocess.Popen(
            (sys.executable, "-P", "-c", _PROGRAM, module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            encoding="utf-8",
            errors="backslashreplace",
            start_new_session=not windows,
            creationflags=group,
        )
        threading.Thread(target=self._hear, daemon=True).start()
        self._overhearing = threading.Thread(target=self._overhear, daemon=True)
        self._overhearing.start()
        with suppress(OSError):  # a process that is gone already is told of below
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()

    def lines(self, until: float) -> Iterator[dict[str, Any]]:
        """Every answer until the end; each must come within its time.

        until   the time (`monotonic`) at which everything has to be over
        """
        due = monotonic() + self.bounds.start_s
        is_first_case = True
        while True:
            told = self._next(min(due, until), until)
            if told is None:
                return
            if "begun" in told:
                due = monotonic() + self.bounds.case_s
                is_first_case = False
            elif is_first_case:
                due = monotonic() + self.bounds.start_s
            if told.get("end"):
                self._await_end()
                return
            yield told
            self._said.drop()

    def rest(self) -> Iterator[dict[str, Any]]:
        """End it; what it had said and nobody had taken from `lines`, the last line
        that `lines` gave among it.
        """
        self._kill()
        while line := self._said.first(_REST_S):
            told = _told(line)  # the last one may be half a line
            if told is not None:
                yield told
            self._said.drop()

    def close(self) -> None:
        """End it and all that it started."""
        self._kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines, suppress(ValueError, OSError):
            for line in lines:
                self._said.add(line)
        self._said.add("")  # the process ended

    def _overhear(self) -> None:
        """The end of what it and its driver print: some print without end."""
        assert self._process.stderr is not None
        with self._process.stderr as text, suppress(ValueError, OSError):
            while chunk := os.read(text.fileno(), _TAIL):
                self._tail = (self._tail + chunk)[-_TAIL:]

    def _next(self, due: float, until: float) -> dict[str, Any] | None:
        """The next answer; None where there is none, and `ending` says why."""
        while True:
            line = self._said.first(_LOOK_S)
            if line:
                return self._read(line)
            if line is not None:
                self.ending = self._ended()
                return None
            if self._is_over(due, until):
                return None

    def _read(self, line: str) -> dict[str, Any] | None:
        told = _told(line)
        if told is not None:
            return told
        said = abridged(printable(line.strip()), 80)
        self.ending = Ending("crashed", f"its process wrote what is no answer: {said}")
        self._kill()
        return None

    def _is_over(self, due: float, until: float) -> bool:
        """Too late, or too large? Then it is ended, and `ending` says so."""
        nbytes = resident_nbytes(self._process.pid)
        if nbytes > self.bounds.nbytes:
            has, may = nbytes / (1 << 30), self.bounds.nbytes / (1 << 30)
            why = f"it took {has:.1f} GiB of memory; {may:.1f} GiB are allowed"
            self.ending = Ending("out of memory", why)
        elif monotonic() > due:
            self.ending = Ending("hung", self._too_late(until))
        else:
            return False
        self._kill()
        return True

    def _too_late(self, until: float) -> str:
        if monotonic() > until:
            return f"the {self.bounds.total_s:g} s for all cases of an engine are over"
        return f"no answer within {self.bounds.case_s:g} s"

    def _ended(self) -> Ending:
        """How a process that said nothing of its end ended."""
        try:
            code = self._process.wait(timeout=self.bounds.case_s)
        except subprocess.TimeoutExpired:
            self._kill()
            return Ending("hung", "it stopped answering and did not end")
        said = self._last_words()
        return Ending("crashed", f"its process ended: {exit_meaning(code)}{said}")

    def _await_end(self) -> None:
        """It said that all is done: then it has to leave, and cleanly."""
        with suppress(subprocess.TimeoutExpired):
            if self._process.wait(timeout=self.bounds.case_s):
                self.ending = self._ended()
            return
        self._kill()
        self.ending = Ending("hung", "all was done, and its process did not end")

    def _last_words(self) -> str:
        """The last line on its stderr, if there is one."""
        self._overhearing.join(_REST_S)
        text = self._tail.decode("utf-8", "replace").strip()
        last = text.splitlines()[-1] if text else ""
        return f"; {abridged(printable(last), _MOST_WORDS)}" if last else ""

    def _kill(self) -> None:
        if sys.platform == "win32":
            number = str(self._process.pid)
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            with suppress(OSError, subprocess.TimeoutExpired):
                words = ["taskkill", "/T", "/F", "/PID", number]
                subprocess.run(words, check=False, timeout=10, **quiet)
            self._process.kill()
        else:
            # The group is there as long as one of it is, whoever of them has ended.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _told(line: str) -> dict[str, Any] | None:
    """An answer; None for what is none."""
    with suppress(ValueError):
        told = json.loads(line)
        if isinstance(told, dict):
            return told
    return None


class _Lines:
    """Lines from one thread to another. The first one stays until it is dropped, so
    that whoever is interrupted while taking it has not lost it.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._there = threading.Condition()

    def add(self, line: str) -> None:
        with self._there:
            self._lines.append(line)
            self._there.notify()

    def first(self, timeout: float) -> str | None:
        """The oldest line; None where none came in so many seconds."""
        with self._there:
            self._there.wait_for(lambda: self._lines, timeout)
            return self._lines[0] if self._lines else None

    def drop(self) -> None:
        self._lines.popleft()
