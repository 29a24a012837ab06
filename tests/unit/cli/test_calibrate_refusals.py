"""`rlxweb calibrate`: which engines it measures, what it refuses, what stops it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from rlxweb.calibration import measure as calibrate
from rlxweb.calibration.kernels import Job
from rlxweb.calibration.known import measure_now
from rlxweb.cli import calibrate_command
from rlxweb.cost.record import Calibration
from rlxweb.cost.record_json import from_json
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place
from rlxweb.errors import DeviceLost, OutOfMemory
from tests.command_line import Call, check_refused, forked
from tests.unit.cli.known import cpu_record, keep

STOP = """
import functools, os, signal, sys
import rlxweb.cli.calibrate_command as command
from rlxweb.cli.main import main
from rlxweb.calibration.kernels import Job
def stop():
    os.kill(os.getpid(), signal.SIGINT)
jobs = lambda place: [Job("welch_host", {}, stop)]
command.measure_now = functools.partial(command.measure_now, jobs=jobs)
main(["calibrate", "--device", "cpu"])
"""


def test_every_engine_is_measured_once_and_in_order(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All engines are measured when none is named; a name given twice counts once."""
    asked: list[Place] = []

    def measured(place: Place, *_: object, **__: object) -> tuple[Calibration, None]:
        asked.append(place)
        return cpu_record(device=place.device.label), None

    gl, llvm = Place(Device.OPENGL), "vulkan:llvm"
    monkeypatch.setattr(calibrate_command, "measure_now", measured)
    monkeypatch.setattr(calibrate_command, "available_places", lambda: (gl, CPU))
    said = call("calibrate", "--json")
    assert [r["device"] for r in said.record["records"]] == ["opengl", "cpu"]
    assert asked == [gl, CPU]
    asked.clear()
    names = ("--device", llvm, "--device", "cpu", "--device", "VK:llvm")
    said = call("calibrate", "--json", *names)
    assert [str(place) for place in asked] == [llvm, "cpu"]
    asked.clear()
    call("calibrate", "--json", "--adapter", "llvm")
    call("calibrate", "--json", "--device", "vulkan", "--adapter", "llvm")
    assert [str(place) for place in asked] == ["gpu:llvm", llvm]


REFUSED = {
    "an unknown device": (("--device", "abacus"), 2, "unknown device 'abacus'"),
    "a near miss": (("--device", "vulcan"), 2, "did you mean 'vulkan'?"),
    "no name": (("--device", ""), 2, "empty device name"),
    "a device we cannot drive": (("--device", "cuda"), 3, "open device 'cuda'"),
    "two adapters": (
        ("--device", "vulkan:a", "--adapter", "b"),
        2,
        "a device names its adapter already; leave it out",
    ),
    "no time": (("--budget-s", 0), 2, "0.0 is not in the range"),
    "less than no time": (("--budget-s", -1), 2, "-1.0 is not in the range"),
    "too much time": (("--budget-s", 601), 2, "<=600"),
    "a word for a time": (("--budget-s", "soon"), 2, "'soon' is not a valid float"),
    "not a number": (("--budget-s", "nan"), 2, "nan is not"),
    "an unknown option": (("--fast",), 2, "no such option"),
    "a file": (("--json", "out.json"), 2, "unexpected extra argument"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_nonsense_is_refused_in_one_line(call: Call, cache: Path, case: str) -> None:
    args, code, text = REFUSED[case]
    check_refused(call("calibrate", *args), code, text)
    assert not cache.exists()


@pytest.mark.requires_wgpu
def test_an_adapter_that_is_not_there_is_named(call: Call) -> None:
    check_refused(call("calibrate", "--adapter", "abacus 3000"), 3, "abacus 3000")


def add_failing_job(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    jobs = [Job("extra", {"rows": 2}, Mock(side_effect=error))]
    with_it = partial(measure_now, jobs=lambda place: jobs)
    monkeypatch.setattr(calibrate_command, "measure_now", with_it)


def test_a_device_that_is_missing_does_not_take_the_others_along(
    call: Call, cache: Path
) -> None:
    """What was measured is shown and kept; then why the other one was not."""
    devices = ("--device", "ane", "--device", "cpu")
    done = call("calibrate", "--budget-s", "0.01", "--json", *devices)
    assert done.code == 3
    (record,) = json.loads(done.out)["records"]
    assert record["device"] == "cpu"
    assert "open device 'ane'" in done.err
    assert list(cache.rglob("*.json"))


def test_a_job_that_fails_is_left_out_by_name(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kernel too much for an engine does not cost the others."""
    add_failing_job(monkeypatch, OutOfMemory("run", "no room for 5 GiB"))
    monkeypatch.setattr(calibrate, "kernel_jobs", lambda place: ())
    args = "calibrate", "--device", "cpu", "--budget-s", 300, "--json"
    (record,) = call(*args).record["records"]
    assert "extra rows 2: run: no room for 5 GiB" in record["left_out"]
    assert "call" in {p["what"] for p in record["points"]}


def test_a_device_that_is_lost_leaves_what_was_known(
    call: Call, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code says so, and half a measurement is not kept."""
    keep(cpu_record())
    add_failing_job(monkeypatch, DeviceLost("run", "the adapter went away"))
    said = call("calibrate", "--device", "cpu", "--json")
    lost = "rlxweb: run: the adapter went away\n"
    assert (said.code, said.out, said.err) == (75, "", lost)
    (path,) = cache.iterdir()
    assert from_json(json.loads(path.read_text("utf-8"))) == cpu_record()


def test_no_time_for_anything_is_an_error(call: Call, cache: Path) -> None:
    said = call("calibrate", "--device", "cpu", "--budget-s", 1e-9)
    nothing = "rlxweb: calibrate cpu: nothing could be measured; "
    check_refused(said, 1, nothing, "the time was over")
    assert not cache.exists()


def test_ctrl_c_leaves_no_file(cache: Path) -> None:
    """A real signal in the middle: one line, 130, and nothing half-written."""
    said = forked("-c", STOP)
    assert (said.code, said.out, said.err.strip()) == (130, "", "rlxweb: stopped")
    assert not cache.exists()
