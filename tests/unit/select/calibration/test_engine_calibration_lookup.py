"""Measurement of engines on first need: run once, announced in one line, stored,
repeated or forbidden.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rlxweb.core.cache_folder import read_json
from rlxweb.core.errors import (
    CalibrationWarning,
    DeviceLost,
    EnvironmentWarning,
    Unsupported,
)
from rlxweb.cost.calibration_record import Calibration, MeasuredPoint
from rlxweb.select.calibration.calibration_store import (
    CalibrationStore,
    calibration_file_name,
)
from rlxweb.select.calibration.engine_calibration_lookup import (
    known_record,
    measure_now,
    record_for,
)
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace, engine_identity
from tests.cli_runners import run_python
from tests.run_in_threads import run_concurrently

POINTS = (
    MeasuredPoint("call", {}, 1_500.0, 0.1, 7),
    MeasuredPoint("copy", {"bytes": 64}, 9.0),
)


class FakeCalibrate:
    """Stand-in for `calibrate` that returns a record of the place, or raises the error
    it is given.
    """

    def __init__(self) -> None:
        self.calls: list[DevicePlace] = []
        self.error: Exception | None = None
        self.points = POINTS

    def __call__(self, place: DevicePlace) -> Calibration:
        self.calls.append(place)
        if self.error is not None:
            raise self.error
        return Calibration(place.device.label, *engine_identity(place), self.points)


@pytest.fixture
def fake_calibrate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCalibrate:
    fake = FakeCalibrate()
    monkeypatch.setenv("RLX_CALIBRATION", "lazy")
    use_new_store(monkeypatch, tmp_path)
    monkeypatch.setattr("rlxweb.select.calibration.measure_engine.calibrate", fake)
    return fake


def use_new_store(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Replace the store by a new one on `folder`, as a new process has it."""
    store = CalibrationStore(folder)
    monkeypatch.setattr(
        "rlxweb.select.calibration.engine_calibration_lookup.calibration_store", store
    )


def test_measuring_is_announced_once_in_one_line(
    fake_calibrate: FakeCalibrate,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Measuring is announced once on stderr, with engine and folder, for all
    processes.
    """
    first = record_for("cpu")
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    engine = engine_identity(CPU_PLACE)[0]
    assert output.err.startswith(
        f"rlxweb: measuring the speed of {engine} as device 'cpu' once, for a few sec"
    )
    assert f"saved in {tmp_path}" in output.err
    assert record_for("cpu") is first
    use_new_store(monkeypatch, tmp_path)
    assert record_for("CPU") == first
    assert capsys.readouterr().err == ""
    assert fake_calibrate.calls == [CPU_PLACE]


def test_threads_that_need_an_engine_measure_it_once(
    fake_calibrate: FakeCalibrate,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two measurements at once would spoil each other."""
    second_thread_entered = threading.Event()

    def calibrate_slowly(place: DevicePlace) -> Calibration:
        if fake_calibrate.calls:
            second_thread_entered.set()
        record = fake_calibrate(place)
        second_thread_entered.wait(
            0.3
        )  # time for a second thread to come in, were it let in
        return record

    monkeypatch.setattr(
        "rlxweb.select.calibration.measure_engine.calibrate", calibrate_slowly
    )
    records: list[Calibration] = []
    run_concurrently([lambda: records.append(record_for("cpu"))] * 4)
    assert fake_calibrate.calls == [CPU_PLACE]
    assert len({id(record) for record in records}) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_automatic_measuring_can_be_disabled(
    fake_calibrate: FakeCalibrate,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error names the setting that forbids measuring and the remedy; known records
    are still used.
    """
    monkeypatch.setenv("RLX_CALIBRATION", "off")
    with pytest.raises(Unsupported) as excinfo:
        record_for("cpu")
    assert str(excinfo.value) == (
        "load the calibration of cpu: the device was never measured, and "
        "RLX_CALIBRATION=off disables automatic measurement; run `rlxweb calibrate`"
    )
    assert fake_calibrate.calls == []
    assert capsys.readouterr().err == ""
    record, path = measure_now(CPU_PLACE)
    assert path is not None
    assert path.exists()
    assert record_for("cpu") is record
    assert fake_calibrate.calls == [CPU_PLACE]


def test_invalid_calibration_mode_warns_and_measures(
    fake_calibrate: FakeCalibrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_CALIBRATION", "sometimes")
    with pytest.warns(EnvironmentWarning, match="RLX_CALIBRATION='sometimes'"):
        record_for("cpu")
    assert fake_calibrate.calls == [CPU_PLACE]


def test_known_record_does_not_measure(fake_calibrate: FakeCalibrate) -> None:
    assert known_record(CPU_PLACE) is None
    assert fake_calibrate.calls == []
    record = record_for("cpu")
    assert known_record(CPU_PLACE) is record


def test_corrupt_file_is_measured_again(
    fake_calibrate: FakeCalibrate, tmp_path: Path
) -> None:
    path = tmp_path / calibration_file_name(engine_identity(CPU_PLACE))
    path.write_text("{")
    record_for("cpu")
    assert fake_calibrate.calls == [CPU_PLACE]
    assert read_json(path)["engine"] == engine_identity(CPU_PLACE)[0]


def test_device_lost_while_measuring_leaves_no_record(
    fake_calibrate: FakeCalibrate,
) -> None:
    fake_calibrate.error = DeviceLost("read", "the device went away")
    with pytest.raises(DeviceLost):
        record_for("cpu")
    assert known_record(CPU_PLACE) is None
    fake_calibrate.error = None
    assert record_for("cpu").points == POINTS


def test_measuring_works_without_writable_cache(
    fake_calibrate: FakeCalibrate,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_text("in the way")
    use_new_store(monkeypatch, tmp_path / "file")
    with pytest.warns(CalibrationWarning):
        first = record_for("cpu")
    assert record_for("cpu") is first
    monkeypatch.delenv("RLX_CACHE_DIR")
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    monkeypatch.setattr(
        "rlxweb.select.calibration.engine_calibration_lookup.calibration_store",
        CalibrationStore(),
    )
    capsys.readouterr()
    assert record_for("cpu") == first
    assert capsys.readouterr().err.endswith("once, for a few seconds\n")
    assert len(fake_calibrate.calls) == 2


def test_record_without_requested_points_is_measured_again(
    fake_calibrate: FakeCalibrate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A record that lacks all requested points is measured again and stored."""
    first = record_for("cpu")
    for present_points in ((), ("call",), ("sort", "copy")):
        assert record_for("cpu", point_kinds=present_points) is first
    fake_calibrate.points = (*POINTS, MeasuredPoint("sort", {}, 5.0))
    remeasured = record_for("cpu", point_kinds=("sort", "scan"))
    assert remeasured.points == fake_calibrate.points
    use_new_store(monkeypatch, tmp_path)
    assert record_for("cpu", point_kinds=("sort",)) == remeasured
    assert fake_calibrate.calls == [CPU_PLACE, CPU_PLACE]


def test_incomplete_record_is_kept_when_measuring_is_disabled(
    fake_calibrate: FakeCalibrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that lacks points is kept as it is where measuring is forbidden."""
    first = record_for("cpu")
    monkeypatch.setenv("RLX_CALIBRATION", "off")
    assert record_for("cpu", point_kinds=("sort",)) is first
    assert fake_calibrate.calls == [CPU_PLACE]


def test_next_process_reads_stored_measurement(tmp_path: Path) -> None:
    """One process measures the CPU, with some kernels once each, and the next reads the
    record.
    """
    program = (
        "from itertools import islice\n"
        "from rlxweb.select.calibration import measure_engine\n"
        "from rlxweb.select.calibration.engine_calibration_lookup import record_for\n"
        "from rlxweb.select.calibration.stopwatch import Stopwatch\n"
        "measure_engine.Stopwatch = lambda: Stopwatch(sample_ns=1, samples=1, "
        "min_samples=1)\n"
        "every = measure_engine.kernel_jobs\n"
        "measure_engine.kernel_jobs = lambda place: islice(every(place), 40)\n"
        "record_for('cpu'); print(len(record_for('cpu').points))"
    )
    env = {"RLX_CACHE_DIR": str(tmp_path / "cache"), "RLX_CALIBRATION": "lazy"}
    first, second = (run_python("-c", program, **env) for _ in range(2))
    (line,) = first.errors
    assert line.startswith("rlxweb: measuring the speed of NumPy")
    assert second == replace(first, err="")
    assert first.code == 0
    assert len(CalibrationStore(tmp_path / "cache").load_all()) == 1
