"""`rlxweb learn`, on noise whose power falls as 1/f^4."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.signal.learned import prunings
from tests.command_line import Call, check_refused
from tests.recordings import saved
from tests.unit.signal.learned.steep import FS, steep

ASKED = ("--n-fft", 64, "--band", "32:200", "--k", 3, "--error", 0.05, "--steps", 6)
QUICK = (*ASKED, "--preset", "scipy", "--device", "cpu")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two recordings, in the folder one is in; few prunings are tried."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prunings, "_CUTS", 12)
    names = ["Fz", "Cz", "Pz"]
    x = 100.0 * steep(3, 9000)
    saved("a.npz", x, fs=FS, channels=names, units="uV")
    saved("b.npz", x[:, :6000], fs=FS, channels=names, units="uV")
    saved("slow.npz", x[:, :6000], fs=FS / 2, channels=names, units="uV")
    saved("short.npz", x[:, :500], fs=FS, channels=names, units="uV")


def test_a_transform_is_trained_reported_drawn_and_used(call: Call) -> None:
    more = "--out", "eeg.rlxl", "--json", "out.json", "--plot", "out.png"
    said = call("learn", "a.npz", "b.npz", *QUICK, *more)
    assert said.code == 0, said.err
    assert said.errors == []
    assert "picture: out.png" in said.err
    model = rlx.load_learned("eeg.rlxl")
    assert (model.n, model.fs, model.k, model.asked) == (64, FS, 3, 0.05)
    record = json.loads(Path("out.json").read_text())
    assert record["schema"] == "rlxweb.learn/1"
    assert record["files"] == ["a.npz", "b.npz"]
    assert record["gates"] == {"active": model.active, "total": 192}
    assert record["settings"]["band"] == [32.0, 200.0]
    assert len(record["losses"]) == 6
    lines = said.out.splitlines()
    (chosen,) = [line for line in lines if "chosen" in line]
    assert f"{model.active}" in chosen
    assert any(line.strip().startswith("exact") for line in lines)
    assert "6 steps on NumPy" in said.out
    assert Path("out.png").read_bytes()[1:4] == b"PNG"
    # What it says to type next runs as it stands.
    (usage,) = [line for line in lines if line.startswith("next: ")]
    x = steep(2, 12_000, seed=4)
    found = eval(usage.removeprefix("next: "), {"rlx": rlx, "x": x})
    assert found.decision.what.startswith("learned on ")


@pytest.mark.parametrize(
    "more",
    [
        ("--window", "kaiser,8.6", "--detrend", "none"),
        ("--window", "hamming", "--detrend", "constant", "--preset", "rlx"),
    ],
)
def test_what_it_says_to_type_has_what_was_asked_for(
    call: Call, more: tuple[str, ...]
) -> None:
    said = call("learn", "a.npz", *QUICK, *more, "--error", 0.5, "--out", "m.rlxl")
    (usage,) = [line for line in said.out.splitlines() if line.startswith("next: ")]
    x = steep(3, 12_000)
    found = eval(usage.removeprefix("next: "), {"rlx": rlx, "x": x})
    assert found.decision.what.startswith("learned on ")


@pytest.mark.parametrize(
    ("name", "more", "begin"),
    [
        ("p.svg", ("--dark",), b"<?xml"),
        ("p.pdf", ("--steps", "0"), b"%PDF"),
        ("p.png", ("--error", "1e-9"), b"\x89PNG"),
    ],
)
def test_pictures_are_of_every_kind(
    call: Call, name: str, more: tuple[str, ...], begin: bytes
) -> None:
    """Pictures may be dark, of no step of training, or with nothing left out."""
    said = call(
        "learn", "a.npz", *QUICK, *more, "-q", "--out", "m.rlxl", "--plot", name
    )
    assert (said.code, said.out) == (0, "")
    assert Path(name).read_bytes().startswith(begin)


def test_the_report_can_be_standard_output_and_nothing_else_is(call: Call) -> None:
    said = call("learn", "a.npz", *QUICK, "--out", "m.rlxl", "--json", "-", "--quiet")
    assert said.code == 0
    assert said.record["out"] == "m.rlxl"
    assert said.record["n"] == 64
    assert said.err == ""


def test_white_noise_is_told_that_nothing_can_go(call: Call) -> None:
    x = np.random.default_rng(0).standard_normal((2, 9000))
    saved("white.npz", x, fs=FS, channels=["a", "b"], units="uV")
    said = call("learn", "white.npz", *QUICK, "--error", 1e-3, "--out", "w.rlxl")
    assert said.code == 0
    assert "nothing can be left out within 0.001" in said.out
    assert rlx.load_learned("w.rlxl").error < 1e-9


def test_channels_and_stretches_are_taken_as_elsewhere(call: Call) -> None:
    part = "-c", "Fz", "-c", "Cz", "--start", "1", "--stop", "4"
    said = call("learn", "a.npz", *QUICK, *part, "--out", "m.rlxl", "--json", "-")
    # Of 3 s of 2 channels 70 % are learned from, in segments that overlap by half.
    assert said.record["segments"] == 2 * ((int(0.7 * 3 * FS) - 64) // 32 + 1)
    assert "left out 1 channel" not in said.out


def test_a_training_that_is_stopped_goes_on(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped training goes on to the same result; another one refuses its file."""
    monkeypatch.setenv("RLX_FAST", "background")
    learn = sys.modules.get("rlxweb.cli.learn_command")
    if learn is None:
        call("learn", "--help")
        learn = sys.modules["rlxweb.cli.learn_command"]
    train = rlx.learn_welch

    def stopped(*args: Any, told: Any, **more: Any) -> Any:
        def stop(step: int, loss: float) -> None:
            told(step, loss)
            if step == 2:
                raise KeyboardInterrupt

        return train(*args, told=stop, **more)

    asked = ("learn", "a.npz", *QUICK, "--quiet")
    assert call(*asked, "--out", "whole.rlxl").code == 0
    with monkeypatch.context() as patched:
        patched.setattr(learn, "learn_welch", stopped)
        said = call(*asked, "--out", "m.rlxl", "--resume", "state.npz")
    assert (said.code, said.err.strip()) == (130, "rlxweb: stopped")
    assert not Path("m.rlxl").exists()
    assert Path("state.npz").exists()
    assert call(*asked, "--out", "m.rlxl", "--resume", "state.npz").code == 0
    assert Path("m.rlxl").read_bytes() == Path("whole.rlxl").read_bytes()
    said = call(*asked, "--out", "m.rlxl", "--resume", "state.npz", "--seed", 1)
    check_refused(said, 2, "other recordings, or with other settings")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("none.npz", *QUICK, "--out", "m.rlxl"), "no such file"),
        (("none*.npz", *QUICK, "--out", "m.rlxl"), "no file matches"),
        (("short.npz", *QUICK, "--out", "m.rlxl"), "segments and 0 rows"),
        (("a.npz", *QUICK), "--out F is missing"),
        (("a.npz", "--out", "m.rlxl"), "--band LOW:HIGH is missing"),
        (("a.npz", *QUICK, "--out", "m.npz"), "does not end in .rlxl"),
        (("a.npz", *QUICK, "--out", "gone/m.rlxl"), "gone"),
        (("a.npz", *QUICK, "--out", "m.rlxl", "--plot", "m.gif"), "'.gif'"),
        (("a.npz", *QUICK, "--out", "m.rlxl", "--json", "m.rlxl"), "file of --out"),
        (("a.npz", *QUICK, "--out", "m.rlxl", "--n-fft", "100"), "no power of two"),
        (("a.npz", *QUICK, "--out", "m.rlxl", "--band", "33:40"), "no bin"),
        (("a.npz", *QUICK, "--out", "m.rlxl", "--band", "40:20"), "no stretch"),
        (("a.npz", *QUICK, "--out", "m.rlxl", "--k", "50"), "number of bins"),
        (("a.npz", *QUICK, "--out", "m.rlxl", "--window", "cosy"), "cosy"),
        (("a.npz", *QUICK, "--out", "m.rlxl", "-c", "EKG"), "EKG"),
        (
            ("a.npz", "slow.npz", *QUICK, "--out", "m.rlxl"),
            "at 2048 and at 1024 Hz in 'a.npz' and 'slow.npz'",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_learned_is_told(
    call: Call, args: tuple[Any, ...], words: str
) -> None:
    check_refused(call("learn", *args), 2, words)
    assert not Path("m.rlxl").exists()


@pytest.mark.parametrize(
    "where", [("--device", "tpu"), ("--device", "auto", "--adapter", "zzz")]
)
def test_a_device_that_cannot_be_used_is_refused_without_a_step_too(
    call: Call, where: tuple[str, ...]
) -> None:
    said = call("learn", "a.npz", *QUICK, *where, "--steps", 0, "--out", "m.rlxl")
    check_refused(said, 3, where[-1])
    assert not Path("m.rlxl").exists()


def test_help_says_what_is_required(call: Call) -> None:
    text = " ".join(call("learn", "--help").out.split())
    assert text.count("[required]") == 2  # --band and --out


def test_a_sample_that_is_no_number_is_named(call: Call) -> None:
    x = 100.0 * steep(3, 12_000)
    x[1, 3000] = np.nan
    saved("gap.npz", x, fs=FS, channels=["Fz", "Cz", "Pz"], units="uV")
    asked = ("learn", "a.npz", "gap.npz", *QUICK, "--out", "m.rlxl")
    said = call(*asked)
    check_refused(said, 2, "gap.npz")
    assert "channel 'Cz' is nan at sample 3000 (1.465 s)" in said.err
    assert "nan" not in said.err.replace("is nan", "")
    assert call(*asked, "-c", "Fz", "--quiet").code == 0


def test_recordings_of_two_rates_are_told_how_they_become_one(call: Call) -> None:
    said = call("learn", "a.npz", "slow.npz", *QUICK, "--out", "m.rlxl")
    assert "--resample 2048" in said.err


def test_a_picture_without_its_library_is_refused_before_the_work(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said = call("learn", "a.npz", *QUICK, "--out", "m.rlxl", "--plot", "m.png")
    assert said.code != 0
    assert "rlxweb[plot]" in said.err
