"""`rlxweb explain`: every way with its terms, the pick, and from where another wins."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from rlxweb.calibration.corrections import corrections
from rlxweb.calibration.stopwatch import Stopwatch
from rlxweb.cli import explain_command
from rlxweb.cost import Terms
from rlxweb.cost.kinds import assumed_cpu, assumed_gpu
from rlxweb.devices.place import CPU
from rlxweb.errors import OutOfMemory
from rlxweb.gpu.port import Want
from rlxweb.rlx import estimate_welch_peaks_costs
from rlxweb.signal.offers import engine_for
from tests.command_line import Call, Said
from tests.unit.cli.known import know, place_of

TERMS = {f.name for f in fields(Terms)} | {"total_ns"}
KEYS = {
    *("device", "engine", "adapter", "strategy", "how", "predicted_ns", "terms"),
    *("correction", "error", "measured_ns", "source", "blocker", "off"),
}
# batch, n_fft, k, segments
SIZES = [
    (1, 1, 1, 1),
    (1, 2, 2, 1),
    (7, 255, 3, 9),
    (32, 256, 16, 8),
    (5, 8191, 1, 2),
    (100_000, 4096, 2049, 3),
]


@pytest.fixture
def cpu_known() -> None:
    """The CPU counts as measured, with made-up figures."""
    know(CPU, assumed_cpu())


@pytest.fixture
def both(adapter: Want) -> tuple[str, ...]:
    """Options that ask for the CPU and for each adapter in turn."""
    return "--device", "cpu", "--device", str(place_of(adapter))


@pytest.fixture
def both_known(cpu_known: None, adapter: Want) -> None:
    """The CPU and the adapter are known, with the figures of a CPU and a real GPU."""
    know(place_of(adapter), assumed_gpu())


def numbers(batch: int, n_fft: int, k: int, segments: int) -> tuple[object, ...]:
    return (
        *("explain", "--batch", batch, "--n-fft", n_fft),
        *("--k", k, "--segments", segments),
    )


def job_of(said: Said) -> dict[str, Any]:
    assert (said.code, said.err) == (0, "")
    (job,) = said.record["jobs"]
    return job


def ways(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The candidates by device, strategy and how."""
    found = {
        " ".join(filter(None, (c["device"], c["strategy"], c["how"]))): c
        for c in job["candidates"]
    }
    assert len(found) == len(job["candidates"])
    return found


def check_candidates(found: list[dict[str, Any]]) -> None:
    """What holds of every list: keys, sums, and the fastest prediction first."""
    assert found
    for one in found:
        assert set(one) == KEYS
        if one["terms"] is not None:
            assert set(one["terms"]) == TERMS
            parts = [v for k, v in one["terms"].items() if k.endswith("_ns")]
            total = one["terms"]["total_ns"]
            assert math.fsum(parts) - total == pytest.approx(total)
            assert min(parts) >= 0
        if one["blocker"]:
            assert one["predicted_ns"] is None
        elif one["terms"] is not None:
            whole = one["terms"]["total_ns"] * one["correction"]
            assert one["predicted_ns"] == pytest.approx(whole)
            assert one["predicted_ns"] > 0
            assert (one["error"] or 0.0) >= 0
    times = [
        math.inf if c["predicted_ns"] is None else c["predicted_ns"] for c in found
    ]
    assert times == sorted(times)


def test_the_prose_names_the_pick_its_terms_and_what_is_blocked(
    call: Call, cpu_known: None
) -> None:
    said = call(*numbers(32, 256, 16, 8), "--device", "cpu")
    assert (said.code, said.err) == (0, "")
    title, pick, blank, head, fast, terms, ultra, *rest = said.out.splitlines()
    assert title == "Welch peaks of 32 rows, 8 × 256 samples, k 16"
    name = f"NumPy {np.__version__}"
    assert re.fullmatch(
        rf"fast on {name}: predicted [\d.]+ [mu]s \(calibrated\) "
        r"\(rows 32, n_fft 256, segments 8, k 16\)",
        pick,
    ), pick
    assert (blank, head) == ("", "candidates, fastest prediction first:")
    assert re.fullmatch(
        rf"  fast on {name}   predicted [\d.]+ [mu]s \(calibrated, model ±\d+%\)", fast
    ), fast
    assert re.match(r"      1 launch, (dispatch .*, )?compute [\d.]+ [mu]s", terms)
    assert ultra == (
        f"  ultra on {name}  not taken: it averages 1 segment only; "
        "a min_segments of 1 allows that"
    )
    assert rest == ["", "crossover: CPU at every batch up to 65,536 on this machine"]


@pytest.mark.parametrize("size", SIZES)
def test_the_document_holds_every_way_and_its_terms_add_up(
    call: Call, size: tuple[int, int, int, int]
) -> None:
    """The document and each decision have a schema, and terms add up."""
    said = call(*numbers(*size), "--device", "cpu", "--json")
    assert set(said.record) == {"schema", "rlxweb", "jobs", "raced"}
    assert said.record["schema"] == "rlxweb.explain_command/1"
    job = job_of(said)
    assert {"job", "schema", "what", "why", "numbers", "candidates"} == set(job)
    assert job["schema"] == "rlxweb.explain/1"
    told = dict(job["numbers"])
    assert told.pop("crossover").startswith("CPU at every batch")
    names = ("rows", "n_fft", "k", "segments")
    assert told == dict(zip(names, size, strict=True))
    check_candidates(job["candidates"])
    found = ways(job)
    assert set(found) == {"cpu fast host", "cpu ultra host"}
    assert found["cpu fast host"]["source"] == "assumed"
    assert found["cpu fast host"]["error"] >= 0
    assert found["cpu ultra host"]["blocker"]
    assert all(c["measured_ns"] is None for c in job["candidates"])


def test_more_work_is_predicted_to_take_longer(call: Call, cpu_known: None) -> None:
    """Numbers left out are 32, 256, 16 and 8; a larger one takes longer."""

    def predicted(*args: object) -> float:
        said = call("explain", "--device", "cpu", "--json", *args)
        return ways(job_of(said))["cpu fast host"]["predicted_ns"]

    usual = predicted()
    explicit = ("--batch", 32, "--n-fft", 256, "--k", 16, "--segments", 8)
    assert predicted(*explicit) == usual
    for more in ("--batch", 320), ("--n-fft", 2048), ("--segments", 80):
        assert predicted(*more) > usual


def test_ultra_is_open_where_one_segment_will_do(call: Call, cpu_known: None) -> None:
    """An eighth of the segments is less work, so it is the pick."""
    args = *numbers(512, 256, 16, 8), "--device", "cpu", "--json"
    job = job_of(call(*args, "--min-segments", 1))
    found = ways(job)
    assert found["cpu ultra host"]["blocker"] == ""
    assert job["what"].startswith("ultra on NumPy")
    assert job["candidates"][0] == found["cpu ultra host"]
    assert ways(job_of(call(*args, "--min-segments", 2)))["cpu ultra host"]["blocker"]


def test_earlier_runs_are_told_beside_the_model(
    call: Call, cpu_known: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terms stay the model's own; the prediction is theirs times the factor."""
    args = *numbers(32, 256, 16, 8), "--device", "cpu"
    plain = ways(job_of(call(*args, "--json")))["cpu fast host"]
    monkeypatch.setattr(corrections, "factor", lambda bucket: 2.5)
    job = job_of(call(*args, "--json"))
    check_candidates(job["candidates"])
    taught = ways(job)["cpu fast host"]
    assert taught["terms"] == plain["terms"]
    assert taught["correction"] == 2.5
    assert taught["predicted_ns"] == pytest.approx(2.5 * plain["predicted_ns"])
    assert "x2.50 by earlier runs" in call(*args).out


def test_a_device_named_twice_is_listed_once(call: Call) -> None:
    twice = "--device", "cpu", "--device", " CPU "
    assert len(job_of(call("explain", *twice, "--json"))["candidates"]) == 2


def test_a_device_has_all_the_terms(
    call: Call, both_known: None, both: tuple[str, ...], adapter: Want
) -> None:
    """Launches, waits and transfers; searching on the host brings the spectrum back."""
    args = *numbers(4096, 256, 4, 8), *both
    job = job_of(call(*args, "--json"))
    check_candidates(job["candidates"])
    found = ways(job)
    name = adapter.backends[0]
    assert set(found) == {
        *("cpu fast host", "cpu ultra host", f"{name} learned"),
        *(f"{name} fused fused_op", f"{name} fused block_fft_host"),
    }
    fused = found[f"{name} fused fused_op"]
    block = found[f"{name} fused block_fft_host"]
    assert fused["adapter"] == adapter.name
    assert fused["source"] == "calibrated"
    for one in (fused["terms"], block["terms"]):
        assert one["launches"] >= 1
        assert one["syncs"] == 1
        for term in ("dispatch", "sync", "upload", "compute", "readback"):
            assert one[f"{term}_ns"] > 0, term
    assert block["terms"]["readback_ns"] > fused["terms"]["readback_ns"]
    assert block["terms"]["host_ns"] > fused["terms"]["host_ns"] == 0
    assert "trained model" in found[f"{name} learned"]["blocker"]
    text = call(*args).out
    line = text.splitlines()[text.splitlines().index("") + 3]
    for word in ("launch", "1 wait", "dispatch", "sync", "upload", "compute"):
        assert word in line
    assert "read-back" in line


def test_the_crossover_is_where_the_picks_change(
    call: Call, both_known: None, both: tuple[str, ...]
) -> None:
    """The pick below the batch it names is the CPU's, and from it on the device's."""
    first = job_of(call(*numbers(1, 256, 16, 8), *both, "--json"))
    text = first["numbers"]["crossover"]
    found = re.match(r"CPU below batch ([\d,]+), fused on (.*) from batch \1", text)
    assert found, text
    batch = int(found[1].replace(",", ""))
    picks = [
        job_of(call(*numbers(rows, 256, 16, 8), *both, "--json"))["what"]
        for rows in (batch // 2, batch)
    ]
    assert picks[0].startswith("fast on NumPy")
    assert picks[1] == f"fused on {found[2]}"


def test_a_software_device_nobody_measured_is_not_guessed_at(
    call: Call, monkeypatch: pytest.MonkeyPatch, both: tuple[str, ...], adapter: Want
) -> None:
    """An unmeasured software device is blocked with advice; alone it is the pick."""
    job = job_of(call("explain", *both, "--json"))
    name, only = adapter.backends[0], both[2:]
    blocked = ways(job)[f"{name} fused fused_op"]
    assert "`rlxweb calibrate` measures it" in blocked["blocker"]
    assert blocked["predicted_ns"] is blocked["terms"] is None
    assert job["what"].startswith("fast on NumPy")
    alone = call("explain", *only).out
    assert alone.splitlines()[1].startswith(f"fused on {adapter.name}")
    assert "nothing is known of its speed" in alone
    assert "no engine can run it" not in alone
    monkeypatch.setattr(explain_command, "MEASURE", ticking(1_000_000))
    ran = ways(job_of(call("explain", *only, "--measure", "--json")))
    assert ran[f"{name} fused fused_op"]["measured_ns"] == 1_000_000
    assert ran[f"{name} fused block_fft_host"]["measured_ns"] == 1_000_000
    assert ran[f"{name} learned"]["measured_ns"] is None


@pytest.mark.requires_wgpu
def test_the_default_is_every_engine(call: Call) -> None:
    """The CPU and at least one adapter are explained by default, no way twice."""
    found = job_of(call("explain", "--json"))["candidates"]
    listed = [(c["engine"], c["strategy"], c["how"]) for c in found]
    assert len(set(listed)) == len(listed)
    engines = {engine for engine, _, _ in listed}
    assert f"NumPy {np.__version__}" in engines
    assert len(engines) > 1


def ticking(step: int) -> Stopwatch:
    """Every reading of the clock is `step` ns after the one before."""
    ticks = itertools.count(0, step)
    return Stopwatch(sample_ns=1.0, samples=1, least=1, clock=lambda: next(ticks))


def test_measured_times_stand_beside_the_predicted_ones(
    call: Call, cpu_known: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open ways are measured, and how far off the prediction was is said."""
    monkeypatch.setattr(explain_command, "MEASURE", ticking(5_000_000))
    args = *numbers(2, 64, 4, 2), "--device", "cpu", "--measure"
    job = job_of(call(*args, "--json"))
    check_candidates(job["candidates"])
    found = ways(job)
    assert found["cpu fast host"]["measured_ns"] == 5_000_000
    assert found["cpu ultra host"]["measured_ns"] is None
    miss = found["cpu fast host"]["predicted_ns"] / 5e6 - 1
    assert f", measured 5.00 ms ({miss:+.0%})" in call(*args).out
    both = job_of(call(*args, "--min-segments", 1, "--json"))
    assert [c["measured_ns"] for c in both["candidates"]] == [5_000_000] * 2


def test_a_way_that_fails_when_measured_is_blocked_by_that(
    call: Call, cpu_known: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are measured and explained all the same."""

    def broken(candidate: Any, job: Any) -> Any:
        if candidate.strategy == "ultra":
            raise OutOfMemory("run", "no room for 5 GiB")
        return engine_for(candidate, job)

    monkeypatch.setattr(explain_command, "engine_for", broken)
    monkeypatch.setattr(explain_command, "MEASURE", ticking(1_000_000))
    args = *numbers(2, 64, 4, 2), "--device", "cpu", "--min-segments", 1
    job = job_of(call(*args, "--measure", "--json"))
    check_candidates(job["candidates"])
    found = ways(job)
    assert "no room for 5 GiB" in found["cpu ultra host"]["blocker"]
    assert found["cpu fast host"]["measured_ns"] == 1_000_000
    assert job["what"].startswith("fast on NumPy")


def test_measuring_more_than_fits_is_refused_before_it_is_tried(call: Call) -> None:
    args = *numbers(10**9, 256, 16, 8), "--device", "cpu"
    assert call(*args, "--json").code == 0
    said = call(*args, "--measure")
    assert (said.code, said.out) == (2, "")
    assert "--measure: the rows take 4.29e+03 GiB; at most 1.5 GiB" in said.err


def test_seed_mode_shows_rlxs_four_estimates(call: Call) -> None:
    """Seed mode shows RLX's estimates digit for digit, without opening a device."""
    args = *numbers(32, 256, 16, 8), "--cost-mode", "seed", "--device", "cuda"
    job = job_of(call(*args, "--json"))
    check_candidates(job["candidates"])
    found = ways(job)
    costs = estimate_welch_peaks_costs("cuda", 32, 256, 16)
    assert costs.rlx_ns == costs.learned_ns == math.inf
    assert {name: one["predicted_ns"] for name, one in found.items()} == {
        "cuda ultra": costs.ultra_ns,
        "cuda fast": costs.fast_ns,
        "cuda fused": None,
        "cuda learned": None,
    }
    assert {one["source"] for one in found.values()} == {"seed"}
    assert job["numbers"]["notes"] == [explain_command.SEED_NOTE]
    assert "crossover" not in job["numbers"]
    text = call(*args).out
    assert f"note: {explain_command.SEED_NOTE}" in text
    assert "crossover" not in text
    assert "not taken: RLX's formulas rule it out here" in text
