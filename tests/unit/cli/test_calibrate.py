"""`rlxweb calibrate`: what is measured, shown and kept."""

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

from rlxweb.calibration import measure as calibrate
from rlxweb.calibration import races
from rlxweb.calibration.known import known_record, measure_now
from rlxweb.calibration.races import HEATS
from rlxweb.calibration.stopwatch import Stopwatch
from rlxweb.calibration.store import file_name, store
from rlxweb.cli import calibrate_command
from rlxweb.cli.calibrate_command import rate
from rlxweb.cost.race import Race
from rlxweb.cost.record import Point
from rlxweb.cost.record_json import from_json
from rlxweb.devices.place import CPU, identity_of, parse_place
from rlxweb.gpu.port import Want
from tests.command_line import Call, Said, forked
from tests.unit.cli.known import POINTS, cpu_record, keep, place_of

QUICK = "calibrate", "--device", "cpu", "--budget-s", 0.2
IN_BRIEF = """
import sys
from itertools import islice
from rlxweb.calibration import measure
from rlxweb.calibration.stopwatch import Stopwatch
from rlxweb.cli.main import main
measure.Stopwatch = lambda: Stopwatch(sample_ns=1e5, samples=3)
every = measure.kernel_jobs
measure.kernel_jobs = lambda place: islice(every(place), 40)
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Said, Path]:
    """A real run in a process of its own, and where it kept its figures.

    It takes the least samples, short ones, and not of every kernel.
    """
    place = tmp_path_factory.mktemp("calibrated")
    args = "calibrate", "--device", "cpu", "--budget-s", 60, "--json"
    return forked("-c", IN_BRIEF, *args, RLX_CACHE_DIR=str(place)), place


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
    """The record that is told is one file in the folder asked for, and can be read."""
    said, place = real
    (record,) = said.record["records"]
    path = Path(record.pop("file"))
    assert [p.resolve() for p in place.iterdir()] == [path.resolve()]
    document = json.loads(path.read_text("utf-8"))
    assert document == record
    assert from_json(document).identity == identity_of(CPU)


def test_the_table_says_what_was_measured_and_where_it_is_kept(
    call: Call, cache: Path
) -> None:
    """A line on the engine, a row per figure, a line per thing left out."""
    said = call(*QUICK)
    assert (said.code, said.err) == (0, "")
    head, columns, *rest = said.out.splitlines()
    (path,) = cache.iterdir()
    assert head.startswith("NumPy ")
    assert "(numpy) as 'cpu': " in head
    assert head.endswith(f" s, kept in {path}")
    assert columns.split() == ["what", "size", "time", "spread", "rate"]
    kept = from_json(json.loads(path.read_text("utf-8")))
    assert f" {len(kept.points)} figures in " in head
    assert [line.split()[0] for line in rest[: len(kept.points)]] == [
        p.what for p in kept.points
    ]
    assert rest[len(kept.points) :] == [f"left out: {why}" for why in kept.left_out]
    assert kept.left_out[-1].endswith(": the time was over")


def test_a_device_is_measured_with_its_trips(
    call: Call, monkeypatch: pytest.MonkeyPatch, adapter: Want
) -> None:
    """Submitting, starting a kernel, and bytes there and back, once each."""
    hasty = Stopwatch(sample_ns=1.0, samples=1, least=1)
    monkeypatch.setattr(calibrate, "Stopwatch", lambda: hasty)
    monkeypatch.setattr(calibrate, "kernel_jobs", lambda place: ())
    briefly = partial(measure_now, jobs=lambda place: ())
    monkeypatch.setattr(calibrate_command, "measure_now", briefly)
    args = "calibrate", "--device", place_of(adapter), "--budget-s", 300, "--json"
    (record,) = call(*args).record["records"]
    assert record["device"] == record["backend"] == adapter.backends[0]
    assert adapter.name in record["engine"]
    found = [p["what"] for p in record["points"] if p["what"] != "cold_start"]
    assert found[:2] == ["submit", "dispatch"]
    assert found.count("upload") == found.count("readback") == 3
    assert {"run", "compile"} < set(found)
    was_open = "cold_start: the device was open already"
    assert len(found) < len(record["points"]) or was_open in record["left_out"]


def test_show_of_nothing_says_how_to_go_on(call: Call, cache: Path) -> None:
    said = call("calibrate", "--show")
    assert said.code == 0
    assert said.out == "nothing was measured yet; `rlxweb calibrate` does it\n"
    assert call("calibrate", "--show", "--json").record["records"] == []
    assert not cache.exists()


def test_show_measures_nothing(
    call: Call, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`calibrate --show` tells what the files hold, also those of other versions."""
    never = Mock(side_effect=AssertionError("nothing should be measured"))
    monkeypatch.setattr(calibrate_command, "measure_now", never)
    other = cpu_record(rlxweb="0.0.1", left_out=("fft: no time",))
    keep(cpu_record(), other)
    said = call("calibrate", "--show")
    assert said.code == 0
    heads = [line for line in said.out.splitlines() if "figures in" in line]
    assert len(heads) == 2
    assert all(": 3 figures in 3.2 s, kept in " in line for line in heads)
    rows = [" ".join(line.split()) for line in said.out.splitlines()]
    assert "call 1.50 us 12%" in rows
    assert "copy bytes 4,000,000 500 us 50% 8 GB/s" in rows
    assert "cold_start 2.50 s" in rows
    assert "left out: fft: no time" in rows


def test_show_as_json_names_the_files(call: Call, cache: Path) -> None:
    keep(cpu_record())
    (record,) = call("calibrate", "--show", "--json").record["records"]
    assert Path(record.pop("file")) == cache / file_name(identity_of(CPU))
    assert from_json(record) == cpu_record()


def test_show_of_a_device_leaves_the_others_out(call: Call) -> None:
    keep(cpu_record(), replace(cpu_record(), engine="another", device="gpu"))
    args = "calibrate", "--show", "--json"
    assert len(call(*args).record["records"]) == 2
    (record,) = call(*args, "--device", "cpu").record["records"]
    assert record["device"] == "cpu"
    said = call(*args, "--device", "abacus")
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


SPOILED: dict[str, Callable[[dict[str, Any]], str]] = {
    "cut short": lambda good: json.dumps(good)[:-40],
    "another engine's": lambda good: json.dumps(good | {"engine": "abacus"}),
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_file_that_is_not_ours_is_measured_anew(
    call: Call, cache: Path, spoiled: str
) -> None:
    """A file that is not ours is never believed; it is written over without a word."""
    good = cpu_record().as_json()
    path = cache / file_name(identity_of(CPU))
    cache.mkdir()
    path.write_text(SPOILED[spoiled](good), "utf-8")
    args = "calibrate", "--show", "--device", "cpu", "--json"
    assert call(*args).record["records"] == []
    said = call(*QUICK, "--json")
    assert (said.code, said.err) == (0, "")
    assert list(cache.iterdir()) == [path]
    store.forget()
    (shown,) = call(*args).record["records"]
    assert shown == said.record["records"][0]
    assert shown["made"] != good["made"]


def test_measuring_again_replaces_what_was_known(call: Call, cache: Path) -> None:
    """RLX_CALIBRATION=off, as every test has it, is about what nobody asked for."""
    assert os.environ["RLX_CALIBRATION"] == "off"
    keep(cpu_record())
    assert call(*QUICK).code == 0
    (path,) = cache.iterdir()
    assert from_json(json.loads(path.read_text("utf-8"))).points != POINTS


def test_without_a_folder_the_figures_last_as_long_as_the_process(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be used is named, and the command still does its work."""
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "cache"
    monkeypatch.setenv("RLX_CACHE_DIR", str(place))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        said = call(*QUICK, "--json")
    assert said.code == 0
    (told,) = [line for line in said.err.splitlines() if "cannot be kept" in line]
    assert told.startswith("rlxweb: measurements cannot be kept in")
    assert str(place) in told
    assert "RLX_CACHE_DIR" in told
    (record,) = said.record["records"]
    assert record["file"] is None
    assert store.load(identity_of(CPU)) is not None
    assert call("calibrate", "--show", "--json").record["records"] == [record]
    said = call(*QUICK)
    assert said.code == 0
    assert "kept in" not in said.out


@pytest.mark.requires_wgpu
@pytest.mark.slow
def test_races_are_shown(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Races are shown by calibrate, devices and explain, only where asked for."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(races, "HEATS", HEATS[:1])
    store.forget()
    only = ("--device", "vulkan:llvmpipe", "--budget-s", "0.5")
    assert "raced: " not in call("calibrate", *only).out
    assert "raced: fft 32 × 2,048: " in call("calibrate", *only, "--race").out
    told = call("devices", "vulkan", "--json").record["devices"]
    assert told[0]["raced"][0].startswith("fft 32 × 2,048: ")
    assert "raced: fft 32 × 2,048: " in call("devices", "vulkan", "-v").out
    ways = (("welch_row_peaks", 1.0), ("welch_row_peaks, lane a row", 2.0))
    place = parse_place("vulkan:llvmpipe")
    known = known_record(place)
    assert known is not None
    store.save(replace(known, races=(Race("welch_row_peaks", (64, 1024), ways),)))
    explain = ("explain", "--n-fft", "256", "--device", "vulkan:llvmpipe")
    said = "'vulkan:llvmpipe' raced welch_row_peaks 64 × 1,024: welch_row_peaks; 2 × as"
    assert said in call(*explain).out
    raced = call(*explain, "--json").record["raced"]["vulkan:llvmpipe"]
    assert raced[0].startswith("welch_row_peaks")
    assert not call(*explain, "--json", "--cost-mode", "seed").record["raced"]
    store.forget()
