"""`--quick`: the tests that catch most, in minutes, on one adapter.

Left out are the site, the browser, what is packaged and what is measured, trained
models, pictures, streams of other programs, the engines of other libraries, the other
two adapters, processes that are killed, forked or broken on purpose, and what is marked
slow.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOMS = ("unit", "ops", "graphs", "pyrlx", "faults", "limits")
ADAPTER = "lavapipe"
LEFT_OUT = (
    *("unit/site/", "unit/examples/", "unit/calibration/", "unit/cli/test_bench"),
    *("unit/cli/test_calibrate", "unit/cli/test_smoke", "unit/smoke/"),
    *("unit/cli/test_killed_runs", "unit/cli/test_memory", "unit/cli/test_signals"),
    *("unit/cli/test_plot", "unit/cli/test_picture_files", "unit/cli/test_learn"),
    *("unit/live/test_sources", "unit/signal/test_compiled_engine"),
    *("unit/backends/test_entry_points", "unit/backends/test_howto_engine"),
    *("faults/test_broken_libraries", "faults/test_forks", "faults/test_jobs_faults"),
)
"""How the paths of files begin of which the time is not worth what they catch."""
LIBRARIES = frozenset(("torch-cpu", "jax-cpu", "mlx"))
MARKS = ("slow", "requires_torch", "requires_jax", "requires_mlx", "requires_dawn")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--quick`, which `./dev test --quick` sets."""
    parser.addoption("--quick", action="store_true", help="the quick tier, see there")


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave the rest out, and say how much that is."""
    if config.getoption("--quick"):
        left_out = [item for item in items if not _is_quick(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_quick(item)]


def _is_quick(item: pytest.Item) -> bool:
    path = item.path.relative_to(HERE)
    spec = getattr(item, "callspec", None)
    params = {} if spec is None else spec.params
    return (
        path.parts[0] in ROOMS
        and not path.as_posix().startswith(LEFT_OUT)
        and params.get("adapter", ADAPTER) == ADAPTER
        and LIBRARIES.isdisjoint(p for p in params.values() if isinstance(p, str))
        and not any(item.get_closest_marker(mark) for mark in MARKS)
    )
