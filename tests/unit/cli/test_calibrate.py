"""Command `rlxweb calibrate`: what is measured, shown and stored."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rlxweb.cli import calibrate_command
from rlxweb.cli.calibrate_command import format_rate
from rlxweb.cost.calibration_json import calibration_from_json
from rlxweb.cost.calibration_record import (
    AutotuneResult,
    MeasuredPoint,
)
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.select.calibration import autotune
from rlxweb.select.calibration import measure_engine as calibrate
from rlxweb.select.calibration.autotune import AUTOTUNE_CASES
from rlxweb.select.calibration.calibration_store import (
    calibration_file_name,
    calibration_store,
)
from rlxweb.select.calibration.engine_calibration_lookup import (
    known_record,
    measure_now,
)
from rlxweb.select.calibration.stopwatch import Stopwatch
from rlxweb.select.device_and_adapter import CPU_PLACE, engine_identity, parse_place
from tests.cli_runners import CommandResult, CommandRunner, run_forked
from tests.unit.cli.fake_calibrations import (
    POINTS,
    adapter_place,
    cpu_record,
    save_to_files,
)

QUICK = "calibrate", "--device", "cpu", "--budget-s", 0.2
BRIEF_SCRIPT = """
import sys
from itertools import islice
from rlxweb.select.calibration import measure_engine
from rlxweb.select.calibration.stopwatch import Stopwatch
from rlxweb.cli.main import main
measure_engine.Stopwatch = lambda: Stopwatch(sample_ns=1e5, samples=3)
every = measure_engine.kernel_jobs
measure_engine.kernel_jobs = lambda place: islice(every(place), 40)
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommandResult, Path]:
    """Return the result of a real run in its own process, and the folder of its
    records.

    It takes the least samples, short ones, and not of every kernel.
    """
    folder = tmp_path_factory.mktemp("calibrated")
    args = "calibrate", "--device", "cpu", "--budget-s", 60, "--json"
    return run_forked("-c", BRIEF_SCRIPT, *args, RLX_CACHE_DIR=str(folder)), folder


def test_a_real_run_is_one_document(real_run: tuple[CommandResult, Path]) -> None:
    """JSON alone on stdout, nothing on stderr, and figures that can be true."""
    result, _ = real_run
    assert (result.code, result.err) == (0, "")
    assert set(result.document) == {"schema", "rlxweb", "records"}
    assert result.document["schema"] == "rlxweb.calibrate/1"
    (record,) = result.document["records"]
    assert record["device"] == "cpu"
    assert record["backend"] == "numpy"
    assert record["engine"].startswith("NumPy ")
    assert {"run", "call", "welch_host"} <= {p["what"] for p in record["points"]}
    for point in record["points"]:
        assert 0 < point["ns"] < 60e9
        assert point["spread"] >= 0
        assert point["samples"] >= 3


def test_printed_record_equals_stored_record(
    real_run: tuple[CommandResult, Path],
) -> None:
    """The printed record is one file in the requested folder and can be read."""
    result, folder = real_run
    (record,) = result.document["records"]
    path = Path(record.pop("file"))
    assert [p.resolve() for p in folder.iterdir()] == [path.resolve()]
    document = json.loads(path.read_text("utf-8"))
    assert document == record
    assert calibration_from_json(document).identity == engine_identity(CPU_PLACE)


def test_table_shows_points_and_file(call: CommandRunner, cache: Path) -> None:
    """The table has a line on the engine, a row per point and a line per left-out
    job.
    """
    result = call(*QUICK)
    assert (result.code, result.err) == (0, "")
    title, columns, *rest = result.out.splitlines()
    (path,) = cache.iterdir()
    assert title.startswith("NumPy ")
    assert "(numpy), device 'cpu': " in title
    assert title.endswith(f" s, stored in {path}")
    assert columns.split() == ["what", "size", "time", "spread", "rate"]
    stored = calibration_from_json(json.loads(path.read_text("utf-8")))
    assert f" {len(stored.points)} results in " in title
    assert [line.split()[0] for line in rest[: len(stored.points)]] == [
        p.what for p in stored.points
    ]
    assert rest[len(stored.points) :] == [
        f"not measured: {why}" for why in stored.left_out
    ]
    assert stored.left_out[-1].endswith(": the time limit was reached")


def test_device_is_measured_with_latency_points(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch, adapter: AdapterRequest
) -> None:
    """Submits, kernel starts and transfers both ways are measured once each."""
    brief_stopwatch = Stopwatch(sample_ns=1.0, samples=1, min_samples=1)
    monkeypatch.setattr(calibrate, "Stopwatch", lambda: brief_stopwatch)
    monkeypatch.setattr(calibrate, "kernel_jobs", lambda place: ())
    measure_without_jobs = partial(measure_now, jobs=lambda place: ())
    monkeypatch.setattr(calibrate_command, "measure_now", measure_without_jobs)
    args = "calibrate", "--device", adapter_place(adapter), "--budget-s", 300, "--json"
    (record,) = call(*args).document["records"]
    assert record["device"] == record["backend"] == adapter.backends[0]
    assert adapter.name in record["engine"]
    kinds = [p["what"] for p in record["points"] if p["what"] != "cold_start"]
    assert kinds[:2] == ["submit", "dispatch"]
    assert kinds.count("upload") == kinds.count("readback") == 3
    assert {"run", "compile"} < set(kinds)
    was_open = "cold_start: the device was open already"
    assert len(kinds) < len(record["points"]) or was_open in record["left_out"]


def test_show_without_records_advises_calibrate(
    call: CommandRunner, cache: Path
) -> None:
    result = call("calibrate", "--show")
    assert result.code == 0
    assert result.out == "no results are stored yet; run `rlxweb calibrate`\n"
    assert call("calibrate", "--show", "--json").document["records"] == []
    assert not cache.exists()


def test_show_measures_nothing(
    call: CommandRunner, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Command `measure_engine --show` prints the records in the files, also those of
    other versions.
    """
    fail_if_called = Mock(side_effect=AssertionError("nothing should be measured"))
    monkeypatch.setattr(calibrate_command, "measure_now", fail_if_called)
    other = cpu_record(rlxweb="0.0.1", left_out=("fft: no time",))
    save_to_files(cpu_record(), other)
    result = call("calibrate", "--show")
    assert result.code == 0
    titles = [line for line in result.out.splitlines() if "results in" in line]
    assert len(titles) == 2
    assert all(": 3 results in 3.2 s, stored in " in line for line in titles)
    rows = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "call 1.50 us 12%" in rows
    assert "copy bytes 4,000,000 500 us 50% 8 GB/s" in rows
    assert "cold_start 2.50 s" in rows
    assert "not measured: fft: no time" in rows


def test_show_as_json_names_the_files(call: CommandRunner, cache: Path) -> None:
    save_to_files(cpu_record())
    (record,) = call("calibrate", "--show", "--json").document["records"]
    assert Path(record.pop("file")) == cache / calibration_file_name(
        engine_identity(CPU_PLACE)
    )
    assert calibration_from_json(record) == cpu_record()


def test_show_of_device_omits_others(call: CommandRunner) -> None:
    save_to_files(cpu_record(), replace(cpu_record(), engine="another", device="gpu"))
    args = "calibrate", "--show", "--json"
    assert len(call(*args).document["records"]) == 2
    (record,) = call(*args, "--device", "cpu").document["records"]
    assert record["device"] == "cpu"


@pytest.mark.parametrize(
    ("point", "text"),
    [
        (MeasuredPoint("matmul", {"m": 10, "k": 20, "n": 50}, 1e4), "2 GFLOP/s"),
        (MeasuredPoint("fft", {"n": 1024, "rows": 10}, 512e3), "1 GFLOP/s"),
        (MeasuredPoint("fft", {"n": 1, "rows": 1}, 5.0), "1 GFLOP/s"),
        (MeasuredPoint("elementwise", {"bytes": 9, "flops": 300}, 100.0), "3 GFLOP/s"),
        (MeasuredPoint("upload", {"bytes": 500}, 1000.0), "0.5 GB/s"),
        (
            MeasuredPoint(
                "welch_host", {"n": 8, "segments": 2, "rows": 1, "k": 1}, 9.0
            ),
            "",
        ),
        (MeasuredPoint("submit", {}, 9.0), ""),
    ],
)
def test_rates_follow_from_size_and_time(point: MeasuredPoint, text: str) -> None:
    """Rates count 2 m k n of a product, 5 n log2 n per transform, and the bytes of
    transfers.
    """
    assert format_rate(point) == text


INVALID_RECORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "cut short": lambda good: json.dumps(good)[:-40],
    "another engine's": lambda good: json.dumps(good | {"engine": "abacus"}),
}


@pytest.mark.parametrize("case", INVALID_RECORDS)
def test_invalid_record_is_measured_again(
    call: CommandRunner, cache: Path, case: str
) -> None:
    """An invalid file is never used; it is overwritten silently."""
    valid_document = cpu_record().as_json()
    path = cache / calibration_file_name(engine_identity(CPU_PLACE))
    cache.mkdir()
    path.write_text(INVALID_RECORDS[case](valid_document), "utf-8")
    args = "calibrate", "--show", "--device", "cpu", "--json"
    assert call(*args).document["records"] == []
    result = call(*QUICK, "--json")
    assert (result.code, result.err) == (0, "")
    assert list(cache.iterdir()) == [path]
    calibration_store.clear()
    (shown,) = call(*args).document["records"]
    assert shown == result.document["records"][0]
    assert shown["made"] != valid_document["made"]


def test_calibrate_replaces_known_record(call: CommandRunner, cache: Path) -> None:
    """RLX_CALIBRATION=off, set in every test, does not affect a requested
    measurement.
    """
    assert os.environ["RLX_CALIBRATION"] == "off"
    save_to_files(cpu_record())
    assert call(*QUICK).code == 0
    (path,) = cache.iterdir()
    assert calibration_from_json(json.loads(path.read_text("utf-8"))).points != POINTS


def test_records_stay_in_memory_without_folder(
    call: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be used is named, and the command still does its work."""
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "cache"
    monkeypatch.setenv("RLX_CACHE_DIR", str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = call(*QUICK, "--json")
    assert result.code == 0
    (warning_line,) = [
        line for line in result.err.splitlines() if "cannot be saved" in line
    ]
    assert warning_line.startswith("rlxweb: measurements cannot be saved in")
    assert str(folder) in warning_line
    assert "RLX_CACHE_DIR" in warning_line
    (record,) = result.document["records"]
    assert record["file"] is None
    assert calibration_store.load(engine_identity(CPU_PLACE)) is not None
    assert call("calibrate", "--show", "--json").document["records"] == [record]
    result = call(*QUICK)
    assert result.code == 0
    assert "stored in" not in result.out


@pytest.mark.requires_wgpu
@pytest.mark.slow
def test_autotune_results_are_shown(
    call: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Autotuning results are shown by calibrate, devices and explain, only where
    requested.
    """
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(autotune, "AUTOTUNE_CASES", AUTOTUNE_CASES[:1])
    calibration_store.clear()
    device_args = ("--device", "vulkan:llvmpipe", "--budget-s", "0.5")
    assert "autotuning: " not in call("calibrate", *device_args).out
    assert (
        "autotuning: fft 32 × 2,048: " in call("calibrate", *device_args, "--race").out
    )
    device_rows = call("devices", "vulkan", "--json").document["devices"]
    assert device_rows[0]["raced"][0].startswith("fft 32 × 2,048: ")
    assert "autotuning: fft 32 × 2,048: " in call("devices", "vulkan", "-v").out
    times = (("welch_row_peaks", 1.0), ("welch_row_peaks, lane a row", 2.0))
    place = parse_place("vulkan:llvmpipe")
    record = known_record(place)
    assert record is not None
    calibration_store.save(
        replace(record, races=(AutotuneResult("welch_row_peaks", (64, 1024), times),))
    )
    explain_args = ("explain", "--n-fft", "256", "--device", "vulkan:llvmpipe")
    expected_line = (
        "autotuning on 'vulkan:llvmpipe': "
        "welch_row_peaks 64 × 1,024: welch_row_peaks; 2 × as"
    )
    assert expected_line in call(*explain_args).out
    raced = call(*explain_args, "--json").document["raced"]["vulkan:llvmpipe"]
    assert raced[0].startswith("welch_row_peaks")
    assert not call(*explain_args, "--json", "--cost-mode", "seed").document["raced"]
    calibration_store.clear()
