"""Fork server: processes forked from one that has already loaded the package.

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
PRELOADED_MODULES = (
    *("click", "rich.console", "rlxweb.cli.main", "rlxweb.smoke.child_main"),
    *(
        "rlxweb.smoke.case_runner",
        "rlxweb.smoke.tab.browser_tab",
        "rlxweb.smoke.tab.node_pyodide",
    ),
    "rlxweb.ops.register_builtin_ops",
    *("rlxweb.cli.devices_command", "rlxweb.cli.smoke_command"),
    *(
        "rlxweb.cli.welch_command",
        "rlxweb.engines.cpu",
        "rlxweb.select.calibration.engine_calibration_lookup",
    ),
    *("rlxweb.select.availability", "rlxweb.engines.cpu"),
    *("dask.cli", "distributed.cli.dask_scheduler", "distributed.cli.dask_worker"),
    *("rlxweb.batch.cluster.cluster_clients", "rlxweb.batch.cluster.recordings"),
    "wgpu.backends.wgpu_native",
)
"""Modules that the server imports, as far as they are installed.

It also parses the C types of wgpu, for whoever opens an adapter.
"""
STARTUP_VARIABLE_PREFIXES = (
    "PYTHON",
    "LD_",
    "LC_",
    "LANG",
    "OPENBLAS_",
    "OMP_",
    "MKL_",
    "NPY_",
)
"""Prefixes of environment variables that are read only when Python starts."""
USED_S: list[float] = []
"""Processor seconds of each forked program that has ended."""
ANSWER_TIMEOUT_S = 60
"""Seconds within which the server must answer; it may have to load everything first."""
_HEADER_NBYTES = 8
_FLUSH_FAILED_STATUS = 120
"""Python's exit status when printed output cannot be written at the end."""


def _startup_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        k: v for k, v in environment.items() if k.startswith(STARTUP_VARIABLE_PREFIXES)
    }


class ForkServer:
    """Client side of the fork server; the server ends when pytest does, with all its
    forks.

    environment   its own, whose variables of `STARTUP_VARIABLE_PREFIXES` hold for all
                  it forks; so do those of this process, which may find the package
                  otherwise
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._startup_environments = [_startup_variables(environment)]
        if environment == default_environment():
            self._startup_environments.append(_startup_variables(os.environ))
        self._control, remote_end = socket.socketpair()
        self._lock = threading.Lock()
        number = remote_end.fileno()
        with remote_end:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(number)],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=dict(environment),
                pass_fds=[number],
                start_new_session=True,  # Ctrl-C is for pytest, which ends it
            )

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Return whether the server runs and was started with these variables."""
        is_same = _startup_variables(environment) in self._startup_environments
        return is_same and self._process.poll() is None

    def ask(self, request: Mapping[str, Any], streams: Sequence[int]) -> socket.socket:
        """Return the socket on which the process id and the exit status will come."""
        local_end, remote_end = socket.socketpair()
        local_end.settimeout(ANSWER_TIMEOUT_S)
        body = json.dumps(request).encode()
        with remote_end, self._lock:
            head = len(body).to_bytes(_HEADER_NBYTES, "big")
            socket.send_fds(self._control, [head], [*streams, remote_end.fileno()])
            self._control.sendall(body)
        return local_end

    def close(self) -> None:
        """End the server and all its forks."""
        self._control.close()
        self._process.wait(60)


@cache
def _process_servers(pid: int) -> list[ForkServer]:
    return []


def find_server(
    environment: Mapping[str, str], is_common: bool = False
) -> ForkServer | None:
    """Return a fork server of this process; None if there is none for that environment.

    The first who asks starts the one for the environment of this process.

    is_common   start another one for other variables, that more programs will have
    """
    if sys.platform != "linux":
        return None
    servers = _process_servers(os.getpid())
    if not servers:
        servers.append(ForkServer(default_environment()))
    for candidate in servers:
        if candidate.serves(environment):
            return candidate
    if is_common:
        servers.append(ForkServer(environment))
        return servers[-1]
    return None


def default_environment() -> dict[str, str]:
    """Return the environment of this process, in which the package is found."""
    from tests.cli_runners import subprocess_environment

    return subprocess_environment()


def pytest_unconfigure() -> None:
    """Close all fork servers of this process."""
    for running_server in _process_servers(os.getpid()):
        running_server.close()
    _process_servers.cache_clear()


class ForkedProcess:
    """Forked program with the part of `subprocess.Popen`'s interface that its users
    need.

    arguments     as after `python`: `-m MODULE ARGS`, `-c CODE ARGS`, `FILE ARGS`
    own_session   whether it leads a session of its own
    log           a file for all that it writes, for which there are no pipes then
    stdout        what it writes to in place of a pipe, and likewise `stderr`
    """

    def __init__(
        self,
        fork_server: ForkServer,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: str | Path | None = None,
        own_session: bool = False,
        errors: str = "strict",
        log: IO[bytes] | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        self.args = arguments
        self.returncode: int | None = None
        self._received = b""
        local_ends: Sequence[Any] = ()
        if log is None:
            output_pipes = (
                os.pipe()[::-1] if descriptor is None else (os.dup(descriptor), None)
                for descriptor in (stdout, stderr)
            )
            remote_ends, local_ends = zip(os.pipe(), *output_pipes, strict=True)
        else:
            log_copies = (os.dup(log.fileno()) for _ in range(2))
            remote_ends = (os.open(os.devnull, os.O_RDONLY), *log_copies)
        request = {
            "words": [*arguments],
            "environment": dict(environment),
            "folder": os.fspath(folder or os.getcwd()),
            "own_session": own_session,
        }
        try:
            self._answer_socket = fork_server.ask(request, remote_ends)
        finally:
            for number in remote_ends:
                os.close(number)
        if local_ends:
            text_options: dict[str, Any] = {"encoding": "utf-8", "errors": errors}
            self.stdin: IO[str] = open(local_ends[0], "w", **text_options)
            if stdout is None:
                self.stdout: IO[str] = open(local_ends[1], **text_options)
            if stderr is None:
                self.stderr: IO[str] = open(local_ends[2], **text_options)
        self.pid = int(self._read_line())

    def _read_line(self) -> str:
        """Return the next line from the server."""
        while b"\n" not in self._received:
            data = self._answer_socket.recv(64)
            if not data:
                raise ChildProcessError("the helper process has ended")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line.decode()

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, negative for a signal."""
        if self.returncode is None:
            has_answer = (
                self._received
                or select.select([self._answer_socket], [], [], timeout)[0]
            )
            if not has_answer:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            code, cpu_seconds = self._read_line().split()
            self.returncode = int(code)
            USED_S.append(float(cpu_seconds))
            self._answer_socket.close()
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

    def communicate(self, timeout: float, stdin_data: bytes = b"") -> tuple[str, str]:
        """Return stdout and stderr; kill the program if that takes too long.

        stdin_data  what it can read
        """
        outputs = {}

        def write_stdin() -> None:
            with suppress(BrokenPipeError), self.stdin:
                self.stdin.buffer.write(stdin_data)  # type: ignore[attr-defined]

        def read_stream(name: str) -> None:
            with getattr(self, name) as stream:
                outputs[name] = stream.read()

        threads = [threading.Thread(target=write_stdin)]
        threads += [
            threading.Thread(target=read_stream, args=[name])
            for name in _OUTPUT_STREAMS
        ]
        for thread in threads:
            thread.start()
        try:
            self.wait(timeout)
        finally:
            self.kill()
            for thread in threads:
                thread.join(timeout)
        return outputs["stdout"], outputs["stderr"]


_OUTPUT_STREAMS = ("stdout", "stderr")


@pytest.fixture
def forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `rlxweb smoke` in this process fork its children instead of starting
    Python.
    """
    from rlxweb.smoke import child_process

    def popen(command: Sequence[str], **options: Any) -> Any:
        environment = os.environ if options["env"] is None else options["env"]
        fork_server = find_server(environment)
        if fork_server is None:
            return subprocess.Popen(command, **options)
        own_session, errors = options["start_new_session"], options["errors"]
        return ForkedProcess(
            fork_server,
            command[1:],
            environment,
            own_session=own_session,
            errors=errors,
        )

    stand_in = types.SimpleNamespace(**{**vars(subprocess), "Popen": popen})
    monkeypatch.setattr(child_process, "subprocess", stand_in)


def _fork_on_request(control: socket.socket) -> dict[str, Any]:
    """Fork for each request; return only in the children, with the request."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready in select.select([control, *running], [], [])[0]:
            if ready is not control:
                pid, answer_socket = running.pop(ready)
                _, status, usage = os.wait4(pid, 0)
                os.close(ready)
                with answer_socket, suppress(OSError):
                    code = os.waitstatus_to_exitcode(status)
                    seconds = usage.ru_utime + usage.ru_stime
                    answer_socket.sendall(f"{code} {seconds}\n".encode())
                continue
            head, numbers, _, _ = socket.recv_fds(control, _HEADER_NBYTES, 4)
            if not head:
                _kill_and_exit(pid for pid, _ in running.values())
            body = _receive_body(control, int.from_bytes(head, "big"))
            if not body:
                _kill_and_exit(pid for pid, _ in running.values())
            request = json.loads(body)
            *streams, answer = numbers
            pid = os.fork()
            if pid == 0:
                for _, answer_socket in running.values():
                    answer_socket.close()
                for number in (control.fileno(), answer, *running):
                    os.close(number)
                control.detach()
                return {**request, "streams": streams}
            for number in streams:
                os.close(number)
            answer_socket = socket.socket(fileno=answer)
            with suppress(OSError):
                answer_socket.sendall(f"{pid}\n".encode())
            running[os.pidfd_open(pid)] = pid, answer_socket


def _receive_body(control: socket.socket, nbytes: int) -> bytes:
    """Return so many bytes, none where pytest has ended before it sent all."""
    data = b""
    while len(data) < nbytes:
        part = control.recv(nbytes - len(data))
        if not part:
            return b""
        data += part
    return data


def _kill_and_exit(pids: Any) -> NoReturn:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _apply_request(request: Mapping[str, Any]) -> None:
    """Give this process the state a fresh interpreter would have been started with."""
    if request["own_session"]:
        os.setsid()
    for number, stream in enumerate(request["streams"]):
        os.dup2(stream, number)
        os.close(stream)
    for number, (name, mode) in enumerate(_STREAMS):
        old = getattr(sys, name)
        text_options = {"encoding": old.encoding, "errors": old.errors}
        new = open(number, mode, closefd=False, **text_options)
        if name == "stderr":
            new.reconfigure(line_buffering=True)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if "dask" in sys.modules:  # it reads its variables when it is imported
        sys.modules["dask"].config.refresh()


_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def _run_python(arguments: Sequence[str], folder: str) -> None:
    """Run what `python ARGUMENTS` runs."""
    if not arguments[0].startswith("-"):
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        sys.argv = [*arguments]
        runpy.run_path(arguments[0], run_name="__main__")
        return
    is_safe = arguments[0] == "-P"
    kind, target, *program_arguments = arguments[is_safe:]
    sys.path[:1] = [] if is_safe else [folder if kind == "-m" else ""]
    sys.argv = [kind, *program_arguments]
    if kind == "-m":
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    exec(compile(target, "<string>", "exec"), main.__dict__)


def _exit_status(arguments: Sequence[str], folder: str) -> int:
    """Run the program until it and its threads end; return its exit status."""
    try:
        _run_python(arguments, folder)
        code: object = 0
    except SystemExit as exit_info:
        code = exit_info.code
    except KeyboardInterrupt:
        traceback.print_exc()
        _flush_outputs()
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
    return (code or 0) if _flush_outputs() else _FLUSH_FAILED_STATUS


def _flush_outputs() -> bool:
    """Flush stdout and stderr; return whether all was written, and report what was
    not.
    """
    is_complete = True
    for name in _OUTPUT_STREAMS:
        try:
            getattr(sys, name).flush()
        except (OSError, ValueError) as error:
            is_complete = False
            with suppress(OSError, ValueError):
                print(f"Exception ignored in {name}: {error!r}", file=sys.stderr)
    return is_complete


def main() -> None:
    """Import the slow modules, then fork on each request."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    sys.path[0] = str(ROOT)
    for name in PRELOADED_MODULES:
        with suppress(ImportError):
            import_module(name)
    with suppress(ImportError):
        from wgpu.backends.wgpu_native import ffi

        from rlxweb.gpu.cffi_type_preparsing import parse_types

        parse_types(ffi)
    gc.collect()
    gc.freeze()
    request = _fork_on_request(control)
    _apply_request(request)
    # To free all that is loaded takes longer than most programs.
    os._exit(_exit_status(request["words"], request["folder"]) & 0xFF)


if __name__ == "__main__":
    main()
