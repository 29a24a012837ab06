"""Probing of native libraries in a child process before they are loaded in this one.

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

from rlxweb.core.cache_folder import cache_folder, read_json
from rlxweb.core.environment import loader_environment
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.core.message_text import abbreviate, printable

DEADLINE_S: Final = 30.0
"""Seconds within which a library must load and open its devices."""
RETRY_S: Final = 600.0
"""Seconds for which a crash or a hang is remembered."""
FILE_NAME: Final = "library-probes.json"
MAX_STORED_RESULTS: Final = 64
"""Number of results kept in the file; the oldest are dropped."""

_STARTED: Final = b"started\n"
_OPENED: Final = b"opened\n"
_DONE: Final = b"done\n"
_ROOT: Final = str(Path(__file__).resolve().parents[2])
# JAX would take three quarters of a GPU's memory as soon as it sees one. The alarm ends
# a child whose parent was killed, even one that holds Python's lock.
_CHILD_PROGRAM: Final = """import json, os, sys
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
sys.path[:] = json.loads(sys.argv[1])
from rlxweb.core.library_crash_probe import run_child
run_child(*sys.argv[2:])"""
_DRIVER_FILES: Final = (
    "/proc/driver/nvidia/version",
    "/sys/module/amdgpu/version",
    "/usr/share/vulkan/icd.d",
    "/etc/vulkan/icd.d",
)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Outcome of probing a library; `problem` is "" if the child survived."""

    problem: str
    unix_s: float

    @property
    def is_valid(self) -> bool:
        """True while the result still holds; a crash or a hang expires after
        `RETRY_S`.
        """
        return not self.problem or 0 <= time.time() - self.unix_s < RETRY_S


_results: dict[str, ProbeResult] = {}
_lock = ForkSafeLock()
_is_probing_disabled = False


def disable_probing() -> None:
    """Load libraries without probing them: this process is a disposable child."""
    global _is_probing_disabled
    _is_probing_disabled = True


def library_problem(module: str, function: str, *args: str) -> str:
    """Return why the library would crash or block this process; "" if it would not.

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
    key = _cache_key(module, function, *args)
    with _lock:
        result = _results.get(key)
        if result is None or not result.is_valid:
            result = _read_cache().get(key)
        if result is None or not result.is_valid:
            result = ProbeResult(_probe_in_child(function, args), time.time())
            _write_cache(key, result)
        _results[key] = result
    return result.problem


def _can_start_python() -> bool:
    """Return whether `sys.executable` is a Python interpreter that can be started as a
    child.
    """
    if _is_probing_disabled or sys.platform in ("emscripten", "wasi", "ios", "android"):
        return False
    name = os.path.basename(sys.executable or "").lower()
    return name.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)


def _cache_key(module: str, function: str, *args: str) -> str:
    """Return the cache key of a result: library, drivers, loader settings,
    interpreter.
    """
    from rlxweb.core.required_library_versions import installed_version

    versions = map(installed_version, ("rlxweb", module.partition(".")[0]))
    parts: list[object] = [function, *args, sys.executable, sys.version, *versions]
    parts += [*_installation_stamps(module), *map(_file_stamp, _DRIVER_FILES)]
    parts += loader_environment()
    from hashlib import sha256  # slow to load, and only here needed

    return sha256(repr(parts).encode()).hexdigest()


def _installation_stamps(module: str) -> list[tuple[object, ...]]:
    """Return the files that identify the library's installation, with size and time."""
    try:
        spec = find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    paths = [spec.origin] if spec.origin else [*(spec.submodule_search_locations or ())]
    return [_file_stamp(path) for path in paths]


def _file_stamp(path: str) -> tuple[object, ...]:
    """Return a path with the time and size, or the content, of its file."""
    try:
        if path.startswith(("/proc/", "/sys/")):  # its time is the time of asking
            return path, Path(path).read_bytes()[:4096]
        status = os.stat(path)
    except OSError:
        return (path,)
    return path, status.st_mtime_ns, status.st_size


def _probe_in_child(function: str, args: Sequence[str]) -> str:
    """Return why a child process that loads the library failed; "" if it survived."""
    search_path = [entry for entry in sys.path if isinstance(entry, str)]
    path = json.dumps(search_path if _ROOT in search_path else [*search_path, _ROOT])
    command = (
        sys.executable,
        *_interpreter_options(),
        "-c",
        _CHILD_PROGRAM,
        path,
        function,
        *args,
    )
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
            _kill_child(child)
        output = _file_tail(out)
        if _DONE in output or (code is None and _OPENED in output):
            return ""
        if _STARTED not in output and code is not None:
            return ""  # Python itself did not start: nothing was learnt either
        if code is None:
            return f"it did not load within {DEADLINE_S:g} s in a separate process"
        last_lines = (
            _file_tail(err).decode("utf-8", "replace").strip().splitlines()[-1:]
        )
        last_words = "".join(
            f"; {abbreviate(printable(line), 200)}" for line in last_lines
        )
        return f"loading it terminates the process: {exit_meaning(code)}{last_words}"


def _interpreter_options() -> list[str]:
    """Return command-line options that reproduce this interpreter's import settings in
    the child.

    Without `-P` the child would import from the working folder.
    """
    flags = sys.flags
    flag_by_option = {
        "I": flags.isolated,
        "E": flags.ignore_environment,
        "S": flags.no_site,
    }
    flag_by_option |= {"s": flags.no_user_site, "P": True}
    return [f"-{option}" for option, is_set in flag_by_option.items() if is_set]


def _file_tail(file: IO[bytes]) -> bytes:
    """Return the last 64 KiB of a file that a child wrote."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 65536))
    return file.read()


def _kill_child(child: subprocess.Popen[bytes]) -> None:
    """Kill the child process and all processes it started."""
    if sys.platform != "win32":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    with suppress(subprocess.TimeoutExpired):
        child.wait(10)


def run_child(function: str, *args: str) -> None:
    """Run the function in the child, report the stages reached, and exit without
    clean-up.
    """
    output_fd = os.dup(1)
    os.write(output_fd, _STARTED)
    os.dup2(2, 1)  # the library's own words
    _limit_child()
    disable_probing()
    module_name, _, name = function.partition(":")
    with suppress(BaseException):  # an exception is raised again in the parent
        getattr(import_module(module_name), name)(
            lambda: os.write(output_fd, _OPENED), *args
        )
    os.write(output_fd, _DONE)
    os._exit(0)


def _limit_child() -> None:
    """Disable core dumps and end the child by an alarm if its parent is gone."""
    if sys.platform != "win32":
        import resource

        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(math.ceil(DEADLINE_S) + 5)


def _cache_path() -> Path | None:
    """Return the path of the file of results; None without a cache folder."""
    folder = cache_folder()
    return None if folder is None else folder / FILE_NAME


def _read_cache() -> dict[str, ProbeResult]:
    """Read the results from the file; none if it is missing or damaged."""
    path = _cache_path()
    document = None if path is None else read_json(path)
    results: dict[str, ProbeResult] = {}
    if isinstance(document, dict):
        for key, value in document.items():
            with suppress(TypeError, ValueError, KeyError):
                problem, unix_s = value["problem"], float(value["unix_s"])
                if isinstance(problem, str):
                    results[key] = ProbeResult(printable(problem[:1000]), unix_s)
    return results


def _write_cache(key: str, result: ProbeResult) -> None:
    """Add a result to the file if its folder is writable."""
    path = _cache_path()
    if path is None:
        return
    from rlxweb.core.atomic_file import atomic_path

    results = {**_read_cache(), key: result}
    newest = sorted(results, key=lambda name: results[name].unix_s)[
        -MAX_STORED_RESULTS:
    ]
    document: dict[str, Any] = {
        name: {"problem": results[name].problem, "unix_s": results[name].unix_s}
        for name in newest
    }
    with suppress(OSError):  # a RecordingError is one
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(document, indent=1), encoding="utf-8")


def exit_meaning(code: int) -> str:
    """Return an exit status in words."""
    if code >= 0:
        return f"exit code {code}" if code < 1 << 30 else f"exit code {code:#x}"
    with suppress(ValueError):
        name = signal.Signals(-code).name
        description = signal.strsignal(-code) or ""
        cause = (
            " (sent by the kernel when memory runs out)" if name == "SIGKILL" else ""
        )
        return f"{name}, {description.lower()}{cause}"
    return f"signal {-code}"
