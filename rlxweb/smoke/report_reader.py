"""Reading and validation of a smoke report file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlxweb.core.errors import RecordingError, UsageError
from rlxweb.smoke.report import SCHEMA

_ENGINE_FIELDS = {"key": str, "word": str, "rows": list}
_ROW_FIELDS = {"case": str, "word": str}


def read_report(path: str) -> dict[str, Any]:
    """Read a JSON report that `rlxweb smoke` wrote.

    Errors   RecordingError for a file that cannot be read, UsageError for one that is
             no such report.
    """
    context = f"reading the report {path!r}"
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise RecordingError(context, error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(context, f"invalid JSON: {error}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise UsageError(
            context,
            f"got schema {schema!r}",
            f"expected {SCHEMA!r}",
            "pass a JSON report written by `rlxweb smoke`",
        )
    report: dict[str, Any] = document
    _check_fields(context, report, {"engines": list}, "the report")
    for index, engine in enumerate(report["engines"]):
        _check_fields(context, engine, _ENGINE_FIELDS, f"engine {index}")
        for row in engine["rows"]:
            _check_fields(context, row, _ROW_FIELDS, f"a row of {engine['key']!r}")
    return report


def _check_fields(
    context: str, record: Any, required_fields: Mapping[str, type], subject: str
) -> None:
    """Raise UsageError unless the record has every required field with its type."""
    for name, value_type in required_fields.items():
        value = record.get(name) if isinstance(record, dict) else None
        if not isinstance(value, value_type):
            raise UsageError(
                context,
                f"{subject} has no {name!r}"
                if value is None
                else f"{name!r} of {subject} has type {type(value).__name__}",
                f"expected type {value_type.__name__}",
                "pass a JSON report written by `rlxweb smoke`",
            )
