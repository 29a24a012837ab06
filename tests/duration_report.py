"""Report of `--times=FILE`: the duration of each test, file and fixture of a run.

For each test and each fixture the wall time and the processor time are taken; the
processor time is this process's and that of the child processes that ended meanwhile,
with those that `tests/pytest_fork_server.py` forked, which are not counted as started.
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

from tests import xdist_worker_values
from tests.thread_process_leak_check import started_count

N_SHOWN = 40

_test_times: dict[str, list[float]] = {}
_fixture_times: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--times=FILE`."""
    parser.addoption("--times", metavar="FILE", help="where the seconds went, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Measure only if the option is given."""
    if config.getoption("--times"):
        config.pluginmanager.register(_DurationPlugin())
        xdist_worker_values.register_collector(
            "times", lambda: [_test_times, dict(_fixture_times)]
        )


def _wall_and_cpu_time() -> tuple[float, float]:
    process_times = os.times()
    fork_server = sys.modules.get("tests.pytest_fork_server")
    forked_cpu_s = sum(fork_server.USED_S) if fork_server else 0.0
    return time.perf_counter(), sum(process_times[:4]) + forked_cpu_s


class _DurationPlugin:
    """Hooks that measure tests and fixtures."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measure one test, including the fixtures that are set up for it."""
        wall, cpu = _wall_and_cpu_time()
        started_before = started_count()
        try:
            return (yield)
        finally:
            wall_after, cpu_after = _wall_and_cpu_time()
            spent = [
                wall_after - wall,
                cpu_after - cpu,
                started_count() - started_before,
            ]
            _test_times[item.nodeid] = spent

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object]
    ) -> Iterator[None]:
        """Measure one fixture without those that it requests."""
        wall, cpu = _wall_and_cpu_time()
        try:
            return (yield)
        finally:
            wall_after, cpu_after = _wall_and_cpu_time()
            name = f"{fixturedef.baseid or 'conftest'}::{fixturedef.argname}"
            spent = _fixture_times[name]
            spent[0] += wall_after - wall
            spent[1] += cpu_after - cpu
            spent[2] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the record, and show the files and fixtures that took longest."""
    path = terminalreporter.config.getoption("--times")
    if not path:
        return
    tests: dict[str, list[float]] = {}
    fixtures: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for worker_tests, worker_fixtures in xdist_worker_values.collected_values("times"):
        tests |= worker_tests
        for name, spent in worker_fixtures.items():
            _add_times(fixtures[name], spent)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    record = {"tests": tests, "fixtures": fixtures}
    Path(path).write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    files: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for name, spent in tests.items():
        for total in (files[name.split("::")[0]], files["all"]):
            _add_times(total, spent)
    terminalreporter.section("times: wall s, CPU s, processes")
    _print_slowest(terminalreporter, files, N_SHOWN)
    terminalreporter.section("fixtures: wall s, CPU s, times made")
    _print_slowest(terminalreporter, fixtures, N_SHOWN // 2)


def _add_times(total: list[float], spent: list[float]) -> None:
    total[:] = [a + b for a, b in zip(total, spent, strict=True)]


def _print_slowest(
    terminalreporter: pytest.TerminalReporter,
    rows: dict[str, list[float]],
    max_rows: int,
) -> None:
    by_wall = sorted(rows.items(), key=lambda row: row[1][0], reverse=True)
    for name, (wall, cpu, count) in by_wall[:max_rows]:
        terminalreporter.line(f"{wall:8.1f} {cpu:8.1f} {count:6.0f}  {name}")
