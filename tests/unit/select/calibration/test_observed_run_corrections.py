"""Corrections learned from observed runs: bounded, per bucket, stored, shared by
threads and processes.
"""

from __future__ import annotations

import json
import math
import sys
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.core.errors import CalibrationWarning
from rlxweb.select.calibration import observed_run_corrections as module
from rlxweb.select.calibration.observed_run_corrections import (
    FILE_NAME,
    MAX_FACTOR,
    SCHEMA,
    CorrectionStore,
    nearest_octave,
)
from tests.cli_runners import run_python
from tests.run_in_threads import run_concurrently

BUCKET = ("NumPy", "graph", 20, 22, 3, 12)
OTHER_BUCKET = ("NumPy", "graph", 20, 22, 3, 13)
TIMES = st.floats(min_value=5e-324, allow_nan=False, allow_infinity=False)


class ManualClock:
    """Clock in seconds that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def record_ratio(folder: Path, ratio: float, runs: int = 1) -> CorrectionStore:
    """Record and write runs that took `ratio` times their prediction."""
    store = CorrectionStore(folder)
    for _ in range(runs):
        store.record_run(BUCKET, 1e6, ratio * 1e6)
    store.write()
    return store


def test_unseen_bucket_is_not_corrected(tmp_path: Path) -> None:
    store = CorrectionStore(tmp_path)
    assert (store.factor(BUCKET), store.run_count(BUCKET)) == (1.0, 0)
    store.record_run(BUCKET, 1e6, 2e6)
    assert (store.factor(OTHER_BUCKET), store.run_count(OTHER_BUCKET)) == (1.0, 0)
    assert store.factor(BUCKET) > 1.0


@pytest.mark.parametrize(
    "other", [("NumPy", "graph"), ("1",), (1, 2), ("1", 2), (12,), ()]
)
def test_similar_buckets_are_distinct(
    tmp_path: Path, other: tuple[str | int, ...]
) -> None:
    store = CorrectionStore(tmp_path)
    store.record_run((1,), 1e6, 2e6)
    assert store.run_count(other) == 0
    assert store.run_count((1,)) == 1


@pytest.mark.parametrize("ratio", [0.3, 0.5, 1.0, 2.0, 3.9])
def test_weight_grows_with_runs(tmp_path: Path, ratio: float) -> None:
    """One run counts a third, two count half, many count fully."""
    store = CorrectionStore(tmp_path, lambda: 0.0)
    factors = []
    for runs in range(1, 101):
        store.record_run(BUCKET, 1e6, ratio * 1e6)
        factors.append(store.factor(BUCKET))
        assert store.run_count(BUCKET) == runs
    assert factors[0] == pytest.approx(ratio ** (1 / 3))
    assert factors[1] == pytest.approx(ratio ** (1 / 2))
    assert factors[-1] == pytest.approx(ratio, rel=0.05)
    distances = [abs(math.log(f / ratio)) for f in factors]
    assert distances == sorted(distances, reverse=True)


@given(runs=st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=20))
def test_factor_never_exceeds_its_bound(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[float, float]]
) -> None:
    """The factor stays within its bound for any times, and through the file."""
    folder = tmp_path_factory.mktemp("corrections")
    store = CorrectionStore(folder)
    for predicted, measured in runs:
        store.record_run(BUCKET, predicted, measured)
        assert 1 / MAX_FACTOR <= store.factor(BUCKET) <= MAX_FACTOR
    store.write()
    assert store.run_count(BUCKET) == len(runs)
    assert CorrectionStore(folder).factor(BUCKET) == store.factor(BUCKET)


def test_change_of_machine_is_learned_again(tmp_path: Path) -> None:
    """Recent runs count most: fifteen outweigh a thousand before them."""
    store = CorrectionStore(tmp_path, lambda: 0.0)
    for _ in range(1_000):
        store.record_run(BUCKET, 1e6, 2e6)
    for _ in range(15):
        store.record_run(BUCKET, 1e6, 0.5e6)
    assert store.factor(BUCKET) == pytest.approx(0.5, rel=0.1)


def test_one_outlier_changes_little(tmp_path: Path) -> None:
    store = record_ratio(tmp_path, 1.0, 50)
    store.record_run(BUCKET, 1e6, 1e12)
    assert store.factor(BUCKET) < MAX_FACTOR**0.21


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, -math.inf, math.nan])
def test_invalid_times_are_ignored(tmp_path: Path, bad: float) -> None:
    store = CorrectionStore(tmp_path)
    store.record_run(BUCKET, bad, 1e6)
    store.record_run(BUCKET, 1e6, bad)
    store.write()
    assert store.run_count(BUCKET) == 0
    assert not (tmp_path / FILE_NAME).exists()


@given(st.integers(1, 10**18))
def test_an_octave_is_the_nearest_power_of_two(n: int) -> None:
    """An octave is nearest by ratio, so that a bucket is as wide below as above."""
    assert 2 ** (nearest_octave(n) - 0.5) <= n * (1 + 1e-9)
    assert n <= 2 ** (nearest_octave(n) + 0.5) * (1 + 1e-9)
    assert nearest_octave(n) <= nearest_octave(2 * n) == nearest_octave(n) + 1


def test_octaves_of_small_numbers() -> None:
    assert [nearest_octave(n) for n in (-5, 0, 1, 2, 3, 4, 5, 6, 8, 1000)] == [
        *(0, 0, 0, 1, 2, 2, 2, 3, 3, 10)
    ]


def test_corrections_outlive_the_process(tmp_path: Path) -> None:
    """Another store reads the file and continues from it."""
    store = record_ratio(tmp_path, 3.0, 5)
    reloaded = CorrectionStore(tmp_path)
    assert reloaded.factor(BUCKET) == store.factor(BUCKET) != 1.0
    assert reloaded.run_count(BUCKET) == 5
    reloaded.record_run(BUCKET, 1e6, 3e6)
    assert reloaded.run_count(BUCKET) == 6


def test_process_exit_writes_corrections(tmp_path: Path) -> None:
    """Runs within the pause between two writes are not lost."""
    program = (
        "from rlxweb.select.calibration.observed_run_corrections import corrections\n"
        f"for _ in range(3): corrections.record_run({BUCKET!r}, 1e6, 2e6)"
    )
    result = run_python("-c", program, RLX_CACHE_DIR=str(tmp_path / "cache"))
    assert result.code == 0, result.err
    assert CorrectionStore(tmp_path / "cache").run_count(BUCKET) == 3


def test_the_file_is_not_written_at_every_run(tmp_path: Path) -> None:
    clock = ManualClock()
    store = CorrectionStore(tmp_path, clock)

    def stored_runs() -> int:
        return CorrectionStore(tmp_path).run_count(BUCKET)

    for seconds, want in ((0.0, 1), (0.0, 1), (4.9, 1), (0.2, 4), (1.0, 4), (5.0, 6)):
        clock.now += seconds
        store.record_run(BUCKET, 1e6, 2e6)
        assert stored_runs() == want
    store.record_run(BUCKET, 1e6, 2e6)
    store.write()
    assert stored_runs() == 7


def test_two_processes_merge_their_buckets(tmp_path: Path) -> None:
    first = CorrectionStore(tmp_path, lambda: 0.0)
    second = CorrectionStore(tmp_path, lambda: 0.0)
    first.run_count(BUCKET), second.run_count(BUCKET)  # both have read the file
    first.record_run(BUCKET, 1e6, 2e6)
    second.record_run(OTHER_BUCKET, 1e6, 3e6)
    first.write()
    second.write()
    merged = CorrectionStore(tmp_path)
    assert merged.factor(BUCKET) == first.factor(BUCKET)
    assert merged.factor(OTHER_BUCKET) == second.factor(OTHER_BUCKET)


def test_oldest_buckets_are_evicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest buckets are evicted from memory and file; a bucket seen again is not
    old.
    """
    monkeypatch.setattr(module, "MAX_BUCKETS", 3)
    store = CorrectionStore(tmp_path, lambda: 0.0)
    for name in ("a", "b", "c", "a", "d"):
        store.record_run((name,), 1e6, 2e6)
    store.write()
    for checked_store in (store, CorrectionStore(tmp_path)):
        assert [checked_store.run_count((name,)) for name in "abcd"] == [2, 0, 1, 1]
    later = CorrectionStore(tmp_path)
    later.record_run(("e",), 1e6, 2e6)
    later.write()
    last = CorrectionStore(tmp_path)
    assert [last.run_count((name,)) for name in "cade"] == [0, 2, 1, 1]


def test_forget_reloads_the_file(tmp_path: Path) -> None:
    store = CorrectionStore(tmp_path, lambda: 0.0)
    store.record_run(BUCKET, 1e6, 2e6)
    store.record_run(BUCKET, 1e6, 2e6)
    store.clear()
    assert store.run_count(BUCKET) == 1
    (tmp_path / FILE_NAME).unlink()
    store.clear()
    assert store.factor(BUCKET) == 1.0


def document(**fields: object) -> bytes:
    return json.dumps({"schema": SCHEMA} | fields).encode()


CORRUPT_FILES = {
    "empty": b"",
    "cut off": b'{"schema": "rlxweb.corrections/1", "buckets": [["',
    "not text": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "null": b"null",
    "a list": b"[1]",
    "another schema": document(schema="x/1", buckets=[]),
    "no buckets": document(),
    "buckets of numbers": document(buckets=[1]),
    "a bucket that is none": document(buckets=[[["a"], 0.5, 1]]),
    **{
        name: document(buckets=[[json.dumps(BUCKET), *cells]])
        for name, cells in {
            "a short row": (0.5,),
            "a long row": (0.5, 1, 2),
            "beyond the bound": (9.0, 5),
            "below the bound": (-9.0, 5),
            "no number": (math.nan, 5),
            "words": ("much", 5),
            "a huge ratio": (10**400, 5),
            "no runs": (0.5, 0),
            "endless runs": (0.5, math.inf),
            "more runs than can be": (0.5, 10**400),
        }.items()
    },
}


@pytest.mark.parametrize("name", CORRUPT_FILES)
def test_a_corrupt_or_foreign_file_is_ignored(tmp_path: Path, name: str) -> None:
    """A corrupt or foreign file is ignored entirely, without a warning, and
    overwritten.
    """
    (tmp_path / FILE_NAME).write_bytes(CORRUPT_FILES[name])
    store = CorrectionStore(tmp_path)
    assert (store.factor(BUCKET), store.run_count(BUCKET)) == (1.0, 0)
    store.record_run(BUCKET, 1e6, 2e6)
    store.write()
    assert CorrectionStore(tmp_path).run_count(BUCKET) == 1


def test_folder_from_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "here"))
    store = CorrectionStore()
    store.record_run(BUCKET, 1e6, 2e6)
    assert store.path == tmp_path / "here" / FILE_NAME
    assert store.path.exists()


def test_unwritable_folder_warns_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    clock = ManualClock()
    store = CorrectionStore(tmp_path / "file" / "below", clock)
    with pytest.warns(CalibrationWarning, match="RLX_CACHE_DIR") as warnings:
        store.record_run(BUCKET, 1e6, 2e6)
    assert len(warnings) == 1
    for _ in range(2):
        clock.now += 60.0
        store.record_run(BUCKET, 1e6, 2e6)
    store.write()
    assert store.run_count(BUCKET) == 3
    assert store.factor(BUCKET) > 1.0


def test_failed_write_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails once loses nothing."""
    store = CorrectionStore(tmp_path, lambda: 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_json", lambda path, document: False)
        store.record_run(BUCKET, 1e6, 2e6)
    store.record_run(OTHER_BUCKET, 1e6, 2e6)
    store.write()
    reloaded = CorrectionStore(tmp_path)
    assert (reloaded.run_count(BUCKET), reloaded.run_count(OTHER_BUCKET)) == (1, 1)


def test_corrections_without_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a cache folder, as in a browser, learns without a warning."""
    monkeypatch.delenv("RLX_CACHE_DIR")
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    store = CorrectionStore()
    store.record_run(BUCKET, 1e6, 2e6)
    store.write()
    assert store.path is None
    assert store.run_count(BUCKET) == 1


def test_threads_lose_no_run(tmp_path: Path) -> None:
    """Threads record, read and write at once; every run of every bucket counts."""
    store = CorrectionStore(tmp_path)
    bad_factors: list[float] = []

    def work(bucket_number: int) -> None:
        for n in range(100):
            store.record_run(BUCKET, 1e6, 2e6)
            store.record_run((bucket_number,), 1e6, 2e6)
            factor = store.factor(BUCKET)
            if not 1.0 < factor <= 2.0:
                bad_factors.append(factor)
            if n % 20 == 0:
                store.write()

    run_concurrently([partial(work, n) for n in range(6)])
    store.write()
    assert bad_factors == []
    for checked_store in (store, CorrectionStore(tmp_path)):
        assert checked_store.run_count(BUCKET) == 600
        assert [checked_store.run_count((n,)) for n in range(6)] == [100] * 6
