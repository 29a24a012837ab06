"""Measuring on first need: once, said in one line, kept, made anew, or forbidden."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rlxweb.calibration.cache_folder import read_json
from rlxweb.calibration.known import known_record, measure_now, record_for
from rlxweb.calibration.store import CalibrationStore, file_name
from rlxweb.cost.record import Calibration, Point
from rlxweb.devices.place import CPU, Place, identity_of
from rlxweb.errors import (
    CalibrationWarning,
    DeviceLost,
    EnvironmentWarning,
    Unsupported,
)
from tests.command_line import python
from tests.threads import at_once

POINTS = (Point("call", {}, 1_500.0, 0.1, 7), Point("copy", {"bytes": 64}, 9.0))


class Counting:
    """Stands for `calibrate`: a record of the place, or the error it is told."""

    def __init__(self) -> None:
        self.calls: list[Place] = []
        self.error: Exception | None = None
        self.points = POINTS

    def __call__(self, place: Place) -> Calibration:
        self.calls.append(place)
        if self.error is not None:
            raise self.error
        return Calibration(place.device.label, *identity_of(place), self.points)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counting:
    made = Counting()
    monkeypatch.setenv("RLX_CALIBRATION", "lazy")
    use(monkeypatch, tmp_path)
    monkeypatch.setattr("rlxweb.calibration.measure.calibrate", made)
    return made


def use(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A store as a new process has it."""
    store = CalibrationStore(folder)
    monkeypatch.setattr("rlxweb.calibration.known.store", store)


def test_measuring_is_said_once_in_one_line(
    measured: Counting,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Measuring is said once on stderr, with engine and folder, for all processes."""
    first = record_for("cpu")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    engine = identity_of(CPU)[0]
    assert said.err.startswith(f"rlxweb: measuring {engine} as 'cpu' once, a few sec")
    assert f"kept in {tmp_path}" in said.err
    assert record_for("cpu") is first
    use(monkeypatch, tmp_path)
    assert record_for("CPU") == first
    assert capsys.readouterr().err == ""
    assert measured.calls == [CPU]


def test_threads_that_need_an_engine_measure_it_once(
    measured: Counting,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two measurements at once would spoil each other."""
    another = threading.Event()

    def slowly(place: Place) -> Calibration:
        if measured.calls:
            another.set()
        record = measured(place)
        another.wait(0.3)  # time for a second thread to come in, were it let in
        return record

    monkeypatch.setattr("rlxweb.calibration.measure.calibrate", slowly)
    found: list[Calibration] = []
    at_once([lambda: found.append(record_for("cpu"))] * 4)
    assert measured.calls == [CPU]
    assert len({id(record) for record in found}) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_measuring_unasked_can_be_forbidden(
    measured: Counting,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error tells who forbids it and what helps; what is known is still used."""
    monkeypatch.setenv("RLX_CALIBRATION", "off")
    with pytest.raises(Unsupported) as found:
        record_for("cpu")
    assert str(found.value) == (
        "the calibration of cpu: it was never measured, and RLX_CALIBRATION=off "
        "forbids measuring unasked; run `rlxweb calibrate`"
    )
    assert measured.calls == []
    assert capsys.readouterr().err == ""
    asked, path = measure_now(CPU)
    assert path is not None
    assert path.exists()
    assert record_for("cpu") is asked
    assert measured.calls == [CPU]


def test_nonsense_about_calibration_is_named_and_measures(
    measured: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_CALIBRATION", "sometimes")
    with pytest.warns(EnvironmentWarning, match="RLX_CALIBRATION='sometimes'"):
        record_for("cpu")
    assert measured.calls == [CPU]


def test_looking_does_not_measure(measured: Counting) -> None:
    assert known_record(CPU) is None
    assert measured.calls == []
    record = record_for("cpu")
    assert known_record(CPU) is record


def test_a_corrupt_file_is_measured_anew(measured: Counting, tmp_path: Path) -> None:
    path = tmp_path / file_name(identity_of(CPU))
    path.write_text("{")
    record_for("cpu")
    assert measured.calls == [CPU]
    assert read_json(path)["engine"] == identity_of(CPU)[0]


def test_a_device_lost_while_measured_leaves_no_record(measured: Counting) -> None:
    measured.error = DeviceLost("read", "the device went away")
    with pytest.raises(DeviceLost):
        record_for("cpu")
    assert known_record(CPU) is None
    measured.error = None
    assert record_for("cpu").points == POINTS


def test_measuring_works_where_nothing_can_be_kept(
    measured: Counting,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_text("in the way")
    use(monkeypatch, tmp_path / "file")
    with pytest.warns(CalibrationWarning):
        first = record_for("cpu")
    assert record_for("cpu") is first
    monkeypatch.delenv("RLX_CACHE_DIR")
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    monkeypatch.setattr("rlxweb.calibration.known.store", CalibrationStore())
    capsys.readouterr()
    assert record_for("cpu") == first
    assert capsys.readouterr().err.endswith("once, a few seconds\n")
    assert len(measured.calls) == 2


def test_a_record_without_the_points_asked_for_is_made_anew(
    measured: Counting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A record that lacks all points asked for is measured anew and kept."""
    first = record_for("cpu")
    for enough in ((), ("call",), ("sort", "copy")):
        assert record_for("cpu", points=enough) is first
    measured.points = (*POINTS, Point("sort", {}, 5.0))
    more = record_for("cpu", points=("sort", "scan"))
    assert more.points == measured.points
    use(monkeypatch, tmp_path)
    assert record_for("cpu", points=("sort",)) == more
    assert measured.calls == [CPU, CPU]


def test_a_record_is_as_it_is_where_measuring_is_forbidden(
    measured: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that lacks points is kept as it is where measuring is forbidden."""
    first = record_for("cpu")
    monkeypatch.setenv("RLX_CALIBRATION", "off")
    assert record_for("cpu", points=("sort",)) is first
    assert measured.calls == [CPU]


def test_a_process_measures_and_the_next_one_reads(tmp_path: Path) -> None:
    """One process measures the CPU, some kernels once each, and the next reads that."""
    program = (
        "from itertools import islice\n"
        "from rlxweb.calibration import measure\n"
        "from rlxweb.calibration.known import record_for\n"
        "from rlxweb.calibration.stopwatch import Stopwatch\n"
        "measure.Stopwatch = lambda: Stopwatch(sample_ns=1, samples=1, least=1)\n"
        "every = measure.kernel_jobs\n"
        "measure.kernel_jobs = lambda place: islice(every(place), 40)\n"
        "record_for('cpu'); print(len(record_for('cpu').points))"
    )
    more = {"RLX_CACHE_DIR": str(tmp_path / "cache"), "RLX_CALIBRATION": "lazy"}
    first, second = (python("-c", program, **more) for _ in range(2))
    (line,) = first.errors
    assert line.startswith("rlxweb: measuring NumPy")
    assert second == replace(first, err="")
    assert first.code == 0
    assert len(CalibrationStore(tmp_path / "cache").stored()) == 1
