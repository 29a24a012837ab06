"""Command `rlxweb learn`, on noise whose power falls as 1/f^4."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.signal.learned import pruning
from tests.cli_runners import CommandRunner, check_rejected
from tests.edf_bdf_recordings import save_recording
from tests.unit.signal.learned.red_noise import FS, red_noise

BASE_ARGS = ("--n-fft", 64, "--band", "32:200", "--k", 3, "--error", 0.05, "--steps", 6)
QUICK_ARGS = (*BASE_ARGS, "--preset", "scipy", "--device", "cpu")


@pytest.fixture(autouse=True)
def folder(place_files: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Put recordings into the working folder, and reduce the number of prunings
    tried.
    """
    place_files("red.npz brief.npz")
    monkeypatch.setattr(pruning, "_CUT_COUNT", 12)


def test_trained_transform_is_reported_plotted_and_used(call: CommandRunner) -> None:
    output_args = "--out", "eeg.rlxl", "--json", "out.json", "--plot", "out.png"
    result = call("learn", "red.npz", "brief.npz", *QUICK_ARGS, *output_args)
    assert result.code == 0, result.err
    assert result.errors == []
    assert "picture: out.png" in result.err
    model = rlx.load_learned("eeg.rlxl")
    assert (model.n, model.fs, model.k, model.asked) == (64, FS, 3, 0.05)
    document = json.loads(Path("out.json").read_text())
    assert document["schema"] == "rlxweb.learn/1"
    assert document["files"] == ["red.npz", "brief.npz"]
    assert document["gates"] == {"active": model.active, "total": 192}
    assert document["settings"]["band"] == [32.0, 200.0]
    assert len(document["losses"]) == 6
    lines = result.out.splitlines()
    (chosen_line,) = [line for line in lines if "chosen" in line]
    assert f"{model.active}" in chosen_line
    assert any(line.strip().startswith("exact") for line in lines)
    assert "6 steps on NumPy" in result.out
    assert Path("out.png").read_bytes()[1:4] == b"PNG"
    # What it says to type next runs as it stands.
    (usage,) = [line for line in lines if line.startswith("in Python: ")]
    x = red_noise(2, 12_000, seed=4)
    spectrum = eval(usage.removeprefix("in Python: "), {"rlx": rlx, "x": x})
    assert spectrum.decision.what.startswith("learned on ")


@pytest.mark.parametrize(
    "more",
    [
        ("--window", "kaiser,8.6", "--detrend", "none"),
        ("--window", "hamming", "--detrend", "constant", "--preset", "rlx"),
    ],
)
def test_suggested_code_uses_requested_options(
    call: CommandRunner, more: tuple[str, ...]
) -> None:
    result = call(
        "learn", "red.npz", *QUICK_ARGS, *more, "--error", 0.5, "--out", "m.rlxl"
    )
    (usage,) = [
        line for line in result.out.splitlines() if line.startswith("in Python: ")
    ]
    x = red_noise(3, 12_000)
    spectrum = eval(usage.removeprefix("in Python: "), {"rlx": rlx, "x": x})
    assert spectrum.decision.what.startswith("learned on ")


@pytest.mark.parametrize(
    ("name", "more", "begin"),
    [
        ("p.svg", ("--dark",), b"<?xml"),
        ("p.pdf", ("--steps", "0"), b"%PDF"),
        ("p.png", ("--error", "1e-9"), b"\x89PNG"),
    ],
)
def test_pictures_are_of_every_kind(
    call: CommandRunner, name: str, more: tuple[str, ...], begin: bytes
) -> None:
    """Pictures may be dark, of no step of training, or with nothing left out."""
    result = call(
        "learn", "red.npz", *QUICK_ARGS, *more, "-q", "--out", "m.rlxl", "--plot", name
    )
    assert (result.code, result.out) == (0, "")
    assert Path(name).read_bytes().startswith(begin)


def test_the_report_can_be_standard_output_and_nothing_else_is(
    call: CommandRunner,
) -> None:
    result = call(
        "learn", "red.npz", *QUICK_ARGS, "--out", "m.rlxl", "--json", "-", "--quiet"
    )
    assert result.code == 0
    assert result.document["out"] == "m.rlxl"
    assert result.document["n"] == 64
    assert result.err == ""


def test_white_noise_cannot_be_pruned(call: CommandRunner) -> None:
    x = np.random.default_rng(0).standard_normal((2, 9000))
    save_recording("white.npz", x, fs=FS, channels=["a", "b"], units="uV")
    result = call("learn", "white.npz", *QUICK_ARGS, "--error", 1e-3, "--out", "w.rlxl")
    assert result.code == 0
    assert "no pruning has an error of at most 0.001" in result.out
    assert rlx.load_learned("w.rlxl").error < 1e-9


def test_channels_and_time_range_are_selected(call: CommandRunner) -> None:
    selection_args = "-c", "Fz", "-c", "Cz", "--start", "1", "--stop", "4"
    result = call(
        "learn",
        "red.npz",
        *QUICK_ARGS,
        *selection_args,
        "--out",
        "m.rlxl",
        "--json",
        "-",
    )
    # Of 3 s of 2 channels 70 % are learned from, in segments that overlap by half.
    assert result.document["segments"] == 2 * ((int(0.7 * 3 * FS) - 64) // 32 + 1)
    assert "skipped channel" not in result.out


def test_stopped_training_resumes(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped training resumes to the same result; another training rejects its
    file.
    """
    monkeypatch.setenv("RLX_FAST", "background")
    learn_command = sys.modules.get("rlxweb.cli.learn_command")
    if learn_command is None:
        call("learn", "--help")
        learn_command = sys.modules["rlxweb.cli.learn_command"]
    train = rlx.learn_welch

    def stopped_train(*args: Any, told: Any, **options: Any) -> Any:
        def stop_at_second_step(step: int, loss: float) -> None:
            told(step, loss)
            if step == 2:
                raise KeyboardInterrupt

        return train(*args, told=stop_at_second_step, **options)

    args = ("learn", "red.npz", *QUICK_ARGS, "--quiet")
    assert call(*args, "--out", "whole.rlxl").code == 0
    with monkeypatch.context() as patched:
        patched.setattr(learn_command, "learn_welch", stopped_train)
        result = call(*args, "--out", "m.rlxl", "--resume", "state.npz")
    assert (result.code, result.err.strip()) == (130, "rlxweb: stopped")
    assert not Path("m.rlxl").exists()
    assert Path("state.npz").exists()
    assert call(*args, "--out", "m.rlxl", "--resume", "state.npz").code == 0
    assert Path("m.rlxl").read_bytes() == Path("whole.rlxl").read_bytes()
    result = call(*args, "--out", "m.rlxl", "--resume", "state.npz", "--seed", 1)
    check_rejected(result, 2, "other recordings or settings")


def test_help_shows_required_options(call: CommandRunner) -> None:
    text = " ".join(call("learn", "--help").out.split())
    assert text.count("[required]") == 2  # --band and --out


def test_nan_sample_is_named(call: CommandRunner) -> None:
    x = 100.0 * red_noise(3, 12_000)
    x[1, 3000] = np.nan
    save_recording("gap.npz", x, fs=FS, channels=["Fz", "Cz", "Pz"], units="uV")
    args = ("learn", "red.npz", "gap.npz", *QUICK_ARGS, "--out", "m.rlxl")
    result = call(*args)
    check_rejected(result, 2, "gap.npz")
    assert "channel 'Cz' is nan at sample 3000 (1.465 s)" in result.err
    assert "nan" not in result.err.replace("is nan", "")
    assert call(*args, "-c", "Fz", "--quiet").code == 0


def test_plot_without_matplotlib_is_rejected_before_the_work(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = call("learn", "red.npz", *QUICK_ARGS, "--out", "m.rlxl", "--plot", "m.png")
    assert result.code != 0
    assert "rlxweb[plot]" in result.err
