"""Processes forked from one that has loaded the package: an interpreter in no time.

To start Python and to load NumPy, wgpu and the package takes about a second of a
processor. A helper process does that once for each process of pytest. It opens no
adapter, starts no thread of its own, and forks for every program that is asked for:
that one gets its arguments, environment, working folder and three streams, and runs as
`python -m MODULE` or `python -c CODE` would. Whoever asks what is loaded, how much
memory is taken or what Python does at its start needs a real interpreter.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOADED = (
    *("click", "rich.console", "rlxweb.cli.main", "rlxweb.smoke.child"),
    *("rlxweb.smoke.answering", "rlxweb.smoke.tab.here", "rlxweb.smoke.tab.node"),
    "rlxweb.ops.vocabulary",
    *("rlxweb.cli.devices_command", "rlxweb.cli.smoke_command"),
    *("rlxweb.cli.welch_command", "rlxweb.backends.cpu", "rlxweb.calibration.known"),
    *("rlxweb.choose.report", "rlxweb.host.variants"),
    *("dask.cli", "distributed.cli.dask_scheduler", "distributed.cli.dask_worker"),
    *("rlxweb.dask.connect", "rlxweb.dask.recordings"),
    "wgpu.backends.wgpu_native",
)
"""Modules that the helper imports, as far as they are installed.

It also parses the C types of wgpu, for whoever opens an adapter.
"""
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "OPENBLAS_", "OMP_", "MKL_", "NPY_")
"""Prefixes of environment variables that are read only when Python starts."""
USED_S: list[float] = []
"""Processor seconds of each forked program that has ended."""
ANSWER_S = 60
"""Seconds that the helper has for an answer: it may have to load everything first."""
_HEADER = 8
_NOT_FLUSHED = 120
"""Python's exit status where what was printed cannot be written at the end."""


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(READ_AT_START)}


class Server:
    """The helper as pytest sees it; it ends when pytest does, and all that it forked.

    environment   its own, whose variables of `READ_AT_START` hold for all it forks; so
                  do those of this process, which may find the package otherwise
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._known = [_at_start(environment)]
        if environment == ours():
            self._known.append(_at_start(os.environ))
        self._control, theirs = socket.socketpair()
        self._lock = threading.Lock()
        number = theirs.fileno()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(number)],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=dict(environment),
                pass_fds=[number],
                start_new_session=True,  # Ctrl-C is for pytest, which ends it
            )

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Return whether it is there and began with these variables."""
        is_same = _at_start(environment) in self._known
        return is_same and self._process.poll() is None

    def ask(self, asked: Mapping[str, Any], streams: Sequence[int]) -> socket.socket:
        """Return the socket on which the process id and the exit status will come."""
        ours, theirs = socket.socketpair()
        ours.settimeout(ANSWER_S)
        body = json.dumps(asked).encode()
        with theirs, self._lock:
            head = len(body).to_bytes(_HEADER, "big")
            socket.send_fds(self._control, [head], [*streams, theirs.fileno()])
            self._control.sendall(body)
        return ours

    def close(self) -> None:
        """End it and all that it forked."""
        self._control.close()
        self._process.wait(60)


@cache
def _servers(pid: int) -> list[Server]:
    return []


def server(environment: Mapping[str, str], is_common: bool = False) -> Server | None:
    """Return a helper of this process; None if there is none for that environment.

    The first who asks starts the one for the environment of this process.

    is_common   start another one for other variables, that more programs will have
    """
    if sys.platform != "linux":
        return None
    there = _servers(os.getpid())
    if not there:
        there.append(Server(ours()))
    for one in there:
        if one.serves(environment):
            return one
    if is_common:
        there.append(Server(environment))
        return there[-1]
    return None


def ours() -> dict[str, str]:
    """Return the environment of this process, in which the package is found."""
    from tests.command_line import environment

    return environment()


def pytest_unconfigure() -> None:
    """Leave no helper behind."""
    for one in _servers(os.getpid()):
        one.close()
    _servers.cache_clear()


class Forked:
    """A forked program, with what of `subprocess.Popen` its users need.

    words         as after `python`: `-m MODULE ARGS`, `-c CODE ARGS`, `FILE ARGS`
    own_session   whether it leads a session of its own
    log           a file for all that it writes, for which there are no pipes then
    stdout        what it writes to in place of a pipe, and likewise `stderr`
    """

    def __init__(
        self,
        by: Server,
        words: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: str | Path | None = None,
        own_session: bool = False,
        errors: str = "strict",
        log: IO[bytes] | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        self.args = words
        self.returncode: int | None = None
        self._said = b""
        ours: Sequence[Any] = ()
        if log is None:
            said = (
                os.pipe()[::-1] if one is None else (os.dup(one), None)
                for one in (stdout, stderr)
            )
            theirs, ours = zip(os.pipe(), *said, strict=True)
        else:
            both = (os.dup(log.fileno()) for _ in range(2))
            theirs = (os.open(os.devnull, os.O_RDONLY), *both)
        asked = {
            "words": [*words],
            "environment": dict(environment),
            "folder": os.fspath(folder or os.getcwd()),
            "own_session": own_session,
        }
        try:
            self._answers = by.ask(asked, theirs)
        finally:
            for number in theirs:
                os.close(number)
        if ours:
            form: dict[str, Any] = {"encoding": "utf-8", "errors": errors}
            self.stdin: IO[str] = open(ours[0], "w", **form)
            if stdout is None:
                self.stdout: IO[str] = open(ours[1], **form)
            if stderr is None:
                self.stderr: IO[str] = open(ours[2], **form)
        self.pid = int(self._answer())

    def _answer(self) -> str:
        """Return the next line that the helper says."""
        while b"\n" not in self._said:
            more = self._answers.recv(64)
            if not more:
                raise ChildProcessError("the helper process has ended")
            self._said += more
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, negative for a signal."""
        if self.returncode is None:
            there = self._said or select.select([self._answers], [], [], timeout)[0]
            if not there:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            code, used = self._answer().split()
            self.returncode = int(code)
            USED_S.append(float(used))
            self._answers.close()
        return self.returncode

    def kill(self) -> None:
        """End it if it runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send it a signal if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def close(self) -> None:
        """End it if it runs, and close the pipes."""
        self.kill()
        self.wait(60)
        for name, _ in _STREAMS:
            stream = getattr(self, name, None)
            if stream is not None:
                with suppress(OSError):  # what it was given and has not read
                    stream.close()

    def communicate(self, timeout: float, given: bytes = b"") -> tuple[str, str]:
        """Return what it wrote; it is ended where that takes too long.

        given   what it can read
        """
        said = {}

        def give() -> None:
            with suppress(BrokenPipeError), self.stdin:
                self.stdin.buffer.write(given)  # type: ignore[attr-defined]

        def hear(name: str) -> None:
            with getattr(self, name) as stream:
                said[name] = stream.read()

        threads = [threading.Thread(target=give)]
        threads += [threading.Thread(target=hear, args=[name]) for name in _HEARD]
        for thread in threads:
            thread.start()
        try:
            self.wait(timeout)
        finally:
            self.kill()
            for thread in threads:
                thread.join(timeout)
        return said["stdout"], said["stderr"]


_HEARD = ("stdout", "stderr")


@pytest.fixture
def forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """`rlxweb smoke` in this process forks its children; it starts Python otherwise."""
    from rlxweb.smoke import process

    def popen(words: Sequence[str], **more: Any) -> Any:
        given = os.environ if more["env"] is None else more["env"]
        there = server(given)
        if there is None:
            return subprocess.Popen(words, **more)
        own_session, errors = more["start_new_session"], more["errors"]
        return Forked(there, words[1:], given, own_session=own_session, errors=errors)

    stand_in = types.SimpleNamespace(**{**vars(subprocess), "Popen": popen})
    monkeypatch.setattr(process, "subprocess", stand_in)


def _serve(control: socket.socket) -> dict[str, Any]:
    """Fork for whoever asks; return in the children only, with what is asked."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready in select.select([control, *running], [], [])[0]:
            if ready is not control:
                pid, answers = running.pop(ready)
                _, status, used = os.wait4(pid, 0)
                os.close(ready)
                with answers, suppress(OSError):
                    code = os.waitstatus_to_exitcode(status)
                    seconds = used.ru_utime + used.ru_stime
                    answers.sendall(f"{code} {seconds}\n".encode())
                continue
            head, numbers, _, _ = socket.recv_fds(control, _HEADER, 4)
            if not head:
                _end(pid for pid, _ in running.values())
            body = _body(control, int.from_bytes(head, "big"))
            if not body:
                _end(pid for pid, _ in running.values())
            asked = json.loads(body)
            *streams, answer = numbers
            pid = os.fork()
            if pid == 0:
                for _, answers in running.values():
                    answers.close()
                for number in (control.fileno(), answer, *running):
                    os.close(number)
                control.detach()
                return {**asked, "streams": streams}
            for number in streams:
                os.close(number)
            answers = socket.socket(fileno=answer)
            with suppress(OSError):
                answers.sendall(f"{pid}\n".encode())
            running[os.pidfd_open(pid)] = pid, answers


def _body(control: socket.socket, nbytes: int) -> bytes:
    """Return so many bytes, none where pytest has ended before it sent all."""
    parts = b""
    while len(parts) < nbytes:
        part = control.recv(nbytes - len(parts))
        if not part:
            return b""
        parts += part
    return parts


def _end(pids: Any) -> NoReturn:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _become(asked: Mapping[str, Any]) -> None:
    """Give this process what a fresh interpreter would have been started with."""
    if asked["own_session"]:
        os.setsid()
    for number, stream in enumerate(asked["streams"]):
        os.dup2(stream, number)
        os.close(stream)
    for number, (name, mode) in enumerate(_STREAMS):
        old = getattr(sys, name)
        form = {"encoding": old.encoding, "errors": old.errors}
        new = open(number, mode, closefd=False, **form)
        if name == "stderr":
            new.reconfigure(line_buffering=True)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    if "dask" in sys.modules:  # it reads its variables when it is imported
        sys.modules["dask"].config.refresh()


_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def _run(words: Sequence[str], folder: str) -> None:
    """Do what `python WORDS` does."""
    if not words[0].startswith("-"):
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        sys.argv = [*words]
        runpy.run_path(words[0], run_name="__main__")
        return
    is_safe = words[0] == "-P"
    kind, what, *given = words[is_safe:]
    sys.path[:1] = [] if is_safe else [folder if kind == "-m" else ""]
    sys.argv = [kind, *given]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    exec(compile(what, "<string>", "exec"), main.__dict__)


def _exit_status(words: Sequence[str], folder: str) -> int:
    """Run it to its end, and to that of its threads; return its exit status."""
    try:
        _run(words, folder)
        code: object = 0
    except SystemExit as done:
        code = done.code
    except KeyboardInterrupt:
        traceback.print_exc()
        _flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return (code or 0) if _flush() else _NOT_FLUSHED


def _flush() -> bool:
    """Return whether all that was printed is where it belongs; say what is not."""
    is_well = True
    for name in _HEARD:
        try:
            getattr(sys, name).flush()
        except (OSError, ValueError) as error:
            is_well = False
            with suppress(OSError, ValueError):
                print(f"Exception ignored in {name}: {error!r}", file=sys.stderr)
    return is_well


def main() -> None:
    """Load what takes long, then fork for whoever asks."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    sys.path[0] = str(ROOT)
    for name in LOADED:
        with suppress(ImportError):
            import_module(name)
    with suppress(ImportError):
        from wgpu.backends.wgpu_native import ffi

        from rlxweb.gpu.c_types import parse_at_once

        parse_at_once(ffi)
    gc.collect()
    gc.freeze()
    asked = _serve(control)
    _become(asked)
    # To free all that is loaded takes longer than most programs.
    os._exit(_exit_status(asked["words"], asked["folder"]) & 0xFF)


if __name__ == "__main__":
    main()
