"""Rules of the test suite: no wait without a deadline, no sleep, no shared random
state.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.cli_runners import ROOT

RUN_FUNCTIONS = {"run", "call", "check_call", "check_output"}
WAIT_METHODS = {"communicate", "wait", "join"}
READ_METHODS = {"result", "readline", "recv"}
SLEEP_FUNCTIONS = {"sleep", "wait_for_timeout"}
WAIT_PATTERN = re.compile(
    r"(?:from|import) subprocess"
    rf"|\b(?:{'|'.join(WAIT_METHODS - {'join'} | READ_METHODS | SLEEP_FUNCTIONS)})\s*\("
    r"|\.\s*join\s*\(\s*\)"
)
BOUNDED_READERS = {
    "tests/pytest_fork_server.py": "pytest's sockets have a timeout, the helper's end "
    "with it",
    "tests/wait_with_deadline.py": "another thread waits for the one that reads, with "
    "a deadline",
    "tests/unit/live/test_live_page_server.py": "connections are opened with a timeout",
}
"""File → why its reads from lines or sockets return in time or fail."""


@dataclass(frozen=True)
class WaitCall:
    """A call that may wait.

    location  file and line
    name    of the function, and `owner` what it is of: of a function that is imported
            by its name, the module
    """

    location: str
    name: str
    owner: str
    call: ast.Call

    @property
    def is_timed(self) -> bool:
        """Return whether the call is given a timeout by name."""
        return any(word.arg == "timeout" for word in self.call.keywords)


def iter_wait_calls(text: str, file: str = "") -> Iterator[WaitCall]:
    """Iterate over the calls of a source that may wait."""
    if not WAIT_PATTERN.search(text):
        return
    nodes = [*ast.walk(ast.parse(text))]
    imported = {
        alias.asname or alias.name: (alias.name, node.module or "")
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute):
            name, owner = node.func.attr, ast.unparse(node.func.value)
        elif isinstance(node.func, ast.Name) and node.func.id in imported:
            name, owner = imported[node.func.id]
        else:
            continue
        if name in RUN_FUNCTIONS | WAIT_METHODS | READ_METHODS | SLEEP_FUNCTIONS:
            yield WaitCall(f"{file}:{node.lineno}", name, owner, node)


MODULE_GENERATOR = re.compile(r"^\w+ = [\w.]*default_rng\(", re.MULTILINE)


@cache
def all_wait_calls() -> list[WaitCall]:
    """Return the calls that may wait in all files of tests/."""
    return [
        call
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for call in iter_wait_calls(
            path.read_text("utf-8"), path.relative_to(ROOT).as_posix()
        )
    ]


def is_unbounded(wait: WaitCall) -> bool:
    """Return whether a call waits for a process or a thread without a deadline.

    Of those named `result` only what follows a `submit` is looked at, since streams of
    ours have a method of that name, too.
    """
    if wait.is_timed:
        return False
    arguments = [*wait.call.args, *wait.call.keywords]
    match wait.name:
        case "communicate" | "wait":
            # The wait of `trips` is a coroutine, driven to its end.
            return not wait.call.args and wait.owner != "trips"
        case "join":
            return not arguments
        case "result":
            return not arguments and ".submit(" in wait.owner
        case "readline" | "recv":
            return wait.location.partition(":")[0] not in BOUNDED_READERS
        case name:
            return name in RUN_FUNCTIONS and wait.owner == "subprocess"


UNBOUNDED_CALLS = """
subprocess.run(["x"])
subprocess.check_output(["x"], text=True)
process.wait()
process.communicate()
thread.join()
pool.submit(work).result()
process.stdout.readline()
connection.recv(64)
"""
BOUNDED_CALLS = """
subprocess.run(["x"], timeout=60)
process.wait(60)
trips.wait()
thread.join(60)
" ".join(words)
pool.submit(work).result(60)
stream.result()
"""


@pytest.mark.parametrize("line", UNBOUNDED_CALLS.split("\n")[1:-1])
def test_a_wait_without_a_deadline_is_found(line: str) -> None:
    (wait,) = iter_wait_calls(f"import subprocess\n{line}")
    assert is_unbounded(wait)


@pytest.mark.parametrize("line", BOUNDED_CALLS.split("\n")[1:-1])
def test_a_wait_with_a_deadline_is_accepted(line: str) -> None:
    assert not any(map(is_unbounded, iter_wait_calls(f"import subprocess\n{line}")))


def test_functions_imported_under_other_names_are_found() -> None:
    """Waits are found under any imported name; other functions of it are not."""
    text = (
        "from subprocess import run as start\nfrom time import sleep\n"
        "from tests.wasm import call\nstart([])\nsleep(1)\ncall()\n"
    )
    run, sleep, call = iter_wait_calls(text)
    assert (run.name, run.owner, is_unbounded(run)) == ("run", "subprocess", True)
    assert (sleep.name, sleep.owner) == ("sleep", "time")
    assert not is_unbounded(call)


def test_no_test_waits_without_a_deadline() -> None:
    """A line of a process is read by `tests.wait_with_deadline.next_line`."""
    assert [wait.location for wait in all_wait_calls() if is_unbounded(wait)] == []


def test_trusted_readers_still_read() -> None:
    """Each file that may read without a deadline still does."""
    readers = {
        wait.location.partition(":")[0]
        for wait in all_wait_calls()
        if wait.name in READ_METHODS
    }
    assert readers >= set(BOUNDED_READERS)


def test_no_test_sleeps() -> None:
    """Conditions are waited for; `asyncio.sleep(0)` lets others run and is no sleep."""
    sleeps = [
        wait.location
        for wait in all_wait_calls()
        if wait.name in SLEEP_FUNCTIONS and ast.unparse(wait.call) != "asyncio.sleep(0)"
    ]
    assert sleeps == []


def module_generator_uses(path: Path) -> list[str]:
    """Return the lines on which functions draw from a generator of their module."""
    text = path.read_text("utf-8")
    tree = ast.parse(text if MODULE_GENERATOR.search(text) else "")
    generators = {
        ast.unparse(target)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if ast.unparse(node.value.func).endswith("default_rng")
        for target in node.targets
    }
    lines = {
        name.lineno
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in ast.walk(ast.Module(function.body, []))
        if isinstance(name, ast.Name) and name.id in generators
    }
    return [f"{path.relative_to(ROOT)}:{line}" for line in sorted(lines)]


def test_random_numbers_do_not_depend_on_test_order() -> None:
    paths = sorted((ROOT / "tests").rglob("*.py"))
    assert [line for path in paths for line in module_generator_uses(path)] == [], (
        "draw from the fixture `rng` and pass it on, or within @given from "
        "`np.random.default_rng(seed)`, so that a test alone has the same numbers"
    )
