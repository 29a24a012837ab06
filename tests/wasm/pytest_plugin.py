"""Pytest plugin that runs in WebAssembly: excluded tests and deadlines.

What is left out because something is missing there is tried all the same, and must fail
for the reason that is told; a skip must have a reason that is known. So nothing is left
out that could be run, and nothing goes missing without a word.
"""

from __future__ import annotations

import gc
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest
from watchdog import expect  # run.mjs makes it

from tests.wasm.excluded_tests import (
    EXCLUDED_FILES,
    EXCLUDED_TESTS,
    REASONS,
    SKIP_REASONS,
    WASM_KERNEL_FILES,
    ExclusionReason,
)

TEST_DEADLINE_S = 120
MAX_EXAMPLES = 10
SAMPLE_STEP = 4
ROOT = Path("/checkout")

_reason_counts: Counter[str] = Counter()
_FAILED_AS_EXPECTED = pytest.StashKey[bool]()

hypothesis.settings.register_profile(
    "wasm",
    deadline=None,
    derandomize=True,
    print_blob=True,
    max_examples=MAX_EXAMPLES,
    # what fails since something is missing there is not made smaller, for seconds
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for the deadline and for a sample of the tests."""
    parser.addoption(
        "--wasm-deadline", type=float, default=TEST_DEADLINE_S, help="seconds"
    )
    parser.addoption(
        "--sample",
        action="store_true",
        help=f"one of {SAMPLE_STEP} test functions, with its first parameters alone; "
        "all of those that have nothing to test elsewhere",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Use fewer examples, since the desktop tries more of the same, and check that the
    missing modules are missing.
    """
    hypothesis.settings.load_profile("wasm")
    config.addinivalue_line("markers", "timeout: the desktop's deadline")
    for module in set(EXCLUDED_FILES.values()):
        assert find_spec(module) is None, f"{module} is there, and yet a reason"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore files that import missing modules."""
    name = collection_path.relative_to(ROOT).as_posix()
    if name in EXCLUDED_FILES:
        _reason_counts[f"files that need {EXCLUDED_FILES[name]}"] += 1
        return True
    return None


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Deselect the excluded tests that are not even tried."""
    if config.getoption("--sample"):
        _select_sample(config, items)
    reasons = [named_reason(item) for item in items]
    from tests.suite_tiers import (
        limit_examples,
    )  # pytest loads it, as a plugin, after this

    for item in items:
        limit_examples(item, MAX_EXAMPLES)
    deselected = [
        i
        for i, reason in zip(items, reasons, strict=True)
        if reason and not reason.error_pattern
    ]
    _reason_counts.update(
        reason.description for reason in reasons if reason and not reason.error_pattern
    )
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in deselected]


def _select_sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep every SAMPLE_STEP-th test function, with its first parameters only.

    What differs in WebAssembly are pointers of 32 bits, threads and NumPy's version:
    that shows in several functions of a file, and seldom in one case alone. Of the
    files that run our kernels, every function is kept, with one of so many cases.
    """
    first_items: dict[str, pytest.Item] = {}
    for item in items:
        first_items.setdefault(item.nodeid.split("[")[0], item)
    selected = set([*first_items.values()][::SAMPLE_STEP])
    kernel_items = [item for item in items if item.nodeid.startswith(WASM_KERNEL_FILES)]
    selected.update(kernel_items[::SAMPLE_STEP])
    selected.update(set(first_items.values()).intersection(kernel_items))
    config.hook.pytest_deselected(
        items=[item for item in items if item not in selected]
    )
    items[:] = [item for item in items if item in selected]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Start and stop the test's deadline in the watching process."""
    expect(item.nodeid, item.config.getoption("wasm_deadline"))
    try:
        return (yield)
    finally:
        if item.stash.get(_FAILED_AS_EXPECTED, False):
            _collect_garbage()
        expect("", 0)


def _collect_garbage() -> None:
    """Collect the garbage of a failed test, so that it does not fail the next one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


def named_reason(item: pytest.Item) -> ExclusionReason | None:
    """Return why a test is excluded by name, or None."""
    name = item.nodeid
    names = (name, name.split("[")[0], name.split("::")[0])
    return next(
        (REASONS[EXCLUDED_TESTS[name]] for name in names if name in EXCLUDED_TESTS),
        None,
    )


def reason_from_error(
    error: pytest.ExceptionInfo[BaseException], text: str
) -> ExclusionReason | None:
    """Return the reason that a failure itself shows, a missing facility that the test
    used, or None.

    Where rlxweb asked for it, that is mostly a fault of rlxweb.
    """
    files = [str(entry.path) for entry in error.traceback]
    project_files = [file for file in files if file.startswith(f"{ROOT}/")]
    is_from_rlxweb = bool(project_files) and project_files[-1].startswith(
        f"{ROOT}/rlxweb/"
    )
    reasons = (reason for reason in REASONS.values() if not reason.by_name)
    matching = (reason for reason in reasons if reason.matches(text))
    return next(
        (reason for reason in matching if reason.by_rlxweb or not is_from_rlxweb), None
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[None]:
    """Report an expected failure as a skip, and an excluded test that passes as a
    failure.
    """
    report: pytest.TestReport = yield
    named = named_reason(item)
    if report.skipped:
        _check_skip_reason(report)
    elif report.failed and call.excinfo is not None:
        reason = named or reason_from_error(call.excinfo, report.longreprtext)
        if reason is not None and reason.matches(report.longreprtext):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, f"Skipped: {reason.description}")
            _reason_counts[reason.description] += 1
            item.stash[_FAILED_AS_EXPECTED] = True
    elif named is not None and report.when == "call":
        report.outcome = "failed"
        report.longrepr = f"it is left out ({named.description}), and yet it passes"
    return report


def _check_skip_reason(report: pytest.TestReport) -> None:
    assert isinstance(report.longrepr, tuple)
    text = report.longrepr[2]
    for pattern, words in SKIP_REASONS.items():
        if re.search(pattern, text):
            _reason_counts[words] += 1
            return
    report.outcome = "failed"
    report.longrepr = f"skipped for a reason that left_out.py does not know: {text}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report the number of excluded tests for each reason."""
    terminalreporter.section("left out")
    for words, number in _reason_counts.most_common():
        terminalreporter.line(f"{number:5d}  {words}")
