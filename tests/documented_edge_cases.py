"""Documented results of engines in edge cases of arithmetic, read from
site/answers/edges.json.

Made from a run by site/hooks/edge_case_answers_table.py; tests compare it with what
engines answer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

EDGES_FILE = Path(__file__).parents[1] / "site" / "answers" / "edges.json"


def documented_engines() -> list[dict[str, Any]]:
    """Return one record for each column of the manual's table."""
    engines: list[dict[str, Any]] = json.loads(EDGES_FILE.read_text("utf-8"))["engines"]
    return engines


def documented_answers(kind: str, engine: str, driver: str) -> dict[str, str] | None:
    """Return the documented answers of exactly this engine by case, or None if it is
    not listed.
    """
    for record in documented_engines():
        if (record["kind"], record["engine"], record["driver"]) == (
            kind,
            engine,
            driver,
        ):
            return dict(record["answers"])
    return None


def check_documented_answers(record: dict[str, Any]) -> None:
    """Check that an engine of a smoke report gives the answers that the manual
    shows.
    """
    answers = {
        row["case"]: row["answer"] or row["word"]
        for row in record["rows"]
        if row["family"] == "edges"
    }
    assert len(answers) > 70
    documented = documented_answers(record["kind"], record["adapter"], record["driver"])
    assert documented in (None, answers)
