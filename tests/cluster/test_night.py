"""A night of 200 recordings while workers are killed: the same bytes as in peace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.killing import kill_workers
from tests.cluster.night import night
from tests.command_line import environment, spawn

KILLED_AT = (10, 50, 90, 130, 170)
"""A worker is killed when so many are noted as done."""
TIMEOUT_S = 100


@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT_S)
def test_a_night_while_workers_are_killed(tmp_path: Path) -> None:
    """Nothing twice, nothing missing, bit for bit what one process writes."""
    night(tmp_path / "night", 200, longest_s=900, channels=4)
    args = "welch", str(tmp_path / "night"), "--device", "cpu", "-q", "--out"
    peace, war = tmp_path / "peace.parquet", tmp_path / "war.parquet"
    alone = spawn(*args, peace, timeout=TIMEOUT_S)
    assert alone.code == 0, alone.err
    words = [sys.executable, "-m", "rlxweb", *args, str(war), "--workers", "2"]
    with subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE) as run:
        killed = kill_workers(run, war, KILLED_AT)
        assert run.stderr is not None
        err = run.stderr.read().decode()
    assert run.returncode == 0, err
    assert killed == len(KILLED_AT)
    assert "is gone; others do what it held" in err
    assert war.read_bytes() == peace.read_bytes()
