"""`rlxweb bench`: figures of engines, the record, failures, Ctrl-C, --compare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlxweb.backends.evaluate import evaluate
from rlxweb.backends.pool import pool
from rlxweb.backends.registry import ROWS
from rlxweb.cli import bench_cases, bench_engines
from rlxweb.cli.bench_cases import Case, cases
from rlxweb.cli.bench_compare import SCHEMA
from rlxweb.cli.bench_engines import Bench, roof_of
from tests.command_line import Call, check_refused
from tests.made_engine import MadeEngine, Shop


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is calibrated, and the cases are tiny."""
    monkeypatch.setenv("RLX_CALIBRATION", "off")

    def tiny(quick: bool = False) -> list[Case]:
        welch = [bench_cases._welch(2, data) for data in ("device", "host")]
        return [bench_cases._copy(64), bench_cases._sums(4, 8), *welch]

    monkeypatch.setattr(bench_cases, "cases", tiny)


@pytest.mark.parametrize(
    "case", cases(quick=True), ids=lambda case: f"{case.name}, {case.data}"
)
def test_bytes_are_those_of_inputs_and_results(case: Case) -> None:
    """Every input read once and every result written once, as the record counts."""
    feeds = case.feeds()
    (out,) = map(np.asarray, evaluate(case.build(case.rows), feeds))
    assert case.nbytes == sum(x.nbytes for x in feeds.values()) + out.nbytes
    assert case.operations > 0


def test_full_cases_state_exact_counts() -> None:
    counts = {case.name: (case.nbytes, case.operations) for case in cases()}
    assert counts["copy"] == (8 << 25, 1 << 25)
    assert counts["matrix product"] == (12 << 22, 2 << 33)
    assert counts["FFT"] == (16 << 23, 50 << 23)
    assert counts["reduction"] == ((4 << 25) + (4 << 12), 4096 * 8191)


def test_the_record_of_the_cpu(call: Call) -> None:
    """Rates follow from the counts and the median."""
    said = call("bench", "--device", "cpu", "--json", "-")
    assert said.code == 0, said.err
    record = said.record
    assert (record["schema"], record["partial"]) == (SCHEMA, False)
    (engine,) = record["engines"]
    assert (engine["place"], engine["software"], engine["why"]) == ("cpu", False, "")
    assert [entry["data"] for entry in record["cases"]] == ["device"] * 3 + ["host"]
    for entry in record["cases"]:
        (row,) = entry["rows"]
        assert row["why"] == ""
        assert row["samples"] >= 7
        assert row["gb_s"] == pytest.approx(entry["bytes"] / row["ns"])
        assert row["tflop_s"] == pytest.approx(entry["operations"] / row["ns"] / 1e3)
        assert row["of_memory"] is None, "its roof is not known"
        assert entry["counted"]


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A device `made` whose results are all off by one."""

    async def open_(adapter: str) -> MadeEngine:
        return MadeEngine(off=1.0)

    shop = Shop()
    monkeypatch.setattr(shop, "open", open_)
    monkeypatch.setitem(ROWS, "made", shop.row())
    pool.close_all()
    yield
    pool.close_all()  # the next test opens a device of its own under this name


@pytest.mark.usefixtures("wrong")
def test_an_engine_that_is_wrong_is_a_row_with_its_reason(call: Call) -> None:
    """A wrong engine has no time; the others are measured, and the exit code is 1."""
    said = call("bench", "--device", "cpu", "--device", "made", "--json", "-")
    assert said.code == 1
    right, wrong_ = said.record["cases"][0]["rows"]
    assert right["ns"] > 0
    assert wrong_["ns"] is None
    assert "wrong result" in wrong_["why"]
    assert "wrong result" in said.err


def test_an_engine_that_does_not_open_is_a_row(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(label: str, adapter: str = "") -> Any:
        raise RuntimeError("the driver is broken")

    monkeypatch.setattr(bench_engines.pool, "backend", fail)
    said = call("bench", "--device", "cpu", "--json", "-")
    assert said.code == 1
    for entry in said.record["cases"]:
        assert entry["rows"][0]["why"] == "RuntimeError: the driver is broken"


@pytest.mark.requires_wgpu
def test_a_software_driver_is_marked(call: Call) -> None:
    said = call("bench", "--device", "vulkan:llvmpipe", "--json", "-")
    assert said.code == 0, said.err
    (engine,) = said.record["engines"]
    assert engine["software"]
    assert engine["note"].startswith("software driver: for correctness, not speed")


def test_ctrl_c_keeps_finished_cases(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measured = Bench._measured

    def stop(self: Bench, case: Case) -> Any:
        if case.name == "reduction":
            raise KeyboardInterrupt
        return measured(self, case)

    monkeypatch.setattr(Bench, "_measured", stop)
    path = tmp_path / "part.json"
    said = call("bench", "--device", "cpu", "--json", path)
    assert said.code == 130
    record = json.loads(path.read_text("utf-8"))
    assert record["partial"] is True
    assert [entry["case"] for entry in record["cases"]] == ["copy"]
    assert "partial: stopped" in said.out


def record_of(path: Path, **ns: float | None) -> str:
    """A file of `--json` with one case and the times of its engines."""
    rows = [{"engine": name, "ns": value} for name, value in ns.items()]
    case = {"case": "copy", "shape": "8", "data": "device", "rows": rows}
    path.write_text(json.dumps({"schema": SCHEMA, "cases": [case]}), "utf-8")
    return str(path)


def test_two_files_are_compared(call: Call, tmp_path: Path) -> None:
    """Engines of one alone have no ratio; the fastest of both always has."""
    a = record_of(tmp_path / "a.json", cpu=4e6, vulkan=2e6)
    b = record_of(tmp_path / "b.json", cpu=2e6, metal=None)
    said = call("bench", "--compare", a, b)
    assert said.code == 0, said.err
    rows = [
        line.split("memory")[1].split()
        for line in said.out.splitlines()[2:]
        if "memory" in line
    ]
    assert rows == [
        "the fastest 2.00 ms 2.00 ms 1.00".split(),
        "cpu 4.00 ms 2.00 ms 2.00".split(),
        "vulkan 2.00 ms no time".split(),
        "metal no time no time".split(),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"schema": "rlxweb.bench.gpu/1"}', "its schema is 'rlxweb.bench.gpu/1'"),
        ("[]", "its schema is None"),
        ("no JSON", "it cannot be read"),
        (f'{{"schema": "{SCHEMA}", "cases": [{{}}]}}', "it is damaged"),
        (f'{{"schema": "{SCHEMA}", "cases": []}}', "no case in common"),
    ],
)
def test_other_files_are_refused(
    call: Call, tmp_path: Path, text: str, why: str
) -> None:
    other = tmp_path / "other.json"
    other.write_text(text, "utf-8")
    right = record_of(tmp_path / "a.json", cpu=1.0)
    check_refused(call("bench", "--compare", right, other), 2, why)


def test_compare_stands_alone(call: Call, tmp_path: Path) -> None:
    a = record_of(tmp_path / "a.json", cpu=1.0)
    check_refused(call("bench", "--quick", "--compare", a, a), 2, "it stands alone")


def test_makers_figures_are_found_by_name() -> None:
    assert roof_of("NVIDIA H100 PCIe")[0] == 2039
    assert roof_of("NVIDIA H100 80GB HBM3")[0] == 3350
    assert np.isnan(roof_of("llvmpipe")[0])
