"""Command `rlxweb explain`: every candidate with its terms, the pick, and the
crossover.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from rlxweb.cli import explain_command
from rlxweb.core.errors import OutOfMemory
from rlxweb.cost import Terms
from rlxweb.cost.work_kinds import assumed_cpu, assumed_gpu
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.rlx import estimate_welch_peaks_costs
from rlxweb.select.calibration.observed_run_corrections import corrections
from rlxweb.select.calibration.stopwatch import Stopwatch
from rlxweb.select.device_and_adapter import CPU_PLACE
from rlxweb.signal.welch_candidates import engine_for_candidate
from tests.cli_runners import CommandResult, CommandRunner
from tests.unit.cli.fake_calibrations import adapter_place, save_calibration

TERMS = {f.name for f in fields(Terms)} | {"total_ns"}
KEYS = {
    *("device", "engine", "adapter", "strategy", "how", "predicted_ns", "terms"),
    *("correction", "error", "measured_ns", "source", "blocker", "off"),
}
# batch, n_fft, k, segments
SIZES = [
    (1, 1, 1, 1),
    (1, 3, 2, 1),
    (7, 255, 3, 9),
    (32, 256, 16, 8),
    (5, 8191, 1, 2),
    (100_000, 4096, 2049, 3),
]


@pytest.fixture
def cpu_known() -> None:
    """Save an invented calibration of the CPU."""
    save_calibration(CPU_PLACE, assumed_cpu())


@pytest.fixture
def both_device_args(adapter: AdapterRequest) -> tuple[str, ...]:
    """Options that name the CPU and each adapter in turn."""
    return "--device", "cpu", "--device", str(adapter_place(adapter))


@pytest.fixture
def both_known(cpu_known: None, adapter: AdapterRequest) -> None:
    """Save invented calibrations of the CPU and of the adapter."""
    save_calibration(adapter_place(adapter), assumed_gpu())


def size_args(batch: int, n_fft: int, k: int, segments: int) -> tuple[object, ...]:
    return (
        *("explain", "--batch", batch, "--n-fft", n_fft),
        *("--k", k, "--segments", segments),
    )


def only_job(result: CommandResult) -> dict[str, Any]:
    assert (result.code, result.err) == (0, "")
    (job,) = result.document["jobs"]
    return job


def candidates_by_name(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Candidates of a job by device, strategy and `how`."""
    candidates = {
        " ".join(filter(None, (c["device"], c["strategy"], c["how"]))): c
        for c in job["candidates"]
    }
    assert len(candidates) == len(job["candidates"])
    return candidates


def check_candidates(candidates: list[dict[str, Any]]) -> None:
    """Check the keys, the sums and the order (fastest prediction first) of a list of
    candidates.
    """
    assert candidates
    for candidate in candidates:
        assert set(candidate) == KEYS
        if candidate["terms"] is not None:
            assert set(candidate["terms"]) == TERMS
            parts = [v for k, v in candidate["terms"].items() if k.endswith("_ns")]
            total = candidate["terms"]["total_ns"]
            assert math.fsum(parts) - total == pytest.approx(total)
            assert min(parts) >= 0
        if candidate["blocker"]:
            assert candidate["predicted_ns"] is None
        elif candidate["terms"] is not None:
            corrected_ns = candidate["terms"]["total_ns"] * candidate["correction"]
            assert candidate["predicted_ns"] == pytest.approx(corrected_ns)
            assert candidate["predicted_ns"] > 0
            assert (candidate["error"] or 0.0) >= 0
    times = [
        math.inf if c["predicted_ns"] is None else c["predicted_ns"] for c in candidates
    ]
    assert times == sorted(times)


def test_text_names_pick_terms_and_blockers(
    call: CommandRunner, cpu_known: None
) -> None:
    result = call(*size_args(32, 256, 16, 8), "--device", "cpu")
    assert (result.code, result.err) == (0, "")
    title, pick, blank, head, fast, terms, ultra, *rest = result.out.splitlines()
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
        f"  ultra on {name}  excluded: this strategy averages only 1 "
        "segment, which requires min_segments=1"
    )
    assert rest == [
        "",
        "crossover: CPU is fastest at all batch sizes up to 65,536 on this machine",
    ]


@pytest.mark.parametrize("size", SIZES)
def test_document_holds_every_candidate_and_terms_add_up(
    call: CommandRunner, size: tuple[int, int, int, int]
) -> None:
    """The document and each decision have a schema, and terms add up."""
    result = call(*size_args(*size), "--device", "cpu", "--json")
    assert set(result.document) == {"schema", "rlxweb", "jobs", "raced"}
    assert result.document["schema"] == "rlxweb.explain_command/1"
    job = only_job(result)
    assert {"job", "schema", "what", "why", "numbers", "candidates"} == set(job)
    assert job["schema"] == "rlxweb.explain/1"
    job_numbers = dict(job["numbers"])
    assert job_numbers.pop("crossover").startswith("CPU is fastest at all batch sizes")
    names = ("rows", "n_fft", "k", "segments")
    assert job_numbers == dict(zip(names, size, strict=True))
    check_candidates(job["candidates"])
    candidates = candidates_by_name(job)
    assert set(candidates) == {"cpu fast host", "cpu ultra host"}
    assert candidates["cpu fast host"]["source"] == "assumed"
    assert candidates["cpu fast host"]["error"] >= 0
    assert candidates["cpu ultra host"]["blocker"]
    assert all(c["measured_ns"] is None for c in job["candidates"])


def test_more_work_is_predicted_to_take_longer(
    call: CommandRunner, cpu_known: None
) -> None:
    """The default sizes are 32, 256, 16 and 8; a larger one takes longer."""

    def predicted_ns(*args: object) -> float:
        result = call("explain", "--device", "cpu", "--json", *args)
        return candidates_by_name(only_job(result))["cpu fast host"]["predicted_ns"]

    usual = predicted_ns()
    explicit = ("--batch", 32, "--n-fft", 256, "--k", 16, "--segments", 8)
    assert predicted_ns(*explicit) == usual
    for more in ("--batch", 320), ("--n-fft", 2048), ("--segments", 80):
        assert predicted_ns(*more) > usual


def test_ultra_is_allowed_for_one_segment(call: CommandRunner, cpu_known: None) -> None:
    """An eighth of the segments is less work, so it is the pick."""
    args = *size_args(512, 256, 16, 8), "--device", "cpu", "--json"
    job = only_job(call(*args, "--min-segments", 1))
    candidates = candidates_by_name(job)
    assert candidates["cpu ultra host"]["blocker"] == ""
    assert job["what"].startswith("ultra on NumPy")
    assert job["candidates"][0] == candidates["cpu ultra host"]
    assert candidates_by_name(only_job(call(*args, "--min-segments", 2)))[
        "cpu ultra host"
    ]["blocker"]


def test_correction_is_shown_beside_model(
    call: CommandRunner, cpu_known: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terms stay the model's own; the prediction is their sum times the
    correction.
    """
    args = *size_args(32, 256, 16, 8), "--device", "cpu"
    plain = candidates_by_name(only_job(call(*args, "--json")))["cpu fast host"]
    monkeypatch.setattr(corrections, "factor", lambda bucket: 2.5)
    job = only_job(call(*args, "--json"))
    check_candidates(job["candidates"])
    corrected = candidates_by_name(job)["cpu fast host"]
    assert corrected["terms"] == plain["terms"]
    assert corrected["correction"] == 2.5
    assert corrected["predicted_ns"] == pytest.approx(2.5 * plain["predicted_ns"])
    assert "corrected by a factor of 2.50 based on earlier runs" in call(*args).out


def test_gpu_candidates_have_all_terms(
    call: CommandRunner,
    both_known: None,
    both_device_args: tuple[str, ...],
    adapter: AdapterRequest,
) -> None:
    """Launches, waits and transfers are priced; searching on the host reads the
    spectrum back.
    """
    args = *size_args(4096, 256, 4, 8), *both_device_args
    job = only_job(call(*args, "--json"))
    check_candidates(job["candidates"])
    candidates = candidates_by_name(job)
    name = adapter.backends[0]
    assert set(candidates) == {
        *("cpu fast host", "cpu ultra host", f"{name} learned"),
        *(f"{name} fused fused_op", f"{name} fused block_fft_host"),
    }
    fused = candidates[f"{name} fused fused_op"]
    block = candidates[f"{name} fused block_fft_host"]
    assert fused["adapter"] == adapter.name
    assert fused["source"] == "calibrated"
    for terms in (fused["terms"], block["terms"]):
        assert terms["launches"] >= 1
        assert terms["syncs"] == 1
        for term in ("dispatch", "sync", "upload", "compute", "readback"):
            assert terms[f"{term}_ns"] > 0, term
    assert block["terms"]["readback_ns"] > fused["terms"]["readback_ns"]
    assert block["terms"]["host_ns"] > fused["terms"]["host_ns"] == 0
    assert "trained model" in candidates[f"{name} learned"]["blocker"]
    text = call(*args).out
    line = text.splitlines()[text.splitlines().index("") + 3]
    for word in ("launch", "1 wait", "dispatch", "sync", "upload", "compute"):
        assert word in line
    assert "read-back" in line


def test_the_crossover_is_where_the_picks_change(
    call: CommandRunner, both_known: None, both_device_args: tuple[str, ...]
) -> None:
    """The pick below the reported batch is the CPU's, and from it on the device's."""
    first = only_job(call(*size_args(1, 256, 16, 8), *both_device_args, "--json"))
    text = first["numbers"]["crossover"]
    match = re.match(
        r"CPU is fastest below batch size ([\d,]+), fused on (.*) from batch size \1",
        text,
    )
    assert match, text
    batch = int(match[1].replace(",", ""))
    picks = [
        only_job(call(*size_args(rows, 256, 16, 8), *both_device_args, "--json"))[
            "what"
        ]
        for rows in (batch // 2, batch)
    ]
    assert picks[0].startswith("fast on NumPy")
    assert picks[1] == f"fused on {match[2]}"


def test_unmeasured_software_device_has_no_prediction(
    call: CommandRunner,
    monkeypatch: pytest.MonkeyPatch,
    both_device_args: tuple[str, ...],
    adapter: AdapterRequest,
) -> None:
    """An unmeasured software device is blocked with advice; alone it is the pick."""
    job = only_job(call("explain", *both_device_args, "--json"))
    name, adapter_args = adapter.backends[0], both_device_args[2:]
    blocked = candidates_by_name(job)[f"{name} fused fused_op"]
    assert "run `rlxweb calibrate` to measure it" in blocked["blocker"]
    assert blocked["predicted_ns"] is blocked["terms"] is None
    assert job["what"].startswith("fast on NumPy")
    adapter_text = call("explain", *adapter_args).out
    assert adapter_text.splitlines()[1].startswith(f"fused on {adapter.name}")
    assert "its speed is unknown" in adapter_text
    assert "no engine can run this job" not in adapter_text
    monkeypatch.setattr(explain_command, "STOPWATCH", ticking_stopwatch(1_000_000))
    measured = candidates_by_name(
        only_job(call("explain", *adapter_args, "--measure", "--json"))
    )
    assert measured[f"{name} fused fused_op"]["measured_ns"] == 1_000_000
    assert measured[f"{name} fused block_fft_host"]["measured_ns"] == 1_000_000
    assert measured[f"{name} learned"]["measured_ns"] is None


@pytest.mark.requires_wgpu
def test_the_default_is_every_engine(call: CommandRunner) -> None:
    """The CPU and at least one adapter are explained by default, no candidate twice."""
    candidates = only_job(call("explain", "--json"))["candidates"]
    names = [(c["engine"], c["strategy"], c["how"]) for c in candidates]
    assert len(set(names)) == len(names)
    engines = {engine for engine, _, _ in names}
    assert f"NumPy {np.__version__}" in engines
    assert len(engines) > 1


def ticking_stopwatch(step: int) -> Stopwatch:
    """Stopwatch whose clock advances `step` ns with every reading."""
    ticks = itertools.count(0, step)
    return Stopwatch(sample_ns=1.0, samples=1, min_samples=1, clock=lambda: next(ticks))


def test_measured_times_are_shown_beside_predictions(
    call: CommandRunner, cpu_known: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Candidates that are not blocked are measured, and the error of the prediction is
    shown.
    """
    monkeypatch.setattr(explain_command, "STOPWATCH", ticking_stopwatch(5_000_000))
    args = *size_args(2, 64, 4, 2), "--device", "cpu", "--measure"
    job = only_job(call(*args, "--json"))
    check_candidates(job["candidates"])
    candidates = candidates_by_name(job)
    assert candidates["cpu fast host"]["measured_ns"] == 5_000_000
    assert candidates["cpu ultra host"]["measured_ns"] is None
    relative_error = candidates["cpu fast host"]["predicted_ns"] / 5e6 - 1
    assert f", measured 5.00 ms ({relative_error:+.0%})" in call(*args).out
    open_job = only_job(call(*args, "--min-segments", 1, "--json"))
    assert [c["measured_ns"] for c in open_job["candidates"]] == [5_000_000] * 2


def test_candidate_that_fails_when_measured_is_blocked(
    call: CommandRunner, cpu_known: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other candidates are still measured and explained."""

    def failing_engine_for(candidate: Any, job: Any) -> Any:
        if candidate.strategy == "ultra":
            raise OutOfMemory("run", "no room for 5 GiB")
        return engine_for_candidate(candidate, job)

    monkeypatch.setattr(explain_command, "engine_for_candidate", failing_engine_for)
    monkeypatch.setattr(explain_command, "STOPWATCH", ticking_stopwatch(1_000_000))
    args = *size_args(2, 64, 4, 2), "--device", "cpu", "--min-segments", 1
    job = only_job(call(*args, "--measure", "--json"))
    check_candidates(job["candidates"])
    candidates = candidates_by_name(job)
    assert "no room for 5 GiB" in candidates["cpu ultra host"]["blocker"]
    assert candidates["cpu fast host"]["measured_ns"] == 1_000_000
    assert job["what"].startswith("fast on NumPy")


def test_seed_mode_shows_rlxs_four_estimates(call: CommandRunner) -> None:
    """Seed mode shows RLX's estimates digit for digit, without opening a device."""
    args = *size_args(32, 256, 16, 8), "--cost-mode", "seed", "--device", "cuda"
    job = only_job(call(*args, "--json"))
    check_candidates(job["candidates"])
    candidates = candidates_by_name(job)
    costs = estimate_welch_peaks_costs("cuda", 32, 256, 16)
    assert costs.rlx_ns == costs.learned_ns == math.inf
    assert {
        name: candidate["predicted_ns"] for name, candidate in candidates.items()
    } == {
        "cuda ultra": costs.ultra_ns,
        "cuda fast": costs.fast_ns,
        "cuda fused": None,
        "cuda learned": None,
    }
    assert {candidate["source"] for candidate in candidates.values()} == {"seed"}
    assert job["numbers"]["notes"] == [explain_command.SEED_NOTE]
    assert "crossover" not in job["numbers"]
    text = call(*args).out
    assert f"note: {explain_command.SEED_NOTE}" in text
    assert "crossover" not in text
    assert "excluded: RLX's formulas assign this candidate an infinite cost" in text
