"""What observed runs correct: bounded, per bucket, kept, shared by threads and runs."""

from __future__ import annotations

import json
import math
import sys
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.calibration import corrections as module
from rlxweb.calibration.corrections import BOUND, FILE, SCHEMA, Corrections, octave
from rlxweb.errors import CalibrationWarning
from tests.command_line import python
from tests.threads import at_once

BUCKET = ("NumPy", "graph", 20, 22, 3, 12)
OTHER = ("NumPy", "graph", 20, 22, 3, 13)
TIMES = st.floats(min_value=5e-324, allow_nan=False, allow_infinity=False)


class Seconds:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def noted(folder: Path, ratio: float, runs: int = 1) -> Corrections:
    """A model that was off by a ratio, so many times; written."""
    made = Corrections(folder)
    for _ in range(runs):
        made.note(BUCKET, 1e6, ratio * 1e6)
    made.write()
    return made


def test_a_bucket_never_seen_is_not_corrected(tmp_path: Path) -> None:
    made = Corrections(tmp_path)
    assert (made.factor(BUCKET), made.runs(BUCKET)) == (1.0, 0)
    made.note(BUCKET, 1e6, 2e6)
    assert (made.factor(OTHER), made.runs(OTHER)) == (1.0, 0)
    assert made.factor(BUCKET) > 1.0


@pytest.mark.parametrize(
    "other", [("NumPy", "graph"), ("1",), (1, 2), ("1", 2), (12,), ()]
)
def test_buckets_that_look_alike_are_apart(
    tmp_path: Path, other: tuple[str | int, ...]
) -> None:
    made = Corrections(tmp_path)
    made.note((1,), 1e6, 2e6)
    assert made.runs(other) == 0
    assert made.runs((1,)) == 1


@pytest.mark.parametrize("ratio", [0.3, 0.5, 1.0, 2.0, 3.9])
def test_belief_grows_with_runs(tmp_path: Path, ratio: float) -> None:
    """One run is believed a third, two half, many whole."""
    made = Corrections(tmp_path, lambda: 0.0)
    factors = []
    for runs in range(1, 101):
        made.note(BUCKET, 1e6, ratio * 1e6)
        factors.append(made.factor(BUCKET))
        assert made.runs(BUCKET) == runs
    assert factors[0] == pytest.approx(ratio ** (1 / 3))
    assert factors[1] == pytest.approx(ratio ** (1 / 2))
    assert factors[-1] == pytest.approx(ratio, rel=0.05)
    distance = [abs(math.log(f / ratio)) for f in factors]
    assert distance == sorted(distance, reverse=True)


@given(runs=st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=20))
def test_no_run_takes_a_factor_beyond_its_bound(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[float, float]]
) -> None:
    """The factor stays in its bound whatever times come in, and through the file."""
    folder = tmp_path_factory.mktemp("corrections")
    made = Corrections(folder)
    for predicted, measured in runs:
        made.note(BUCKET, predicted, measured)
        assert 1 / BOUND <= made.factor(BUCKET) <= BOUND
    made.write()
    assert made.runs(BUCKET) == len(runs)
    assert Corrections(folder).factor(BUCKET) == made.factor(BUCKET)


def test_a_change_of_the_machine_is_learned_anew(tmp_path: Path) -> None:
    """Recent runs count most: fifteen outweigh a thousand before them."""
    made = Corrections(tmp_path, lambda: 0.0)
    for _ in range(1_000):
        made.note(BUCKET, 1e6, 2e6)
    for _ in range(15):
        made.note(BUCKET, 1e6, 0.5e6)
    assert made.factor(BUCKET) == pytest.approx(0.5, rel=0.1)


def test_one_outlier_among_many_moves_little(tmp_path: Path) -> None:
    made = noted(tmp_path, 1.0, 50)
    made.note(BUCKET, 1e6, 1e12)
    assert made.factor(BUCKET) < BOUND**0.21


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, -math.inf, math.nan])
def test_times_that_are_none_are_ignored(tmp_path: Path, bad: float) -> None:
    made = Corrections(tmp_path)
    made.note(BUCKET, bad, 1e6)
    made.note(BUCKET, 1e6, bad)
    made.write()
    assert made.runs(BUCKET) == 0
    assert not (tmp_path / FILE).exists()


@given(st.integers(1, 10**18))
def test_an_octave_is_the_nearest_power_of_two(n: int) -> None:
    """Nearest by ratio, so that a bucket is as wide below as above."""
    assert 2 ** (octave(n) - 0.5) <= n * (1 + 1e-9)
    assert n <= 2 ** (octave(n) + 0.5) * (1 + 1e-9)
    assert octave(n) <= octave(2 * n) == octave(n) + 1


def test_octaves_of_small_numbers() -> None:
    assert [octave(n) for n in (-5, 0, 1, 2, 3, 4, 5, 6, 8, 1000)] == [
        *(0, 0, 0, 1, 2, 2, 2, 3, 3, 10)
    ]


def test_it_outlives_the_process(tmp_path: Path) -> None:
    """Other interpreters find it, and go on from there."""
    made = noted(tmp_path, 3.0, 5)
    again = Corrections(tmp_path)
    assert again.factor(BUCKET) == made.factor(BUCKET) != 1.0
    assert again.runs(BUCKET) == 5
    again.note(BUCKET, 1e6, 3e6)
    assert again.runs(BUCKET) == 6


def test_the_end_of_a_process_writes_what_was_seen(tmp_path: Path) -> None:
    """Runs within the pause between two writes are not lost."""
    program = (
        "from rlxweb.calibration.corrections import corrections\n"
        f"for _ in range(3): corrections.note({BUCKET!r}, 1e6, 2e6)"
    )
    said = python("-c", program, RLX_CACHE_DIR=str(tmp_path / "cache"))
    assert said.code == 0, said.err
    assert Corrections(tmp_path / "cache").runs(BUCKET) == 3


def test_the_file_is_not_written_at_every_run(tmp_path: Path) -> None:
    clock = Seconds()
    made = Corrections(tmp_path, clock)

    def kept() -> int:
        return Corrections(tmp_path).runs(BUCKET)

    for seconds, want in ((0.0, 1), (0.0, 1), (4.9, 1), (0.2, 4), (1.0, 4), (5.0, 6)):
        clock.now += seconds
        made.note(BUCKET, 1e6, 2e6)
        assert kept() == want
    made.note(BUCKET, 1e6, 2e6)
    made.write()
    assert kept() == 7


def test_two_processes_keep_both_their_buckets(tmp_path: Path) -> None:
    one, two = Corrections(tmp_path, lambda: 0.0), Corrections(tmp_path, lambda: 0.0)
    one.runs(BUCKET), two.runs(BUCKET)  # both have read the file
    one.note(BUCKET, 1e6, 2e6)
    two.note(OTHER, 1e6, 3e6)
    one.write()
    two.write()
    found = Corrections(tmp_path)
    assert found.factor(BUCKET) == one.factor(BUCKET)
    assert found.factor(OTHER) == two.factor(OTHER)


def test_the_oldest_buckets_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest buckets go from memory and file; a bucket seen again is not old."""
    monkeypatch.setattr(module, "CAPACITY", 3)
    made = Corrections(tmp_path, lambda: 0.0)
    for name in ("a", "b", "c", "a", "d"):
        made.note((name,), 1e6, 2e6)
    made.write()
    for one in (made, Corrections(tmp_path)):
        assert [one.runs((name,)) for name in "abcd"] == [2, 0, 1, 1]
    later = Corrections(tmp_path)
    later.note(("e",), 1e6, 2e6)
    later.write()
    last = Corrections(tmp_path)
    assert [last.runs((name,)) for name in "cade"] == [0, 2, 1, 1]


def test_forgetting_goes_back_to_the_file(tmp_path: Path) -> None:
    made = Corrections(tmp_path, lambda: 0.0)
    made.note(BUCKET, 1e6, 2e6)
    made.note(BUCKET, 1e6, 2e6)
    made.forget()
    assert made.runs(BUCKET) == 1
    (tmp_path / FILE).unlink()
    made.forget()
    assert made.factor(BUCKET) == 1.0


def document(**fields: object) -> bytes:
    return json.dumps({"schema": SCHEMA} | fields).encode()


BAD = {
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


@pytest.mark.parametrize("name", BAD)
def test_a_corrupt_or_foreign_file_is_ignored(tmp_path: Path, name: str) -> None:
    """A corrupt or foreign file is ignored whole, without a word, and written over."""
    (tmp_path / FILE).write_bytes(BAD[name])
    made = Corrections(tmp_path)
    assert (made.factor(BUCKET), made.runs(BUCKET)) == (1.0, 0)
    made.note(BUCKET, 1e6, 2e6)
    made.write()
    assert Corrections(tmp_path).runs(BUCKET) == 1


def test_it_goes_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "here"))
    made = Corrections()
    made.note(BUCKET, 1e6, 2e6)
    assert made.path == tmp_path / "here" / FILE
    assert made.path.exists()


def test_a_folder_that_cannot_be_written_is_warned_about_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    clock = Seconds()
    made = Corrections(tmp_path / "file" / "below", clock)
    with pytest.warns(CalibrationWarning, match="RLX_CACHE_DIR") as found:
        made.note(BUCKET, 1e6, 2e6)
    assert len(found) == 1
    for _ in range(2):
        clock.now += 60.0
        made.note(BUCKET, 1e6, 2e6)
    made.write()
    assert made.runs(BUCKET) == 3
    assert made.factor(BUCKET) > 1.0


def test_a_write_that_failed_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was full for a moment loses nothing."""
    made = Corrections(tmp_path, lambda: 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_json", lambda path, document: False)
        made.note(BUCKET, 1e6, 2e6)
    made.note(OTHER, 1e6, 2e6)
    made.write()
    again = Corrections(tmp_path)
    assert (again.runs(BUCKET), again.runs(OTHER)) == (1, 1)


def test_no_folder_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a cache folder, as in a browser, learns quietly."""
    monkeypatch.delenv("RLX_CACHE_DIR")
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    made = Corrections()
    made.note(BUCKET, 1e6, 2e6)
    made.write()
    assert made.path is None
    assert made.runs(BUCKET) == 1


def test_threads_lose_no_run(tmp_path: Path) -> None:
    """Threads note, ask and write at once; every run of every bucket counts."""
    made = Corrections(tmp_path)
    wrong: list[float] = []

    def work(which: int) -> None:
        for n in range(100):
            made.note(BUCKET, 1e6, 2e6)
            made.note((which,), 1e6, 2e6)
            factor = made.factor(BUCKET)
            if not 1.0 < factor <= 2.0:
                wrong.append(factor)
            if n % 20 == 0:
                made.write()

    at_once([partial(work, n) for n in range(6)])
    made.write()
    assert wrong == []
    for one in (made, Corrections(tmp_path)):
        assert one.runs(BUCKET) == 600
        assert [one.runs((n,)) for n in range(6)] == [100] * 6
