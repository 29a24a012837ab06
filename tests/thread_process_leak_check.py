"""Check after each test that it ended the processes and threads that it started.

What a fixture of a wider scope starts may stay as long as that fixture. So may the
threads that the package and the libraries keep for their process, by their names, those
of wgpu for the devices that are open, and the helper processes of `multiprocessing` and
of `tests/pytest_fork_server.py`.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pytest_timeouts import TIMER_THREAD_NAME
from tests.wait_with_deadline import becomes_true

LASTING_THREADS = (
    "rlxweb-",  # the package's pools
    "asyncio_",  # what asyncio waits with; Zarr's, fsspec's and Dask's loops have such
    "zarr_",
    "fsspecIO",
    "Dask-Offload",
    TIMER_THREAD_NAME,
)
"""Prefixes of the names of threads that are started once per process and kept."""
REQUEST_THREAD = "(process_request_thread)"
"""Part of the name of an HTTP server's thread, which lasts as its connection does."""
LASTING_PROCESSES = (
    "multiprocessing.resource_tracker",
    "pytest_fork_server.py",
    "forkserver",
)
"""Parts of the command lines of processes that are started once and kept."""
END_S = 10.0
"""Seconds that threads and processes have to end, on a busy machine."""

_expected: set[int | threading.Thread] = {threading.main_thread()}
"""Threads and child processes from before the test, or of fixtures of a wider scope."""
_started_count = 0
_scanned_started_count = 0
"""Value of `_started_count` at the last scan for child processes."""
_children: set[int] = set()
"""Child processes that the last scan found."""


def pytest_configure() -> None:
    """Count the processes that are started from now on."""
    sys.addaudithook(_count_processes)


def _count_processes(event: str, _arguments: tuple[object, ...]) -> None:
    global _started_count
    _started_count += event in ("subprocess.Popen", "os.fork", "os.posix_spawn")


def started_count() -> int:
    """Return the number of processes that this one has started, except by
    `multiprocessing`.
    """
    return _started_count


def child_pids(rescan: bool = False) -> set[int]:
    """Return the ids of the child processes that ran at the last scan.

    A scan reads a list for each thread, of which there may be a hundred, so another one
    is made only when a process may have been started since.
    """
    global _children, _scanned_started_count
    if (
        rescan
        or _scanned_started_count != _started_count
        or multiprocessing.active_children()
    ):
        _scanned_started_count = _started_count
        _children = _scan_children()
    return _children


def _scan_children() -> set[int]:
    pids = set()
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            pids |= {int(word) for word in path.read_text().split()}
        except OSError:  # the thread has ended
            continue
    return {pid for pid in pids if _state(pid) not in "ZX"}


def _state(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "X"
    return stat.rpartition(")")[2].split()[0]


def command_line(pid: int) -> str:
    """Return the command line of a process, "" when it has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return b" ".join(words).decode(errors="replace").strip()


def running_threads_and_children(rescan: bool = False) -> set[int | threading.Thread]:
    """Return the child processes and the threads that run now."""
    return {*child_pids(rescan), *threading.enumerate()}


def _is_lasting(item: int | threading.Thread) -> bool:
    if isinstance(item, threading.Thread):
        is_kept = item.name.startswith(LASTING_THREADS) or REQUEST_THREAD in item.name
        return is_kept or type(item).__module__.startswith("wgpu.")
    return any(word in command_line(item) for word in LASTING_PROCESSES)


def _describe(item: int | threading.Thread) -> str:
    if isinstance(item, threading.Thread):
        kind = type(item)
        owner = "" if kind.__module__ == "threading" else f" of {kind.__module__}"
        return f"the thread {item.name!r}{owner}"
    return f"the process {item}, `{command_line(item)[:200]}`"


def unfinished(wait_s: float = END_S) -> list[str]:
    """Return a line for each new thread or child process that has not ended in time.

    Each is returned once, so that one test fails and not all after it.
    """
    running: set[int | threading.Thread] = set()
    new: list[int | threading.Thread] = []

    def have_ended() -> bool:
        nonlocal running, new
        running = running_threads_and_children(rescan=bool(new))
        new = [item for item in running - _expected if not _is_lasting(item)]
        return not new

    becomes_true(have_ended, wait_s)
    _expected.clear()
    _expected.update(running)
    return sorted(map(_describe, new))


def pytest_collection_finish() -> None:
    """Record the threads and processes that importing the tests has started."""
    _expected.update(running_threads_and_children())


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
    """Record the threads and processes that a fixture of a wider scope than one test
    starts.
    """
    if fixturedef.scope == "function":
        return (yield)
    before = running_threads_and_children()
    try:
        return (yield)
    finally:
        _expected.update(running_threads_and_children() - before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Fail the test that left something behind, after its fixtures have ended."""
    result = yield
    lines = unfinished()
    if lines:
        pytest.fail("the test left behind: " + "; ".join(lines), pytrace=False)
    return result
