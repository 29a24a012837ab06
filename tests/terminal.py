"""A command on a terminal of some size, as somebody sits before it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from types import TracebackType
from typing import IO, Any, Self

from tests.command_line import ROOT, environment
from tests.fork_server import Forked, server

WAIT_S = 100.0


class Terminal:
    """`rlxweb ARGS` with a pseudo-terminal for its output, and a pipe for its input.

    It is forked from a process that has the package loaded, where there is one.

    more   environment
    What it says is read as it comes, so it never waits for a reader.
    """

    def __init__(
        self, *args: object, columns: int = 80, rows: int = 24, **more: str
    ) -> None:
        self._ours, theirs = pty.openpty()
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
        words = ["-m", "rlxweb", *map(str, args)]
        variables = environment(**{"TERM": "xterm-256color", **more})
        self.process: Forked | subprocess.Popen[bytes]
        if there := server(variables):
            forked = Forked(
                there, words, variables, folder=ROOT, stdout=theirs, stderr=theirs
            )
            self.process = forked
            self._input: IO[bytes] = forked.stdin.buffer  # type: ignore[attr-defined]
        else:
            fresh = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.PIPE,
                stdout=theirs,
                stderr=theirs,
                env=variables,
                cwd=ROOT,
            )
            assert fresh.stdin is not None
            self.process, self._input = fresh, fresh.stdin
        os.close(theirs)
        self._said, self._is_over = bytearray(), False
        self._turn = threading.Condition()  # its lock can be taken again by its holder
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        os.close(self._ours)
        self._input.close()

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._ours, 1 << 16)
            except OSError:  # Linux's word for the end of a terminal
                part = b""
            with self._turn:
                self._said += part
                self._is_over = not part
                self._turn.notify_all()
            if not part:
                return

    @property
    def said(self) -> str:
        with self._turn:
            return self._said.decode(errors="replace")

    def until(self, pattern: str) -> re.Match[str]:
        """Wait for it; fails with what was said instead."""
        with self._turn:
            self._turn.wait_for(
                lambda: re.search(pattern, self.said) or self._is_over, WAIT_S
            )
            found = re.search(pattern, self.said)
        assert found, f"{pattern!r} is not in {self.said[-2000:]!r}"
        return found

    def give(self, data: bytes) -> None:
        """Write to the process's standard input."""
        self._input.write(data)
        self._input.flush()

    def end_input(self) -> None:
        self._input.close()

    def code(self) -> int:
        """The code with which the process ended."""
        self._reader.join(WAIT_S)
        return self.process.wait(WAIT_S)


def finished(*args: object, **how: Any) -> tuple[int, str]:
    """How a command ended that is given nothing, and all that it said."""
    with Terminal(*args, **how) as terminal:
        terminal.end_input()
        return terminal.code(), terminal.said
