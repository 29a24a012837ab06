"""Recordings of a bucket, done by workers that are killed: the same bytes as here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cluster.killing import kill_workers
from tests.command_line import environment, spawn
from tests.remote.made import Bucket, npy

FILES = 16
KILLED_AT = (2, 6, 10)
"""A worker is killed when so many are noted as done."""
TIMEOUT_S = 100


@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT_S)
def test_a_bucket_is_done_whole_while_workers_die(
    bucket: Bucket, tmp_path: Path
) -> None:
    """Nothing twice, nothing missing; no secret goes to a log on the way."""
    random = np.random.default_rng(5)
    for n in range(FILES):
        data = random.integers(-999, 999, (4, 400_000)).astype(np.int16)
        bucket.put(f"night/{n:03}.npy", npy(data))
    args = ["welch", f"s3://{bucket.name}/night/*.npy", "--fs", "250", *bucket.storage]
    args += ["--storage", "s3.secret=hush-hush-secret", "--storage", "s3.key=testing"]
    args += ["--device", "cpu", "-q", "--out"]
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
    assert "hush" not in err
    assert war.read_bytes() == peace.read_bytes()
