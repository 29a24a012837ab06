"""Native libraries tried in a child process before they are loaded in this one.

A native library can end the process that imports it (a segmentation fault, `abort`) or
never return. The child imports it first, under a deadline; this process follows only
where the child survived. Answers are remembered: in memory, and in one JSON file of the
cache folder, by what identifies the library, the drivers and the interpreter. A crash
or a hang is tried again after `RETRY_S`: a repaired driver need not change any of
these. Exceptions do not concern the child: the same one is raised in this process.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

from rlxweb.forked import ForkLock
from rlxweb.names import from_above
from rlxweb.printable import abridged, printable

DEADLINE_S: Final = 30.0
"""Seconds until a library must have been loaded and asked for its devices."""
RETRY_S: Final = 600.0
"""Seconds for which a crash or a hang is remembered."""
FILE_NAME: Final = "library-probes.json"
LONGEST_FILE: Final = 64
"""Answers kept in the file; the oldest are dropped."""

_STARTED: Final = b"started\n"
_OPENED: Final = b"opened\n"
_DONE: Final = b"done\n"
_ROOT: Final = str(Path(__file__).resolve().parents[1])
# JAX would take three quarters of a GPU's memory as soon as it sees one. The alarm ends
# a child whose parent was killed, even one that holds Python's lock.
_PROGRAM: Final = """import json, os, sys
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
sys.path[:] = json.loads(sys.argv[1])
from rlxweb.library_probe import run_child
run_child(*sys.argv[2:])"""
_DRIVER_FILES: Final = (
    "/proc/driver/nvidia/version",
    "/sys/module/amdgpu/version",
    "/usr/share/vulkan/icd.d",
    "/etc/vulkan/icd.d",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcome of trying a library; `problem` is "" if the child survived."""

    problem: str
    unix_s: float

    @property
    def is_valid(self) -> bool:
        """Return whether it still holds; a crash or a hang does only for a while."""
        return not self.problem or 0 <= time.time() - self.unix_s < RETRY_S


_answers: dict[str, Answer] = {}
_lock = ForkLock()
_is_trusting = False


def trust_libraries() -> None:
    """Load libraries without trying them: this process is a child made to be lost."""
    global _is_trusting
    _is_trusting = True


def library_problem(module: str, function: str, *args: str) -> str:
    """Why the library would end or block this process; "" where it would not.

    Parameters
    ----------
    module
        The library's module. One that is imported already is not tried, nor is any
        where there are no processes (a browser tab) or Python is part of a program of
        another name.
    function
        "package.module:name", called in the child. It loads the library, calls its
        first argument when the devices are open, and may go on with checks.
    *args
        Further arguments of the function.
    """
    if module in sys.modules or not _can_start_python():
        return ""
    key = _key(module, function, *args)
    with _lock:
        answer = _answers.get(key)
        if answer is None or not answer.is_valid:
            answer = _read().get(key)
        if answer is None or not answer.is_valid:
            answer = Answer(_try(function, args), time.time())
            _write(key, answer)
        _answers[key] = answer
    return answer.problem


def _can_start_python() -> bool:
    """A program that Python is built into would start itself again."""
    if _is_trusting or sys.platform in ("emscripten", "wasi", "ios", "android"):
        return False
    name = os.path.basename(sys.executable or "").lower()
    return name.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)


def _key(module: str, function: str, *args: str) -> str:
    """Return the key of an answer: library, drivers, loader settings, interpreter."""
    from rlxweb.library_versions import installed_version

    versions = map(installed_version, ("rlxweb", module.partition(".")[0]))
    parts: list[object] = [function, *args, sys.executable, sys.version, *versions]
    parts += [*_files_of(module), *map(_stamp, _DRIVER_FILES)]
    parts += from_above("loader_environment")()
    from hashlib import sha256  # slow to load, and only here needed

    return sha256(repr(parts).encode()).hexdigest()


def _files_of(module: str) -> list[tuple[object, ...]]:
    """The files that stand for the library's installation, with size and time."""
    try:
        spec = find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    found = [spec.origin] if spec.origin else [*(spec.submodule_search_locations or ())]
    return [_stamp(path) for path in found]


def _stamp(path: str) -> tuple[object, ...]:
    try:
        if path.startswith(("/proc/", "/sys/")):  # its time is the time of asking
            return path, Path(path).read_bytes()[:4096]
        facts = os.stat(path)
    except OSError:
        return (path,)
    return path, facts.st_mtime_ns, facts.st_size


def _try(function: str, args: Sequence[str]) -> str:
    """Return why a child that tries it failed; "" if it survived."""
    here = [entry for entry in sys.path if isinstance(entry, str)]
    path = json.dumps(here if _ROOT in here else [*here, _ROOT])
    command = (sys.executable, *_options(), "-c", _PROGRAM, path, function, *args)
    with TemporaryFile() as out, TemporaryFile() as err:
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=sys.platform != "win32",
            )
        except OSError:
            return ""  # no process can be started: nothing was learnt about the library
        try:
            code = child.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(child)
        said = _bytes(out)
        if _DONE in said or (code is None and _OPENED in said):
            return ""
        if _STARTED not in said and code is not None:
            return ""  # Python itself did not start: nothing was learnt either
        if code is None:
            return (
                f"it hangs: not loaded within {DEADLINE_S:g} s in a process of its own"
            )
        last = _bytes(err).decode("utf-8", "replace").strip().splitlines()[-1:]
        words = "".join(f"; {abridged(printable(line), 200)}" for line in last)
        return f"it ends the process that loads it: {exit_meaning(code)}{words}"


def _options() -> list[str]:
    """Options of this interpreter: what it does not import, the child must not either.

    Without `-P` the child would import from the working folder.
    """
    flags = sys.flags
    named = {"I": flags.isolated, "E": flags.ignore_environment, "S": flags.no_site}
    named |= {"s": flags.no_user_site, "P": True}
    return [f"-{option}" for option, is_set in named.items() if is_set]


def _bytes(file: IO[bytes]) -> bytes:
    """The end of a file that a child wrote."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 65536))
    return file.read()


def _end(child: subprocess.Popen[bytes]) -> None:
    """End it and whatever it started."""
    if sys.platform != "win32":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    with suppress(subprocess.TimeoutExpired):
        child.wait(10)


def run_child(function: str, *args: str) -> None:
    """Do it in the child, say how far it came, and end without any clean-up."""
    said = os.dup(1)
    os.write(said, _STARTED)
    os.dup2(2, 1)  # the library's own words
    _limit_child()
    trust_libraries()
    home, _, name = function.partition(":")
    with suppress(BaseException):  # an exception is raised again in the parent
        getattr(import_module(home), name)(lambda: os.write(said, _OPENED), *args)
    os.write(said, _DONE)
    os._exit(0)


def _limit_child() -> None:
    """No core dump, and no life without the parent."""
    if sys.platform != "win32":
        import resource

        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(math.ceil(DEADLINE_S) + 5)


def _path() -> Path | None:
    folder: Path | None = from_above("cache_folder")()
    return None if folder is None else folder / FILE_NAME


def _read() -> dict[str, Answer]:
    """The answers of the file; none where it is missing or damaged."""
    path = _path()
    document = None if path is None else from_above("read_json")(path)
    found: dict[str, Answer] = {}
    if isinstance(document, dict):
        for key, value in document.items():
            with suppress(TypeError, ValueError, KeyError):
                problem, unix_s = value["problem"], float(value["unix_s"])
                if isinstance(problem, str):
                    found[key] = Answer(printable(problem[:1000]), unix_s)
    return found


def _write(key: str, answer: Answer) -> None:
    """Add an answer to the file, where there is a folder that can be written."""
    path = _path()
    if path is None:
        return
    from rlxweb.whole_file import atomic_path

    found = {**_read(), key: answer}
    newest = sorted(found, key=lambda name: found[name].unix_s)[-LONGEST_FILE:]
    document: dict[str, Any] = {
        name: {"problem": found[name].problem, "unix_s": found[name].unix_s}
        for name in newest
    }
    with suppress(OSError):  # a RecordingError is one
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(document, indent=1), encoding="utf-8")


def exit_meaning(code: int) -> str:
    """An exit status in words."""
    if code >= 0:
        return f"exit code {code}" if code < 1 << 30 else f"exit code {code:#x}"
    with suppress(ValueError):
        name = signal.Signals(-code).name
        more = signal.strsignal(-code) or ""
        by = " (the kernel does so when memory runs out)" if name == "SIGKILL" else ""
        return f"{name}, {more.lower()}{by}"
    return f"signal {-code}"
