"""Recordings of a bucket, done by workers that are killed: the same bytes as here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cluster.killing import same_while_killed
from tests.remote.made import Bucket, npy

TIMEOUT_S = 100


@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.parametrize(
    ("many", "killed_at"),
    [(10, (2,)), pytest.param(16, (2, 6, 10), marks=pytest.mark.full)],
)
def test_a_bucket_is_done_whole_while_workers_die(
    bucket: Bucket, tmp_path: Path, many: int, killed_at: tuple[int, ...]
) -> None:
    """A bucket is done once while workers die, and no secret is in a log.

    A worker is killed when so many recordings are noted as done.
    """
    random = np.random.default_rng(5)
    for n in range(many):
        data = random.integers(-999, 999, (4, 150_000)).astype(np.int16)
        bucket.put(f"night/{n:03}.npy", npy(data))
    args = [f"s3://{bucket.name}/night/*.npy", "--fs", "250", *bucket.storage]
    args += ["--storage", "s3.secret=hush-hush-secret", "--storage", "s3.key=testing"]
    err = same_while_killed(args, tmp_path, killed_at, TIMEOUT_S)
    assert "hush" not in err
