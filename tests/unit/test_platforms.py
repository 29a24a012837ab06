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

from rlxweb import library_probe, named_files, whole_file
from rlxweb.backends import presence, registry
from rlxweb.calibration import cache_folder
from rlxweb.cli import children, live_web
from rlxweb.errors import UsageError
from rlxweb.gpu import adapters
from rlxweb.host import row_blocks
from rlxweb.jobs import held_file, journal
from rlxweb.live import raw_source
from rlxweb.machine import crew
from rlxweb.smoke import memory, process, sabotage
from rlxweb.smoke.tab import browsers
from tests.command_line import ROOT

PID = 4321
O_BINARY = 0x8000
GONE = {
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
"""Platform and module → names that it lacks there, and that Linux has."""

On = Callable[..., None]


class Ended(BaseException):
    """Raised in place of ending the process; its argument says how."""


def stand_in(module: ModuleType, gone: tuple[str, ...] = (), **more: Any) -> ModuleType:
    """A module like that one, without some names and with others."""
    made = ModuleType(module.__name__)
    kept = {k: v for k, v in vars(module).items() if not k.startswith("__")}
    vars(made).update({**{k: kept[k] for k in kept.keys() - {*gone}}, **more})
    return made


def system_modules(system: str, more: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """`os`, `signal` and `sys` as that platform has them."""
    said: dict[str, dict[str, Any]] = {
        "os": {"name": "nt" if system == "win32" else "posix"},
        "signal": {},
        "sys": {"platform": system},
    }
    if system == "win32":
        said["os"] |= {"O_BINARY": O_BINARY, "supports_dir_fd": set()}
    return {
        name: stand_in(
            sys.modules[name],
            GONE.get((system, name), ()),
            **{**instead, **more.get(name, {})},
        )
        for name, instead in said.items()
    }


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> On:
    """`on(module, system)`: from now on that module believes to run there.

    Further arguments are names of a module, `os={"kill": …}`, that it finds instead.
    """

    def pretend(module: ModuleType, system: str, **more: dict[str, Any]) -> None:
        for name, made in system_modules(system, more).items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, made)

    return pretend


def loaded(name: str, system: str, **more: dict[str, Any]) -> Any:
    """A second copy of one of our modules, as it is when it is loaded there.

    Nobody else sees it: what it imports has been loaded before, for this platform.
    """
    file = import_module(name).__file__
    assert file is not None
    spec = spec_from_file_location(f"there.{name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        for other, made in system_modules(system, more).items():
            if hasattr(made, "register_at_fork"):  # it could not be taken back
                made.register_at_fork = lambda **when: None
            patch.setitem(sys.modules, other, made)
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look there
        spec.loader.exec_module(module)
    return module


def asks_at_once(text: str) -> bool:
    """Tell whether a module uses `os`, `signal` or `sys` outside of its functions."""
    if not re.search(r"^import (os|signal|sys)$", text, re.M):
        return False
    left: list[ast.AST] = [ast.parse(text)]
    while left:
        node = left.pop()
        if isinstance(node, ast.Name) and node.id in ("os", "signal", "sys"):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            left += ast.iter_child_nodes(node)
    return False


ASKING = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "rlxweb").rglob("*.py"))
    if path.stem != "__init__" and asks_at_once(path.read_text("utf-8"))
]


@pytest.mark.parametrize("system", ["win32", "darwin"])
@pytest.mark.parametrize("name", ASKING)
def test_what_asks_the_system_while_it_is_loaded_can_be_loaded_there(
    name: str, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules that ask the system load on one without names of `os` or `signal`."""
    gone = ("fcntl", "resource", "termios") if system == "win32" else ()
    for module in gone:
        monkeypatch.setitem(sys.modules, module, None)
    assert loaded(name, system).__doc__ == import_module(name).__doc__


# --- files ----------------------------------------------------------------------------


class Far(io.FileIO):
    """A file whose position may lie where no file system of Linux lets it be."""

    place = 0

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET and place > 1 << 40:
            self.place = place
        else:
            self.place = super().seek(place, whence)
        return self.place

    def read(self, size: int = -1) -> bytes:
        return b"" if self.place > 1 << 40 else super().read(size)


class Locks:
    """Windows' `msvcrt`: what it was asked to lock, and what it says to that."""

    LK_UNLCK, LK_LOCK, LK_NBLCK, LK_RLCK = range(4)

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, int]] = []
        self.refusal: OSError | None = None
        self.file: Far | None = None

    def open(self, handle: int, mode: str, buffering: int) -> Far:
        assert buffering == 0
        self.file = Far(handle, mode)
        return self.file

    def locking(self, handle: int, mode: int, nbytes: int) -> None:
        assert self.file is not None
        assert handle == self.file.fileno()
        self.asked.append((mode, self.file.place, nbytes))
        if self.refusal is not None:
            raise self.refusal


@pytest.fixture
def locks(on: On, monkeypatch: pytest.MonkeyPatch) -> Locks:
    """Files are locked as on Windows."""
    made = Locks()
    on(held_file, "win32")
    monkeypatch.setitem(sys.modules, "msvcrt", made)
    monkeypatch.setattr(held_file, "open", made.open, raising=False)
    return made


def test_windows_locks_one_byte_that_nobody_reads(tmp_path: Path, locks: Locks) -> None:
    """Windows locks one byte without waiting, and the file stays as short as it was."""
    path = tmp_path / "notes"
    path.write_bytes(b"noted before")
    file, is_locked = held_file.held(path, "writing", bytes.decode)
    with file:
        assert is_locked
        assert locks.asked == [(Locks.LK_NBLCK, 1 << 60, 1)]
    assert path.read_bytes() == b"noted before"


def test_a_file_that_windows_has_locked_for_another_is_refused_with_its_holder(
    tmp_path: Path, locks: Locks
) -> None:
    """Windows says EACCES; the first line tells who holds it."""
    path = tmp_path / "notes"
    journal.Journal(path, "out").close(remove=False)
    locks.refusal = PermissionError(errno.EACCES, "Permission denied")
    with pytest.raises(UsageError, match=rf"another run.*process {os.getpid()} on "):
        journal.Journal(path, "out")
    assert locks.file is not None
    assert locks.file.closed


@pytest.mark.parametrize("has_locks", [True, False])
def test_where_windows_has_no_locks_it_is_said_that_there_is_none(
    has_locks: bool, tmp_path: Path, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows has no locks on some network drives, or without `msvcrt`."""
    locks.refusal = OSError(errno.EINVAL, "Invalid argument")
    if not has_locks:
        monkeypatch.setitem(sys.modules, "msvcrt", None)
    file, is_locked = held_file.held(tmp_path / "notes", "writing", bytes.decode)
    file.close()
    assert not is_locked
    assert len(locks.asked) == has_locks


@pytest.mark.parametrize(
    ("system", "was_held"), [("win32", False), ("darwin", True), ("linux", True)]
)
def test_notes_are_removed_while_they_are_held_or_else_once_they_are_closed(
    system: str,
    was_held: bool,
    tmp_path: Path,
    on: On,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Windows removes no file that is open; elsewhere another run could take it."""
    notes = journal.Journal(tmp_path / "notes", "out")
    unlink, held = Path.unlink, []

    def remove(path: Path, missing_ok: bool = False) -> None:
        held.append(not notes._file.closed)
        if system == "win32" and not notes._file.closed:
            raise PermissionError(13, "it is used by another process")
        unlink(path, missing_ok)

    on(journal, system)
    monkeypatch.setattr(Path, "unlink", remove)
    notes.close(remove=True)
    assert held[0] is was_held
    assert notes._file.closed
    assert not (tmp_path / "notes").exists()


def test_notes_that_another_run_opened_on_windows_are_left_to_it(
    tmp_path: Path, on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows refuses to remove them, and nobody is told."""
    notes = journal.Journal(tmp_path / "notes", "out")
    on(journal, "win32")

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "it is used by another process")

    monkeypatch.setattr(Path, "unlink", refuse)
    notes.close(remove=True)
    assert notes._file.closed


def write_whole(path: Path) -> None:
    """Put a whole file in the place of the one that is there."""
    with whole_file.WholeFiles() as files:
        files.open(path).write(b"a\r\nb\n\x1a")


OPENING: dict[str, tuple[ModuleType, Callable[[Path], object]]] = {
    "whole files": (whole_file, write_whole),
    "notes": (held_file, lambda p: held_file.held(p, "writing", str)[0].close()),
    "recordings": (named_files, lambda p: named_files.open_regular(p).close()),
    "measurements": (cache_folder, lambda p: cache_folder.regular_file(p, 99)),
}


@pytest.mark.parametrize("what", OPENING)
def test_windows_opens_every_file_as_bytes(
    what: str, tmp_path: Path, on: On, locks: Locks
) -> None:
    """Files open as bytes: else line ends would change and byte 26 be the end."""
    module, opens = OPENING[what]
    asked: list[int] = []

    def opened(path: Path, flags: int, mode: int = 0o777) -> int:
        asked.append(flags)
        return os.open(path, flags & ~O_BINARY, mode)

    path = tmp_path / "file"
    path.write_bytes(b"a\r\nb\n\x1a")
    on(module, "win32", os={"open": opened})
    opens(path)
    assert asked[0] & O_BINARY
    assert path.read_bytes() == b"a\r\nb\n\x1a"


def test_compiled_code_is_kept_on_windows_as_bytes_and_by_whole_paths(
    tmp_path: Path,
) -> None:
    """The store on Windows has no open folders and no owners."""
    asked: list[int] = []

    def opened(path: str, flags: int, mode: int, dir_fd: int | None) -> int:
        assert (Path(path).parent, dir_fd) == (tmp_path, None)
        asked.append(flags)
        return os.open(path, flags & ~O_BINARY, mode)

    store = loaded("rlxweb.machine.store", "win32", os={"open": opened})
    tmp_path.chmod(0o777)
    assert store.keep(tmp_path, "name.o", b"code\r\n\x1a")
    assert store.kept(tmp_path, "name.o") == b"code\r\n\x1a"
    assert len(asked) == 2
    assert all(flags & O_BINARY for flags in asked)


def test_bytes_are_read_at_their_places_without_pread(
    tmp_path: Path,
) -> None:
    """Windows has one position for all who read."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    there = loaded("rlxweb.io.source", "win32")
    with path.open("rb") as file:
        read = there.ByteSource(file, "file", 100).read
        got = [[*read(at, 3)] for at in (90, 0, 40)]
    assert got == [[90, 91, 92], [0, 1, 2], [40, 41, 42]]


# --- processes and threads ------------------------------------------------------------


class Started:
    """A process that was not started: what it was to be, and what was done to it."""

    def __init__(self, said: str = "", ends: int | None = 0) -> None:
        self.pid = PID
        self.ends = ends
        self.options: dict[str, Any] = {}
        self.done: list[str] = []
        self.asked = ""
        self.said = said
        self.stdin, self.stdout = io.StringIO(), io.StringIO(said)
        self.stderr = io.StringIO()

    def Popen(self, command: object, **options: Any) -> Started:  # noqa: N802
        self.options = options
        if hasattr(options["stdout"], "write"):  # a file for what it says
            options["stdout"].write(self.said.encode())
        return self

    def wait(self, timeout: float) -> int:
        if self.ends is None:
            raise subprocess.TimeoutExpired("python", timeout)
        return self.ends

    def kill(self) -> None:
        self.done.append("kill")

    def killpg(self, number: int, how: int) -> None:
        self.done.append(f"killpg {number} {how}")

    def run(self, words: list[str], **options: Any) -> None:
        assert 0 < options["timeout"] <= 10
        self.done.append(" ".join(words))

    def on(self, system: str, **more: Any) -> ModuleType:
        """`subprocess` of that system, which starts this."""
        flag = {"CREATE_NEW_PROCESS_GROUP": 0x200} if system == "win32" else {}
        gone = ("CREATE_NEW_PROCESS_GROUP",)
        instead = {"Popen": self.Popen, "run": self.run, **flag, **more}
        return stand_in(subprocess, gone, **instead)


def child_of(
    started: Started, on: On, system: str, patch: pytest.MonkeyPatch, **more: Any
) -> process.Child:
    on(process, system, os={"killpg": started.killpg} if system != "win32" else {})
    patch.setattr(process, "subprocess", started.on(system, **more))
    return process.Child({"engine": "cpu"}, process.Bounds())


KILLPG = f"killpg {PID} {signal.SIGKILL:d}"
TASKKILL = f"taskkill /T /F /PID {PID}"


@pytest.mark.parametrize(
    ("system", "session", "flags", "done"),
    [
        ("win32", False, 0x200, [TASKKILL, "kill"]),
        ("darwin", True, 0, [KILLPG]),
        ("linux", True, 0, [KILLPG]),
    ],
)
def test_an_engines_process_has_a_group_and_ends_with_all_that_it_started(
    system: str,
    session: bool,
    flags: int,
    done: list[str],
    on: On,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process ends with its group, or on Windows by `taskkill` while it lives."""
    started = Started('{"end": true}\n')
    child = child_of(started, on, system, monkeypatch)
    assert json.loads(started.stdin.getvalue()) == {"engine": "cpu"}
    assert [*child.lines(monotonic() + 60)] == []
    assert child.ending == process.Ending()
    child.close()
    assert started.options["start_new_session"] is session
    assert started.options["creationflags"] == flags
    assert started.done == done
    assert started.stdin.closed


@pytest.mark.parametrize(
    "error",
    [FileNotFoundError("taskkill"), subprocess.TimeoutExpired("taskkill", 10)],
)
def test_where_taskkill_fails_the_process_is_ended_all_the_same(
    error: Exception, on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process ends though `taskkill` is missing or hangs."""

    def fails(words: list[str], **options: Any) -> None:
        started.done.append(words[0])
        raise error

    started = Started()
    child_of(started, on, "win32", monkeypatch, run=fails).close()
    assert started.done == ["taskkill", "kill"]


def test_memory_is_looked_at_seldom_where_a_program_has_to_be_asked() -> None:
    """Linux has a file for it."""
    name = "rlxweb.smoke.process"
    looks = {on: loaded(name, on)._LOOK_S for on in ("linux", "darwin", "win32")}
    assert looks["linux"] < 0.1
    assert looks["darwin"] == looks["win32"] >= 0.5


TASKLIST = ["/FI", f"PID eq {PID}", "/FO", "CSV", "/NH"]
ROW = b'"python.exe","4321","Console","1","%s K"\r\n'


@pytest.mark.parametrize(
    ("system", "program", "said", "asked", "kib"),
    [
        ("win32", "tasklist", ROW % b"1,012,345", TASKLIST, 1012345),
        ("win32", "tasklist", ROW % b"1.012.345", TASKLIST, 1012345),
        ("win32", "tasklist", ROW % b"1\xff012\xff345", TASKLIST, 1012345),
        ("win32", "tasklist", b"INFO: No tasks are running.\r\n", TASKLIST, 0),
        ("darwin", "ps", b"  12345\n", ["-o", "rss=", "-p", str(PID)], 12345),
        ("darwin", "ps", b"", ["-o", "rss=", "-p", str(PID)], 0),
    ],
)
def test_the_memory_of_a_process_is_asked_of_the_systems_own_program(
    system: str,
    program: str,
    said: bytes,
    asked: list[str],
    kib: int,
    tmp_path: Path,
    on: On,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The memory of a process is read in any country's way of writing numbers."""
    (tmp_path / "said").write_bytes(said)
    script = f'#!/bin/sh\ncd {tmp_path}; printf "%s\\n" "$@" > asked; /bin/cat said\n'
    (tmp_path / program).write_text(script)
    (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    on(memory, system)
    assert memory.resident_nbytes(PID) == kib << 10
    assert (tmp_path / "asked").read_text().splitlines() == asked


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_a_process_is_let_be_where_no_program_can_tell_its_memory(
    system: str, tmp_path: Path, on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    on(memory, system)
    assert memory.resident_nbytes(os.getpid()) == 0


def test_windows_does_not_tell_how_much_memory_there_is(
    on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test may have 8 GiB on Windows, which does not tell how much there is."""
    monkeypatch.setattr(memory, "_CGROUPS", ())
    on(memory, "win32")
    assert memory.fair_nbytes() == 8 << 30


@pytest.mark.parametrize(
    ("system", "how"),
    [
        ("win32", "abort"),
        ("darwin", "kill"),
        ("linux", "kill"),
    ],
)
def test_a_crash_on_purpose_is_one_of_the_platforms_own(
    system: str, how: str, on: On
) -> None:
    """A crash on Windows is an abort, since `os.kill` would only end the process."""

    def abort() -> None:
        raise Ended("abort")

    def kill(number: int, by: int) -> None:
        assert (number, by) == (os.getpid(), signal.SIGSEGV)
        raise Ended("kill")

    on(sabotage, system, os={"abort": abort, "kill": kill})
    with pytest.raises(Ended) as ended:
        sabotage.Sabotage.of("crash:add", print).before("add")
    assert str(ended.value) == how


@pytest.mark.parametrize(
    ("system", "user", "is_told"),
    [
        ("linux", 0, True),
        ("linux", 1000, False),
        ("darwin", 0, False),
        ("win32", None, False),
    ],
)
def test_only_root_on_linux_starts_a_browser_without_its_sandbox(
    system: str,
    user: int | None,
    is_told: bool,
    tmp_path: Path,
    on: On,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Windows does not even have users of that kind."""
    commands: list[list[str]] = []
    popen = stand_in(subprocess, Popen=lambda words, **how: commands.append(words))
    monkeypatch.setattr(browsers, "subprocess", popen)
    on(browsers, system, os={} if user is None else {"geteuid": lambda: user})
    browsers.started("chrome", "http://127.0.0.1/", tmp_path)
    ((path, *switches, url),) = commands
    assert (path, url) == ("chrome", "http://127.0.0.1/")
    assert ("--no-sandbox" in switches) is is_told
    assert f"--user-data-dir={tmp_path.resolve()}" in switches


@pytest.mark.parametrize(
    ("system", "session", "done"),
    [
        ("win32", False, ["kill"]),
        ("darwin", True, [KILLPG, "kill"]),
        ("linux", True, [KILLPG, "kill"]),
    ],
)
def test_a_library_that_hangs_is_ended_and_told_of(
    system: str,
    session: bool,
    done: list[str],
    on: On,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A library that hangs is ended with its group, where there are such."""
    started = Started("started\n", ends=None)
    on(library_probe, system, os={"killpg": started.killpg} if session else {})
    monkeypatch.setattr(library_probe, "subprocess", started.on(system))
    said = library_probe._try("any:function", ())
    assert said == "it hangs: not loaded within 30 s in a process of its own"
    assert started.options["start_new_session"] is session
    assert started.done == done


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        (0xC0000005, "it ends the process that loads it: exit code 0xc0000005"),
        (3, "it ends the process that loads it: exit code 3"),
    ],
)
def test_a_library_that_crashes_on_windows_is_told_by_the_systems_number(
    ends: int, words: str, on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An access violation has a number above 2^30; `abort` ends with 3."""
    started = Started("started\n", ends)
    on(library_probe, "win32")
    monkeypatch.setattr(library_probe, "subprocess", started.on("win32"))
    assert library_probe._try("any:function", ()) == words


@pytest.mark.parametrize("system", ["win32", "darwin", "linux"])
def test_a_process_that_tries_a_library_has_limits_where_there_are_such(
    system: str, on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows has neither a module of them nor an alarm."""
    said: list[object] = []
    limits = ModuleType("resource")
    vars(limits).update(RLIMIT_CORE=4, setrlimit=lambda *what: said.append(what))
    there = None if system == "win32" else limits
    monkeypatch.setitem(sys.modules, "resource", there)
    on(library_probe, system, signal={} if there is None else {"alarm": said.append})
    library_probe._limit_child()
    alarm_s = math.ceil(library_probe.DEADLINE_S) + 5
    assert said == ([] if system == "win32" else [(4, (0, 0)), alarm_s])


@pytest.mark.parametrize(
    ("system", "machine", "size"),
    [("win32", "AMD64", 0), ("darwin", "arm64", 0), ("linux", "riscv64", 3)],
)
def test_there_is_no_crew_without_the_futex_that_it_sleeps_in(
    system: str,
    machine: str,
    size: int,
    on: On,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A system without futex, or with unknown system calls, has no crew."""
    made: list[str] = []
    monkeypatch.setattr(crew, "code_of", made.append)
    monkeypatch.setattr(crew, "platform", SimpleNamespace(machine=lambda: machine))
    on(crew, system)
    mine = crew.Crew(3)
    assert mine.size == size
    assert not mine.run(0, 0)
    assert (mine.size, mine._threads, made) == (0, [], [])


@pytest.mark.parametrize(("system", "there"), [("win32", 6), ("darwin", 6)])
def test_all_processors_are_usable_where_the_system_allots_none(
    system: str, there: int, on: On
) -> None:
    on(row_blocks, system, os={"cpu_count": lambda: there})
    assert row_blocks.usable_cpus.__wrapped__() == there


# --- signals --------------------------------------------------------------------------


class Heard:
    """What the command line does to hear signals, and how it ends the process."""

    def __init__(self, on: On, system: str, patch: pytest.MonkeyPatch) -> None:
        self.handlers: dict[str, Callable[[int, None], object]] = {}
        self.watched: list[object] = []
        self.wrote = b""
        home = import_module("rlxweb.cli.signals")
        files = {"write": self._write, "_exit": self._exit}
        if system != "win32":
            files |= {"pipe": lambda: (70, 71), "set_blocking": self._watch}
        number = {
            "signal": lambda at, do: self.handlers.update(
                {signal.Signals(at).name: do}
            ),
            "getsignal": lambda at: signal.SIG_DFL,
            "set_wakeup_fd": lambda at, **how: self._watch(at),
        }
        on(home, system, os=files, signal=number, sys={"modules": {}})
        patch.setattr(home, "atexit", SimpleNamespace(register=lambda do: None))
        begin = SimpleNamespace(start_new_thread=lambda do, args: self._watch(*args))
        patch.setattr(home, "_thread", begin)
        self.signals = home.Signals()
        self.signals.take()

    def _watch(self, *what: object) -> None:
        self.watched.append(what)

    def _write(self, handle: int, data: bytes) -> None:
        assert handle == 2
        self.wrote += data

    def _exit(self, code: int) -> None:
        raise Ended(code)

    def ctrl_c(self) -> None:
        self.handlers["SIGINT"](signal.SIGINT, None)


@pytest.mark.parametrize(
    ("system", "names", "watched"),
    [
        ("win32", {"SIGINT", "SIGTERM"}, []),
        ("darwin", {"SIGINT", "SIGTERM", "SIGHUP"}, [(71, False), (71,), (70,)]),
        ("linux", {"SIGINT", "SIGTERM", "SIGHUP"}, [(71, False), (71,), (70,)]),
    ],
)
def test_signals_are_heard_as_far_as_the_platform_has_them(
    system: str,
    names: set[str],
    watched: list[object],
    on: On,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside the main thread, too, but not on Windows."""
    heard = Heard(on, system, monkeypatch)
    assert heard.handlers.keys() == names
    assert heard.watched == watched


def test_ctrl_c_on_windows_ends_a_process_that_loads_and_interrupts_a_command(
    on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one does not wait for the first."""
    heard = Heard(on, "win32", monkeypatch)
    with pytest.raises(Ended, match="130"):
        heard.ctrl_c()
    assert heard.wrote == b"rlxweb: stopped\n"
    heard.signals.begin()
    with pytest.raises(KeyboardInterrupt):
        heard.ctrl_c()
    with pytest.raises(Ended, match="130"):
        heard.ctrl_c()


def test_processes_start_on_windows_though_no_signal_can_be_held_back(on: On) -> None:
    on(children, "win32")
    started = []
    with children._deaf():
        started.append("one")
    assert started == ["one"]


@pytest.mark.needs("distributed")
@pytest.mark.parametrize(
    ("system", "names"),
    [("win32", []), ("darwin", ["ignore:resource_tracker"])],
)
def test_a_cluster_starts_no_tracker_and_masks_no_signal_on_windows(
    system: str, names: list[str], on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python has neither there; elsewhere both are done and undone."""
    connect: Any = import_module("rlxweb.dask.connect")
    loaded("rlxweb.dask.connect", system)
    told: list[str] = []
    masks: list[object] = []
    options: list[str] = []

    class Runner:
        loop = "the loop"

        def __init__(self, asynchronous: bool) -> None:
            assert not asynchronous

        def start(self) -> None:
            masks.append("start")

        def stop(self) -> None:
            masks.append("stop")

    def mask(how: int, which: object) -> str:
        masks.append((how, which))
        return "as before"

    tracker = SimpleNamespace(ensure_running=lambda: told.extend(options))
    hears = {} if system == "win32" else {"pthread_sigmask": mask}
    monkeypatch.setattr(connect, "resource_tracker", tracker)
    monkeypatch.setattr(connect, "LoopRunner", Runner)
    on(connect, system, signal=hears, sys={"warnoptions": options})
    connect._start_tracker()
    assert (told, options) == (names, [])
    with connect._deaf_loop() as loop:
        assert loop == "the loop"
    blocked = [(signal.SIG_BLOCK, {signal.SIGINT})] if hears else []
    restored = [(signal.SIG_SETMASK, "as before")] if hears else []
    assert masks == [*blocked, "start", *restored, "stop"]


# --- devices and drivers --------------------------------------------------------------


def test_only_linux_is_asked_for_wayland(
    on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows has no library without a name: to open it is a TypeError."""
    libc = SimpleNamespace(getpid="ignore", vwarnx="show")
    opened: list[object] = []
    hooks: list[object] = []

    def library(name: str | None) -> object:
        opened.append(name)
        return SimpleNamespace(wl_log_set_handler_client=hooks.append) if name else libc

    monkeypatch.setattr(adapters, "ctypes", SimpleNamespace(CDLL=library))
    for system in ("win32", "darwin"):
        on(adapters, system)
        with adapters.quiet_wayland():
            assert (opened, hooks) == ([], [])
    on(adapters, "linux")
    with adapters.quiet_wayland():
        assert hooks == ["ignore"]
    assert hooks == ["ignore", "show"]
    assert opened == [None, "libwayland-client.so.0"]


NVIDIA, AMD, APPLE = presence.nvidia_driver, presence.amd_driver, presence.apple_silicon
BOTH = ["amdhip64.dll", "amdhip64_6.dll"]
ANY = {"nvcuda.dll", "libcuda.so.1", *BOTH}


@pytest.mark.parametrize(
    ("system", "driver", "there", "asked", "words"),
    [
        ("win32", NVIDIA, {"nvcuda.dll"}, ["nvcuda.dll"], ""),
        (
            *("win32", NVIDIA, {"libcuda.so.1"}, ["nvcuda.dll"]),
            "no NVIDIA driver (nvcuda.dll is not found)",
        ),
        ("darwin", NVIDIA, ANY, [], "macOS has no CUDA"),
        ("linux", NVIDIA, {"libcuda.so.1"}, ["libcuda.so.1"], ""),
        ("win32", AMD, {"amdhip64.dll"}, BOTH[:1], ""),
        ("win32", AMD, {"amdhip64_6.dll"}, BOTH, ""),
        ("win32", AMD, set(), BOTH, "no AMD driver (amdhip64.dll is not found)"),
        ("darwin", AMD, ANY, [], "macOS has no ROCm"),
        ("win32", APPLE, ANY, [], "needs macOS; this is win32"),
    ],
)
def test_a_driver_is_looked_for_under_the_name_it_has_there(
    system: str,
    driver: Callable[[], str],
    there: set[str],
    asked: list[str],
    words: str,
    on: On,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[str] = []

    def library(name: str) -> str:
        found.append(name)
        if name not in there:
            raise OSError(name)
        return name

    monkeypatch.setattr("ctypes.CDLL", library)
    on(presence, system)
    assert driver() == words
    assert found == asked


@pytest.mark.parametrize(
    ("system", "label", "words"),
    [
        ("win32", "directx", ""),
        ("darwin", "directx", "only on Windows; this is darwin"),
        ("win32", "metal", "only on macOS; this is win32"),
        ("win32", "webgpu", "only in a browser tab; this is win32"),
        ("darwin", "webgpu", "only in a browser tab; this is darwin"),
        ("win32", "vulkan", ""),
        ("darwin", "cpu", ""),
    ],
)
def test_a_device_that_is_elsewhere_says_on_which_platform(
    system: str, label: str, words: str, on: On
) -> None:
    on(registry, system)
    assert registry.blocker(label) == words


# --- pipes, ports and windows ---------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "waits", "comes"),
    [("win32", [], True), ("darwin", [0.25], False), ("linux", [0.25], False)],
)
def test_a_pipe_is_read_on_windows_without_being_asked_whether_it_is_ready(
    system: str,
    waits: list[float],
    comes: bool,
    on: On,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pipe on Windows is read at once: `select` takes sockets alone there."""
    asked: list[float] = []

    def select(reads: object, writes: object, odd: object, wait: float) -> Any:
        asked.append(wait)
        return [], [], []

    monkeypatch.setattr(raw_source, "select", SimpleNamespace(select=select))
    on(raw_source, system)
    data = np.arange(6, dtype="<f4").tobytes()
    chunk = raw_source.RawSource(io.BytesIO(data), "f32", 2, 100.0).read(0.25)
    assert asked == waits
    got = None if chunk is None else chunk.samples.tolist()
    assert got == ([[0, 2, 4], [1, 3, 5]] if comes else None)


@pytest.mark.parametrize(
    ("system", "may"), [("win32", False), ("darwin", True), ("linux", True)]
)
def test_a_port_is_shared_with_no_other_program(system: str, may: bool) -> None:
    """What elsewhere lets a port be taken again at once would share it on Windows."""
    server = loaded("rlxweb.pages.server", system)._Server
    assert server.allow_reuse_address is may


@pytest.mark.parametrize(
    ("system", "variables", "has"),
    [
        ("win32", {}, True),
        ("darwin", {}, True),
        ("linux", {}, False),
        ("linux", {"DISPLAY": ""}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
    ],
)
def test_a_page_is_opened_where_there_are_windows(
    system: str, variables: dict[str, str], has: bool, on: On
) -> None:
    on(live_web, system, os={"environ": variables})
    assert live_web._has_windows() is has
