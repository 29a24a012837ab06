"""Command `rlxweb bench`: times of engines, the JSON document, failures, Ctrl-C,
--compare.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlxweb.cli import bench_cases, bench_engines
from rlxweb.cli.bench_cases import BenchmarkCase, benchmark_cases
from rlxweb.cli.bench_compare import SCHEMA
from rlxweb.cli.bench_engines import EngineBenchmark, gpu_roofline
from rlxweb.engines.evaluate import evaluate
from rlxweb.engines.pool import pool
from rlxweb.engines.registry import ROWS
from tests.cli_runners import CommandRunner
from tests.numpy_test_engine import NumpyTestEngine, NumpyTestEngineOpener


@pytest.fixture(autouse=True)
def tiny_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn calibration off and make the cases tiny."""
    monkeypatch.setenv("RLX_CALIBRATION", "off")

    def tiny_benchmark_cases(quick: bool = False) -> list[BenchmarkCase]:
        welch = [bench_cases._welch_case(2, data) for data in ("device", "host")]
        return [bench_cases._copy_case(64), bench_cases._reduction_case(4, 8), *welch]

    monkeypatch.setattr(bench_cases, "benchmark_cases", tiny_benchmark_cases)


@pytest.mark.parametrize(
    "case", benchmark_cases(quick=True), ids=lambda case: f"{case.name}, {case.memory}"
)
def test_bytes_count_inputs_and_results(case: BenchmarkCase) -> None:
    """Every input is read once and every result written once, as the document
    counts.
    """
    feeds = case.make_feeds()
    (out,) = map(np.asarray, evaluate(case.build_graph(case.n_rows), feeds))
    assert case.nbytes == sum(x.nbytes for x in feeds.values()) + out.nbytes
    assert case.operations > 0


def test_full_cases_state_exact_counts() -> None:
    counts = {case.name: (case.nbytes, case.operations) for case in benchmark_cases()}
    assert counts["copy"] == (8 << 25, 1 << 25)
    assert counts["matrix product"] == (12 << 22, 2 << 33)
    assert counts["FFT"] == (16 << 23, 50 << 23)
    assert counts["reduction"] == ((4 << 25) + (4 << 12), 4096 * 8191)


def test_document_of_cpu(call: CommandRunner) -> None:
    """Rates follow from the counts and the median."""
    result = call("bench", "--device", "cpu", "--json", "-")
    assert result.code == 0, result.err
    document = result.document
    assert (document["schema"], document["partial"]) == (SCHEMA, False)
    (engine,) = document["engines"]
    assert (engine["place"], engine["software"], engine["why"]) == ("cpu", False, "")
    assert [entry["data"] for entry in document["cases"]] == ["device"] * 3 + ["host"]
    for entry in document["cases"]:
        (row,) = entry["rows"]
        assert row["why"] == ""
        assert row["samples"] >= 7
        assert row["gb_s"] == pytest.approx(entry["bytes"] / row["ns"])
        assert row["tflop_s"] == pytest.approx(entry["operations"] / row["ns"] / 1e3)
        assert row["of_memory"] is None, "its roof is not known"
        assert entry["counted"]


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register a device `made` whose results are all off by one."""

    async def open_(adapter: str) -> NumpyTestEngine:
        return NumpyTestEngine(result_offset=1.0)

    shop = NumpyTestEngineOpener()
    monkeypatch.setattr(shop, "open_engine", open_)
    monkeypatch.setitem(ROWS, "made", shop.registry_row())
    pool.close_all()
    yield
    pool.close_all()  # the next test opens a device of its own under this name


@pytest.mark.usefixtures("wrong")
def test_wrong_engine_has_row_with_reason(call: CommandRunner) -> None:
    """A wrong engine has no time; the others are measured, and the exit code is 1."""
    result = call("bench", "--device", "cpu", "--device", "made", "--json", "-")
    assert result.code == 1
    right_row, wrong_row = result.document["cases"][0]["rows"]
    assert right_row["ns"] > 0
    assert wrong_row["ns"] is None
    assert "wrong result" in wrong_row["why"]
    assert "wrong result" in result.err


def test_engine_that_fails_to_open_has_row(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(label: str, adapter: str = "") -> Any:
        raise RuntimeError("the driver is broken")

    monkeypatch.setattr(bench_engines.pool, "engine", fail)
    result = call("bench", "--device", "cpu", "--json", "-")
    assert result.code == 1
    for entry in result.document["cases"]:
        assert entry["rows"][0]["why"] == "RuntimeError: the driver is broken"


@pytest.mark.requires_wgpu
def test_a_software_driver_is_marked(call: CommandRunner) -> None:
    result = call("bench", "--device", "vulkan:llvmpipe", "--json", "-")
    assert result.code == 0, result.err
    (engine,) = result.document["engines"]
    assert engine["software"]
    assert engine["note"].startswith(
        "software driver: meant for correctness, not speed"
    )


def test_ctrl_c_keeps_finished_cases(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    original = EngineBenchmark._measure_case

    def stop(self: EngineBenchmark, case: BenchmarkCase) -> Any:
        if case.name == "reduction":
            raise KeyboardInterrupt
        return original(self, case)

    monkeypatch.setattr(EngineBenchmark, "_measure_case", stop)
    path = tmp_path / "part.json"
    result = call("bench", "--device", "cpu", "--json", path)
    assert result.code == 130
    document = json.loads(path.read_text("utf-8"))
    assert document["partial"] is True
    assert [entry["case"] for entry in document["cases"]] == ["copy"]
    assert "partial: interrupted" in result.out


def write_document(path: Path, **ns: float | None) -> str:
    """Write a `--json` file with one case and the times of its engines, and return its
    path.
    """
    rows = [{"engine": name, "ns": value} for name, value in ns.items()]
    case = {"case": "copy", "shape": "8", "data": "device", "rows": rows}
    path.write_text(json.dumps({"schema": SCHEMA, "cases": [case]}), "utf-8")
    return str(path)


def test_two_files_are_compared(call: CommandRunner, tmp_path: Path) -> None:
    """Engines in only one file have no ratio; the fastest of both always has one."""
    a = write_document(tmp_path / "a.json", cpu=4e6, vulkan=2e6)
    b = write_document(tmp_path / "b.json", cpu=2e6, metal=None)
    result = call("bench", "--compare", a, b)
    assert result.code == 0, result.err
    rows = [
        line.split("memory")[1].split()
        for line in result.out.splitlines()[2:]
        if "memory" in line
    ]
    assert rows == [
        "fastest 2.00 ms 2.00 ms 1.00".split(),
        "cpu 4.00 ms 2.00 ms 2.00".split(),
        "vulkan 2.00 ms not measured".split(),
        "metal not measured not measured".split(),
    ]


def test_vendor_rooflines_are_found_by_name() -> None:
    assert gpu_roofline("NVIDIA H100 PCIe")[0] == 2039
    assert gpu_roofline("NVIDIA H100 80GB HBM3")[0] == 3350
    assert np.isnan(gpu_roofline("llvmpipe")[0])
