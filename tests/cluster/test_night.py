"""A night of recordings while workers are killed: the same bytes as in peace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.killing import same_while_killed
from tests.cluster.night import night

TIMEOUT_S = 100


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.parametrize(
    ("many", "killed_at"),
    [(50, (10,)), (200, (10, 50, 90, 130, 170))],
)
def test_a_night_while_workers_are_killed(
    tmp_path: Path, many: int, killed_at: tuple[int, ...]
) -> None:
    """A night while workers are killed is, bit for bit, what one process writes.

    A worker is killed when so many recordings are noted as done.
    """
    night(tmp_path / "night", many, longest_s=900, channels=4)
    args = [str(tmp_path / "night")]
    err = same_while_killed(args, tmp_path, killed_at, TIMEOUT_S)
    assert "is gone; others do what it held" in err
