"""A report document from a file: of the right schema, with what its readers need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlxweb.errors import RecordingError, UsageError
from rlxweb.smoke.report import SCHEMA

_OF_ENGINE = {"key": str, "word": str, "rows": list}
_OF_ROW = {"case": str, "word": str}


def read_report(path: str) -> dict[str, Any]:
    """The document that `rlxweb smoke` wrote as JSON.

    Errors   RecordingError for a file that cannot be read, UsageError for one that is
             no such report.
    """
    doing = f"reading the report {path!r}"
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise RecordingError(doing, error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(doing, f"it is no JSON: {error}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise UsageError(
            doing,
            f"its schema is {schema!r}",
            f"{SCHEMA!r} is read",
            "a report is what `rlxweb smoke` writes as JSON",
        )
    report: dict[str, Any] = document
    _check(doing, report, {"engines": list}, "the report")
    for at, engine in enumerate(report["engines"]):
        _check(doing, engine, _OF_ENGINE, f"engine {at}")
        for row in engine["rows"]:
            _check(doing, row, _OF_ROW, f"a row of {engine['key']!r}")
    return report


def _check(doing: str, record: Any, wanted: Mapping[str, type], what: str) -> None:
    for name, kind in wanted.items():
        value = record.get(name) if isinstance(record, dict) else None
        if not isinstance(value, kind):
            raise UsageError(
                doing,
                f"{what} has no {name!r}",
                f"a {kind.__name__} is wanted",
                "a report is what `rlxweb smoke` writes as JSON",
            )
