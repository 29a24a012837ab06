"""`rlxweb explain FILE`, `rlxweb welch --explain`, and what both refuse."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from rlxweb.cost.kinds import assumed_cpu, assumed_gpu
from rlxweb.devices.place import CPU
from rlxweb.gpu.port import Want
from tests.command_line import Call, Said, check_refused
from tests.recordings import written
from tests.unit.cli.known import know, place_of
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
    return written(tmp_path / "x.edf", *rates, seconds=10)


def test_every_rate_of_a_file_is_a_job(call: Call, edf: Path) -> None:
    """A file has a job per rate, with its own channels and its own candidates."""
    said = call("explain", edf, *CPU_ONLY, "--json")
    assert (said.code, said.err) == (0, "")
    jobs = said.record["jobs"]
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


def test_the_file_says_rows_and_length_and_options_the_rest(
    call: Call, npy: Path
) -> None:
    """Fewer segments or longer ones are priced as such."""

    def predicted(*args: object) -> float:
        args = "explain", npy, "--fs", 100, *CPU_ONLY, "--json", *args
        (job,) = call(*args).record["jobs"]
        assert job["job"] == f"{npy}: 3 channels at 100 Hz"
        return job["candidates"][0]["predicted_ns"]

    assert predicted("--segments", 1) < predicted()
    assert predicted("--n-fft", 64) != predicted()
    assert predicted("--segments", 6) == predicted()


def test_what_is_read_of_a_file_is_asked_for_as_in_welch(
    call: Call, edf: Path, tmp_path: Path
) -> None:
    """`explain` takes the options of `welch` that say what is read of a file."""

    def jobs(*args: object) -> list[str]:
        said = call("explain", *args, *CPU_ONLY, "--json")
        assert said.code == 0, said.err
        return [job["job"] for job in said.record["jobs"]]

    assert jobs(edf, "-c", "ECG") == [f"{edf}: 1 channel at 500 Hz"]
    path = tmp_path / "x.npz"
    np.savez(path, a=np.zeros((900, 2)), b=np.zeros((3, 900)), fs=100.0)
    assert jobs(path, "--array", "b") == [f"{path}: 3 channels at 100 Hz"]
    turned = "--layout", "samples-first"
    assert jobs(path, "--array", "a", *turned) == [f"{path}: 2 channels at 100 Hz"]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_device_is_not_handed_what_float32_does_not_hold(
    call: Call, npy: Path, edf: Path, options: tuple[str, ...], adapter: Want
) -> None:
    """A device refuses float64 as in `rlxweb welch`; narrowing is asked for."""
    device = "--device", place_of(adapter), *options
    args = "explain", npy, "--fs", 100, *device
    reason = "the samples are float64 and devices compute float32"
    assert reason in call(*args, *CPU_ONLY).out
    check_refused(call(*args), 2, reason, "nothing is narrowed unasked")
    for fine in ((*args, "--precision", "f32"), ("explain", edf, *device)):
        said = call(*fine)
        assert (said.code, said.err) == (0, "")
        assert "float64" not in said.out


REFUSED = {
    "FILE and --batch": (("FILE", "--fs", 9, "--batch", 4), "--batch: the file says"),
    "--fs and no FILE": (("--fs", 9), "--fs: there is no FILE"),
    "channels and no FILE": (("-c", "Cz"), "--channels: there is no FILE"),
    "no such file": (("gone.npy", "--fs", 9), "gone.npy"),
    "a folder": ((".", "--fs", 9), "'.'"),
    "two files": (("FILE", "FILE"), "unexpected extra argument"),
    "no rate": (("FILE",), "--fs"),
    "segments longer than the file": (
        ("FILE", "--fs", 9, "--n-fft", 4096),
        "nperseg is 4096; the signal has 1000 samples",
    ),
    "more segments than there are": (
        ("FILE", "--fs", 9, "--segments", 7),
        "nsegments is 7; 1000 samples give 6 of 256, 128 apart",
    ),
    "more peaks than bins": (
        ("--n-fft", 8, "--k", 6),
        "k is 6; it must be 1 to 5, the number of bins",
    ),
    "more least segments than segments": (
        ("--segments", 3, "--min-segments", 4),
        "min_segments is 4; it must be 1 to 3, the number of segments asked for",
    ),
    "more least segments than the file has": (
        ("FILE", "--fs", 9, "--min-segments", 7),
        "min_segments is 7; it must be 1 to 6",
    ),
    "an unknown option": (("--fast",), "no such option"),
    "an unknown mode": (("--cost-mode", "guess"), "'guess' is not one of"),
    "an unknown device": (("--device", "abacus"), "unknown device 'abacus'"),
    "no rows": (("--batch", 0), "0 is not in the range"),
    "fewer than no rows": (("--batch", -3), "-3 is not in the range"),
    "half a row": (("--batch", 1.5), "'1.5' is not a valid integer"),
    "no samples": (("--n-fft", 0), "0 is not in the range"),
    "no peaks": (("--k", 0), "0 is not in the range"),
    "no segments": (("--segments", 0), "0 is not in the range"),
    "no least segments": (("--min-segments", 0), "0 is not in the range"),
    "an absurd length": (("--n-fft", 10**12), f"{10**12} is not in the range"),
    "a batch beyond floats": (("--batch", 10**400), "is not in the range"),
    "segments beyond floats": (("--segments", 10**400), "is not in the range"),
}


@pytest.mark.parametrize("json", [(), ("--json",)], ids=["prose", "json"])
@pytest.mark.parametrize("case", REFUSED)
def test_nonsense_is_refused_in_one_line(
    call: Call, npy: Path, case: str, json: tuple[str, ...]
) -> None:
    """Exit code 2, the number and its limit on stderr, nothing on stdout."""
    given, text = REFUSED[case]
    args = [npy if arg == "FILE" else arg for arg in given]
    device = () if "--device" in given else CPU_ONLY
    check_refused(call("explain", *args, *device, *json), 2, text)


ABSURD = pytest.mark.parametrize(
    "sizes",
    [
        ("--batch", 10**12),
        ("--segments", 10**12),
        ("--batch", 10**12, "--segments", 10**12, "--n-fft", 1 << 20),
        ("--n-fft", (1 << 21) - 9),
    ],
)


def check_absurd(said: Said) -> None:
    """Large numbers are numbers: a finite time, or a blocker that says why."""
    assert (said.code, said.err) == (0, "")
    (job,) = said.record["jobs"]
    for one in job["candidates"]:
        known = one["predicted_ns"]
        assert (known is None) == bool(one["blocker"])
        assert known is None or (math.isfinite(known) and known > 0)
    assert job["candidates"][0]["predicted_ns"] > 1e6


@ABSURD
def test_what_nobody_could_run_is_still_priced(
    call: Call, sizes: tuple[object, ...]
) -> None:
    know(CPU, assumed_cpu())
    check_absurd(call("explain", *sizes, *CPU_ONLY, "--json"))


@ABSURD
def test_so_it_is_on_a_device(
    call: Call, sizes: tuple[object, ...], adapter: Want
) -> None:
    place = place_of(adapter)
    know(place, assumed_gpu())
    check_absurd(call("explain", *sizes, "--device", place, "--json"))


def test_welch_explains_each_group_beside_its_result(call: Call, edf: Path) -> None:
    """Each rate is explained once: where it ran, why, and every way there was."""
    said = call("welch", edf, "-q", "--explain", *CPU_ONLY)
    assert said.code == 0
    heads = [line for line in said.out.splitlines() if line.startswith(str(edf))]
    assert [re.sub(r"NumPy [\d.]+\S*", "NumPy", line) for line in heads] == [
        f"{edf} at 100 Hz ran on NumPy in float64",
        f"{edf} at 500 Hz ran on NumPy in float64",
    ]
    assert said.out.count("it was asked for; predicted ") == 2
    assert said.out.count("candidates, fastest prediction first:") == 2


def test_the_record_of_welch_holds_the_same_decision(call: Call, edf: Path) -> None:
    """The record holds the decision; with --json - the prose moves to stderr."""
    args = "welch", edf, "-q", "--explain", *CPU_ONLY, "--json", "-"
    said = call(*args)
    (file,) = said.record["files"]
    for group in file["groups"]:
        decision = group["decision"]
        (fast,) = [c for c in decision["candidates"] if c["strategy"] == "fast"]
        check_candidates(decision["candidates"])
        assert decision["what"] == f"fast on {fast['engine']}"
        assert f"{decision['what']}: {decision['why']}" in said.err


def test_welch_on_a_device_says_what_is_not_known(
    call: Call, edf: Path, adapter: Want
) -> None:
    """Welch with peaks on a device has one way only: peaks are searched on the host."""
    device, name = adapter.backends[0], adapter.name
    args = "welch", edf, "-q", "--explain", "--device", device, "--adapter", name
    said = call(*args, "--json", "-")
    assert said.code == 0
    (file,) = said.record["files"]
    for group in file["groups"]:
        (way,) = group["decision"]["candidates"]
        assert (way["strategy"], way["how"]) == ("fused", "block_fft_host")
        assert (way["adapter"], way["device"]) == (name, device)
    assert ": it was asked for (" in said.err
    assert "no prediction" in said.err


def test_explain_takes_the_flags_that_its_refusals_name(npy: Path, call: Call) -> None:
    """`explain` takes the flags of `rlxweb welch` that its refusals name."""
    asked = "explain", npy, "--fs", 100, *CPU_ONLY
    check_refused(call(*asked, "--segments", 99), 2, "--nsegments 99")
    check_refused(call(*asked, "--k", 999), 2, "--nperseg N")
    said = call(*asked, "--nperseg", 128, "--nsegments", 3, "--json")
    assert said.code == 0
    assert '"n_fft": 128' in said.out
    assert '"segments": 3' in said.out
