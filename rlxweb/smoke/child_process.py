"""Child process that answers line by line, with limits on its time and memory.

Owns deadlines, the watch over its memory, and its end: a process group of its own, of
which nothing is left. Every way to fail is an `ChildEnding` with a word and a reason.
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

from rlxweb.core.library_crash_probe import exit_meaning
from rlxweb.core.message_text import abbreviate, printable
from rlxweb.smoke.process_memory import resident_nbytes

EndingKind = Literal["", "crashed", "hung", "out of memory"]
_POLL_S = 0.05 if sys.platform == "linux" else 0.5
_DRAIN_TIMEOUT_S = 5.0
_STDERR_TAIL_NBYTES = 4096
_MAX_STDERR_CHARS = 300
# The child finds the very package that this is, from wherever it was run.
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
# JAX would take three quarters of a GPU's memory as soon as it sees one.
_BOOTSTRAP = f"""import os, sys
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
from importlib import import_module
{_PACKAGE_PARENT!r} in sys.path or sys.path.insert(0, {_PACKAGE_PARENT!r})
import_module(sys.argv[1]).main()"""


@dataclass(frozen=True, slots=True)
class ChildEnding:
    """How a process ended; `kind` is "" if it completed normally."""

    kind: EndingKind = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """Limits of a child process.

    start_s   from its begin until it knows its cases: the engine opens in between
    case_s    for one case
    total_s   for all cases of an engine, over however many children
    nbytes    of memory
    """

    start_s: float = 120.0
    case_s: float = 60.0
    total_s: float = 600.0
    nbytes: int = 8 << 30


class ChildProcess:
    """One child process; `messages` yields its messages and `ending` tells how it
    ended.

    module   whose `main` it runs: reads one line of JSON, answers with lines of it
    """

    def __init__(
        self,
        request: Mapping[str, Any],
        limits: ChildLimits,
        environment: Mapping[str, str] | None = None,
        module: str = "rlxweb.smoke.child_main",
    ) -> None:
        self.limits = limits
        self.ending = ChildEnding()
        self._stderr_tail = b""
        self._stdout_lines = _LineQueue()
        is_windows = sys.platform == "win32"
        creation_flags = getattr(
            subprocess, "CREATE_NEW_PROCESS_GROUP", 0
        )  # Windows has it
        self._process = subprocess.Popen(
            (sys.executable, "-P", "-c", _BOOTSTRAP, module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            encoding="utf-8",
            errors="backslashreplace",
            start_new_session=not is_windows,
            creationflags=creation_flags,
        )
        threading.Thread(target=self._read_stdout, daemon=True).start()
        self._stderr_thread = threading.Thread(target=self._read_stderr, daemon=True)
        self._stderr_thread.start()
        with suppress(OSError):  # a process that is gone already is told of below
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def messages(self, final_deadline: float) -> Iterator[dict[str, Any]]:
        """Yield every message until the end; each must arrive within its time limit.

        final_deadline  the time (`monotonic`) at which everything has to be over
        """
        deadline = monotonic() + self.limits.start_s
        is_first_case = True
        while True:
            message = self._next_message(min(deadline, final_deadline), final_deadline)
            if message is None:
                return
            if "begun" in message:
                deadline = monotonic() + self.limits.case_s
                is_first_case = False
            elif is_first_case:
                deadline = monotonic() + self.limits.start_s
            if message.get("end"):
                self._wait_for_exit()
                return
            yield message
            self._stdout_lines.pop_first()

    def drain(self) -> Iterator[dict[str, Any]]:
        """Kill the process and yield the messages not yet consumed, including the last
        one that `messages` yielded.
        """
        self._kill()
        while line := self._stdout_lines.peek(_DRAIN_TIMEOUT_S):
            message = _parse_message(line)  # the last one may be half a line
            if message is not None:
                yield message
            self._stdout_lines.pop_first()

    def close(self) -> None:
        """Kill the process and everything that it started."""
        self._kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def _read_stdout(self) -> None:
        """Read the child's messages into the queue."""
        assert self._process.stdout is not None
        with self._process.stdout as lines, suppress(ValueError, OSError):
            for line in lines:
                self._stdout_lines.add(line)
        self._stdout_lines.add("")  # the process ended

    def _read_stderr(self) -> None:
        """Keep the last bytes of stderr; some drivers print without end."""
        assert self._process.stderr is not None
        with self._process.stderr as text, suppress(ValueError, OSError):
            while chunk := os.read(text.fileno(), _STDERR_TAIL_NBYTES):
                self._stderr_tail = (self._stderr_tail + chunk)[-_STDERR_TAIL_NBYTES:]

    def _next_message(
        self, deadline: float, final_deadline: float
    ) -> dict[str, Any] | None:
        """Return the next message; None if there is none, with the reason in
        `ending`.
        """
        while True:
            line = self._stdout_lines.peek(_POLL_S)
            if line:
                return self._parse_or_fail(line)
            if line is not None:
                self.ending = self._unexpected_ending()
                return None
            if self._exceeds_limits(deadline, final_deadline):
                return None

    def _parse_or_fail(self, line: str) -> dict[str, Any] | None:
        """Parse a line; output that is no message ends the process."""
        message = _parse_message(line)
        if message is not None:
            return message
        excerpt = abbreviate(printable(line.strip()), 80)
        self.ending = ChildEnding(
            "crashed", f"its process wrote an invalid message: {excerpt}"
        )
        self._kill()
        return None

    def _exceeds_limits(self, deadline: float, final_deadline: float) -> bool:
        """Kill the process and set `ending` if it exceeds its time or memory limit."""
        nbytes = resident_nbytes(self._process.pid)
        if nbytes > self.limits.nbytes:
            used_gib, allowed_gib = nbytes / (1 << 30), self.limits.nbytes / (1 << 30)
            reason = (
                f"its process used {used_gib:.1f} GiB of memory; the limit is "
                f"{allowed_gib:.1f} GiB"
            )
            self.ending = ChildEnding("out of memory", reason)
        elif monotonic() > deadline:
            self.ending = ChildEnding("hung", self._timeout_reason(final_deadline))
        else:
            return False
        self._kill()
        return True

    def _timeout_reason(self, final_deadline: float) -> str:
        """Describe which time limit was exceeded."""
        if monotonic() > final_deadline:
            return (
                "all cases of the engine together took longer than "
                f"{self.limits.total_s:g} s"
            )
        return f"no answer within {self.limits.case_s:g} s"

    def _unexpected_ending(self) -> ChildEnding:
        """Return the ending of a process that stopped without its end message."""
        try:
            code = self._process.wait(timeout=self.limits.case_s)
        except subprocess.TimeoutExpired:
            self._kill()
            return ChildEnding("hung", "its process stopped responding and did not end")
        last_line = self._last_stderr_line()
        return ChildEnding(
            "crashed", f"its process ended: {exit_meaning(code)}{last_line}"
        )

    def _wait_for_exit(self) -> None:
        """Wait until a process that sent its end message exits."""
        with suppress(subprocess.TimeoutExpired):
            if self._process.wait(timeout=self.limits.case_s):
                self.ending = self._unexpected_ending()
            return
        self._kill()
        self.ending = ChildEnding(
            "hung", "all cases are done but its process did not end"
        )

    def _last_stderr_line(self) -> str:
        """Return the last line of stderr, as a suffix of a reason."""
        self._stderr_thread.join(_DRAIN_TIMEOUT_S)
        text = self._stderr_tail.decode("utf-8", "replace").strip()
        last = text.splitlines()[-1] if text else ""
        return f"; {abbreviate(printable(last), _MAX_STDERR_CHARS)}" if last else ""

    def _kill(self) -> None:
        """Kill the process group."""
        if sys.platform == "win32":
            pid = str(self._process.pid)
            no_output = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            with suppress(OSError, subprocess.TimeoutExpired):
                command = ["taskkill", "/T", "/F", "/PID", pid]
                subprocess.run(command, check=False, timeout=10, **no_output)
            self._process.kill()
        else:
            # The group is there as long as one of it is, whoever of them has ended.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _parse_message(line: str) -> dict[str, Any] | None:
    """Parse a message; None if the line is none."""
    with suppress(ValueError):
        message = json.loads(line)
        if isinstance(message, dict):
            return message
    return None


class _LineQueue:
    """Queue of lines between two threads. The first line stays until it is popped, so
    that an interrupted consumer loses nothing.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._condition = threading.Condition()

    def add(self, line: str) -> None:
        with self._condition:
            self._lines.append(line)
            self._condition.notify()

    def peek(self, timeout: float) -> str | None:
        """Return the oldest line; None if none arrives within the timeout."""
        with self._condition:
            self._condition.wait_for(lambda: self._lines, timeout)
            return self._lines[0] if self._lines else None

    def pop_first(self) -> None:
        self._lines.popleft()
