"""Command `rlxweb calibrate`: chosen engines, errors of a device and Ctrl-C."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from rlxweb.cli import calibrate_command
from rlxweb.core.device import Device
from rlxweb.core.errors import DeviceLost, OutOfMemory
from rlxweb.cost.calibration_json import calibration_from_json
from rlxweb.cost.calibration_record import Calibration
from rlxweb.select.calibration import measure_engine as calibrate
from rlxweb.select.calibration.calibration_jobs import CalibrationJob
from rlxweb.select.calibration.engine_calibration_lookup import measure_now
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace
from tests.cli_runners import CommandRunner, run_forked
from tests.unit.cli.fake_calibrations import cpu_record, save_to_files

STOP_SCRIPT = """
import functools, os, signal, sys
import rlxweb.cli.calibrate_command as command
from rlxweb.cli.main import main
from rlxweb.select.calibration.calibration_jobs import CalibrationJob
def stop():
    os.kill(os.getpid(), signal.SIGINT)
jobs = lambda place: [CalibrationJob("welch_host", {}, stop)]
command.measure_now = functools.partial(command.measure_now, jobs=jobs)
main(["calibrate", "--device", "cpu"])
"""


def test_every_engine_is_measured_once_and_in_order(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All engines are measured when none is named; a name given twice counts once."""
    measured_places: list[DevicePlace] = []

    def fake_measure_now(
        place: DevicePlace, *_: object, **__: object
    ) -> tuple[Calibration, None]:
        measured_places.append(place)
        return cpu_record(device=place.device.label), None

    gl, llvm = DevicePlace(Device.OPENGL), "vulkan:llvm"
    monkeypatch.setattr(calibrate_command, "measure_now", fake_measure_now)
    monkeypatch.setattr(calibrate_command, "available_places", lambda: (gl, CPU_PLACE))
    result = call("calibrate", "--json")
    assert [r["device"] for r in result.document["records"]] == ["opengl", "cpu"]
    assert measured_places == [gl, CPU_PLACE]
    measured_places.clear()
    names = ("--device", llvm, "--device", "cpu", "--device", "VK:llvm")
    result = call("calibrate", "--json", *names)
    assert [str(place) for place in measured_places] == [llvm, "cpu"]
    measured_places.clear()
    call("calibrate", "--json", "--adapter", "llvm")
    call("calibrate", "--json", "--device", "vulkan", "--adapter", "llvm")
    assert [str(place) for place in measured_places] == ["gpu:llvm", llvm]


def add_failing_job(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    jobs = [CalibrationJob("extra", {"rows": 2}, Mock(side_effect=error))]
    measure_with_job = partial(measure_now, jobs=lambda place: jobs)
    monkeypatch.setattr(calibrate_command, "measure_now", measure_with_job)


def test_missing_device_does_not_stop_others(call: CommandRunner, cache: Path) -> None:
    """Measured records are shown and stored; then the error of the other device is
    reported.
    """
    devices = ("--device", "ane", "--device", "cpu")
    result = call("calibrate", "--budget-s", "0.01", "--json", *devices)
    assert result.code == 3
    (record,) = json.loads(result.out)["records"]
    assert record["device"] == "cpu"
    assert "open device 'ane'" in result.err
    assert list(cache.rglob("*.json"))


def test_failing_job_is_left_out_by_name(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kernel too large for an engine does not affect the others."""
    add_failing_job(monkeypatch, OutOfMemory("run", "no room for 5 GiB"))
    monkeypatch.setattr(calibrate, "kernel_jobs", lambda place: ())
    args = "calibrate", "--device", "cpu", "--budget-s", 300, "--json"
    (record,) = call(*args).document["records"]
    assert "extra rows 2: run: no room for 5 GiB" in record["left_out"]
    assert "call" in {p["what"] for p in record["points"]}


def test_lost_device_keeps_known_record(
    call: CommandRunner, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code reports the loss, and a partial measurement is not stored."""
    save_to_files(cpu_record())
    add_failing_job(monkeypatch, DeviceLost("run", "the adapter went away"))
    result = call("calibrate", "--device", "cpu", "--json")
    message = "rlxweb: run: the adapter went away\n"
    assert (result.code, result.out, result.err) == (75, "", message)
    (path,) = cache.iterdir()
    assert calibration_from_json(json.loads(path.read_text("utf-8"))) == cpu_record()


def test_ctrl_c_leaves_no_file(cache: Path) -> None:
    """A real signal during the run gives one line, exit code 130 and no partial
    file.
    """
    result = run_forked("-c", STOP_SCRIPT)
    assert (result.code, result.out, result.err.strip()) == (130, "", "rlxweb: stopped")
    assert not cache.exists()
