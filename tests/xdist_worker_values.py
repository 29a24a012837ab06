"""Values that the pytest-xdist workers pass to the process that reports on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

_collectors: dict[str, Callable[[], Any]] = {}
_worker_values: defaultdict[str, list[Any]] = defaultdict(list)


def register_collector(name: str, collect: Callable[[], Any]) -> None:
    """Call `collect` at the end of each worker; its value must be JSON data."""
    _collectors[name] = collect


def collected_values(name: str) -> list[Any]:
    """Return the value of each worker, or that of this process in a run without
    workers.
    """
    return _worker_values[name] or [_collectors[name]()]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Store the collected values in the worker's output."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["parts"] = {name: collect() for name, collect in _collectors.items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Take over the values of a worker; one that crashed has none."""
    for name, value in getattr(node, "workeroutput", {}).get("parts", {}).items():
        _worker_values[name].append(value)
