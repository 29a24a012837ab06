"""Recordings of a bucket, done by workers that are killed: the same bytes as here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cluster.killing import same_while_killed
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
    args = [f"s3://{bucket.name}/night/*.npy", "--fs", "250", *bucket.storage]
    args += ["--storage", "s3.secret=hush-hush-secret", "--storage", "s3.key=testing"]
    err = same_while_killed(args, tmp_path, KILLED_AT, TIMEOUT_S)
    assert "hush" not in err
