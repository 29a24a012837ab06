"""`--quick`: the tests that catch most, in minutes, on one adapter.

Left out are the site, the browser, what is packaged and what is measured, the other two
adapters, and what is marked slow.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOMS = ("unit", "ops", "graphs", "pyrlx", "faults", "limits")
ADAPTER = "lavapipe"


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
    room, inner = item.path.relative_to(HERE).parts[:2]
    params = getattr(item, "callspec", None)
    adapter = ADAPTER if params is None else params.params.get("adapter", ADAPTER)
    return (
        room in ROOMS
        and inner != "site"
        and adapter == ADAPTER
        and item.get_closest_marker("slow") is None
    )
