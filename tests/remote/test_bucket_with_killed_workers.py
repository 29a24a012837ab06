"""Recordings of a bucket processed by workers that are killed: same bytes as in one
process.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cluster.worker_killing import check_same_output_while_killed
from tests.remote.sample_files import Bucket, npy_bytes

TIMEOUT_S = 100


@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.parametrize(
    ("count", "killed_at"),
    [(10, (2,)), pytest.param(16, (2, 6, 10), marks=pytest.mark.full)],
)
def test_bucket_is_processed_completely_while_workers_are_killed(
    bucket: Bucket, tmp_path: Path, count: int, killed_at: tuple[int, ...]
) -> None:
    """Every recording is processed once while workers are killed, and no secret is
    logged.

    A worker is killed when so many recordings are noted as done.
    """
    rng = np.random.default_rng(5)
    for n in range(count):
        data = rng.integers(-999, 999, (4, 150_000)).astype(np.int16)
        bucket.add_object(f"night/{n:03}.npy", npy_bytes(data))
    args = [f"s3://{bucket.name}/night/*.npy", "--fs", "250", *bucket.storage_arguments]
    args += ["--storage", "s3.secret=hush-hush-secret", "--storage", "s3.key=testing"]
    err = check_same_output_while_killed(args, tmp_path, killed_at, TIMEOUT_S)
    assert "hush" not in err
