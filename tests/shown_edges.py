"""The manual's answers of engines at edges of arithmetic: site/answers/edges.json.

Made from a run by site/hooks/edges_table.py; tests compare it with what engines answer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SHOWN = Path(__file__).parents[1] / "site" / "answers" / "edges.json"


def shown_engines() -> list[dict[str, Any]]:
    """A record a column."""
    engines: list[dict[str, Any]] = json.loads(SHOWN.read_text("utf-8"))["engines"]
    return engines


def shown_of(kind: str, engine: str, driver: str) -> dict[str, str] | None:
    """The answers of that very engine by case, None where the manual has another."""
    for one in shown_engines():
        if (one["kind"], one["engine"], one["driver"]) == (kind, engine, driver):
            return dict(one["answers"])
    return None


def check_shown_of(record: dict[str, Any]) -> None:
    """An engine of a smoke report answers what the manual shows of it."""
    given = {
        row["case"]: row["answer"] or row["word"]
        for row in record["rows"]
        if row["family"] == "edges"
    }
    assert len(given) > 70
    shown = shown_of(record["kind"], record["adapter"], record["driver"])
    assert shown in (None, given)
