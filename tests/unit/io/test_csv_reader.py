"""CSV tables are read as written by many programs, and errors name the cell."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.core.errors import RecordingError, RecordingWarning, UsageError
from rlxweb.io import open_recording
from tests.edf_bdf_recordings import read_with_warning


def write_and_open(path: Path, text: str | bytes, **options: object):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return open_recording(path, **options)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("last_line_ends", [True, False])
def test_a_table_by_the_csv_module_round_trips(
    tmp_path: Path,
    delimiter: str,
    line_end: str,
    header: bool,
    last_line_ends: bool,
    rng: np.random.Generator,
) -> None:
    """Every float reads back exactly, across the blocks that the reader uses."""
    x = rng.normal(size=(2500, 3))
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=line_end)
        if header:
            writer.writerow(["Fp1", "Fp2", "Cz, left"])
        writer.writerows(x.tolist())
    if not last_line_ends:
        path.write_bytes(path.read_bytes().rstrip(b"\r\n"))
    with open_recording(path, fs=100) as recording:
        (group,) = recording.groups
        names = ("Fp1", "Fp2", "Cz, left") if header else ("ch1", "ch2", "ch3")
        assert (recording.format, group.names, group.n_samples) == ("CSV", names, 2500)
        np.testing.assert_array_equal(group.read(), x.T)
        np.testing.assert_array_equal(group.read(1000, 2049), x[1000:2049].T)
        blocks = [b.data for b in group.blocks(700)]
        np.testing.assert_array_equal(np.concatenate(blocks, axis=1), x.T)


@given(rows=st.integers(1, 5000), padding=st.integers(0, 3))
def test_rows_are_counted_whatever_the_file_ends_with(
    tmp_path_factory: pytest.TempPathFactory, rows: int, padding: int
) -> None:
    """Blank lines at the end are no samples; every row is at its index."""
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    text = "\n".join(map(str, range(rows))) + "\n" * padding
    with write_and_open(path, text, fs=1) as recording:
        assert recording.groups[0].read().tolist() == [list(map(float, range(rows)))]


def test_a_table_by_numpy_savetxt_is_read(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """The names that savetxt writes in a comment line are used."""
    x = rng.normal(size=(50, 2))
    path = tmp_path / "a.csv"
    np.savetxt(path, x, delimiter=",", header="left,right")
    with open_recording(path, fs=10) as recording:
        assert recording.groups[0].names == ("left", "right")
        np.testing.assert_allclose(recording.groups[0].read(), x.T)


@pytest.mark.parametrize(
    ("delimiter", "comma"),
    [(";", True), ("\t", True), ("  ", True), ("|", True), (" ", False), ("|", False)],
)
def test_decimal_commas_and_other_delimiters(
    tmp_path: Path, delimiter: str, comma: bool, rng: np.random.Generator
) -> None:
    """Tables as localised spreadsheets and numpy.savetxt write them are read."""
    x = rng.normal(size=(3000, 3))
    lines = [delimiter.join(map(repr, row)) for row in x.tolist()]
    text = "\n".join([delimiter.join("abc"), *lines, ""])
    path = tmp_path / "a.csv"
    text = text.replace(".", ",") if comma else text
    with write_and_open(path, text, fs=10) as recording:
        assert recording.groups[0].names == ("a", "b", "c")
        np.testing.assert_array_equal(recording.groups[0].read(), x.T)


def test_a_clock_with_decimal_commas_gives_the_rate(tmp_path: Path) -> None:
    """A clock's last digit is found behind a decimal comma."""
    rows = "\n".join(f"{i / 256:.4f};{i % 5}".replace(".", ",") for i in range(2000))
    with write_and_open(tmp_path / "a.csv", f"time;Fz\n{rows}\n") as recording:
        assert recording.groups[0].fs == 256.0


@pytest.mark.parametrize("missing", ["NA", "", "-", "null"])
def test_a_first_row_with_a_gap_is_no_header(tmp_path: Path, missing: str) -> None:
    """A first row with a gap is samples; a column that begins so is left out."""
    with write_and_open(tmp_path / "a.csv", f"{missing},1\n2,3\n", fs=1) as recording:
        assert recording.groups[0].read().tolist() == [[1.0, 3.0]]
        assert recording.left_out == (("ch1", "contains text"),)


def test_savetxt_writes_blanks(tmp_path: Path, rng: np.random.Generator) -> None:
    """NumPy's default for a table."""
    x = rng.normal(size=(50, 2))
    np.savetxt(tmp_path / "a.txt", x, header="left right")
    with open_recording(tmp_path / "a.txt", fs=10) as recording:
        assert recording.groups[0].names == ("left", "right")
        np.testing.assert_allclose(recording.groups[0].read(), x.T)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("rows", [2, 20_000])
def test_a_truncated_last_row_is_skipped_with_a_warning(
    tmp_path: Path, end: str, rows: int
) -> None:
    """A row without its last cells and without a line end was being written."""
    path = tmp_path / "a.csv"
    path.write_bytes(end.join(["a,b", *["1,2"] * rows, "3"]).encode())
    match = f"last row, line {rows + 2}, has 1 of 2 cells"
    (got,) = read_with_warning(path, match, fs=1)
    np.testing.assert_array_equal(got, np.tile([[1.0], [2.0]], rows))


def test_a_comment_is_no_header(tmp_path: Path) -> None:
    """A comment with another number of cells gives no names."""
    with write_and_open(
        tmp_path / "a.csv", "# by device 7\n1,2\n3,4\n", fs=1
    ) as recording:
        assert recording.groups[0].names == ("ch1", "ch2")
        assert recording.groups[0].read().tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_quoted_cells_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    """Tables as spreadsheets write them are read."""
    text = b'\xef\xbb\xbf"F3","\xc2\xb5V; left"\r\n"1.5","2"\r\n"-3","4e1"\r\n'
    with write_and_open(tmp_path / "a.csv", text, fs=1) as recording:
        assert recording.groups[0].names == ("F3", "\xb5V; left")
        assert recording.groups[0].read().tolist() == [[1.5, -3.0], [2.0, 40.0]]


@pytest.mark.parametrize(
    "name", ["time", "Time", "t", "timestamp", "time (s)", "time_s"]
)
def test_an_even_clock_column_gives_the_rate(tmp_path: Path, name: str) -> None:
    """The clock sets the rate, is no channel, and the recording says so."""
    rows = "\n".join(f"{i / 250!r},{i % 7}" for i in range(3000))
    with write_and_open(tmp_path / "a.csv", f"{name},Fz\n{rows}\n") as recording:
        (group,) = recording.groups
        assert (group.fs, group.names, group.n_samples) == (250.0, ("Fz",), 3000)
        assert recording.left_out == ((name, "is the clock column of the table"),)
        assert group.read(0, 9).tolist() == [[0.0, 1, 2, 3, 4, 5, 6, 0, 1]]


@pytest.mark.parametrize(
    ("name", "clock", "fs"),
    [
        ("time_ms", [f"{i * 4}" for i in range(100)], 250.0),
        ("time", [f"{i / 256:.3f}" for i in range(2000)], 256.0),
        ("timestamp", [f"{1.7e9 + i / 128:.6f}" for i in range(1000)], 128.0),
    ],
    ids=["milliseconds", "rounded", "since 1970"],
)
def test_clocks_in_other_units_give_the_rate(
    tmp_path: Path, name: str, clock: list[str], fs: float
) -> None:
    """The unit in the column's name counts; 256 Hz printed in milliseconds is uneven
    by its last digit only; seconds since 1970 leave digits enough for the spacing.
    """
    rows = "\n".join(f"{seconds},{i}" for i, seconds in enumerate(clock))
    with write_and_open(tmp_path / "a.csv", f"{name},Fz\n{rows}\n") as recording:
        assert recording.groups[0].fs == fs


EVEN_TIMES = " ".join(f"{seconds / 100}" for seconds in range(20))


@pytest.mark.parametrize(
    ("clock", "match", "fs"),
    [
        (
            "0 0.01 0.02 0.05 0.06",
            "row 4.*1 gap of up to 0.03 s; 100 Hz elsewhere",
            100,
        ),
        (
            "0 0.01 0.02 nan 0.04",
            "not evenly.*2 negative or missing time steps.*100 Hz elsewhere",
            100,
        ),
        ("0 0.01 0.02 0.03 nan", "not evenly.*100 Hz elsewhere", 100),
        (
            "0 0.01 0.02 0.01 0.02",
            "not evenly.*1 negative or missing time step.*100 Hz elsewhere",
            100,
        ),
        (
            f"{EVEN_TIMES} 0",
            "not evenly.*1 negative or missing time step.*100 Hz elsewhere",
            100,
        ),
        (
            f"{EVEN_TIMES} -9",
            "not evenly.*1 negative or missing time step.*100 Hz elsewhere",
            100,
        ),
        ("0 0 0 0 0", "does not increase", None),
        ("5 4 3 2 1", "does not increase", None),
        ("0 0 0 1 1", "not evenly.*4 Hz on average", 4),
        ("10.x 11.x 12.x 13.x 14.x", r"cannot be parsed as times \('10\.x'\)", None),
        ("01/02/2024 03/02/2024 04/02/2024", "cannot be parsed", None),
        ("0 1e999999999 2 3 4", "not evenly", 1),
        ("1e999 2e999 3e999 4e999 5e999", "cannot be parsed", None),
        ("-1e308 0 1 2 1e308", "does not increase", None),
        ("0 1e-323 2e-323 3e-323 4e-323", "rate would be outside", None),
        ("0 1e300 2e300 3e300 4e300", "rate would be outside", None),
        (
            "5e10 50000000010 50000000020",
            "0.1 Hz if the unit is s, 100 Hz if.* ms",
            100,
        ),
    ],
)
def test_a_clock_that_gives_no_rate_says_why(
    tmp_path: Path, clock: str, match: str, fs: float | None
) -> None:
    """The error says why there is no rate; a given rate is compared if possible."""
    rows = "\n".join(f"{seconds},{i % 3}" for i, seconds in enumerate(clock.split()))
    path = tmp_path / "a.csv"
    with pytest.raises(RecordingError, match=rf"rate is unknown.*({match})") as caught:
        write_and_open(path, f"time,Fz\n{rows}\n")
    assert ("fs=" in str(caught.value)) == (fs is None)
    with pytest.warns(RecordingWarning, match=match):
        recording = open_recording(path, fs=fs or 100)
    with recording:
        assert recording.groups[0].fs == (fs or 100)
        assert recording.groups[0].n_samples == len(clock.split())
    if fs is not None:
        with pytest.raises(
            RecordingError, match=rf"got fs=1234, but the times in the file.*{match}"
        ):
            open_recording(path, fs=1234)


TIMES_WITH_GAP = [k / 100 for k in range(600) if k != 300]
UNIX_START_S = 1_700_000_000


@pytest.mark.parametrize("fs", [1000.0, 50.0, 102.0])
def test_a_given_rate_does_not_override_a_clock_with_a_gap(
    tmp_path: Path, fs: float
) -> None:
    """A 10 Hz tone stays at 10 Hz: another rate would shift it silently."""
    text = "time,x\n" + "".join(f"{t:.2f},{np.sin(62.8 * t)}\n" for t in TIMES_WITH_GAP)
    path = tmp_path / "g.csv"
    with pytest.raises(RecordingError, match=r"give 100 Hz; .*1 gap of up to 0\.02 s"):
        write_and_open(path, text, fs=fs)
    with (
        pytest.warns(
            RecordingWarning, match=r"1 gap of up to 0\.02 s; 100 Hz .*at 100 "
        ),
        open_recording(path, fs=100) as recording,
    ):
        assert recording.groups[0].fs == 100.0


def test_gaps_are_measured_despite_rounding(tmp_path: Path) -> None:
    """Steps of 3 and 4 ms are recognised as 256 Hz."""
    times = np.delete(np.arange(5000) / 256, [700, 2001, 2002])
    text = "t,x\n" + "".join(f"{t:.3f},{k % 7}\n" for k, t in enumerate(times))
    with pytest.warns(RecordingWarning, match="2 gaps of up to"):
        write_and_open(tmp_path / "r.csv", text, fs=256).close()
    with pytest.raises(RecordingError, match=r"give 25[56]"):
        open_recording(tmp_path / "r.csv", fs=250)


@pytest.mark.parametrize(
    ("name", "clock", "fs"),
    [
        ("timestamp", lambda k: UNIX_START_S * 1000 + 10 * k, 100),
        ("timestamp", lambda k: UNIX_START_S * 10**6 + 10_000 * k, 100),
        ("timestamp", lambda k: UNIX_START_S * 10**9 + 10_000_000 * k, 100),
        ("time", lambda k: f"{UNIX_START_S + k / 100:.2f}", 100),
        ("unix time", lambda k: UNIX_START_S + 60 * k, 1 / 60),
        ("time_ns", lambda k: 10_000_000 * k, 100),
        ("Elapsed Time (s)", lambda k: f"{k / 100:.2f}", 100),
        ("elapsedTime", lambda k: f"{k / 100:.2f}", 100),
        ("seconds_elapsed", lambda k: f"{k / 100:.2f}", 100),
        ("Time [min]", lambda k: f"{k / 6000:.7f}", 100),
        ("Zeit", lambda k: f"{k / 100:.2f}", 100),
        ("Zeit (µs)", lambda k: 10_000 * k, 100),
        ("millis", lambda k: 10 * k, 100),
        ("T [us]", lambda k: 10_000 * k, 100),
        (
            "datetime",
            lambda k: f"2024-02-28 23:59:{58 + k // 100:02d}.{k % 100:02d}",
            100,
        ),
        ("Time Stamp", lambda k: f"2024-02-28T10:00:0{k // 100}.{k % 100:02d}Z", 100),
        ("Zeit", lambda k: f"28.02.2024 10:00:0{k // 100}.{k % 100:02d}", 100),
        (
            "Uhrzeit",
            lambda k: ("23:59:59.", "0:00:00.")[k // 100] + f"{k % 100:02d}",
            100,
        ),
    ],
)
def test_clocks_by_their_names_and_sizes(
    tmp_path: Path, name: str, clock: Any, fs: float
) -> None:
    """Names and units as loggers write them; a Unix time is recognised by its size."""
    text = f"{name},x\n" + "".join(f"{clock(k)},{k % 7}\n" for k in range(200))
    with write_and_open(tmp_path / "m.csv", text) as recording:
        (group,) = recording.groups
        assert (group.fs, group.names) == (pytest.approx(fs, rel=1e-9), ("x",))
        assert recording.warnings == ()
    with pytest.raises(RecordingError, match="got fs=12"):
        open_recording(tmp_path / "m.csv", fs=12)


def test_an_ambiguous_unit_of_a_clock_is_warned_of(tmp_path: Path) -> None:
    text = "timestamp,x\n" + "".join(f"{10 * k},{k % 7}\n" for k in range(200))
    path = tmp_path / "u.csv"
    with pytest.warns(
        RecordingWarning, match="0.1 Hz if the unit is s, 100 Hz if the unit is"
    ):
        write_and_open(path, text).close()
    for fs in (0.1, 100.0, 1e5):  # as the caller knows, in s, ms or µs
        with open_recording(path, fs=fs) as recording:
            assert (recording.groups[0].fs, recording.warnings) == (fs, ())
    with pytest.raises(
        RecordingError, match=r"got fs=50, but the times in the file give 0\.1 Hz"
    ):
        open_recording(path, fs=50)


def test_a_unit_that_gives_no_valid_date_is_refused(tmp_path: Path) -> None:
    rows = "".join(f"{UNIX_START_S * 1000 + 10 * k},{k % 7}\n" for k in range(200))
    with pytest.raises(
        RecordingError, match=r"not a valid date: 0.1 Hz if .* is s, 100 Hz if"
    ):
        write_and_open(tmp_path / "n.csv", f"Time (s),x\n{rows}")


@pytest.mark.parametrize(
    ("clock", "message", "rates"),
    [
        (
            lambda k: f"{45000 + k / 864000:.9f}",
            "864000 Hz if .* 10 Hz if .*days",
            [10.0],
        ),
        (lambda k: f"{739000 + k / 864000:.9f}", "10 Hz if the unit is days", [10.0]),
        (
            lambda k: f"2024010110{k // 60:02d}{k % 60:02d}",
            r"starts at 2\.024",
            [],
        ),
        (
            lambda k: 12 * 10**12 + 10_000_000 * k,
            "100 Hz if the unit is ns",
            [100.0, 1e-7],
        ),
    ],
    ids=["spreadsheet", "MATLAB", "digits", "since the start"],
)
def test_ambiguous_times_are_not_guessed(
    tmp_path: Path, clock: Any, message: str, rates: list[float]
) -> None:
    """Day numbers, dates as digits and nanoseconds since a telephone was started are
    ambiguous.
    """
    text = "timestamp,x\n" + "".join(f"{clock(k)},{k % 7}\n" for k in range(200))
    path = tmp_path / "n.csv"
    with pytest.raises(RecordingError, match=f"rate is unknown.*{message}"):
        write_and_open(path, text)
    for fs in rates[:1]:
        with pytest.warns(RecordingWarning, match=message):
            open_recording(path, fs=fs).close()
    with pytest.raises(RecordingError, match="got fs=17"):
        open_recording(path, fs=17)


def test_dates_that_may_be_a_count_are_warned_of(tmp_path: Path) -> None:
    """1.2e12 are milliseconds of 2008, or nanoseconds of twenty minutes."""
    text = "timestamp,x\n" + "".join(
        f"{12 * 10**11 + 10_000_000 * k},{k % 7}\n" for k in range(200)
    )
    path = tmp_path / "n.csv"
    with pytest.warns(RecordingWarning, match=r"0\.0001 Hz if .* ms.* 100 Hz if .* ns"):
        write_and_open(path, text).close()
    with open_recording(path, fs=100) as recording:
        assert recording.warnings == ()


def test_rows_sharing_one_time_have_a_rate(tmp_path: Path) -> None:
    """Sixteen rows share each time: the clock is uneven, but its rate is 250 Hz and not
    253.
    """
    text = "x,Timestamp\n" + "".join(
        f"{k * 7 % 11},{UNIX_START_S + k // 16 * 16 / 250:.6f}\n" for k in range(600)
    )
    with pytest.warns(RecordingWarning, match="250 Hz on average; .* at 250 Hz"):
        write_and_open(tmp_path / "p.csv", text, fs=250).close()
    with pytest.raises(RecordingError, match="times in the file give 250 Hz"):
        open_recording(tmp_path / "p.csv", fs=253)


@pytest.mark.parametrize("head", ["when,x\n", ""])
def test_a_column_of_dates_is_a_clock_by_any_name(tmp_path: Path, head: str) -> None:
    text = head + "".join(
        f"2024-01-01 10:00:{k // 10:02d}.{k % 10},{k % 7}\n" for k in range(300)
    )
    with write_and_open(tmp_path / "w.csv", text) as recording:
        assert recording.groups[0].fs == 10.0
    with pytest.raises(
        RecordingError, match="got fs=1000, but the file declares 10 Hz"
    ):
        open_recording(tmp_path / "w.csv", fs=1000)


@pytest.mark.parametrize("name", ["T_min", "t1", "reaction time", "temp", "date_of_x"])
def test_other_names_are_channels(tmp_path: Path, name: str) -> None:
    text = f"{name},x\n" + "".join(f"{k * 7 % 11},{k % 7}\n" for k in range(20))
    with write_and_open(tmp_path / "o.csv", text, fs=5) as recording:
        assert recording.groups[0].names == (name, "x")


def test_a_column_that_rises_like_a_clock_is_warned_of(tmp_path: Path) -> None:
    """A column that rises like a clock is warned of, whatever it is called."""
    text = "abc,x\n" + "".join(f"{k / 100:.2f},{k % 7}\n" for k in range(200))
    path = tmp_path / "o.csv"
    with (
        pytest.warns(RecordingWarning, match=r"'abc' increases by 0\.01 in every row"),
        write_and_open(path, text, fs=100) as recording,
    ):
        assert recording.groups[0].names == ("abc", "x")
    with open_recording(path, fs=100, channels="x") as recording:
        assert recording.warnings == ()


def test_gaps_of_one_clock_are_not_hidden_by_another(tmp_path: Path) -> None:
    text = "index,time,seconds_elapsed,x\n" + "".join(
        f"a,{t:.2f},{k / 100:.2f},{k % 7}\n" for k, t in enumerate(TIMES_WITH_GAP)
    )
    with pytest.raises(RecordingError, match="'time' is not evenly spaced"):
        write_and_open(tmp_path / "two.csv", text)
    text = "Date,Time,seconds_elapsed,x\n" + "".join(
        f"2024-01-01,{k // 50:02d}h,{k / 100:.2f},{k % 7}\n" for k in range(300)
    )
    with write_and_open(tmp_path / "three.csv", text) as recording:
        assert recording.groups[0].fs == 100.0
        assert recording.groups[0].names == ("x",)


def test_a_rate_that_contradicts_the_clock_is_refused(tmp_path: Path) -> None:
    """The clock is the file's own rate."""
    rows = "\n".join(f"{i / 100},{i}" for i in range(200))
    with pytest.raises(RecordingError, match=r"got fs=50.*100 Hz"):
        write_and_open(tmp_path / "a.csv", f"t,Fz\n{rows}\n", fs=50)


def test_columns_that_are_no_signals_are_left_out(tmp_path: Path) -> None:
    """Row numbers of pandas, text and triggers are reported, not averaged."""
    text = ",Fz,event,remark\n0,1.5,0,rest\n1,2.5,1,rest\n"
    path = tmp_path / "a.csv"
    with write_and_open(path, text, fs=1) as recording:
        assert recording.groups[0].names == ("Fz",)
        assert [n for n, _ in recording.left_out] == ["ch1", "event", "remark"]
    with open_recording(path, fs=1, channels=["event"]) as recording:
        assert recording.groups[0].read().tolist() == [[0.0, 1.0]]
    with pytest.raises(
        UsageError, match="'remark' cannot be selected: it contains text"
    ):
        open_recording(path, fs=1, channels=["remark"])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b\n1,2\n3\n4,5\n", "line 3 has 1 cells.*expected 2, as in the other rows"),
        ("a,b\n1,2\n3,4,5\n", "line 3 has 3 cells"),
        ("a,b\n1,2\n3,x\n", "line 3, column 2: 'x' is not a number"),
        ("a,b\n1,2\n3,\n5,6\n", "line 3, column 2: '' is not a number.*nan"),
        ("a,b\n1,2\n\n3,4\n", "line 3 has 0 cells"),
        ("1\n2\n\n3\n", "line 3 has 0 cells"),
        ("a;b\n1.0;2\n1,5;2\n", "line 3, column 1: '1,5'.*decimal points"),
        ("a;b\n1;2\n1,234.5;2\n", r"line 3, column 1: '1,234\.5'.*decimal points"),
        ("a;b\n" + "1,0;2\n" * 300 + "1.500;2\n", r"line 302, .*'1\.500'.*commas"),
        ("a;b\n1,0;2\n1.234,5;2\n", r"line 3, column 1: '1\.234,5'.*decimal commas"),
        ('a,b\n1,2\n3,"' + "x" * 200_000 + '"\n', "line 3 .*field larger than"),
        ("a,b\n" + "1,2\n" * 2000 + "3,\0\n", r"line 2002.*'\\x00' is not a number"),
        ("a b\n1 2\n3 4 5\n", "line 3 has 3 cells"),
        ("a,b\n1,2\n1_000,4\n", "'1_000' is not a number"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, text: str, match: str) -> None:
    """The message gives line, column and what to write instead."""
    with write_and_open(tmp_path / "bad.csv", text, fs=1) as recording:
        with pytest.raises(RecordingError, match=match) as caught:
            recording.groups[0].read()
    assert "bad.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b,c\n1,2\n", "names 3 columns.*first row has 2"),
        ("hello\nworld\n", "no row of numbers"),
        ("a,b\n", "no row of numbers"),
        ("\n\n\n", "no row of numbers"),
        ("a;b\nx,5;y\n3,z;w\n", "no row of numbers"),
        ("a\n1\n" + "\0\0\0\0", "format is not supported"),
        (
            "a;b\n1,5;2.5\n",
            r"first row contains '1,5'; use either decimal points or decimal",
        ),
        ("a;b\n1.234,5;2\n", r"first row contains '1\.234,5'; use either"),
        ('a,b\n"1,5",2\n', "first row contains '1,5'; use either"),
        ("\ufeff\n", "no row of numbers"),
        ("1,2\r3,4\r", "no valid line ending"),
        ("a,b\nx,1\ny,2\n", None),
    ],
)
def test_an_invalid_table_is_refused(
    tmp_path: Path, text: str, match: str | None
) -> None:
    """Missing rows, or a header that does not fit them, are reported at once."""
    path = tmp_path / "bad.csv"
    if match is None:
        with write_and_open(path, text, fs=1) as recording:
            assert recording.groups[0].names == ("b",)
    else:
        with pytest.raises(RecordingError, match=match):
            write_and_open(path, text, fs=1)


def test_nan_and_infinity_are_numbers_here(tmp_path: Path) -> None:
    """The reader accepts NaN and infinity; the finite check reports them."""
    with write_and_open(tmp_path / "a.csv", "1,nan\ninf,-inf\n", fs=1) as recording:
        np.testing.assert_array_equal(
            recording.groups[0].read(), [[1, np.inf], [np.nan, -np.inf]]
        )


@given(
    fs=st.one_of(st.integers(1, 500), st.floats(0.1, 500)),
    rows=st.integers(2, 3000),
    digits=st.integers(0, 3),
    lost=st.booleans(),
    data=st.data(),
)
def test_a_clock_gives_its_rate_or_none(
    tmp_path_factory: pytest.TempPathFactory,
    fs: float,
    rows: int,
    digits: int,
    lost: bool,
    data: st.DataObject,
) -> None:
    """A rate is right to the rounding of its clock, and a lost row is detected."""
    decimals = digits + 1 + max(0, int(np.ceil(np.log10(fs))))
    times = np.arange(rows + lost) / fs
    if lost and rows > 3:
        times = np.delete(times, data.draw(st.integers(2, rows - 2)))
    else:
        times = times[:rows]
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_text("t [s],Fz\n" + "".join(f"{t:.{decimals}f},1\n" for t in times))
    try:
        with open_recording(path) as recording:
            got = recording.groups[0].fs
    except RecordingError:
        assert lost
        return
    assert not (lost and rows > 3)
    assert got == pytest.approx(fs, rel=2 * 10**-decimals / (times[-1] + 1e-12))
