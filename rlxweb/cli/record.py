"""What the JSON records of all commands share: schema, versions, finite numbers.

Reads installed metadata only, so a library is named without being loaded. A checkout
that was never installed has no metadata of its own; that is said, not hidden.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rlxweb.jobs.entries import Entry, failures_entry
from rlxweb.jobs.results import Failure

LIBRARIES = ("numpy", "wgpu")


def rlxweb_version() -> str:
    """The installed version of rlxweb, or words that say there is none."""
    return _version("rlxweb") or "not installed"


def versions() -> dict[str, str | None]:
    """Versions of Python and the libraries that can take part; None where missing."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    return found | {name: _version(name) for name in LIBRARIES}


def document(schema: str, **parts: Any) -> dict[str, Any]:
    """A record: its schema and the version that wrote it, then its parts."""
    return {"schema": schema, "rlxweb": rlxweb_version(), **parts}


def run_document(
    schema: str,
    settings: Mapping[str, Any],
    files: Sequence[Entry],
    failed: Sequence[Failure],
    wall_s: float,
) -> dict[str, Any]:
    """The record of a run over recordings: what was asked, what came of each."""
    return document(
        schema,
        versions=versions(),
        settings=settings,
        files=files,
        failed=failures_entry(failed),
        wall_s=wall_s,
    )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
