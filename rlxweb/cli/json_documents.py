"""Parts shared by the JSON documents of all commands: schema, versions, run results.

Reads installed metadata only, so a library is named without being loaded. A checkout
that was never installed has no metadata of its own; that is said, not hidden.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rlxweb.batch.results import Failure
from rlxweb.batch.run_record_entries import RecordEntry, failures_entry

REPORTED_LIBRARIES = ("numpy", "wgpu")


def rlxweb_version() -> str:
    """Return the installed version of rlxweb, or "not installed"."""
    return _installed_version("rlxweb") or "not installed"


def library_versions() -> dict[str, str | None]:
    """Return the versions of Python and of the libraries that can take part; None where
    missing.
    """
    python_version: dict[str, str | None] = {"python": platform.python_version()}
    return python_version | {
        name: _installed_version(name) for name in REPORTED_LIBRARIES
    }


def json_document(schema: str, **fields: Any) -> dict[str, Any]:
    """Return a JSON document: its schema, the version that wrote it, and the given
    fields.
    """
    return {"schema": schema, "rlxweb": rlxweb_version(), **fields}


def json_run_document(
    schema: str,
    settings: Mapping[str, Any],
    files: Sequence[RecordEntry],
    failed: Sequence[Failure],
    wall_s: float,
) -> dict[str, Any]:
    """Return the JSON document of a run over recordings: its settings and the result of
    each file.
    """
    return json_document(
        schema,
        versions=library_versions(),
        settings=settings,
        files=files,
        failed=failures_entry(failed),
        wall_s=wall_s,
    )


def _installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
