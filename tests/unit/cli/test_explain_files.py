"""Commands `rlxweb explain FILE` and `rlxweb welch --explain`."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from rlxweb.cost.work_kinds import assumed_cpu, assumed_gpu
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.select.device_and_adapter import CPU_PLACE
from tests.cli_runners import CommandResult, CommandRunner, check_rejected
from tests.edf_bdf_recordings import write_recording
from tests.unit.cli.fake_calibrations import adapter_place, save_calibration
from tests.unit.cli.test_explain import check_candidates

CPU_ONLY = "--device", "cpu"


@pytest.fixture
def npy(tmp_path: Path, rng: np.random.Generator) -> Path:
    """3 channels of 1000 samples, float64."""
    np.save(tmp_path / "x.npy", rng.standard_normal((3, 1000)))
    return tmp_path / "x.npy"


@pytest.fixture
def edf(tmp_path: Path) -> Path:
    """2 channels at 100 Hz and one at 500 Hz, 10 s."""
    rates = ("EEG", 100), ("EOG", 100), ("ECG", 500)
    return write_recording(tmp_path / "x.edf", *rates, seconds=10)


def test_every_rate_of_a_file_is_a_job(call: CommandRunner, edf: Path) -> None:
    """A file has a job per rate, with its own channels and its own candidates."""
    result = call("explain", edf, *CPU_ONLY, "--json")
    assert (result.code, result.err) == (0, "")
    jobs = result.document["jobs"]
    assert [job["job"] for job in jobs] == [
        f"{edf}: 2 channels at 100 Hz",
        f"{edf}: 1 channel at 500 Hz",
    ]
    # 6 segments of 2 channels against 38 of 1: the second is more work.
    first, second = (job["candidates"][0]["predicted_ns"] for job in jobs)
    assert second > first
    text = call("explain", edf, *CPU_ONLY).out
    assert [line for line in text.splitlines() if str(edf) in line] == [
        job["job"] for job in jobs
    ]
    assert text.count("candidates, fastest prediction first:") == 2


def test_a_file_is_explained_as_welch_runs_it(call: CommandRunner, edf: Path) -> None:
    """The candidates for a file's groups are those of `rlxweb welch`."""
    jobs = call("explain", edf, *CPU_ONLY, "--json").document["jobs"]
    (file,) = call("welch", edf, "-q", *CPU_ONLY, "--json", "-").document["files"]
    for job, group in zip(jobs, file["groups"], strict=True):
        explained, chosen_from = (
            [c for c in decision["candidates"] if not c["blocker"]]
            for decision in (job, group["decision"])
        )
        assert explained == chosen_from


def test_file_sets_rows_and_length(call: CommandRunner, npy: Path) -> None:
    """Fewer or longer segments change the predicted time."""

    def predicted_ns(*args: object) -> float:
        args = "explain", npy, "--fs", 100, *CPU_ONLY, "--json", *args
        (job,) = call(*args).document["jobs"]
        assert job["job"] == f"{npy}: 3 channels at 100 Hz"
        return job["candidates"][0]["predicted_ns"]

    assert predicted_ns("--segments", 1) < predicted_ns()
    assert predicted_ns("--n-fft", 64) != predicted_ns()
    assert predicted_ns("--segments", 6) == predicted_ns()


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_double_precision_is_rejected_for_float32_device(
    call: CommandRunner,
    npy: Path,
    edf: Path,
    options: tuple[str, ...],
    adapter: AdapterRequest,
) -> None:
    """A device rejects float64 as in `rlxweb welch` unless narrowing is requested."""
    device = "--device", adapter_place(adapter), *options
    args = "explain", npy, "--fs", 100, *device
    reason = (
        "the samples are float64, but every device except the CPU computes in float32"
    )
    assert reason in call(*args, *CPU_ONLY).out
    check_rejected(
        call(*args), 2, reason, "samples are never converted to float32 automatically"
    )
    for accepted_args in ((*args, "--precision", "f32"), ("explain", edf, *device)):
        result = call(*accepted_args)
        assert (result.code, result.err) == (0, "")
        assert "float64" not in result.out


ABSURD_SIZES = pytest.mark.parametrize(
    "sizes",
    [
        ("--batch", 10**12),
        ("--segments", 10**12),
        ("--batch", 10**12, "--segments", 10**12, "--n-fft", 1 << 20),
        ("--n-fft", (1 << 21) - 9),
    ],
)


def check_finite_prediction(result: CommandResult) -> None:
    """Check that each candidate has a finite predicted time or a blocker with the
    reason.
    """
    assert (result.code, result.err) == (0, "")
    (job,) = result.document["jobs"]
    for candidate in job["candidates"]:
        predicted_ns = candidate["predicted_ns"]
        assert (predicted_ns is None) == bool(candidate["blocker"])
        assert predicted_ns is None or (
            math.isfinite(predicted_ns) and predicted_ns > 0
        )
    assert job["candidates"][0]["predicted_ns"] > 1e6


@ABSURD_SIZES
def test_absurd_sizes_are_still_priced(
    call: CommandRunner, sizes: tuple[object, ...]
) -> None:
    save_calibration(CPU_PLACE, assumed_cpu())
    check_finite_prediction(call("explain", *sizes, *CPU_ONLY, "--json"))


@ABSURD_SIZES
def test_absurd_sizes_are_still_priced_on_device(
    call: CommandRunner, sizes: tuple[object, ...], adapter: AdapterRequest
) -> None:
    place = adapter_place(adapter)
    save_calibration(place, assumed_gpu())
    check_finite_prediction(call("explain", *sizes, "--device", place, "--json"))


def test_welch_explains_each_group_beside_its_result(
    call: CommandRunner, edf: Path
) -> None:
    """Each rate is explained once: its engine, the reason and every candidate."""
    result = call("welch", edf, "-q", "--explain", *CPU_ONLY)
    assert result.code == 0
    titles = [line for line in result.out.splitlines() if line.startswith(str(edf))]
    assert [re.sub(r"NumPy [\d.]+\S*", "NumPy", line) for line in titles] == [
        f"{edf} at 100 Hz ran on NumPy in float64",
        f"{edf} at 500 Hz ran on NumPy in float64",
    ]
    assert result.out.count("it was requested; predicted ") == 2
    assert result.out.count("candidates, fastest prediction first:") == 2


def test_document_of_welch_holds_the_decision(call: CommandRunner, edf: Path) -> None:
    """The document holds the decision; with --json - the text moves to stderr."""
    args = "welch", edf, "-q", "--explain", *CPU_ONLY, "--json", "-"
    result = call(*args)
    (file,) = result.document["files"]
    for group in file["groups"]:
        decision = group["decision"]
        (fast,) = [c for c in decision["candidates"] if c["strategy"] == "fast"]
        check_candidates(decision["candidates"])
        assert decision["what"] == f"fast on {fast['engine']}"
        assert f"{decision['what']}: {decision['why']}" in result.err


def test_welch_on_device_reports_missing_prediction(
    call: CommandRunner, edf: Path, adapter: AdapterRequest
) -> None:
    """Welch with peaks on a device has a single candidate: peaks are searched on the
    host.
    """
    device, name = adapter.backends[0], adapter.name
    args = "welch", edf, "-q", "--explain", "--device", device, "--adapter", name
    result = call(*args, "--json", "-")
    assert result.code == 0
    (file,) = result.document["files"]
    for group in file["groups"]:
        (candidate,) = group["decision"]["candidates"]
        assert (candidate["strategy"], candidate["how"]) == ("fused", "block_fft_host")
        assert (candidate["adapter"], candidate["device"]) == (name, device)
    assert ": it was requested (" in result.err
    assert "no prediction" in result.err
