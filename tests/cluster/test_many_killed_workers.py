"""Check a night of recordings while workers are killed: the same bytes as without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.edf_recordings import write_edf_recordings
from tests.cluster.worker_killing import check_same_output_while_killed

TIMEOUT_S = 100


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.parametrize(
    ("n_recordings", "kill_counts"),
    [(50, (10,)), (200, (10, 50, 90, 130, 170))],
)
def test_many_recordings_while_workers_are_killed(
    tmp_path: Path, n_recordings: int, kill_counts: tuple[int, ...]
) -> None:
    """The output is bit for bit the one of a single process.

    A worker is killed when so many recordings are noted as done.
    """
    write_edf_recordings(tmp_path / "night", n_recordings, longest_s=900, channels=4)
    args = [str(tmp_path / "night")]
    err = check_same_output_while_killed(args, tmp_path, kill_counts, TIMEOUT_S)
    assert "left; other workers take over its tasks" in err
