"""What happens to tests whose libraries are not installed.

A test file that imports a library that is not there is left out, and a line of the
summary says which library and how many files; a test that imports one itself is
skipped. With `CI=true` or `--require extras` the missing library is a failure instead.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

OURS = frozenset(("rlxweb", "tests", "assembly"))

_files: Counter[str] = Counter()


def are_required(config: pytest.Config) -> bool:
    """Return whether every library must be there."""
    in_ci = os.environ.get("CI", "").lower() in ("1", "true")
    return in_ci or "extras" in config.getoption("--require")


def missing_library(error: BaseException | None) -> str:
    """Return the library for want of which an import failed, or ""."""
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__
    root = (error.name or "").partition(".")[0] if error is not None else ""
    is_library = root and root not in OURS and root not in sys.stdlib_module_names
    return root if is_library and find_spec(root) is None else ""


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Iterator[None]:
    """Leave out a file whose imports ask for a library that is not there."""
    report: pytest.CollectReport = yield
    call = getattr(report, "call", None)
    if report.failed and call is not None and not are_required(collector.config):
        name = missing_library(call.excinfo.value)
        if name:
            _files[name] += 1
            report.outcome, report.longrepr, report.result = "passed", None, []
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[None]:
    """Skip a test that itself imports such a library."""
    report: pytest.TestReport = yield
    if report.failed and call.excinfo is not None and not are_required(item.config):
        name = missing_library(call.excinfo.value)
        if name:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, f"Skipped: {name} is not installed")
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of a parallel run hands on what it left out."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["missing"] = dict(_files)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Take over what a worker left out: the same as every other worker."""
    found = getattr(node, "workeroutput", {}).get("missing", {})
    for name, count in found.items():
        _files[name] = max(_files[name], count)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each missing library, and how many files were left out for it."""
    for name, count in sorted(_files.items()):
        terminalreporter.line(
            f"left out {count} test files: {name} is not installed "
            "(`pip install -e .[test]` has what the tests need)"
        )
