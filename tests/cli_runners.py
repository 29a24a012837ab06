"""Runners of the command line for tests: in this process (fast) or in a process of its
own (complete).

The fixture `call` goes through the same `main` as the installed script, so the error
boundary and the exit codes are those of the user; `run_cli` also shows what only a
process has: its streams, signals and end. It is forked from one that has loaded the
package; what is loaded, memory and the start of Python are the matter of `run_python`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
XLA_IN_TESTS = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false"
)
"""JAX's compiler optimises little in the tests' own processes: thousands of graphs take
half the time. What it makes of our ops for its users, `rlxweb smoke` asks of a process
that does without.
"""


def pytest_configure() -> None:
    """Set the flags of JAX's compiler before JAX is imported."""
    os.environ.setdefault("XLA_FLAGS", XLA_IN_TESTS)


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a command that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document on stdout, which must hold nothing else."""
        return json.loads(self.out)

    @property
    def group(self) -> dict[str, Any]:
        """The single group of the single file in a JSON document of `rlxweb welch`."""
        (file,) = self.document["files"]
        (group,) = file["groups"]
        return group

    @property
    def errors(self) -> list[str]:
        """Lines on stderr without the notes about left-out channels and pictures."""
        notes = ("skipped channel", "picture: ")
        return [line for line in self.err.splitlines() if not line.startswith(notes)]


CommandRunner = Callable[..., CommandResult]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> CommandRunner:
    """Runner of `rlxweb ARGS` in this process."""
    from rlxweb.cli.main import main  # Click is not there where WASM runs the tests

    return make_command_runner(main, capsys)


def make_command_runner(
    main: Callable[[list[str]], object], capsys: pytest.CaptureFixture[str]
) -> CommandRunner:
    """Return a function that runs a command line in this process."""

    def run(*args: object) -> CommandResult:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            main([str(arg) for arg in args])
        output = capsys.readouterr()
        return CommandResult(
            int(str(exit_info.value.code or 0)), output.out, output.err
        )

    return run


def check_rejected(result: CommandResult, code: int, *words: str) -> None:
    """Check that a command failed with one line that names the problem and an empty
    stdout.
    """
    assert result.code == code, result
    assert result.out == ""
    (line,) = result.errors
    assert line.startswith("rlxweb: ")
    assert "Traceback" not in line
    assert [word for word in words if word not in line] == [], line


def matches(pattern: str, text: str, any_text: str = "…") -> bool:
    """Return whether a text is as a pattern says, where `any_text` stands for any
    text.
    """
    expression = ".*".join(map(re.escape, pattern.split(any_text)))
    return re.fullmatch(expression, text.strip("\n"), re.DOTALL) is not None


def drop_times(document: Any, *without: str) -> Any:
    """Return a JSON document without the fields that differ in every run: times, and
    the named ones.
    """
    if isinstance(document, dict):
        dropped = {"wall_s", "stages", *without}
        return {
            k: drop_times(v, *without) for k, v in document.items() if k not in dropped
        }
    if isinstance(document, list):
        return [drop_times(item, *without) for item in document]
    return document


def subprocess_environment(**overrides: str) -> dict[str, str]:
    """Return this process's environment for another process that must find this
    checkout.
    """
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    inherited = {**os.environ, "PYTHONPATH": path}
    if inherited.get("XLA_FLAGS") == XLA_IN_TESTS:
        del inherited["XLA_FLAGS"]
    return {**inherited, **overrides}


def run_python(
    *args: object,
    cwd: Path | None = None,
    timeout: float = 120,
    stdin: str | bytes | None = None,
    **env: str,
) -> CommandResult:
    """Run `python ARGS` in a fresh interpreter; `env` sets environment variables."""
    process = subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=cwd,
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        env=subprocess_environment(**env),
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    return CommandResult(
        process.returncode, process.stdout.decode(), process.stderr.decode()
    )


def run_forked(
    *args: object,
    cwd: Path | None = None,
    timeout: float = 120,
    is_common: bool = False,
    stdin: bytes = b"",
    **env: str,
) -> CommandResult:
    """Run `python ARGS` in a process forked from one that has already loaded the
    package.

    What a fork cannot have is for a fresh interpreter: variables that Python reads when
    it starts, unless they are common to several runs. `tests/pytest_fork_server.py`
    says what else it does not show.
    """
    from tests.pytest_fork_server import (
        ForkedProcess,
        find_server,
    )  # there are no sockets in WASM

    variables = subprocess_environment(**env)
    fork_server = find_server(variables, is_common)
    if fork_server is None:
        return run_python(*args, cwd=cwd, timeout=timeout, stdin=stdin, **env)
    process = ForkedProcess(
        fork_server, [str(arg) for arg in args], variables, folder=cwd
    )
    out, err = process.communicate(timeout, stdin)
    return CommandResult(process.wait(timeout), out, err)


def run_cli(
    *args: object, timeout: float = 120, stdin: bytes = b"", **env: str
) -> CommandResult:
    """Run `python -m rlxweb ARGS` in a forked process."""
    return run_forked("-m", "rlxweb", *args, timeout=timeout, stdin=stdin, **env)


@contextmanager
def running_program(
    *args: object,
    stdout: int | None = None,
    stderr: int | None = None,
    own_session: bool = False,
    **env: str,
) -> Iterator[Any]:
    """Run `python ARGS` in a forked process, with pipes where no streams are given.

    It ends with the block at the latest. Variables that are given empty are not there.
    """
    from tests.pytest_fork_server import ForkedProcess, find_server

    arguments = [str(arg) for arg in args]
    defined = subprocess_environment(**env).items()
    variables = {name: text for name, text in defined if text or name not in env}
    streams = {"stdout": stdout, "stderr": stderr}
    fork_server = find_server(variables)
    if fork_server is None:
        popen_options: dict[str, Any] = {
            "env": variables,
            "start_new_session": own_session,
        }
        popen_options |= {
            name: stream for name, stream in streams.items() if stream is not None
        }
        with running_process(
            [sys.executable, *arguments], stdin=subprocess.PIPE, **popen_options
        ) as process:
            yield process
        return
    process_fork = ForkedProcess(
        fork_server, arguments, variables, own_session=own_session, **streams
    )
    try:
        yield process_fork
    finally:
        process_fork.close()


@contextmanager
def running_process(
    command: Sequence[object], **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """Start a process whose output goes to pipes; kill it when the block ends."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    arguments = [str(word) for word in command]
    with subprocess.Popen(arguments, text=True, **{**pipes, **options}) as process:
        try:
            yield process
        finally:
            process.kill()
