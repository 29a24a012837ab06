"""The plugin of pytest that runs in WebAssembly: what is left out, and the deadlines.

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

from tests.wasm.left_out import FILES, ONLY_THERE, REASONS, SKIPS, TESTS, Reason

TEST_S = 120
EXAMPLES = 10
ONE_OF = 4
ROOT = Path("/checkout")

_count: Counter[str] = Counter()
_BROKEN = pytest.StashKey[bool]()

hypothesis.settings.register_profile(
    "wasm",
    deadline=None,
    derandomize=True,
    print_blob=True,
    max_examples=EXAMPLES,
    # what fails since something is missing there is not made smaller, for seconds
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The deadline, and a choice of cases."""
    parser.addoption("--wasm-deadline", type=float, default=TEST_S, help="seconds")
    parser.addoption(
        "--sample",
        action="store_true",
        help=f"one of {ONE_OF} test functions, with its first parameters alone; "
        "all of those that have nothing to test elsewhere",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Fewer examples: the desktop tries more of the same."""
    hypothesis.settings.load_profile("wasm")
    config.addinivalue_line("markers", "timeout: the desktop's deadline")
    for what in set(FILES.values()):
        assert find_spec(what) is None, f"{what} is there, and yet a reason"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Files that import what is not there."""
    name = collection_path.relative_to(ROOT).as_posix()
    if name in FILES:
        _count[f"files that need {FILES[name]}"] += 1
        return True
    return None


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out the tests that are not even tried."""
    if config.getoption("--sample"):
        _keep_sample(config, items)
    reasons = [reason_of(item) for item in items]
    from tests.tiers import limit_examples  # pytest loads it, as a plugin, after this

    for item in items:
        limit_examples(item, EXAMPLES)
    gone = [i for i, r in zip(items, reasons, strict=True) if r and not r.fails_with]
    _count.update(r.words for r in reasons if r and not r.fails_with)
    config.hook.pytest_deselected(items=gone)
    items[:] = [item for item in items if item not in gone]


def _keep_sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one of so many test functions, with its first parameters alone.

    What differs in WebAssembly are pointers of 32 bits, threads and NumPy's version:
    that shows in several functions of a file, and seldom in one case alone. Of what
    is tested nowhere else, every function is kept, with one of so many of its cases.
    """
    first: dict[str, pytest.Item] = {}
    for item in items:
        first.setdefault(item.nodeid.split("[")[0], item)
    kept = set([*first.values()][::ONE_OF])
    only_there = [item for item in items if item.nodeid.startswith(ONLY_THERE)]
    kept.update(only_there[::ONE_OF], set(first.values()).intersection(only_there))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """The clock starts and stops, on the other side."""
    expect(item.nodeid, item.config.getoption("wasm_deadline"))
    try:
        return (yield)
    finally:
        if item.stash.get(_BROKEN, False):
            _forget_the_broken()
        expect("", 0)


def _forget_the_broken() -> None:
    """Collect what a failed test leaves behind, which is not the next one's fault."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


def reason_of(item: pytest.Item) -> Reason | None:
    """Why a test is left out by name, or None."""
    name = item.nodeid
    names = (name, name.split("[")[0], name.split("::")[0])
    return next((REASONS[TESTS[name]] for name in names if name in TESTS), None)


def told_by(error: pytest.ExceptionInfo[BaseException], text: str) -> Reason | None:
    """The reason that a failure shows by itself: a test asked for what is not there.

    Where rlxweb asked for it, that is mostly a fault of rlxweb.
    """
    files = [str(entry.path) for entry in error.traceback]
    here = [file for file in files if file.startswith(f"{ROOT}/")]
    is_ours = bool(here) and here[-1].startswith(f"{ROOT}/rlxweb/")
    told = (r for r in REASONS.values() if not r.by_name)
    shown = (r for r in told if r.is_shown_by(text))
    return next((r for r in shown if r.by_rlxweb or not is_ours), None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[None]:
    """A failure that was told is no failure; what does not fail so is one."""
    report: pytest.TestReport = yield
    named = reason_of(item)
    if report.skipped:
        _judge_skip(report)
    elif report.failed and call.excinfo is not None:
        reason = named or told_by(call.excinfo, report.longreprtext)
        if reason is not None and reason.is_shown_by(report.longreprtext):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, f"Skipped: {reason.words}")
            _count[reason.words] += 1
            item.stash[_BROKEN] = True
    elif named is not None and report.when == "call":
        report.outcome = "failed"
        report.longrepr = f"it is left out ({named.words}), and yet it passes"
    return report


def _judge_skip(report: pytest.TestReport) -> None:
    assert isinstance(report.longrepr, tuple)
    text = report.longrepr[2]
    for pattern, words in SKIPS.items():
        if re.search(pattern, text):
            _count[words] += 1
            return
    report.outcome = "failed"
    report.longrepr = f"skipped for a reason that left_out.py does not know: {text}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was left out and why."""
    terminalreporter.section("left out")
    for words, number in _count.most_common():
        terminalreporter.line(f"{number:5d}  {words}")
