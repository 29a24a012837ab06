"""`--times=FILE`: where the seconds of a test run go, by test, file and fixture.

For each test and each fixture the wall time and the processor time are taken; the
processor time is this process's and that of the child processes that ended meanwhile,
with those that `tests/fork_server.py` forked, which are not counted as started.
A browser that lives on is counted by its wall time only. The record is JSON:
`{"tests": {node id: [wall s, CPU s, processes started]},
"fixtures": {name: [wall s, CPU s, times made]}}`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import workers
from tests.leftovers import started

SHOWN = 40

_tests: dict[str, list[float]] = {}
_fixtures: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--times=FILE`."""
    parser.addoption("--times", metavar="FILE", help="where the seconds went, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Take the times only when they are asked for."""
    if config.getoption("--times"):
        config.pluginmanager.register(_Clock())
        workers.hand_over("times", lambda: [_tests, dict(_fixtures)])


def _now() -> tuple[float, float]:
    used = os.times()
    forked = sys.modules.get("tests.fork_server")
    more = sum(forked.USED_S) if forked else 0.0
    return time.perf_counter(), sum(used[:4]) + more


class _Clock:
    """The hooks that take the times."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Take the time of one test, with the fixtures that were made for it."""
        wall, cpu = _now()
        before = started()
        try:
            return (yield)
        finally:
            wall_after, cpu_after = _now()
            spent = [wall_after - wall, cpu_after - cpu, started() - before]
            _tests[item.nodeid] = spent

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object]
    ) -> Iterator[None]:
        """Take the time of one fixture without those that it asks for."""
        wall, cpu = _now()
        try:
            return (yield)
        finally:
            wall_after, cpu_after = _now()
            name = f"{fixturedef.baseid or 'conftest'}::{fixturedef.argname}"
            spent = _fixtures[name]
            spent[0] += wall_after - wall
            spent[1] += cpu_after - cpu
            spent[2] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the record, and show which files and fixtures took most."""
    path = terminalreporter.config.getoption("--times")
    if not path:
        return
    tests: dict[str, list[float]] = {}
    fixtures: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for its_tests, its_fixtures in workers.parts("times"):
        tests |= its_tests
        for name, spent in its_fixtures.items():
            _add(fixtures[name], spent)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    record = {"tests": tests, "fixtures": fixtures}
    Path(path).write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    files: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for name, spent in tests.items():
        for total in (files[name.split("::")[0]], files["all"]):
            _add(total, spent)
    terminalreporter.section("times: wall s, CPU s, processes")
    _show(terminalreporter, files, SHOWN)
    terminalreporter.section("fixtures: wall s, CPU s, times made")
    _show(terminalreporter, fixtures, SHOWN // 2)


def _add(total: list[float], spent: list[float]) -> None:
    total[:] = [a + b for a, b in zip(total, spent, strict=True)]


def _show(
    terminalreporter: pytest.TerminalReporter, rows: dict[str, list[float]], most: int
) -> None:
    by_wall = sorted(rows.items(), key=lambda row: row[1][0], reverse=True)
    for name, (wall, cpu, count) in by_wall[:most]:
        terminalreporter.line(f"{wall:8.1f} {cpu:8.1f} {count:6.0f}  {name}")
