"""Code paths of Windows and macOS, tested with the platform faked.

A module that asks for its platform gets stand-ins for `sys`, `os` and `signal` that
answer as that platform's would, and lack what those lack. What the system would do is
recorded by small fakes. The real modules stay as they are for everybody else.
"""

from __future__ import annotations

import ast
import errno
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import monotonic
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlxweb.batch import journal, locked_file
from rlxweb.cli import live_web, process_pool
from rlxweb.codegen import native_thread_pool
from rlxweb.core import (
    atomic_file,
    cache_folder,
    library_crash_probe,
    safe_file_opening,
    thread_tasks,
)
from rlxweb.core.errors import UsageError
from rlxweb.engines import library_detection, registry
from rlxweb.gpu import adapter_selection
from rlxweb.live import raw_pipe_source
from rlxweb.smoke import child_process, fault_injection, process_memory
from rlxweb.smoke.tab import browser_launch
from tests.cli_runners import ROOT

PID = 4321
O_BINARY = 0x8000
MISSING_NAMES = {
    ("win32", "os"): (
        *("fork", "getuid", "geteuid", "getpgid", "killpg", "setsid", "sysconf"),
        *("fchown", "fchmod", "pread", "register_at_fork", "sched_yield", "mkfifo"),
        *("sched_getaffinity", "sched_setaffinity", "set_blocking", "statvfs"),
        *("O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_CLOEXEC"),
    ),
    ("win32", "signal"): (
        *("SIGKILL", "SIGHUP", "SIGALRM", "alarm", "pthread_sigmask"),
        *("SIG_BLOCK", "SIG_SETMASK"),
    ),
    ("darwin", "os"): ("sched_getaffinity", "sched_setaffinity"),
}
"""Platform and module → names that Linux has and that are missing there."""

FakePlatform = Callable[..., None]


class ProcessEnded(BaseException):
    """Raised in place of ending the process; its argument is how it would have
    ended.
    """


def fake_module(
    module: ModuleType, missing: tuple[str, ...] = (), **extra: Any
) -> ModuleType:
    """Return a copy of a module without some names and with others."""
    module_copy = ModuleType(module.__name__)
    members = {k: v for k, v in vars(module).items() if not k.startswith("__")}
    vars(module_copy).update(
        {**{k: members[k] for k in members.keys() - {*missing}}, **extra}
    )
    return module_copy


def system_modules(system: str, extra: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return `os`, `signal` and `sys` as that platform has them."""
    replacements: dict[str, dict[str, Any]] = {
        "os": {"name": "nt" if system == "win32" else "posix"},
        "signal": {},
        "sys": {"platform": system},
    }
    if system == "win32":
        replacements["os"] |= {"O_BINARY": O_BINARY, "supports_dir_fd": set()}
    return {
        name: fake_module(
            sys.modules[name],
            MISSING_NAMES.get((system, name), ()),
            **{**names, **extra.get(name, {})},
        )
        for name, names in replacements.items()
    }


@pytest.fixture
def fake_platform(monkeypatch: pytest.MonkeyPatch) -> FakePlatform:
    """Return `fake_platform(module, system)`, which lets a module believe to run on a
    system.

    Further arguments are names of a module, `os={"kill": …}`, that it finds instead.
    """

    def pretend(module: ModuleType, system: str, **extra: dict[str, Any]) -> None:
        for name, fake in system_modules(system, extra).items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, fake)

    return pretend


def load_for_platform(name: str, system: str, **extra: dict[str, Any]) -> Any:
    """Load a second copy of one of our modules as on that platform.

    Nobody else sees it: what it imports has been loaded before, for this platform.
    """
    file = import_module(name).__file__
    assert file is not None
    spec = spec_from_file_location(f"there.{name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        for fake_name, fake in system_modules(system, extra).items():
            if hasattr(fake, "register_at_fork"):  # it could not be taken back
                fake.register_at_fork = lambda **when: None
            patch.setitem(sys.modules, fake_name, fake)
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look there
        spec.loader.exec_module(module)
    return module


def uses_system_at_import(text: str) -> bool:
    """Return whether a module uses `os`, `signal` or `sys` outside of its functions."""
    if not re.search(r"^import (os|signal|sys)$", text, re.M):
        return False
    pending: list[ast.AST] = [ast.parse(text)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and node.id in ("os", "signal", "sys"):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)
    return False


SYSTEM_USERS = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "rlxweb").rglob("*.py"))
    if path.stem != "__init__" and uses_system_at_import(path.read_text("utf-8"))
]


@pytest.mark.parametrize("system", ["win32", "darwin"])
@pytest.mark.parametrize("name", SYSTEM_USERS)
def test_modules_that_use_the_system_at_import_load_everywhere(
    name: str, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules that use the system at import load where names of `os` or `signal` are
    missing.
    """
    missing = ("fcntl", "resource", "termios") if system == "win32" else ()
    for module in missing:
        monkeypatch.setitem(sys.modules, module, None)
    assert load_for_platform(name, system).__doc__ == import_module(name).__doc__


# --- files ----------------------------------------------------------------------------


class FarSeekFile(io.FileIO):
    """A file whose position may be beyond what Linux's file systems allow."""

    position = 0

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET and position > 1 << 40:
            self.position = position
        else:
            self.position = super().seek(position, whence)
        return self.position

    def read(self, size: int = -1) -> bytes:
        return b"" if self.position > 1 << 40 else super().read(size)


class FakeMsvcrt:
    """Fake of Windows' `msvcrt` that records the locks it is asked for and raises a
    given error.
    """

    LK_UNLCK, LK_LOCK, LK_NBLCK, LK_RLCK = range(4)

    def __init__(self) -> None:
        self.requests: list[tuple[int, int, int]] = []
        self.error: OSError | None = None
        self.file: FarSeekFile | None = None

    def open(self, handle: int, mode: str, buffering: int) -> FarSeekFile:
        assert buffering == 0
        self.file = FarSeekFile(handle, mode)
        return self.file

    def locking(self, handle: int, mode: int, nbytes: int) -> None:
        assert self.file is not None
        assert handle == self.file.fileno()
        self.requests.append((mode, self.file.position, nbytes))
        if self.error is not None:
            raise self.error


@pytest.fixture
def locks(fake_platform: FakePlatform, monkeypatch: pytest.MonkeyPatch) -> FakeMsvcrt:
    """Let files be locked as on Windows."""
    msvcrt = FakeMsvcrt()
    fake_platform(locked_file, "win32")
    monkeypatch.setitem(sys.modules, "msvcrt", msvcrt)
    monkeypatch.setattr(locked_file, "open", msvcrt.open, raising=False)
    return msvcrt


def test_windows_locks_one_byte_beyond_the_end(
    tmp_path: Path, locks: FakeMsvcrt
) -> None:
    """Windows locks one byte without waiting, and the file stays as short as it was."""
    path = tmp_path / "notes"
    path.write_bytes(b"noted before")
    file, is_locked = locked_file.open_locked(path, "writing", bytes.decode)
    with file:
        assert is_locked
        assert locks.requests == [(FakeMsvcrt.LK_NBLCK, 1 << 60, 1)]
    assert path.read_bytes() == b"noted before"


def test_a_file_locked_by_another_process_is_refused_on_windows(
    tmp_path: Path, locks: FakeMsvcrt
) -> None:
    """Windows reports EACCES; the file's first line names the process that holds it."""
    path = tmp_path / "notes"
    journal.Journal(path, "out").close(remove=False)
    locks.error = PermissionError(errno.EACCES, "Permission denied")
    with pytest.raises(UsageError, match=rf"another run.*process {os.getpid()} on "):
        journal.Journal(path, "out")
    assert locks.file is not None
    assert locks.file.closed


@pytest.mark.parametrize("has_locks", [True, False])
def test_missing_file_locks_on_windows_are_reported(
    has_locks: bool, tmp_path: Path, locks: FakeMsvcrt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows has no locks on some network drives, or without `msvcrt`."""
    locks.error = OSError(errno.EINVAL, "Invalid argument")
    if not has_locks:
        monkeypatch.setitem(sys.modules, "msvcrt", None)
    file, is_locked = locked_file.open_locked(
        tmp_path / "notes", "writing", bytes.decode
    )
    file.close()
    assert not is_locked
    assert len(locks.requests) == has_locks


@pytest.mark.parametrize(
    ("system", "removes_while_open"),
    [("win32", False), ("darwin", True), ("linux", True)],
)
def test_journal_is_removed_while_locked_or_after_closing(
    system: str,
    removes_while_open: bool,
    tmp_path: Path,
    fake_platform: FakePlatform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Windows removes no file that is open; elsewhere another run could take it."""
    journal_file = journal.Journal(tmp_path / "notes", "out")
    unlink, was_open = Path.unlink, []

    def remove(path: Path, missing_ok: bool = False) -> None:
        was_open.append(not journal_file._file.closed)
        if system == "win32" and not journal_file._file.closed:
            raise PermissionError(13, "it is used by another process")
        unlink(path, missing_ok)

    fake_platform(journal, system)
    monkeypatch.setattr(Path, "unlink", remove)
    journal_file.close(remove=True)
    assert was_open[0] is removes_while_open
    assert journal_file._file.closed
    assert not (tmp_path / "notes").exists()


def test_journal_that_another_run_has_open_on_windows_is_not_removed(
    tmp_path: Path, fake_platform: FakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows refuses to remove the file, and no error is reported."""
    journal_file = journal.Journal(tmp_path / "notes", "out")
    fake_platform(journal, "win32")

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "it is used by another process")

    monkeypatch.setattr(Path, "unlink", refuse)
    journal_file.close(remove=True)
    assert journal_file._file.closed


def write_atomically(path: Path) -> None:
    """Replace a file atomically."""
    with atomic_file.AtomicFiles() as files:
        files.open(path).write(b"a\r\nb\n\x1a")


FILE_OPENERS: dict[str, tuple[ModuleType, Callable[[Path], object]]] = {
    "whole files": (atomic_file, write_atomically),
    "notes": (
        locked_file,
        lambda p: locked_file.open_locked(p, "writing", str)[0].close(),
    ),
    "recordings": (
        safe_file_opening,
        lambda p: safe_file_opening.open_regular_file(p).close(),
    ),
    "measurements": (cache_folder, lambda p: cache_folder.read_regular_file(p, 99)),
}


@pytest.mark.parametrize("case_name", FILE_OPENERS)
def test_files_are_opened_in_binary_mode_on_windows(
    case_name: str, tmp_path: Path, fake_platform: FakePlatform, locks: FakeMsvcrt
) -> None:
    """Files open in binary mode: in text mode line ends change and byte 26 ends the
    file.
    """
    module, open_file = FILE_OPENERS[case_name]
    open_flags: list[int] = []

    def open_recorded(path: Path, flags: int, mode: int = 0o777) -> int:
        open_flags.append(flags)
        return os.open(path, flags & ~O_BINARY, mode)

    path = tmp_path / "file"
    path.write_bytes(b"a\r\nb\n\x1a")
    fake_platform(module, "win32", os={"open": open_recorded})
    open_file(path)
    assert open_flags[0] & O_BINARY
    assert path.read_bytes() == b"a\r\nb\n\x1a"


def test_code_store_on_windows_uses_binary_mode_and_full_paths(
    tmp_path: Path,
) -> None:
    """The code store on Windows has no folder descriptors and no owners."""
    open_flags: list[int] = []

    def open_recorded(path: str, flags: int, mode: int, dir_fd: int | None) -> int:
        assert (Path(path).parent, dir_fd) == (tmp_path, None)
        open_flags.append(flags)
        return os.open(path, flags & ~O_BINARY, mode)

    store = load_for_platform(
        "rlxweb.codegen.code_disk_cache", "win32", os={"open": open_recorded}
    )
    tmp_path.chmod(0o777)
    assert store.save_code(tmp_path, "name.o", b"code\r\n\x1a")
    assert store.load_code(tmp_path, "name.o") == b"code\r\n\x1a"
    assert len(open_flags) == 2
    assert all(flags & O_BINARY for flags in open_flags)


def test_bytes_are_read_at_offsets_without_pread(
    tmp_path: Path,
) -> None:
    """Windows has no pread; all readers share one file position."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    source_module = load_for_platform("rlxweb.io.byte_source", "win32")
    with path.open("rb") as file:
        read = source_module.ByteSource(file, "file", 100).read
        got = [[*read(offset, 3)] for offset in (90, 0, 40)]
    assert got == [[90, 91, 92], [0, 1, 2], [40, 41, 42]]


# --- processes and threads ------------------------------------------------------------


class FakeProcess:
    """Process that is never started; it records how it would be started and ended."""

    def __init__(self, output: str = "", exit_code: int | None = 0) -> None:
        self.pid = PID
        self.exit_code = exit_code
        self.options: dict[str, Any] = {}
        self.actions: list[str] = []
        self.asked = ""
        self.output = output
        self.stdin, self.stdout = io.StringIO(), io.StringIO(output)
        self.stderr = io.StringIO()

    def Popen(self, command: object, **options: Any) -> FakeProcess:  # noqa: N802
        self.options = options
        if hasattr(options["stdout"], "write"):  # a file for what it says
            options["stdout"].write(self.output.encode())
        return self

    def wait(self, timeout: float) -> int:
        if self.exit_code is None:
            raise subprocess.TimeoutExpired("python", timeout)
        return self.exit_code

    def kill(self) -> None:
        self.actions.append("kill")

    def killpg(self, pid: int, signal_number: int) -> None:
        self.actions.append(f"killpg {pid} {signal_number}")

    def run(self, words: list[str], **options: Any) -> None:
        assert 0 < options["timeout"] <= 10
        self.actions.append(" ".join(words))

    def fake_subprocess(self, system: str, **extra: Any) -> ModuleType:
        """Return `subprocess` of that system, which starts this process."""
        flag = {"CREATE_NEW_PROCESS_GROUP": 0x200} if system == "win32" else {}
        missing = ("CREATE_NEW_PROCESS_GROUP",)
        names = {"Popen": self.Popen, "run": self.run, **flag, **extra}
        return fake_module(subprocess, missing, **names)


def start_child(
    fake_process: FakeProcess,
    fake_platform: FakePlatform,
    system: str,
    patch: pytest.MonkeyPatch,
    **extra: Any,
) -> child_process.ChildProcess:
    fake_platform(
        child_process,
        system,
        os={"killpg": fake_process.killpg} if system != "win32" else {},
    )
    patch.setattr(
        child_process, "subprocess", fake_process.fake_subprocess(system, **extra)
    )
    return child_process.ChildProcess({"engine": "cpu"}, child_process.ChildLimits())


KILLPG = f"killpg {PID} {signal.SIGKILL:d}"
TASKKILL = f"taskkill /T /F /PID {PID}"


@pytest.mark.parametrize(
    ("system", "starts_session", "flags", "actions"),
    [
        ("win32", False, 0x200, [TASKKILL, "kill"]),
        ("darwin", True, 0, [KILLPG]),
        ("linux", True, 0, [KILLPG]),
    ],
)
def test_an_engines_process_is_ended_with_its_group(
    system: str,
    starts_session: bool,
    flags: int,
    actions: list[str],
    fake_platform: FakePlatform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process is ended with its group, or on Windows by `taskkill`."""
    fake_process = FakeProcess('{"end": true}\n')
    child = start_child(fake_process, fake_platform, system, monkeypatch)
    assert json.loads(fake_process.stdin.getvalue()) == {"engine": "cpu"}
    assert [*child.messages(monotonic() + 60)] == []
    assert child.ending == child_process.ChildEnding()
    child.close()
    assert fake_process.options["start_new_session"] is starts_session
    assert fake_process.options["creationflags"] == flags
    assert fake_process.actions == actions
    assert fake_process.stdin.closed


@pytest.mark.parametrize(
    "error",
    [FileNotFoundError("taskkill"), subprocess.TimeoutExpired("taskkill", 10)],
)
def test_process_is_killed_though_taskkill_fails(
    error: Exception, fake_platform: FakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is ended though `taskkill` is missing or hangs."""

    def fail(words: list[str], **options: Any) -> None:
        fake_process.actions.append(words[0])
        raise error

    fake_process = FakeProcess()
    start_child(fake_process, fake_platform, "win32", monkeypatch, run=fail).close()
    assert fake_process.actions == ["taskkill", "kill"]


def test_memory_is_polled_less_often_without_proc() -> None:
    """Linux reads a file; elsewhere a program has to be started."""
    name = "rlxweb.smoke.child_process"
    intervals_s = {
        system: load_for_platform(name, system)._POLL_S
        for system in ("linux", "darwin", "win32")
    }
    assert intervals_s["linux"] < 0.1
    assert intervals_s["darwin"] == intervals_s["win32"] >= 0.5


TASKLIST = ["/FI", f"PID eq {PID}", "/FO", "CSV", "/NH"]
TASKLIST_ROW = b'"python.exe","4321","Console","1","%s K"\r\n'


@pytest.mark.parametrize(
    ("system", "program", "output", "arguments", "kib"),
    [
        ("win32", "tasklist", TASKLIST_ROW % b"1,012,345", TASKLIST, 1012345),
        ("win32", "tasklist", TASKLIST_ROW % b"1.012.345", TASKLIST, 1012345),
        ("win32", "tasklist", TASKLIST_ROW % b"1\xff012\xff345", TASKLIST, 1012345),
        ("win32", "tasklist", b"INFO: No tasks are running.\r\n", TASKLIST, 0),
        ("darwin", "ps", b"  12345\n", ["-o", "rss=", "-p", str(PID)], 12345),
        ("darwin", "ps", b"", ["-o", "rss=", "-p", str(PID)], 0),
    ],
)
def test_process_memory_is_read_from_the_systems_program(
    system: str,
    program: str,
    output: bytes,
    arguments: list[str],
    kib: int,
    tmp_path: Path,
    fake_platform: FakePlatform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The memory of a process is read with any locale's number format."""
    (tmp_path / "said").write_bytes(output)
    script = f'#!/bin/sh\ncd {tmp_path}; printf "%s\\n" "$@" > asked; /bin/cat said\n'
    (tmp_path / program).write_text(script)
    (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    fake_platform(process_memory, system)
    assert process_memory.resident_nbytes(PID) == kib << 10
    assert (tmp_path / "asked").read_text().splitlines() == arguments


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_process_memory_is_zero_without_a_program_that_measures_it(
    system: str,
    tmp_path: Path,
    fake_platform: FakePlatform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    fake_platform(process_memory, system)
    assert process_memory.resident_nbytes(os.getpid()) == 0


def test_memory_limit_on_windows_is_a_constant(
    fake_platform: FakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test may use 8 GiB on Windows, where the size of memory is unknown."""
    monkeypatch.setattr(process_memory, "_CGROUP_LIMIT_FILES", ())
    fake_platform(process_memory, "win32")
    assert process_memory.default_memory_limit() == 8 << 30


@pytest.mark.parametrize(
    ("system", "ending"),
    [
        ("win32", "abort"),
        ("darwin", "kill"),
        ("linux", "kill"),
    ],
)
def test_an_injected_crash_fits_the_platform(
    system: str, ending: str, fake_platform: FakePlatform
) -> None:
    """A crash on Windows is an abort, since `os.kill` would only end the process."""

    def abort() -> None:
        raise ProcessEnded("abort")

    def kill(pid: int, signal_number: int) -> None:
        assert (pid, signal_number) == (os.getpid(), signal.SIGSEGV)
        raise ProcessEnded("kill")

    fake_platform(fault_injection, system, os={"abort": abort, "kill": kill})
    with pytest.raises(ProcessEnded) as caught:
        fault_injection.FaultInjector.parse("crash:add", print).apply_before_case("add")
    assert str(caught.value) == ending


@pytest.mark.parametrize(
    ("system", "user", "is_disabled"),
    [
        ("linux", 0, True),
        ("linux", 1000, False),
        ("darwin", 0, False),
        ("win32", None, False),
    ],
)
def test_browser_sandbox_is_disabled_only_for_root_on_linux(
    system: str,
    user: int | None,
    is_disabled: bool,
    tmp_path: Path,
    fake_platform: FakePlatform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Windows does not even have user ids."""
    commands: list[list[str]] = []
    fake_subprocess = fake_module(
        subprocess, Popen=lambda words, **how: commands.append(words)
    )
    monkeypatch.setattr(browser_launch, "subprocess", fake_subprocess)
    fake_platform(
        browser_launch, system, os={} if user is None else {"geteuid": lambda: user}
    )
    browser_launch.start_browser("chrome", "http://127.0.0.1/", tmp_path)
    ((path, *switches, url),) = commands
    assert (path, url) == ("chrome", "http://127.0.0.1/")
    assert ("--no-sandbox" in switches) is is_disabled
    assert f"--user-data-dir={tmp_path.resolve()}" in switches


@pytest.mark.parametrize(
    ("system", "starts_session", "actions"),
    [
        ("win32", False, ["kill"]),
        ("darwin", True, [KILLPG, "kill"]),
        ("linux", True, [KILLPG, "kill"]),
    ],
)
def test_a_hanging_library_probe_is_killed_and_reported(
    system: str,
    starts_session: bool,
    actions: list[str],
    fake_platform: FakePlatform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hanging probe is ended with its process group, where the system has them."""
    fake_process = FakeProcess("started\n", exit_code=None)
    fake_platform(
        library_crash_probe,
        system,
        os={"killpg": fake_process.killpg} if starts_session else {},
    )
    monkeypatch.setattr(
        library_crash_probe, "subprocess", fake_process.fake_subprocess(system)
    )
    message = library_crash_probe._probe_in_child("any:function", ())
    assert message == "it did not load within 30 s in a separate process"
    assert fake_process.options["start_new_session"] is starts_session
    assert fake_process.actions == actions


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (0xC0000005, "loading it terminates the process: exit code 0xc0000005"),
        (3, "loading it terminates the process: exit code 3"),
    ],
)
def test_a_crashing_library_probe_reports_the_windows_exit_code(
    exit_code: int,
    words: str,
    fake_platform: FakePlatform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An access violation has a number above 2^30; `abort` ends with 3."""
    fake_process = FakeProcess("started\n", exit_code)
    fake_platform(library_crash_probe, "win32")
    monkeypatch.setattr(
        library_crash_probe, "subprocess", fake_process.fake_subprocess("win32")
    )
    assert library_crash_probe._probe_in_child("any:function", ()) == words


@pytest.mark.parametrize("system", ["win32", "darwin", "linux"])
def test_library_probe_sets_resource_limits_where_available(
    system: str, fake_platform: FakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows has neither resource limits nor an alarm."""
    calls: list[object] = []
    fake_resource = ModuleType("resource")
    vars(fake_resource).update(
        RLIMIT_CORE=4, setrlimit=lambda *args: calls.append(args)
    )
    resource = None if system == "win32" else fake_resource
    monkeypatch.setitem(sys.modules, "resource", resource)
    fake_platform(
        library_crash_probe,
        system,
        signal={} if resource is None else {"alarm": calls.append},
    )
    library_crash_probe._limit_child()
    alarm_s = math.ceil(library_crash_probe.DEADLINE_S) + 5
    assert calls == ([] if system == "win32" else [(4, (0, 0)), alarm_s])


@pytest.mark.parametrize(
    ("system", "machine", "size"),
    [("win32", "AMD64", 0), ("darwin", "arm64", 0), ("linux", "riscv64", 3)],
)
def test_no_thread_pool_without_a_known_futex_call(
    system: str,
    machine: str,
    size: int,
    fake_platform: FakePlatform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A system without futex, or with unknown system calls, has no thread pool."""
    compiled: list[str] = []
    monkeypatch.setattr(native_thread_pool, "compile_cached", compiled.append)
    monkeypatch.setattr(
        native_thread_pool, "platform", SimpleNamespace(machine=lambda: machine)
    )
    fake_platform(native_thread_pool, system)
    pool = native_thread_pool.NativeThreadPool(3)
    assert pool.size == size
    assert not pool.run(0, 0)
    assert (pool.size, pool._threads, compiled) == (0, [], [])


@pytest.mark.parametrize(("system", "cpu_count"), [("win32", 6), ("darwin", 6)])
def test_all_cpus_are_usable_without_cpu_affinity(
    system: str, cpu_count: int, fake_platform: FakePlatform
) -> None:
    fake_platform(thread_tasks, system, os={"cpu_count": lambda: cpu_count})
    assert thread_tasks.usable_cpus.__wrapped__() == cpu_count


# --- signals --------------------------------------------------------------------------


class SignalHarness:
    """Signal handling of the command line with recorded handlers, writes and process
    end.
    """

    def __init__(
        self, fake_platform: FakePlatform, system: str, patch: pytest.MonkeyPatch
    ) -> None:
        self.handlers: dict[str, Callable[[int, None], object]] = {}
        self.watched: list[object] = []
        self.written = b""
        module = import_module("rlxweb.cli.termination_signals")
        os_functions = {"write": self._write, "_exit": self._exit}
        if system != "win32":
            os_functions |= {
                "pipe": lambda: (70, 71),
                "set_blocking": self._record_watch,
            }
        signal_functions = {
            "signal": lambda number, handler: self.handlers.update(
                {signal.Signals(number).name: handler}
            ),
            "getsignal": lambda number: signal.SIG_DFL,
            "set_wakeup_fd": lambda number, **how: self._record_watch(number),
        }
        fake_platform(
            module,
            system,
            os=os_functions,
            signal=signal_functions,
            sys={"modules": {}},
        )
        patch.setattr(module, "atexit", SimpleNamespace(register=lambda handler: None))
        fake_thread_module = SimpleNamespace(
            start_new_thread=lambda handler, args: self._record_watch(*args)
        )
        patch.setattr(module, "_thread", fake_thread_module)
        self.signals = module.ProcessSignals()
        self.signals.install_handlers()

    def _record_watch(self, *args: object) -> None:
        self.watched.append(args)

    def _write(self, handle: int, data: bytes) -> None:
        assert handle == 2
        self.written += data

    def _exit(self, code: int) -> None:
        raise ProcessEnded(code)

    def press_ctrl_c(self) -> None:
        self.handlers["SIGINT"](signal.SIGINT, None)


@pytest.mark.parametrize(
    ("system", "names", "watched"),
    [
        ("win32", {"SIGINT", "SIGTERM"}, []),
        ("darwin", {"SIGINT", "SIGTERM", "SIGHUP"}, [(71, False), (71,), (70,)]),
        ("linux", {"SIGINT", "SIGTERM", "SIGHUP"}, [(71, False), (71,), (70,)]),
    ],
)
def test_signals_of_the_platform_are_handled(
    system: str,
    names: set[str],
    watched: list[object],
    fake_platform: FakePlatform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Signals are also watched beside the main thread, but not on Windows."""
    harness = SignalHarness(fake_platform, system, monkeypatch)
    assert harness.handlers.keys() == names
    assert harness.watched == watched


def test_ctrl_c_on_windows_ends_loading_and_interrupts_a_command(
    fake_platform: FakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second Ctrl-C does not wait for the first."""
    harness = SignalHarness(fake_platform, "win32", monkeypatch)
    with pytest.raises(ProcessEnded, match="130"):
        harness.press_ctrl_c()
    assert harness.written == b"rlxweb: stopped\n"
    harness.signals.begin_command()
    with pytest.raises(KeyboardInterrupt):
        harness.press_ctrl_c()
    with pytest.raises(ProcessEnded, match="130"):
        harness.press_ctrl_c()


def test_processes_start_on_windows_without_blocked_signals(
    fake_platform: FakePlatform,
) -> None:
    fake_platform(process_pool, "win32")
    started = []
    with process_pool._block_interrupts():
        started.append("one")
    assert started == ["one"]


@pytest.mark.needs("distributed")
@pytest.mark.parametrize(
    ("system", "names"),
    [("win32", []), ("darwin", ["ignore:resource_tracker"])],
)
def test_a_cluster_on_windows_starts_no_tracker_and_blocks_no_signal(
    system: str,
    names: list[str],
    fake_platform: FakePlatform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python has neither on Windows; elsewhere both are done and undone."""
    connect: Any = import_module("rlxweb.batch.cluster.cluster_clients")
    load_for_platform("rlxweb.batch.cluster.cluster_clients", system)
    tracker_options: list[str] = []
    events: list[object] = []
    options: list[str] = []

    class Runner:
        loop = "the loop"

        def __init__(self, asynchronous: bool) -> None:
            assert not asynchronous

        def start(self) -> None:
            events.append("start")

        def stop(self) -> None:
            events.append("stop")

    def mask(how: int, signals: object) -> str:
        events.append((how, signals))
        return "as before"

    tracker = SimpleNamespace(ensure_running=lambda: tracker_options.extend(options))
    signal_functions = {} if system == "win32" else {"pthread_sigmask": mask}
    monkeypatch.setattr(connect, "resource_tracker", tracker)
    monkeypatch.setattr(connect, "LoopRunner", Runner)
    fake_platform(
        connect, system, signal=signal_functions, sys={"warnoptions": options}
    )
    connect._start_resource_tracker()
    assert (tracker_options, options) == (names, [])
    with connect._interrupt_blocking_loop() as loop:
        assert loop == "the loop"
    blocked = [(signal.SIG_BLOCK, {signal.SIGINT})] if signal_functions else []
    restored = [(signal.SIG_SETMASK, "as before")] if signal_functions else []
    assert events == [*blocked, "start", *restored, "stop"]


# --- devices and drivers --------------------------------------------------------------


def test_wayland_is_silenced_only_on_linux(
    fake_platform: FakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows has no library without a name: CDLL(None) is a TypeError there."""
    libc = SimpleNamespace(getpid="ignore", vwarnx="show")
    opened: list[object] = []
    hooks: list[object] = []

    def load_library(name: str | None) -> object:
        opened.append(name)
        return SimpleNamespace(wl_log_set_handler_client=hooks.append) if name else libc

    monkeypatch.setattr(adapter_selection, "ctypes", SimpleNamespace(CDLL=load_library))
    for system in ("win32", "darwin"):
        fake_platform(adapter_selection, system)
        with adapter_selection.quiet_wayland():
            assert (opened, hooks) == ([], [])
    fake_platform(adapter_selection, "linux")
    with adapter_selection.quiet_wayland():
        assert hooks == ["ignore"]
    assert hooks == ["ignore", "show"]
    assert opened == [None, "libwayland-client.so.0"]


NVIDIA = library_detection.nvidia_driver_absence
AMD = library_detection.amd_driver_absence
APPLE = library_detection.apple_silicon_absence
AMD_LIBRARIES = ["amdhip64.dll", "amdhip64_6.dll"]
ALL_LIBRARIES = {"nvcuda.dll", "libcuda.so.1", *AMD_LIBRARIES}


@pytest.mark.parametrize(
    ("system", "driver", "installed", "searched", "words"),
    [
        ("win32", NVIDIA, {"nvcuda.dll"}, ["nvcuda.dll"], ""),
        (
            *("win32", NVIDIA, {"libcuda.so.1"}, ["nvcuda.dll"]),
            "no NVIDIA driver (nvcuda.dll not found)",
        ),
        ("darwin", NVIDIA, ALL_LIBRARIES, [], "macOS has no CUDA"),
        ("linux", NVIDIA, {"libcuda.so.1"}, ["libcuda.so.1"], ""),
        ("win32", AMD, {"amdhip64.dll"}, AMD_LIBRARIES[:1], ""),
        ("win32", AMD, {"amdhip64_6.dll"}, AMD_LIBRARIES, ""),
        (
            "win32",
            AMD,
            set(),
            AMD_LIBRARIES,
            "no AMD driver (amdhip64.dll not found)",
        ),
        ("darwin", AMD, ALL_LIBRARIES, [], "macOS has no ROCm"),
        ("win32", APPLE, ALL_LIBRARIES, [], "needs macOS; this is win32"),
    ],
)
def test_drivers_are_searched_by_their_platform_names(
    system: str,
    driver: Callable[[], str],
    installed: set[str],
    searched: list[str],
    words: str,
    fake_platform: FakePlatform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[str] = []

    def load_library(name: str) -> str:
        loaded.append(name)
        if name not in installed:
            raise OSError(name)
        return name

    monkeypatch.setattr("ctypes.CDLL", load_library)
    fake_platform(library_detection, system)
    assert driver() == words
    assert loaded == searched


@pytest.mark.parametrize(
    ("system", "label", "words"),
    [
        ("win32", "directx", ""),
        ("darwin", "directx", "available only on Windows; this is darwin"),
        ("win32", "metal", "available only on macOS; this is win32"),
        ("win32", "webgpu", "available only in a browser tab; this is win32"),
        ("darwin", "webgpu", "available only in a browser tab; this is darwin"),
        ("win32", "vulkan", ""),
        ("darwin", "cpu", ""),
    ],
)
def test_unsupported_devices_name_their_platform(
    system: str, label: str, words: str, fake_platform: FakePlatform
) -> None:
    fake_platform(registry, system)
    assert registry.absence_reason(label) == words


# --- pipes, ports and windows ---------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "waits", "has_data"),
    [("win32", [], True), ("darwin", [0.25], False), ("linux", [0.25], False)],
)
def test_a_pipe_on_windows_is_read_without_select(
    system: str,
    waits: list[float],
    has_data: bool,
    fake_platform: FakePlatform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pipe on Windows is read at once: `select` takes only sockets there."""
    select_waits: list[float] = []

    def select(reads: object, writes: object, odd: object, wait: float) -> Any:
        select_waits.append(wait)
        return [], [], []

    monkeypatch.setattr(raw_pipe_source, "select", SimpleNamespace(select=select))
    fake_platform(raw_pipe_source, system)
    data = np.arange(6, dtype="<f4").tobytes()
    chunk = raw_pipe_source.RawPipeSource(io.BytesIO(data), "f32", 2, 100.0).read(0.25)
    assert select_waits == waits
    got = None if chunk is None else chunk.samples.tolist()
    assert got == ([[0, 2, 4], [1, 3, 5]] if has_data else None)


@pytest.mark.parametrize(
    ("system", "can_reuse"), [("win32", False), ("darwin", True), ("linux", True)]
)
def test_port_reuse_is_disabled_only_on_windows(system: str, can_reuse: bool) -> None:
    """The option that lets a port be reused at once would share it with other programs
    on Windows.
    """
    server = load_for_platform("rlxweb.export.local_server", system)._LocalHttpServer
    assert server.allow_reuse_address is can_reuse


@pytest.mark.parametrize(
    ("system", "variables", "has_display"),
    [
        ("win32", {}, True),
        ("darwin", {}, True),
        ("linux", {}, False),
        ("linux", {"DISPLAY": ""}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
    ],
)
def test_browser_pages_open_only_with_a_display(
    system: str,
    variables: dict[str, str],
    has_display: bool,
    fake_platform: FakePlatform,
) -> None:
    fake_platform(live_web, system, os={"environ": variables})
    assert live_web._has_display() is has_display
