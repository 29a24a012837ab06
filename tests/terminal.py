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
from typing import Any, Self

from tests.command_line import ROOT, environment

WAIT_S = 100.0


class Terminal:
    """`rlxweb ARGS` with a pseudo-terminal for its output, and a pipe for its input.

    more   environment
    What it says is read as it comes, so it never waits for a reader.
    """

    def __init__(
        self, *args: object, columns: int = 80, rows: int = 24, **more: str
    ) -> None:
        self._ours, theirs = pty.openpty()
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-m", "rlxweb", *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=theirs,
            stderr=theirs,
            env=environment(**{"TERM": "xterm-256color", **more}),
            cwd=ROOT,
        )
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
        assert self.process.stdin is not None
        self.process.stdin.close()

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
        """To its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def code(self) -> int:
        """How it ended."""
        self._reader.join(WAIT_S)
        return self.process.wait(WAIT_S)


def finished(*args: object, **how: Any) -> tuple[int, str]:
    """How a command ended that is given nothing, and all that it said."""
    with Terminal(*args, **how) as terminal:
        terminal.end_input()
        return terminal.code(), terminal.said
