"""Running the command line in tests: in this process for speed, in its own for truth.

The fixture `call` goes through the same `main` as the installed script, so the error
boundary and the exit codes are those of the user; `spawn` also shows what only a
process has: its streams, signals and end. It is forked from one that has loaded the
package; what is loaded, memory and the start of Python are the matter of `python`.
"""

from __future__ import annotations

import json
import os
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
class Said:
    """What a run left behind."""

    code: int
    out: str
    err: str

    @property
    def record(self) -> dict[str, Any]:
        """The JSON record on stdout, which must hold nothing else."""
        return json.loads(self.out)

    @property
    def group(self) -> dict[str, Any]:
        """The one group of the one file in a record of `rlxweb welch`."""
        (file,) = self.record["files"]
        (group,) = file["groups"]
        return group

    @property
    def errors(self) -> list[str]:
        """Lines on stderr but those that tell about channels and pictures."""
        told = ("left out ", "picture: ")
        return [line for line in self.err.splitlines() if not line.startswith(told)]


Call = Callable[..., Said]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `rlxweb ARGS` in this process."""
    from rlxweb.cli.main import main  # Click is not there where WASM runs the tests

    return caller(main, capsys)


def caller(
    main: Callable[[list[str]], object], capsys: pytest.CaptureFixture[str]
) -> Call:
    """Return a function that runs a command line in this process."""

    def run(*args: object) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as done:
            main([str(arg) for arg in args])
        said = capsys.readouterr()
        return Said(int(str(done.value.code or 0)), said.out, said.err)

    return run


def check_refused(said: Said, code: int, *words: str) -> None:
    """One line that names the trouble, nothing on stdout."""
    assert said.code == code, said
    assert said.out == ""
    (line,) = said.errors
    assert line.startswith("rlxweb: ")
    assert "Traceback" not in line
    assert [word for word in words if word not in line] == [], line


def untimed(record: Any, *without: str) -> Any:
    """A record without what is another in every run: times, and what is named."""
    if isinstance(record, dict):
        out = {"wall_s", "stages", *without}
        return {k: untimed(v, *without) for k, v in record.items() if k not in out}
    if isinstance(record, list):
        return [untimed(one, *without) for one in record]
    return record


def environment(**more: str) -> dict[str, str]:
    """The environment of this process, for another one that finds this checkout."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    ours = {**os.environ, "PYTHONPATH": path}
    if ours.get("XLA_FLAGS") == XLA_IN_TESTS:
        del ours["XLA_FLAGS"]
    return {**ours, **more}


def python(
    *args: object,
    cwd: Path | None = None,
    timeout: float = 120,
    stdin: str | bytes | None = None,
    **more: str,
) -> Said:
    """Run `python ARGS` in a process of its own; `more` is environment."""
    done = subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=cwd,
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        env=environment(**more),
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


def forked(
    *args: object,
    cwd: Path | None = None,
    timeout: float = 120,
    is_common: bool = False,
    stdin: bytes = b"",
    **more: str,
) -> Said:
    """Run `python ARGS` in a process that is forked from one with all loaded.

    What a fork cannot have is for a fresh interpreter: variables that Python reads when
    it starts, unless they are common to several runs. `tests/fork_server.py` says what
    else it does not show.
    """
    from tests.fork_server import Forked, server  # there are no sockets in WASM

    variables = environment(**more)
    there = server(variables, is_common)
    if there is None:
        return python(*args, cwd=cwd, timeout=timeout, stdin=stdin, **more)
    done = Forked(there, [str(arg) for arg in args], variables, folder=cwd)
    out, err = done.communicate(timeout, stdin)
    return Said(done.wait(timeout), out, err)


def spawn(*args: object, timeout: float = 120, stdin: bytes = b"", **more: str) -> Said:
    """Run `python -m rlxweb ARGS` likewise."""
    return forked("-m", "rlxweb", *args, timeout=timeout, stdin=stdin, **more)


@contextmanager
def running(
    *args: object,
    stdout: int | None = None,
    stderr: int | None = None,
    own_session: bool = False,
    **more: str,
) -> Iterator[Any]:
    """Run `python ARGS` in a forked process, with pipes where no streams are given.

    It ends with the block at the latest. Variables that are given empty are not there.
    """
    from tests.fork_server import Forked, server

    words = [str(arg) for arg in args]
    known = environment(**more).items()
    variables = {name: text for name, text in known if text or name not in more}
    streams = {"stdout": stdout, "stderr": stderr}
    there = server(variables)
    if there is None:
        how: dict[str, Any] = {"env": variables, "start_new_session": own_session}
        how |= {name: one for name, one in streams.items() if one is not None}
        with started([sys.executable, *words], stdin=subprocess.PIPE, **how) as process:
            yield process
        return
    fork = Forked(there, words, variables, own_session=own_session, **streams)
    try:
        yield fork
    finally:
        fork.close()


@contextmanager
def started(command: Sequence[object], **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A process with pipes for what it says; it ends with the block at the latest."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    words = [str(word) for word in command]
    with subprocess.Popen(words, text=True, **{**pipes, **more}) as process:
        try:
            yield process
        finally:
            process.kill()
