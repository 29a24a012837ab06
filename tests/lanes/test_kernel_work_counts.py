"""Check that the committed kernel work counts match the present kernels, and that the
manual shows them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lanes import kernel_work_counts

COMMITTED_COUNTS: list[dict[str, Any]] = json.loads(
    kernel_work_counts.COUNTS_FILE.read_text(encoding="utf-8")
)
MANUAL_PAGE = Path(__file__).parents[2] / "site" / "pages" / "concepts" / "variants.md"
KERNEL_CASES = {(k[0], k[1]): k[2:] for k in kernel_work_counts.kernel_cases()}


def test_counts_file_has_every_kernel() -> None:
    """The counts file has every kernel in the table's order, and none spills.

    `python -m tests.lanes.kernel_work_counts` makes it anew.
    """
    assert [(entry["kernel"], entry["way"]) for entry in COMMITTED_COUNTS] == list(
        KERNEL_CASES
    )
    assert all(entry["spilled"] == 0 for entry in COMMITTED_COUNTS)


@pytest.mark.parametrize(
    "entry",
    [
        one
        for one in COMMITTED_COUNTS
        if " 64" in one["kernel"] or " 256" in one["kernel"]
    ],
    ids=lambda one: f"{one['kernel']}, {one['way']}",
)
def test_committed_counts_are_current(entry: dict[str, Any]) -> None:
    """The committed counts of each small kernel equal those counted now."""
    got = kernel_work_counts.count_per_row(*KERNEL_CASES[entry["kernel"], entry["way"]])
    assert got == {name: entry[name] for name in got}


def test_manual_shows_the_counts() -> None:
    assert kernel_work_counts.markdown_table(COMMITTED_COUNTS) in MANUAL_PAGE.read_text(
        encoding="utf-8"
    )
