"""How tests behave: none waits for ever, and none waits for luck."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.command_line import ROOT

RUNS = {"run", "call", "check_call", "check_output"}
WAITS = {"communicate", "wait", "join"}
READS = {"result", "readline", "recv"}
SLEEPS = {"sleep", "wait_for_timeout"}
MAY_WAIT = re.compile(
    r"(?:from|import) subprocess"
    rf"|\b(?:{'|'.join(WAITS - {'join'} | READS | SLEEPS)})\s*\("
    r"|\.\s*join\s*\(\s*\)"
)
IN_TIME = {
    "tests/fork_server.py": "pytest's sockets have a timeout, the helper's end with it",
    "tests/waiting.py": "another thread waits for the one that reads, with a deadline",
    "tests/unit/live/test_page.py": "the connections are opened with a timeout",
}
"""File → why what it reads line by line or from sockets comes in time or fails."""


@dataclass(frozen=True)
class Called:
    """A call that may wait.

    where   file and line
    name    of the function, and `owner` what it is of: of a function that is imported
            by its name, the module
    """

    where: str
    name: str
    owner: str
    call: ast.Call

    @property
    def is_timed(self) -> bool:
        """Return whether the call is given a timeout by name."""
        return any(word.arg == "timeout" for word in self.call.keywords)


def calls_in(text: str, file: str = "") -> Iterator[Called]:
    """Calls that may wait, where the text shows that something does."""
    if not MAY_WAIT.search(text):
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
        if name in RUNS | WAITS | READS | SLEEPS:
            yield Called(f"{file}:{node.lineno}", name, owner, node)


GENERATOR = re.compile(r"^\w+ = [\w.]*default_rng\(", re.MULTILINE)


@cache
def calls() -> list[Called]:
    """All of tests/."""
    return [
        one
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for one in calls_in(path.read_text("utf-8"), path.relative_to(ROOT).as_posix())
    ]


def is_endless(one: Called) -> bool:
    """Return whether a call waits for a process or a thread without a deadline.

    Of those named `result` only what follows a `submit` is looked at, since streams of
    ours have a method of that name, too.
    """
    if one.is_timed:
        return False
    given = [*one.call.args, *one.call.keywords]
    match one.name:
        case "communicate" | "wait":
            # The wait of `trips` is a coroutine, driven to its end.
            return not one.call.args and one.owner != "trips"
        case "join":
            return not given
        case "result":
            return not given and ".submit(" in one.owner
        case "readline" | "recv":
            return one.where.partition(":")[0] not in IN_TIME
        case name:
            return name in RUNS and one.owner == "subprocess"


ENDLESS = """
subprocess.run(["x"])
subprocess.check_output(["x"], text=True)
process.wait()
process.communicate()
thread.join()
pool.submit(work).result()
process.stdout.readline()
connection.recv(64)
"""
IN_TIME_EACH = """
subprocess.run(["x"], timeout=60)
process.wait(60)
trips.wait()
thread.join(60)
" ".join(words)
pool.submit(work).result(60)
stream.result()
"""


@pytest.mark.parametrize("line", ENDLESS.split("\n")[1:-1])
def test_a_wait_without_a_deadline_is_found(line: str) -> None:
    (one,) = calls_in(f"import subprocess\n{line}")
    assert is_endless(one)


@pytest.mark.parametrize("line", IN_TIME_EACH.split("\n")[1:-1])
def test_a_wait_with_a_deadline_is_none(line: str) -> None:
    assert not any(map(is_endless, calls_in(f"import subprocess\n{line}")))


def test_functions_that_are_imported_by_their_names_are_found() -> None:
    """Waits are found under any imported name; other functions of it are not."""
    text = (
        "from subprocess import run as start\nfrom time import sleep\n"
        "from tests.wasm import call\nstart([])\nsleep(1)\ncall()\n"
    )
    run, sleep, call = calls_in(text)
    assert (run.name, run.owner, is_endless(run)) == ("run", "subprocess", True)
    assert (sleep.name, sleep.owner) == ("sleep", "time")
    assert not is_endless(call)


def test_whoever_waits_for_a_process_or_a_thread_says_how_long() -> None:
    """A line of a process is read by `tests.waiting.next_line`."""
    assert [one.where for one in calls() if is_endless(one)] == []


def test_files_that_are_trusted_to_read_in_time_do_read() -> None:
    """Each file that may read without a deadline still does."""
    reading = {one.where.partition(":")[0] for one in calls() if one.name in READS}
    assert reading >= set(IN_TIME)


def test_nobody_sleeps_until_something_has_surely_happened() -> None:
    """Conditions are waited for; `asyncio.sleep(0)` lets others run and is no sleep."""
    asleep = [
        one.where
        for one in calls()
        if one.name in SLEEPS and ast.unparse(one.call) != "asyncio.sleep(0)"
    ]
    assert asleep == []


def drawn_from_its_module(path: Path) -> list[str]:
    """Return the lines on which functions draw from a generator of their module."""
    text = path.read_text("utf-8")
    tree = ast.parse(text if GENERATOR.search(text) else "")
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


def test_what_a_test_draws_does_not_hang_on_those_before_it() -> None:
    paths = sorted((ROOT / "tests").rglob("*.py"))
    assert [line for path in paths for line in drawn_from_its_module(path)] == [], (
        "draw from the fixture `rng` and pass it on, or within @given from "
        "`np.random.default_rng(seed)`, so that a test alone has the same numbers"
    )
