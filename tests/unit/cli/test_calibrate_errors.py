"""Command `rlxweb calibrate`: chosen engines, rejected options, errors and Ctrl-C."""

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
from tests.cli_runners import CommandRunner, check_rejected, run_forked
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


INVALID_ARGUMENTS = {
    "an unknown device": (("--device", "abacus"), 2, "unknown device 'abacus'"),
    "a near miss": (("--device", "vulcan"), 2, "did you mean 'vulkan'?"),
    "no name": (("--device", ""), 2, "empty device name"),
    "a device we cannot drive": (("--device", "cuda"), 3, "open device 'cuda'"),
    "two adapters": (
        ("--device", "vulkan:a", "--adapter", "b"),
        2,
        "--device already names an adapter; omit --adapter",
    ),
    "no time": (("--budget-s", 0), 2, "0.0 is not in the range"),
    "less than no time": (("--budget-s", -1), 2, "-1.0 is not in the range"),
    "too much time": (("--budget-s", 601), 2, "<=600"),
    "a word for a time": (("--budget-s", "soon"), 2, "'soon' is not a valid float"),
    "not a number": (("--budget-s", "nan"), 2, "nan is not"),
    "an unknown option": (("--fast",), 2, "no such option"),
    "a file": (("--json", "out.json"), 2, "unexpected extra argument"),
}


@pytest.mark.parametrize("case", INVALID_ARGUMENTS)
def test_invalid_arguments_are_rejected_in_one_line(
    call: CommandRunner, cache: Path, case: str
) -> None:
    args, code, text = INVALID_ARGUMENTS[case]
    check_rejected(call("calibrate", *args), code, text)
    assert not cache.exists()


@pytest.mark.requires_wgpu
def test_missing_adapter_is_named(call: CommandRunner) -> None:
    check_rejected(call("calibrate", "--adapter", "abacus 3000"), 3, "abacus 3000")


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


def test_no_time_for_anything_is_an_error(call: CommandRunner, cache: Path) -> None:
    result = call("calibrate", "--device", "cpu", "--budget-s", 1e-9)
    message = "rlxweb: calibrate cpu: nothing could be measured; "
    check_rejected(result, 1, message, "the time limit was reached")
    assert not cache.exists()


def test_ctrl_c_leaves_no_file(cache: Path) -> None:
    """A real signal during the run gives one line, exit code 130 and no partial
    file.
    """
    result = run_forked("-c", STOP_SCRIPT)
    assert (result.code, result.out, result.err.strip()) == (130, "", "rlxweb: stopped")
    assert not cache.exists()
