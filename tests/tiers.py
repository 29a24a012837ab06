"""Three tiers of tests: `--quick`, the default and `--full`.

default   all but what is marked `full`: every promise, in the browser, in WebAssembly,
          in processes and on the site, with samples where there are thousands of cases.
          A test of many cases takes all of them on lavapipe, and on each of the other
          adapters another sixth of them.
--full    everything: every sample on every adapter, the engines of other libraries,
          trained models, benchmarks, long random tests.
--quick   what catches most in minutes, on one adapter: of the default tier what QUICK
          names, without the engines of other libraries and what is marked `slow`, and a
          sixth of the cases of a test of many, but for WHOLE.

A test belongs to `full` when others of the default tier test the same promise with
fewer cases, or when what it runs is not ours. `@pytest.mark.full` is for the whole
test, `@pytest.mark.full("opengl")` for its cases with that parameter, and `thinned` for
a part of many alike. A test that is named by its node id always runs, and the summary
says how many tests were left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import hypothesis
import pytest

from tests import workers

T = TypeVar("T")
Tier = Literal["quick", "default", "full"]
HERE = Path(__file__).parent
QUICK = ("unit", "ops", "graphs", "lanes", "pyrlx", "faults", "limits")
"""The folders of the quick tier."""
ADAPTER = "lavapipe"
OTHERS = {"opengl": 0, "swiftshader": 3}
"""Adapters that run the same shaders → the first of the cases that they take."""
NOT_QUICK = (
    "faults/test_broken_libraries",
    "faults/test_forks",
    "faults/test_jobs_faults",
    "faults/test_port_faults",
    "graphs/test_lines",
    "graphs/test_random_gradients",
    "limits/test_kernel_memory",
    "limits/test_leaks",
    "ops/test_compiled_ways",
    "ops/test_fft_lengths",
    "ops/test_finish",
    "ops/test_gpu_shapes",
    "unit/backends/test_entry_points",
    "unit/backends/test_howto_engine",
    "unit/calibration/",
    "unit/cli/test_bench",
    "unit/cli/test_calibrate",
    "unit/cli/test_jobs",
    "unit/cli/test_killed_runs",
    "unit/cli/test_learn",
    "unit/cli/test_live",
    "unit/cli/test_memory",
    "unit/cli/test_picture_files",
    "unit/cli/test_plot",
    "unit/cli/test_recordings",
    "unit/cli/test_signals",
    "unit/cli/test_smoke",
    "unit/examples/",
    "unit/export/test_welch_",
    "unit/gpu/test_c_types",
    "unit/io/test_hostile_",
    "unit/live/test_sources",
    "unit/machine/test_crew",
    "unit/plot/",
    "unit/signal/test_compiled_engine",
    "unit/signal/test_short.py",
    "unit/signal/test_spectrogram",
    "unit/signal/test_strategies",
    "unit/signal/test_stream_there",
    "unit/site/",
    "unit/smoke/",
    "unit/test_cache_bounds",
    # These are judged by PyTorch, which this tier does without.
    "graphs/test_attention",
    "graphs/test_language_models",
    "graphs/test_recurrent",
    "ops/test_linear_systems",
    "ops/test_norms_by_torch",
    "ops/test_resize_by_torch",
    "ops/test_sequence_parts",
    "ops/test_transformer_parts",
    "ops/test_windows_by_torch",
)
"""How the paths of files begin that take longer than what they catch is worth."""
WHOLE = ("test_numpy_agrees", "test_adapter_agrees")
"""Tests of which the quick tier has all cases: one for each op."""
MANY = 6
"""More cases than these are many."""
EACH = 6
"""Step between the cases that are taken where cases repeat what others test."""
EXAMPLES = {"quick": 5, "default": 20}
"""Tier → the most examples that hypothesis draws for a test; the full tier draws as
many as the test says.
"""
_SETTINGS = "_hypothesis_internal_use_settings"
"""The attribute in which hypothesis keeps the settings of a test."""
MARKS = ("slow", "requires_torch", "requires_jax", "requires_mlx", "requires_dawn")
"""Marks of tests that are not of the quick tier."""

_left_out: list[str] = []
"""The node ids of tests of other tiers."""
workers.hand_over("left out", lambda: len(_left_out))


def pytest_configure() -> None:
    """See that the settings of a test are where they are looked for."""
    assert hasattr(_with_settings, _SETTINGS), "hypothesis keeps settings elsewhere"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--quick` and `--full`, which `./dev test` hands on."""
    group = parser.getgroup("tiers")
    group.addoption("--quick", action="store_true", help="the quick tier")
    group.addoption("--full", action="store_true", help="every test there is")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files that are not of the quick tier unread in a run of that tier."""
    is_quick = config.getoption("--quick") and not named_tests(config)
    if not is_quick or HERE not in collection_path.parents:
        return None
    path = collection_path.relative_to(HERE)
    is_ours = path.parts[0] in QUICK or path.name == "conftest.py"
    return None if is_ours and not path.as_posix().startswith(NOT_QUICK) else True


def named_tests(config: pytest.Config) -> list[tuple[Path, str]]:
    """Return the files and the names in them of the command line's node ids."""
    words = [word.partition("::") for word in config.args if "::" in word]
    folder = config.invocation_params.dir
    return [((folder / path).resolve(), name) for path, _, name in words]


def is_named(item: pytest.Item, named: list[tuple[Path, str]]) -> bool:
    """Return whether a test, its class or its function is named."""
    own = item.nodeid.partition("::")[2]
    return any(
        item.path == path and (own == name or own.startswith((f"{name}[", f"{name}::")))
        for path, name in named
    )


def tier_of(config: pytest.Config) -> Tier:
    """Return the tier that was asked for."""
    if config.getoption("--full"):
        return "full"
    return "quick" if config.getoption("--quick") else "default"


def thinned(values: Iterable[Any], every: int) -> list[Any]:
    """Return the values for `parametrize`: each `every`-th for all, the rest `full`."""
    return [
        pytest.param(value, marks=pytest.mark.full) if at % every else value
        for at, value in enumerate(values)
    ]


@pytest.fixture(scope="session")
def tier(request: pytest.FixtureRequest) -> Tier:
    """The tier of this run, for a test whose numbers differ by it."""
    return tier_of(request.config)


@pytest.fixture(scope="session")
def is_full_tier(tier: Tier) -> bool:
    """Whether a test is to take all of its samples."""
    return tier == "full"


class Sampler(Protocol):
    """A function that picks as many of a test's samples as its tier has time for."""

    def __call__(
        self, values: Sequence[T], default: int | None = None, *, quick: int
    ) -> Sequence[T]:
        """Return `default` or `quick` of the values, evenly spread; all for None."""


@pytest.fixture(scope="session")
def sampled(tier: Tier) -> Sampler:
    """Pick samples in a test that goes through many of them by itself."""

    def sample(
        values: Sequence[T], default: int | None = None, *, quick: int
    ) -> Sequence[T]:
        most = {"quick": quick, "default": default, "full": None}[tier]
        return values if most is None else spread(values, most)

    return sample


def spread(values: Sequence[T], most: int) -> Sequence[T]:
    """Return at most that many values, evenly spread from the first to the last.

    One value is the first alone. None is refused: a test would check nothing and pass.
    """
    if most < 1:
        raise ValueError(f"a test takes one of its samples at least, not {most}")
    if len(values) <= most:
        return values
    step = (len(values) - 1) / max(1, most - 1)
    return [values[round(at * step)] for at in range(most)]


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what is of another tier; pytest's last line counts it."""
    tier = tier_of(config)
    if tier == "full":
        return
    named, quick = named_tests(config), tier == "quick"
    if not named:
        check_marks(items)
    for item in items:
        limit_examples(item, EXAMPLES[tier])
    taken = [
        item
        for item in items
        if (_is_default(item) and (not quick or _is_quick(item)))
        or is_named(item, named)
    ]
    taken = _without_repeats(taken, quick, named)
    gone = set(items).difference(taken)
    config.hook.pytest_deselected(items=[item for item in items if item in gone])
    _left_out[:] = [item.nodeid for item in gone]
    items[:] = taken


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests of other tiers were left out, and how to run them."""
    # Every worker collects all tests.
    count = workers.parts("left out")[0]
    if count:
        quick = terminalreporter.config.getoption("--quick")
        files = ", and the files that only other tiers have" if quick else ""
        terminalreporter.line(
            f"left out {count} tests of other tiers{files}: `--full` runs all, "
            "and what is named by its node id always runs"
        )


@hypothesis.settings(max_examples=1)
@hypothesis.given(hypothesis.strategies.none())
def _with_settings(nothing: None) -> None:
    """Show where hypothesis keeps the settings of a test."""


def limit_examples(item: pytest.Item, most: int) -> None:
    """Let hypothesis draw no more examples than this, whatever the test says."""
    test = getattr(item, "obj", None)
    if hypothesis.is_hypothesis_test(test):
        own = getattr(test, _SETTINGS, None) or hypothesis.settings.default
        if own.max_examples > most:
            setattr(test, _SETTINGS, hypothesis.settings(own, max_examples=most))


def check_marks(items: Iterable[pytest.Item]) -> None:
    """Refuse a parameter of a mark `full` that no case of its test has."""
    cases: defaultdict[str, set[str]] = defaultdict(set)
    asked: defaultdict[str, set[str]] = defaultdict(set)
    for item in items:
        test = item.nodeid.partition("[")[0]
        cases[test] |= _parameters(item)
        asked[test].update(*(mark.args for mark in item.iter_markers("full")))
    for test, words in asked.items():
        for word in sorted(words - cases[test]):
            raise pytest.UsageError(
                f"{test} is marked `full({word!r})`, and no case of it has {word!r}"
            )


def _is_default(item: pytest.Item) -> bool:
    words = _parameters(item)
    marks = item.iter_markers("full")
    return not any(not mark.args or words.intersection(mark.args) for mark in marks)


def _parameters(item: pytest.Item) -> set[str]:
    """Return the words among the values of a case's parameters, and those of its id."""
    spec = getattr(item, "callspec", None)
    if spec is None:
        return set()
    values = (value for value in spec.params.values() if isinstance(value, str))
    return {*values, *spec.id.split("-")}


def _without_repeats(
    items: list[pytest.Item], quick: bool, named: list[tuple[Path, str]]
) -> list[pytest.Item]:
    """Leave out most cases of a test where they test the same again.

    That is on all adapters but one, whose shaders are the same, and in the quick tier.
    """
    cases: defaultdict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        spec = getattr(item, "callspec", None)
        adapter = "" if spec is None else str(spec.params.get("adapter", ""))
        cases[item.nodeid.partition("[")[0], adapter].append(item)
    gone = set()
    for (test, adapter), its in cases.items():
        is_long = quick and len(its) > MANY and not test.endswith(WHOLE)
        if is_long or adapter in OTHERS:
            kept = its[OTHERS.get(adapter, 0) % len(its) :: EACH]
            gone.update(set(its).difference(kept))
    return [item for item in items if item not in gone or is_named(item, named)]


def _is_quick(item: pytest.Item) -> bool:
    path = item.path.relative_to(HERE)
    spec = getattr(item, "callspec", None)
    params = {} if spec is None else spec.params
    return (
        path.parts[0] in QUICK
        and not path.as_posix().startswith(NOT_QUICK)
        and params.get("adapter", ADAPTER) == ADAPTER
        and not any(item.get_closest_marker(mark) for mark in MARKS)
    )
