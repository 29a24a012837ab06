"""learn_welch: what training, pruning and fitting make of recordings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import InputError, NotFinite, UsageError
from rlxweb.signal.accuracy import spectrum_error
from rlxweb.signal.learned.examples import SEGMENTS
from rlxweb.signal.learned.network import Program, program_of
from rlxweb.signal.learned.prunings import (
    Pruning,
    best_within,
    fitted,
    front,
    recall,
)
from rlxweb.signal.learned.transform import power_in_numpy
from tests.unit.signal.learned.steep import FS, SETTINGS, N, learned, recordings, steep


def test_steep_spectra_lose_most_of_the_arithmetic() -> None:
    """A learned transform has less than half the gates, within the error allowed."""
    own = learned()
    assert not own.is_exact
    assert own.transform.error <= SETTINGS["max_error"]
    assert own.transform.active < own.tried[0].active / 2
    assert own.chosen.program.cost <= own.tried[0].program.cost / 2
    assert own.tried[0].error < 1e-12
    assert own.tried[0].recall == 1.0
    assert "of 448 gates" in repr(own.transform)


def test_the_error_is_that_of_welch_peaks() -> None:
    """The error is that of the whole way, on recordings the training has not seen."""
    x = steep(6, 24_000, seed=9)[:, : 8 * N]
    own = learned().transform
    hz, power = rlx.welch(x, fs=FS, nperseg=N, preset="scipy", precision="f64")
    inside = slice(own.band.first, own.band.stop)
    spec = replace(learned().examples.spec, n_segments=0)
    found = power_in_numpy(x.astype(np.float64), spec, own.program, own.band)
    assert spectrum_error(found, power[:, inside]) < 2 * SETTINGS["max_error"]
    np.testing.assert_allclose(own.hz, hz[inside])


def test_white_spectra_lose_nothing() -> None:
    x = np.random.default_rng(3).standard_normal((2, 9000))
    own = rlx.learn_welch(x, FS, **{**SETTINGS, "steps": 4, "max_error": 1e-3})
    assert own.is_exact
    assert own.transform.error < 1e-12
    assert own.transform.program == own.chosen.program


def test_the_report_is_plain_data() -> None:
    report = learned().as_json()
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["n"] == N
    assert report["gates"]["total"] == 448
    assert report["steps"] == len(report["losses"]) == SETTINGS["steps"]
    assert 0 < report["cost"] < 1


def test_fitted_weights_are_nearer_than_those_of_the_gates() -> None:
    """Fitted weights are nearer on the segments that they were fitted to.

    Least squares are nearest, and giving lost power back at most doubles their error.
    """
    own, segments = learned(), learned().examples.learned
    band = own.transform.band
    right = np.fft.rfft(segments)[:, band.bins]

    def spectra(program: Program) -> Any:
        return np.einsum("ksp,kp->sk", program.terms(segments), program.weights)

    for one in own.tried[1:8]:
        plain = program_of(one.gates, band)
        best = fitted(plain, segments)
        errors = [
            np.square(np.abs(spectra(program) - right)).mean(axis=0)
            for program in (plain, best)
        ]
        assert (errors[1] <= 2 * errors[0] + 1e-18).all()
        assert errors[1].sum() <= errors[0].sum()
        got = np.square(np.abs(spectra(best)))
        power = np.square(np.abs(right)).mean(axis=0)
        np.testing.assert_allclose(got.mean(axis=0), power, rtol=1e-6)


def test_training_is_the_same_to_the_bit_and_goes_on_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One seed trains to the same bits, interrupted or not; another one does not."""
    monkeypatch.setenv("RLX_FAST", "background")
    asked = {**SETTINGS, "nperseg": 64, "steps": 5}
    x = recordings()[:, :6000]
    whole = rlx.learn_welch(x, FS, **asked)
    state = tmp_path / "state.npz"

    def stop(step: int, loss: float) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rlx.learn_welch(x, FS, **asked, save_to=state, told=stop)
    told: list[int] = []
    again = rlx.learn_welch(
        x, FS, **asked, save_to=state, told=lambda step, _: told.append(step)
    )
    assert told == [3, 4, 5]
    assert again.trained.gates.tobytes() == whole.trained.gates.tobytes()
    assert again.as_json()["losses"] == whole.as_json()["losses"]
    weights = [one.transform.program.weights.tobytes() for one in (whole, again)]
    assert weights[0] == weights[1]
    for other in ({"seed": 1}, {"price": 0.2}, {"k": 3}, {"steps": 9}):
        with pytest.raises(InputError, match="other recordings, or with other"):
            rlx.learn_welch(x, FS, **{**asked, **other}, save_to=state)


def test_each_of_the_gates_is_between_closed_and_open() -> None:
    gates = learned().trained.gates
    assert gates.shape == (7, N // 2)
    assert gates.min() >= 0.0
    assert gates.max() <= 1.0


def tried(cost: float, error: float) -> Pruning:
    """One with such a cost."""
    program = type("Costs", (), {"cost": cost})()
    return Pruning(np.ones((2, 2), np.bool_), program, 4, error, 1.0)


def test_the_cheapest_within_the_error_is_taken() -> None:
    exact = tried(10, 0.0)
    few = [exact, tried(5, 0.1), tried(4, 0.2), tried(4, 0.05), tried(2, 0.5)]
    assert best_within(few, 0.3) is few[3]
    assert best_within(few, 0.01) is exact
    assert best_within([exact, tried(20, 0.0)], 0.01) is exact
    assert front(few) == [exact, few[3], few[4]]


def test_recall_counts_true_peaks_at_their_bins() -> None:
    right = np.array([[0, 5, 0, 4, 0, 3, 0.0]])
    assert recall(right, right, 3) == 1.0
    moved = np.array([[0, 5, 0, 0, 4, 0, 0.0]])
    assert recall(moved, right, 3) == pytest.approx(1 / 3)
    assert recall(moved, right, 1) == 1.0
    assert recall(np.zeros((1, 7)), np.zeros((1, 7)), 3) == 1.0


def test_the_error_is_relative_and_of_weak_bins_to_the_strongest() -> None:
    right = np.array([[1.0, 1e-9, 0.0]])
    assert spectrum_error(right, right) == 0.0
    assert spectrum_error(1.1 * right, right) == pytest.approx(
        0.1 / np.sqrt(3), rel=1e-2
    )
    assert spectrum_error(right + np.array([0, 1e-9, 0]), right) < 1e-3
    assert spectrum_error(np.empty((0, 3)), np.empty((0, 3))) == 0.0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"nperseg": 100}, "nperseg is 100; butterflies meet in pairs"),
        ({"nperseg": 1 << 17}, "at most 65,536"),
        ({"max_error": 0}, "above 0 and below 1"),
        ({"max_error": 1.5}, "above 0 and below 1"),
        ({"max_error": "much"}, "max_error"),
        ({"k": 0}, "the number of bins in the band"),
        ({"k": 99}, "the number of bins in the band"),
        ({"fmin": 300.0}, "fmax"),
        ({"fmin": 17.0, "fmax": 20.0}, "no bin"),
        ({"steps": -1}, "steps is -1"),
        ({"price": -0.5}, "price is -0.5"),
        ({"seed": -3}, "seed is -3"),
        ({"detrend": "linear"}, "linear"),
        ({"device": "no such"}, "no such"),
        ({"device": None, "adapter": "no such", "steps": 0}, "no such|no WebGPU"),
    ],
    ids=str,
)
def test_what_cannot_be_learned_is_told(given: dict[str, Any], words: str) -> None:
    with pytest.raises(rlx.RlxError, match=words):
        rlx.learn_welch(recordings(), FS, **{**SETTINGS, **given})


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([], "there is no recording"),
        (np.zeros((2, 3, 4)), "shape"),
        (np.zeros((2, 3000), complex), "real numbers"),
        (np.zeros((2, 9000)), "silent"),
        (
            np.full((2, 9000), np.nan),
            "recording 0, channel 0 is nan at sample 0; 18000",
        ),
        (np.ones((1, 1000)), "segments and 0 rows"),
        ("night.edf", "learn a transform"),
    ],
)
def test_recordings_that_teach_nothing_are_refused(x: Any, words: str) -> None:
    with pytest.raises(rlx.RlxError, match=words):
        rlx.learn_welch(x, FS, **SETTINGS)


def test_a_sample_that_is_no_number_is_named() -> None:
    """The earliest bad sample in any channel is named."""
    x = recordings().copy()
    x[2, 700], x[0, 900] = -np.inf, np.nan
    said = "recording 1, channel 2 is -inf at sample 700; 2 of its 72000 samples"
    with pytest.raises(NotFinite, match=said):
        rlx.learn_welch([recordings(), x], FS, **SETTINGS)


@pytest.mark.parametrize("error", ["a", 0, 1, -0.5, np.nan, True, None])
def test_another_error_is_held_to_the_same_domain(error: Any) -> None:
    with pytest.raises(UsageError, match=r"learn a transform: error is "):
        learned().within(error)


def test_peaks_take_the_result_of_a_training() -> None:
    """Peaks take a training's result as they take its transform."""
    x, asked = recordings(), {"fs": FS, "nperseg": N, "preset": "scipy", "k": 4}
    one, other = (
        rlx.welch_peaks(x, **asked, fmin=16.0, fmax=200.0, strategy="learned", model=m)
        for m in (learned(), learned().transform)
    )
    np.testing.assert_array_equal(one.power, other.power)
    assert one.decision.what.startswith("learned on ")


def test_recordings_are_one_or_several_of_any_length() -> None:
    """The last part of each is kept for the test; shorter ones add what they have."""
    x = recordings()
    kept = {"steps": 0, "k": None, "nperseg": 64}
    one, several = (
        rlx.learn_welch(given, FS, **{**SETTINGS, **kept})
        for given in (x, [x[0], x[1:], x[0, :100]])
    )
    assert len(several.examples.learned) == len(one.examples.learned) + 1
    assert one.examples.rows.shape == several.examples.rows.shape
    assert one.examples.rows.shape[1] == 64 + (SEGMENTS - 1) * 32
    assert one.transform.k == min(16, len(one.transform.band))
    integers = np.round(1000 * x).astype(np.int16)
    assert rlx.learn_welch(integers, FS, **{**SETTINGS, **kept}).transform.error < 0.02


def test_a_price_of_too_few_bins_is_no_usage() -> None:
    with pytest.raises(UsageError):
        rlx.learn_welch(recordings(), FS, nperseg=64, fmin=2000.0)
