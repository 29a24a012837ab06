"""Pytest options and hooks of the three test tiers: `--quick`, the default and
`--full`.

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
test, `@pytest.mark.full("opengl")` for its cases with that parameter, and
`thin_out_cases` for a part of many alike. A test that is named by its node id always
runs, and the summary says how many tests were left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import hypothesis
import pytest

from tests import xdist_worker_values

T = TypeVar("T")
Tier = Literal["quick", "default", "full"]
TESTS_FOLDER = Path(__file__).parent
QUICK = ("unit", "ops", "graphs", "lanes", "pyrlx", "faults", "limits")
"""Folders of the quick tier."""
ADAPTER = "lavapipe"
OTHER_ADAPTERS = {"opengl": 0, "swiftshader": 3}
"""Adapters that run the same shaders → index of the first case that they take."""
NOT_QUICK = (
    "faults/test_broken_libraries",
    "faults/test_fork_safety",
    "faults/test_process_pool_faults",
    "faults/test_gpu_port_faults",
    "graphs/test_fused_row_reductions",
    "graphs/test_random_gradients",
    "limits/test_native_kernel_eviction",
    "limits/test_gpu_resource_leaks",
    "ops/test_fft_lengths",
    "ops/test_epilogues",
    "unit/engines/test_plugin_entry_points",
    "unit/engines/test_howto_page_engine",
    "unit/select/calibration/",
    "unit/cli/test_bench",
    "unit/cli/test_calibrate",
    "unit/cli/test_jobs_option",
    "unit/cli/test_killed_runs",
    "unit/cli/test_learn",
    "unit/cli/test_live",
    "unit/cli/test_memory_budget",
    "unit/cli/test_plot_files",
    "unit/cli/test_welch_plot",
    "unit/cli/test_tones_in_recording_formats",
    "unit/cli/test_termination_signals",
    "unit/cli/test_smoke",
    "unit/examples/",
    "unit/export/test_exported_welch",
    "unit/gpu/test_cffi_type_preparsing",
    "unit/io/test_hostile_",
    "unit/live/test_sources",
    "unit/codegen/test_native_thread_pool",
    "unit/plot/",
    "unit/signal/test_compiled_welch_engine",
    "unit/signal/test_short_signals.py",
    "unit/signal/test_spectrogram_and_cross_spectra",
    "unit/signal/test_welch_strategies",
    "unit/signal/test_welch_stream_on_device",
    "unit/site/",
    "unit/smoke/",
    "unit/test_cache_bounds",
    # These are judged by PyTorch, which this tier does without.
    "graphs/test_attention",
    "graphs/test_language_models",
    "graphs/test_recurrent_networks",
    "ops/test_linear_systems",
    "ops/test_grouped_matmul_selective_scan",
    "ops/test_rotary_gated_units_lora",
)
"""Prefixes of the paths of files that take too long for the quick tier."""
WHOLE = (
    *("test_numpy_agrees", "test_adapter_agrees"),
    *("test_wrong_input_is_refused_in_one_line", "test_document_says"),
    "test_command_prints",
)
"""Tests of which the quick tier has all cases: one for each op, one for each promise of
the command line.
"""
MAX_QUICK_CASES = 6
"""Largest number of cases that the quick tier does not thin out."""
CASE_STEP = 6
"""Step between the cases that are kept where cases repeat what others test."""
MAX_EXAMPLES = {"quick": 5, "default": 20}
"""Tier → maximum number of examples that hypothesis draws for a test; the full tier
draws as many as the test says.
"""
_HYPOTHESIS_SETTINGS = "_hypothesis_internal_use_settings"
"""The attribute in which hypothesis keeps the settings of a test."""
SLOW_MARKS = ("slow", "requires_torch", "requires_jax", "requires_mlx", "requires_dawn")
"""Marks that exclude a test from the quick tier."""

_deselected: list[str] = []
"""Node ids of the tests of other tiers."""
xdist_worker_values.register_collector("left out", lambda: len(_deselected))


def pytest_configure() -> None:
    """Check that hypothesis keeps a test's settings in the expected attribute."""
    assert hasattr(_with_settings, _HYPOTHESIS_SETTINGS), (
        "hypothesis keeps settings elsewhere"
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options `--quick` and `--full`, which `./dev test` passes on."""
    group = parser.getgroup("suite_tiers")
    group.addoption("--quick", action="store_true", help="the quick tier")
    group.addoption("--full", action="store_true", help="every test there is")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files that are not in the quick tier when that tier runs."""
    is_quick = config.getoption("--quick") and not tests_named_by_id(config)
    if not is_quick or TESTS_FOLDER not in collection_path.parents:
        return None
    path = collection_path.relative_to(TESTS_FOLDER)
    is_ours = path.parts[0] in QUICK or path.name == "conftest.py"
    return None if is_ours and not path.as_posix().startswith(NOT_QUICK) else True


def tests_named_by_id(config: pytest.Config) -> list[tuple[Path, str]]:
    """Return file and test name of each node id on the command line."""
    words = [word.partition("::") for word in config.args if "::" in word]
    folder = config.invocation_params.dir
    return [((folder / path).resolve(), name) for path, _, name in words]


def is_named(item: pytest.Item, named: list[tuple[Path, str]]) -> bool:
    """Return whether a test, its class or its function is named."""
    test_name = item.nodeid.partition("::")[2]
    return any(
        item.path == path
        and (test_name == name or test_name.startswith((f"{name}[", f"{name}::")))
        for path, name in named
    )


def selected_tier(config: pytest.Config) -> Tier:
    """Return the tier selected on the command line."""
    if config.getoption("--full"):
        return "full"
    return "quick" if config.getoption("--quick") else "default"


def thin_out_cases(values: Iterable[Any], every: int) -> list[Any]:
    """Return the values for `parametrize`: each `every`-th in every tier, the others
    marked `full`.
    """
    return [
        pytest.param(value, marks=pytest.mark.full) if at % every else value
        for at, value in enumerate(values)
    ]


@pytest.fixture(scope="session")
def tier(request: pytest.FixtureRequest) -> Tier:
    """The tier of this run, for tests whose numbers depend on it."""
    return selected_tier(request.config)


@pytest.fixture(scope="session")
def is_full_tier(tier: Tier) -> bool:
    """True if a test is to take all of its samples."""
    return tier == "full"


class Sampler(Protocol):
    """Function that picks as many of a test's samples as its tier has time for."""

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
        max_count = {"quick": quick, "default": default, "full": None}[tier]
        return values if max_count is None else pick_evenly(values, max_count)

    return sample


def pick_evenly(values: Sequence[T], max_count: int) -> Sequence[T]:
    """Return at most `max_count` values, evenly spaced from the first to the last.

    One value is the first alone. None is refused: a test would check nothing and pass.
    """
    if max_count < 1:
        raise ValueError(f"a test takes one of its samples at least, not {max_count}")
    if len(values) <= max_count:
        return values
    step = (len(values) - 1) / max(1, max_count - 1)
    return [values[round(at * step)] for at in range(max_count)]


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Deselect the tests of other tiers; pytest's last line counts them."""
    tier = selected_tier(config)
    if tier == "full":
        return
    named, quick = tests_named_by_id(config), tier == "quick"
    if not named:
        check_marks(items)
    for item in items:
        limit_examples(item, MAX_EXAMPLES[tier])
    selected = [
        item
        for item in items
        if (_is_default(item) and (not quick or _is_quick(item)))
        or is_named(item, named)
    ]
    selected = _drop_repeated_cases(selected, quick, named)
    deselected = set(items).difference(selected)
    config.hook.pytest_deselected(items=[item for item in items if item in deselected])
    _deselected[:] = [item.nodeid for item in deselected]
    items[:] = selected


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests of other tiers were left out, and how to run them."""
    # Every worker collects all tests.
    count = xdist_worker_values.collected_values("left out")[0]
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
    """Test that shows in which attribute hypothesis keeps its settings."""


def limit_examples(item: pytest.Item, max_examples: int) -> None:
    """Limit the number of examples that hypothesis draws, whatever the test says."""
    test = getattr(item, "obj", None)
    if hypothesis.is_hypothesis_test(test):
        settings = (
            getattr(test, _HYPOTHESIS_SETTINGS, None) or hypothesis.settings.default
        )
        if settings.max_examples > max_examples:
            setattr(
                test,
                _HYPOTHESIS_SETTINGS,
                hypothesis.settings(settings, max_examples=max_examples),
            )


def check_marks(items: Iterable[pytest.Item]) -> None:
    """Raise an error for a parameter of a mark `full` that no case of its test has."""
    cases: defaultdict[str, set[str]] = defaultdict(set)
    marked: defaultdict[str, set[str]] = defaultdict(set)
    for item in items:
        test = item.nodeid.partition("[")[0]
        cases[test] |= _parameter_words(item)
        marked[test].update(*(mark.args for mark in item.iter_markers("full")))
    for test, words in marked.items():
        for word in sorted(words - cases[test]):
            raise pytest.UsageError(
                f"{test} is marked `full({word!r})`, and no case of it has {word!r}"
            )


def _is_default(item: pytest.Item) -> bool:
    words = _parameter_words(item)
    marks = item.iter_markers("full")
    return not any(not mark.args or words.intersection(mark.args) for mark in marks)


def _parameter_words(item: pytest.Item) -> set[str]:
    """Return the string parameters of a case and the words of its id."""
    spec = getattr(item, "callspec", None)
    if spec is None:
        return set()
    values = (value for value in spec.params.values() if isinstance(value, str))
    return {*values, *spec.id.split("-")}


def _drop_repeated_cases(
    items: list[pytest.Item], quick: bool, named: list[tuple[Path, str]]
) -> list[pytest.Item]:
    """Drop most cases of a test where they repeat what others test.

    That is on all adapters but one, whose shaders are the same, and in the quick tier.
    """
    cases: defaultdict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        spec = getattr(item, "callspec", None)
        adapter = "" if spec is None else str(spec.params.get("adapter", ""))
        cases[item.nodeid.partition("[")[0], adapter].append(item)
    dropped = set()
    for (test, adapter), test_items in cases.items():
        is_long = (
            quick and len(test_items) > MAX_QUICK_CASES and not test.endswith(WHOLE)
        )
        if is_long or adapter in OTHER_ADAPTERS:
            selected = test_items[
                OTHER_ADAPTERS.get(adapter, 0) % len(test_items) :: CASE_STEP
            ]
            dropped.update(set(test_items).difference(selected))
    return [item for item in items if item not in dropped or is_named(item, named)]


def _is_quick(item: pytest.Item) -> bool:
    path = item.path.relative_to(TESTS_FOLDER)
    spec = getattr(item, "callspec", None)
    params = {} if spec is None else spec.params
    return (
        path.parts[0] in QUICK
        and not path.as_posix().startswith(NOT_QUICK)
        and params.get("adapter", ADAPTER) == ADAPTER
        and not any(item.get_closest_marker(mark) for mark in SLOW_MARKS)
    )
