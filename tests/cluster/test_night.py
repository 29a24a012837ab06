"""A night of 200 recordings while workers are killed: the same bytes as in peace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.killing import same_while_killed
from tests.cluster.night import night

KILLED_AT = (10, 50, 90, 130, 170)
"""A worker is killed when so many are noted as done."""
TIMEOUT_S = 100


@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT_S)
def test_a_night_while_workers_are_killed(tmp_path: Path) -> None:
    """Nothing twice, nothing missing, bit for bit what one process writes."""
    night(tmp_path / "night", 200, longest_s=900, channels=4)
    args = [str(tmp_path / "night")]
    err = same_while_killed(args, tmp_path, KILLED_AT, TIMEOUT_S)
    assert "is gone; others do what it held" in err
