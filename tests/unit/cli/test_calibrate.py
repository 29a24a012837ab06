"""`rlxweb calibrate`: what is measured, shown and kept, and what stops it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlxweb.cli import calibrate_command
from rlxweb.cli.calibrate_command import rate
from rlxweb.cost.record import Calibration, Point, from_json
from rlxweb.devices.calibrate import identity_of
from rlxweb.devices.calibration_kernels import Job
from rlxweb.devices.calibration_store import file_name, store
from rlxweb.devices.place import CPU, Place
from rlxweb.errors import CalibrationWarning, DeviceLost, OutOfMemory
from tests.command_line import Said, call, environment, spawn

QUICK = "calibrate", "--device", "cpu", "--budget-s", 0.05
POINTS = (
    Point("call", {}, 1_500.0, 0.125, 11),
    Point("copy", {"bytes": 4_000_000}, 500_000.0, 0.5, 3),
    Point("cold_start", {}, 2.5e9),
)
STOP = """
import os, signal, sys
import rlxweb.cli.calibrate_command as command
from rlxweb.cli.main import main
from rlxweb.devices.calibration_kernels import Job
def stop():
    os.kill(os.getpid(), signal.SIGINT)
command.welch_jobs = lambda place: [Job("welch_host", {}, stop)]
main(["calibrate", "--device", "cpu"])
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of this test's own, not there yet."""
    place = tmp_path / "cache"
    monkeypatch.setenv("RLX_CACHE_DIR", str(place))
    store.forget()
    yield place
    store.forget()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Said, Path]:
    """A real, short run in a process of its own, and where it kept its figures."""
    place = tmp_path_factory.mktemp("calibrated")
    args = "calibrate", "--device", "cpu", "--budget-s", 1, "--json"
    return spawn(*args, RLX_CACHE_DIR=str(place)), place


def cpu_record(**more: Any) -> Calibration:
    """A record of the CPU, as this process would look for it."""
    engine, backend, driver, version, machine = identity_of(CPU)
    one = Calibration("cpu", engine, backend, driver, version, machine, POINTS)
    return replace(one, made="2024-05-06T07:08:09+00:00", took_s=3.25, **more)


def keep(*records: Calibration) -> None:
    """In their files, and nowhere else."""
    for record in records:
        store.save(record)
    store.forget()


def refuse_to_measure(*_: object, **__: object) -> None:
    raise AssertionError("nothing should be measured")


# --- a real run -------------------------------------------------------------------


def test_a_real_run_is_one_document(real: tuple[Said, Path]) -> None:
    """JSON alone on stdout, nothing on stderr, and figures that can be true."""
    said, _ = real
    assert (said.code, said.err) == (0, "")
    assert set(said.record) == {"schema", "rlxweb", "records"}
    assert said.record["schema"] == "rlxweb.calibrate/1"
    (record,) = said.record["records"]
    assert record["device"] == "cpu"
    assert record["backend"] == "numpy"
    assert record["engine"].startswith("NumPy ")
    assert {"run", "call", "welch_host"} <= {p["what"] for p in record["points"]}
    for point in record["points"]:
        assert 0 < point["ns"] < 60e9
        assert point["spread"] >= 0
        assert point["samples"] >= 3


def test_what_was_told_is_what_was_kept(real: tuple[Said, Path]) -> None:
    """One file, in the folder asked for, that this version reads as its own."""
    said, place = real
    (record,) = said.record["records"]
    path = Path(record.pop("file"))
    assert [p.resolve() for p in place.iterdir()] == [path.resolve()]
    document = json.loads(path.read_text("utf-8"))
    assert document == record
    assert from_json(document).identity == identity_of(CPU)


def test_the_table_says_what_was_measured_and_where_it_is_kept(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    """A line on the engine, a row per figure, a line per thing left out."""
    said = call(capsys, *QUICK)
    assert (said.code, said.err) == (0, "")
    head, columns, *rest = said.out.splitlines()
    (path,) = folder.iterdir()
    assert head.startswith("NumPy ")
    assert "(numpy) as 'cpu': " in head
    assert head.endswith(f" s, kept in {path}")
    assert columns.split() == ["what", "size", "median", "spread", "rate"]
    kept = from_json(json.loads(path.read_text("utf-8")))
    assert f" {len(kept.points)} figures in " in head
    assert [line.split()[0] for line in rest[: len(kept.points)]] == [
        p.what for p in kept.points
    ]
    assert rest[len(kept.points) :] == [f"left out: {why}" for why in kept.left_out]
    assert kept.left_out[-1].endswith(": the time was over")


@pytest.mark.requires_wgpu
def test_a_device_is_measured_with_its_trips() -> None:
    """Opening, submitting, starting a kernel, and bytes there and back."""
    args = "calibrate", "--device", "vulkan:llvmpipe", "--budget-s", 2, "--json"
    (record,) = spawn(*args).record["records"]
    assert (record["device"], record["backend"]) == ("vulkan", "vulkan")
    assert "llvmpipe" in record["engine"]
    found = {p["what"] for p in record["points"]}
    assert {"cold_start", "submit", "dispatch", "upload", "readback"} <= found
    assert not {"one", "many"} & found


# --- showing ----------------------------------------------------------------------


def test_show_of_nothing_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    said = call(capsys, "calibrate", "--show")
    assert said.code == 0
    assert said.out == "nothing was measured yet; `rlxweb calibrate` does it\n"
    assert call(capsys, "calibrate", "--show", "--json").record["records"] == []
    assert not folder.exists()


def test_show_measures_nothing(
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It tells what the files hold, also those of other versions and machines."""
    monkeypatch.setattr(calibrate_command, "measure_now", refuse_to_measure)
    other = cpu_record(rlxweb="0.0.1", left_out=("fft: no time",))
    keep(cpu_record(), other)
    said = call(capsys, "calibrate", "--show")
    assert said.code == 0
    heads = [line for line in said.out.splitlines() if "figures in" in line]
    assert len(heads) == 2
    assert all(": 3 figures in 3.2 s, kept in " in line for line in heads)
    rows = [" ".join(line.split()) for line in said.out.splitlines()]
    assert "call 1.50 us 12%" in rows
    assert "copy bytes 4,000,000 500 us 50% 8 GB/s" in rows
    assert "cold_start 2.50 s" in rows
    assert "left out: fft: no time" in rows


def test_show_as_json_names_the_files(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    keep(cpu_record())
    (record,) = call(capsys, "calibrate", "--show", "--json").record["records"]
    assert Path(record.pop("file")) == folder / file_name(identity_of(CPU))
    assert from_json(record) == cpu_record()


def test_show_of_a_device_leaves_the_others_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    keep(cpu_record(), replace(cpu_record(), engine="another", device="gpu"))
    args = "calibrate", "--show", "--json"
    assert len(call(capsys, *args).record["records"]) == 2
    (record,) = call(capsys, *args, "--device", "cpu").record["records"]
    assert record["device"] == "cpu"
    said = call(capsys, *args, "--device", "abacus")
    assert said.code == 2
    assert "unknown device 'abacus'" in said.err


@pytest.mark.parametrize(
    ("point", "text"),
    [
        (Point("matmul", {"m": 10, "k": 20, "n": 50}, 1e4), "2 GFLOP/s"),
        (Point("fft", {"n": 1024, "rows": 10}, 512e3), "1 GFLOP/s"),
        (Point("fft", {"n": 1, "rows": 1}, 5.0), "1 GFLOP/s"),
        (Point("elementwise", {"bytes": 9, "flops": 300}, 100.0), "3 GFLOP/s"),
        (Point("upload", {"bytes": 500}, 1000.0), "0.5 GB/s"),
        (Point("welch_host", {"n": 8, "segments": 2, "rows": 1, "k": 1}, 9.0), ""),
        (Point("submit", {}, 9.0), ""),
    ],
)
def test_rates_follow_from_size_and_time(point: Point, text: str) -> None:
    """2 m k n of a product, 5 n log2 n per transform, bytes of what moves them."""
    assert rate(point) == text


# --- the file ---------------------------------------------------------------------

SPOILED: dict[str, Callable[[dict[str, Any]], str]] = {
    "empty": lambda good: "",
    "cut short": lambda good: json.dumps(good)[:-40],
    "not JSON": lambda good: "\x00\x01 calibration",
    "another schema": lambda good: json.dumps(good | {"schema": "rlxweb.x/9"}),
    "a list": lambda good: json.dumps([good]),
    "a field less": lambda good: json.dumps({k: good[k] for k in good if k != "made"}),
    "no time": lambda good: json.dumps(
        good | {"points": [good["points"][0] | {"ns": 0.0}]}
    ),
    "another engine's": lambda good: json.dumps(good | {"engine": "abacus"}),
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_file_that_is_not_ours_is_measured_anew(
    capsys: pytest.CaptureFixture[str], folder: Path, spoiled: str
) -> None:
    """It is no reason to complain, is never believed, and is written over."""
    good = cpu_record().as_json()
    path = folder / file_name(identity_of(CPU))
    folder.mkdir()
    path.write_text(SPOILED[spoiled](good), "utf-8")
    args = "calibrate", "--show", "--device", "cpu", "--json"
    assert call(capsys, *args).record["records"] == []
    said = call(capsys, *QUICK, "--json")
    assert (said.code, said.err) == (0, "")
    assert list(folder.iterdir()) == [path]
    store.forget()
    (shown,) = call(capsys, *args).record["records"]
    assert shown == said.record["records"][0]
    assert shown["made"] != good["made"]


def test_measuring_again_replaces_what_was_known(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    keep(cpu_record())
    assert call(capsys, *QUICK).code == 0
    (path,) = folder.iterdir()
    assert from_json(json.loads(path.read_text("utf-8"))).points != POINTS


def test_without_a_folder_the_figures_last_as_long_as_the_process(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is said with the folder's name, and the command still does its work."""
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "cache"
    monkeypatch.setenv("RLX_CACHE_DIR", str(place))
    with pytest.warns(CalibrationWarning, match="cannot be kept in") as told:
        said = call(capsys, *QUICK, "--json")
    assert str(place) in str(told[0].message)
    assert "RLX_CACHE_DIR" in str(told[0].message)
    assert said.code == 0
    (record,) = said.record["records"]
    assert record["file"] is None
    assert store.load(identity_of(CPU)) is not None
    said = call(capsys, *QUICK)
    assert said.code == 0
    assert "kept in" not in said.out


def test_the_command_measures_where_measuring_unasked_is_forbidden(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RLX_CALIBRATION=off is about what nobody asked for."""
    monkeypatch.setenv("RLX_CALIBRATION", "off")
    assert call(capsys, *QUICK).code == 0


# --- which devices ----------------------------------------------------------------


def test_every_engine_is_measured_once_and_in_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the machine when none is named; a name given twice counts once."""
    asked: list[Place] = []

    def measured(place: Place, *_: object, **__: object) -> tuple[Calibration, None]:
        asked.append(place)
        return cpu_record(device=place.device.label), None

    gl, llvm = Place(calibrate_command.parse_place("gl").device), "vulkan:llvm"
    monkeypatch.setattr(calibrate_command, "measure_now", measured)
    monkeypatch.setattr(calibrate_command, "available_places", lambda: (gl, CPU))
    said = call(capsys, "calibrate", "--json")
    assert [r["device"] for r in said.record["records"]] == ["opengl", "cpu"]
    assert asked == [gl, CPU]
    asked.clear()
    names = ("--device", llvm, "--device", "cpu", "--device", "VK:llvm")
    said = call(capsys, "calibrate", "--json", *names)
    assert [str(place) for place in asked] == [llvm, "cpu"]
    asked.clear()
    call(capsys, "calibrate", "--json", "--adapter", "llvm")
    call(capsys, "calibrate", "--json", "--device", "vulkan", "--adapter", "llvm")
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
    "an unknown option": (("--fast",), 2, "No such option"),
    "a file": (("--json", "out.json"), 2, "unexpected extra argument"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_nonsense_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path, case: str
) -> None:
    args, code, text = REFUSED[case]
    said = call(capsys, "calibrate", *args)
    assert (said.code, said.out) == (code, "")
    assert text in said.err
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("rlxweb: ")
    assert not folder.exists()


@pytest.mark.requires_wgpu
def test_an_adapter_that_is_not_there_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = call(capsys, "calibrate", "--adapter", "abacus 3000")
    assert said.code == 3
    assert "abacus 3000" in said.err
    assert len(said.err.splitlines()) == 1


# --- what goes wrong on the way ---------------------------------------------------


def add_job(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[], object], what: str = "extra"
) -> None:
    jobs = [Job(what, {"rows": 2}, run)]
    monkeypatch.setattr(calibrate_command, "welch_jobs", lambda place: jobs)


def failing(error: BaseException) -> Callable[[], object]:
    def run() -> object:
        raise error

    return run


def test_a_job_that_fails_is_left_out_by_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kernel too much for an engine does not cost the others."""
    add_job(monkeypatch, failing(OutOfMemory("run", "no room for 5 GiB")))
    args = "calibrate", "--device", "cpu", "--budget-s", 0.3, "--json"
    (record,) = call(capsys, *args).record["records"]
    assert "extra rows 2: run: no room for 5 GiB" in record["left_out"]
    assert "call" in {p["what"] for p in record["points"]}


def test_a_device_that_is_lost_leaves_what_was_known(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code says so, and half a measurement is not kept."""
    keep(cpu_record())
    add_job(monkeypatch, failing(DeviceLost("run", "the adapter went away")))
    said = call(capsys, "calibrate", "--device", "cpu", "--json")
    assert (said.code, said.out) == (75, "")
    assert said.err == "rlxweb: run: the adapter went away\n"
    (path,) = folder.iterdir()
    assert from_json(json.loads(path.read_text("utf-8"))) == cpu_record()


def test_no_time_for_anything_is_an_error(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    said = call(capsys, "calibrate", "--device", "cpu", "--budget-s", 1e-9)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("rlxweb: calibrate cpu: nothing could be measured; ")
    assert "the time was over" in said.err
    assert not folder.exists()


def test_ctrl_c_leaves_no_file(folder: Path) -> None:
    """A real signal in the middle: one line, 130, and nothing half-written."""
    done = subprocess.run(
        [sys.executable, "-c", STOP],
        env=environment(RLX_CACHE_DIR=str(folder)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 130
    assert done.stdout == ""
    assert done.stderr.strip() == "rlxweb: stopped"
    assert not folder.exists()
