"""The day on which a recording began: read, written, and moved behind midnight."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pytest

from rlxweb.errors import RecordingWarning, UsageError
from rlxweb.io import open_recording
from rlxweb.io.days import day_of_edf, day_of_iso, moved
from tests.recordings import saved

DAY = datetime.date(2002, 2, 28)
X = np.random.default_rng(3).normal(0, 50, (2, 2560))


def test_behind_midnight_it_is_the_next_day(tmp_path: Path) -> None:
    saved(tmp_path / "a.edf", X, fs=256, begun=86_395.0, date=DAY)
    with open_recording(tmp_path / "a.edf", start="@00:00:01") as recording:
        assert recording.date == DAY
        saved(tmp_path / "b.npz", recording)
    with open_recording(tmp_path / "b.npz") as recording:
        assert (recording.begun, recording.date) == (1.0, datetime.date(2002, 3, 1))


@pytest.mark.parametrize("year", [1929, 1984, 1985, 2084, 2085])
def test_edf_has_two_digits_of_a_year_and_four(tmp_path: Path, year: int) -> None:
    """EDF has a four-digit year beside two digits, which mean 1985 to 2084."""
    day = datetime.date(year, 12, 31)
    saved(tmp_path / "a.edf", X, fs=256, date=day)
    head = (tmp_path / "a.edf").read_bytes()[:256]
    assert head[88:168].split()[1] == f"31-DEC-{year}".encode()
    plain = head[168:176] == f"31.12.{year % 100:02}".encode()
    assert plain == (1985 <= year <= 2084)
    with open_recording(tmp_path / "a.edf") as recording:
        assert recording.date == day
    with pytest.raises(UsageError, match=r"date is .*; a datetime\.date"):
        saved(tmp_path / "a.edf", X, fs=256, date="yesterday")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("short", "recording", "day"),
    [
        ("02.03.02", "", (2002, 3, 2)),
        ("02.03.85", "night 7", (1985, 3, 2)),
        ("02.03.84", "Startdate X X X X", (2084, 3, 2)),
        ("02.03.02", "Startdate 05-APR-1931 X X X", (1931, 4, 5)),
        ("01.01.85", "Startdate X X X X", None),
        ("00.00.00", "", None),
        ("31.02.02", "", None),
        ("2 3 02", "Startdate 99-FOO-2000", None),
    ],
)
def test_edf_tells_it_twice(
    short: str, recording: str, day: tuple[int, int, int] | None
) -> None:
    """The long one is right where both are; 1 January 1985 is no day."""
    wanted = None if day is None else datetime.date(*day)
    assert day_of_edf(short.encode(), recording.ljust(80).encode()) == wanted


def test_what_is_no_day_is_told_and_passed_over(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, fs=256.0, date="noon")
    with pytest.warns(RecordingWarning, match="'date' is no date"):
        recording = open_recording(tmp_path / "a.npz")
    with recording:
        assert recording.date is None
    assert day_of_iso("2002-02-28T10:00:00+01:00") == DAY
    assert moved(datetime.date.max, 90_000.0) is None
