"""Command run on a pseudo-terminal of a given size."""

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

from tests.cli_runners import ROOT, subprocess_environment
from tests.pytest_fork_server import ForkedProcess, find_server

WAIT_S = 100.0


class Terminal:
    """`rlxweb ARGS` with a pseudo-terminal as output and a pipe as input.

    It is forked from a process that has the package loaded, where there is one.

    more   environment
    What it says is read as it comes, so it never waits for a reader.
    """

    def __init__(
        self, *args: object, columns: int = 80, rows: int = 24, **more: str
    ) -> None:
        self._terminal_fd, process_fd = pty.openpty()
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(process_fd, termios.TIOCSWINSZ, size)
        arguments = ["-m", "rlxweb", *map(str, args)]
        variables = subprocess_environment(**{"TERM": "xterm-256color", **more})
        self.process: ForkedProcess | subprocess.Popen[bytes]
        if fork_server := find_server(variables):
            forked = ForkedProcess(
                fork_server,
                arguments,
                variables,
                folder=ROOT,
                stdout=process_fd,
                stderr=process_fd,
            )
            self.process = forked
            self._input: IO[bytes] = forked.stdin.buffer  # type: ignore[attr-defined]
        else:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=process_fd,
                stderr=process_fd,
                env=variables,
                cwd=ROOT,
            )
            assert process.stdin is not None
            self.process, self._input = process, process.stdin
        os.close(process_fd)
        self._output, self._is_over = bytearray(), False
        self._condition = (
            threading.Condition()
        )  # its lock can be taken again by its holder
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
        os.close(self._terminal_fd)
        self._input.close()

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._terminal_fd, 1 << 16)
            except OSError:  # Linux's word for the end of a terminal
                part = b""
            with self._condition:
                self._output += part
                self._is_over = not part
                self._condition.notify_all()
            if not part:
                return

    @property
    def output(self) -> str:
        with self._condition:
            return self._output.decode(errors="replace")

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the output matches; fail with the output if it never does."""
        with self._condition:
            self._condition.wait_for(
                lambda: re.search(pattern, self.output) or self._is_over, WAIT_S
            )
            match = re.search(pattern, self.output)
        assert match, f"{pattern!r} is not in {self.output[-2000:]!r}"
        return match

    def write_input(self, data: bytes) -> None:
        """Write to the process's standard input."""
        self._input.write(data)
        self._input.flush()

    def end_input(self) -> None:
        self._input.close()

    def exit_code(self) -> int:
        """Wait for the process to end and return its exit code."""
        self._reader.join(WAIT_S)
        return self.process.wait(WAIT_S)


def run_in_terminal(*args: object, **options: Any) -> tuple[int, str]:
    """Run a command without input; return its exit code and all of its output."""
    with Terminal(*args, **options) as terminal:
        terminal.end_input()
        return terminal.exit_code(), terminal.output
