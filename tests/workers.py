"""What the workers of a parallel run hand to the process that reports on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

_collectors: dict[str, Callable[[], Any]] = {}
_parts: defaultdict[str, list[Any]] = defaultdict(list)


def hand_over(name: str, collect: Callable[[], Any]) -> None:
    """Call `collect` at the end of each worker; its value is JSON's kind of data."""
    _collectors[name] = collect


def parts(name: str) -> list[Any]:
    """Return the value of each worker, or without workers that of this process."""
    return _parts[name] or [_collectors[name]()]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over what was collected, in a worker."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["parts"] = {name: collect() for name, collect in _collectors.items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Take over what a worker collected; one that crashed has nothing."""
    for name, part in getattr(node, "workeroutput", {}).get("parts", {}).items():
        _parts[name].append(part)
