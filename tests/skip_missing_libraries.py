"""Leave out tests whose libraries or adapters are not installed.

A test file that imports a library that is not installed is left out, and a line of the
summary says which library and how many files. A test is skipped that imports one, that
names it by `@pytest.mark.needs("matplotlib")`, or that asks for an adapter that the
machine has not. Where anything is required, by `CI=true` or `--require`, as in
`./dev test`, all of that is a failure instead.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

import pytest

from rlxweb.core.errors import AdapterMissing
from tests import xdist_worker_values

OWN_PACKAGES = frozenset(("rlxweb", "tests", "assembly"))

_left_out_counts: Counter[str] = Counter()
"""Number of test files left out, by missing library."""
xdist_worker_values.register_collector(
    "missing libraries", lambda: dict(_left_out_counts)
)


def is_everything_required(config: pytest.Config) -> bool:
    """Return whether every library and adapter must be there."""
    return bool(config.getoption("--require"))


def missing_library(error: BaseException | None) -> str:
    """Return the library whose absence made an import fail, or ""."""
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__
    root = (error.name or "").partition(".")[0] if error is not None else ""
    is_library = (
        root and root not in OWN_PACKAGES and root not in sys.stdlib_module_names
    )
    return root if is_library and find_spec(root) is None else ""


def missing_requirement(error: BaseException) -> str:
    """Return the missing requirement that made a test fail, with a verb; or ""."""
    name = missing_library(error)
    if name:
        return f"{name} is not installed"
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, AdapterMissing):
        cause = cause.__cause__
    if cause is None or not _is_engine_missing():
        return ""
    return str(cause)


def _is_engine_missing() -> bool:
    """Return whether wgpu finds no adapter or nothing can be compiled for the CPU.

    Where both work, `AdapterMissing` from a test is a fault and no reason to skip it.
    """
    from tests.conftest import missing_reason

    return bool(missing_reason("wgpu") or missing_reason("fast"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Import the libraries that a test is marked to need."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            import_module(name)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Iterator[None]:
    """Leave out a file that imports a missing library."""
    report: pytest.CollectReport = yield
    call = getattr(report, "call", None)
    if (
        report.failed
        and call is not None
        and not is_everything_required(collector.config)
    ):
        name = missing_library(call.excinfo.value)
        if name:
            _left_out_counts[name] += 1
            report.outcome, report.longrepr, report.result = "passed", None, []
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[None]:
    """Skip a test that fails because a requirement is missing."""
    report: pytest.TestReport = yield
    if (
        report.failed
        and call.excinfo is not None
        and not is_everything_required(item.config)
    ):
        reason = missing_requirement(call.excinfo.value)
        if reason:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, f"Skipped: {reason}")
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each missing library, and how many files were left out for it."""
    # Every worker collects all files: what one left out, all did.
    for name, count in sorted(
        xdist_worker_values.collected_values("missing libraries")[0].items()
    ):
        terminalreporter.line(
            f"left out {count} test files: {name} is not installed "
            "(`pip install -e .[test]` has what the tests need)"
        )
