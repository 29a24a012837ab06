"""The committed counts are those of the kernels of today, and the manual has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lanes import table

RECORD: list[dict[str, Any]] = json.loads(table.RECORD.read_text(encoding="utf-8"))
PAGE = Path(__file__).parents[2] / "site" / "pages" / "concepts" / "variants.md"
KERNELS = {(k[0], k[1]): k[2:] for k in table.kernels()}


def test_the_record_has_every_kernel() -> None:
    """The record has every kernel in the table's order, and none spills.

    `python -m tests.lanes.table` makes it anew.
    """
    assert [(one["kernel"], one["way"]) for one in RECORD] == list(KERNELS)
    assert all(one["spilled"] == 0 for one in RECORD)


@pytest.mark.parametrize(
    "one",
    [one for one in RECORD if " 64" in one["kernel"] or " 256" in one["kernel"]],
    ids=lambda one: f"{one['kernel']}, {one['way']}",
)
def test_the_counts_are_todays(one: dict[str, Any]) -> None:
    """A kernel that was changed is counted anew."""
    got = table.counted(*KERNELS[one["kernel"], one["way"]])
    assert got == {name: one[name] for name in got}


def test_the_manual_shows_the_record() -> None:
    assert table.markdown(RECORD) in PAGE.read_text(encoding="utf-8")
