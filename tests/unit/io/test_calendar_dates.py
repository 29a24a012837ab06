"""The date on which a recording began: read, written, and shifted past midnight."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pytest

from rlxweb.core.errors import RecordingWarning, UsageError
from rlxweb.io import open_recording
from rlxweb.io.calendar_dates import parse_edf_date, parse_iso_date, shift_date
from tests.edf_bdf_recordings import save_recording

DATE = datetime.date(2002, 2, 28)
X = np.random.default_rng(3).normal(0, 50, (2, 2560))


def test_a_selection_past_midnight_has_the_next_date(tmp_path: Path) -> None:
    save_recording(tmp_path / "a.edf", X, fs=256, begun=86_395.0, date=DATE)
    with open_recording(tmp_path / "a.edf", start="@00:00:01") as recording:
        assert recording.date == DATE
        save_recording(tmp_path / "b.npz", recording)
    with open_recording(tmp_path / "b.npz") as recording:
        assert (recording.begun, recording.date) == (1.0, datetime.date(2002, 3, 1))


@pytest.mark.parametrize("year", [1929, 1984, 1985, 2084, 2085])
def test_edf_stores_years_with_two_and_four_digits(tmp_path: Path, year: int) -> None:
    """EDF has a four-digit year as well as two digits, which mean 1985 to 2084."""
    date = datetime.date(year, 12, 31)
    save_recording(tmp_path / "a.edf", X, fs=256, date=date)
    head = (tmp_path / "a.edf").read_bytes()[:256]
    assert head[88:168].split()[1] == f"31-DEC-{year}".encode()
    is_in_short_form = head[168:176] == f"31.12.{year % 100:02}".encode()
    assert is_in_short_form == (1985 <= year <= 2084)
    with open_recording(tmp_path / "a.edf") as recording:
        assert recording.date == date
    with pytest.raises(UsageError, match=r"date is .*; must be a datetime\.date"):
        save_recording(tmp_path / "a.edf", X, fs=256, date="yesterday")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("short", "recording", "date"),
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
def test_the_long_edf_date_wins(
    short: str, recording: str, date: tuple[int, int, int] | None
) -> None:
    """The long date wins if both are there; 1 January 1985 stands for none."""
    expected = None if date is None else datetime.date(*date)
    assert parse_edf_date(short.encode(), recording.ljust(80).encode()) == expected


def test_an_invalid_date_is_ignored_with_a_warning(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, fs=256.0, date="noon")
    with pytest.warns(RecordingWarning, match="'date' is not a valid date"):
        recording = open_recording(tmp_path / "a.npz")
    with recording:
        assert recording.date is None
    assert parse_iso_date("2002-02-28T10:00:00+01:00") == DATE
    assert shift_date(datetime.date.max, 90_000.0) is None
