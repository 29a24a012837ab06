"""`learn_welch`: training, pruning and fitting of transforms from recordings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import InputError, NotFinite, UsageError
from rlxweb.signal.learned.gated_fft import PrunedFftProgram, cheapest_program
from rlxweb.signal.learned.pruning import (
    Pruning,
    cheapest_within_error,
    fit_weights,
    pareto_front,
    peak_recall,
)
from rlxweb.signal.learned.training_examples import TEST_SEGMENTS
from rlxweb.signal.learned.transform import band_power_by_numpy
from rlxweb.signal.spectrum_accuracy import spectrum_error
from tests.unit.signal.learned.red_noise import (
    FS,
    LEARN_OPTIONS,
    N,
    learned_result,
    red_noise,
    training_recordings,
)


def test_steep_spectra_need_less_than_half_the_gates() -> None:
    """A learned transform has less than half the gates, within the error allowed."""
    training = learned_result()
    assert not training.is_exact
    assert training.transform.error <= LEARN_OPTIONS["max_error"]
    assert training.transform.active < training.tried[0].active / 2
    assert training.chosen.program.cost <= training.tried[0].program.cost / 2
    assert training.tried[0].error < 1e-12
    assert training.tried[0].recall == 1.0
    assert "of 448 gates" in repr(training.transform)


def test_reported_error_holds_on_unseen_recordings() -> None:
    """The reported error covers the whole estimate, on recordings that were not used
    for training.
    """
    x = red_noise(6, 24_000, seed=9)[:, : 8 * N]
    transform = learned_result().transform
    hz, power = rlx.welch(x, fs=FS, nperseg=N, preset="scipy", precision="f64")
    band_bins = slice(transform.band.first, transform.band.stop)
    spec = replace(learned_result().examples.spec, n_segments=0)
    gated_power = band_power_by_numpy(
        x.astype(np.float64), spec, transform.program, transform.band
    )
    assert (
        spectrum_error(gated_power, power[:, band_bins])
        < 2 * LEARN_OPTIONS["max_error"]
    )
    np.testing.assert_allclose(transform.hz, hz[band_bins])


def test_white_spectra_keep_the_exact_program() -> None:
    x = np.random.default_rng(3).standard_normal((2, 9000))
    training = rlx.learn_welch(
        x, FS, **{**LEARN_OPTIONS, "steps": 4, "max_error": 1e-3}
    )
    assert training.is_exact
    assert training.transform.error < 1e-12
    assert training.transform.program == training.chosen.program


def test_the_report_is_plain_data() -> None:
    report = learned_result().as_json()
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["n"] == N
    assert report["gates"]["total"] == 448
    assert report["steps"] == len(report["losses"]) == LEARN_OPTIONS["steps"]
    assert 0 < report["cost"] < 1


def test_fitted_weights_reduce_the_error() -> None:
    """Fitted weights have a smaller error on the segments that they were fitted to.

    Least squares are nearest, and giving lost power back at most doubles their error.
    """
    training, segments = learned_result(), learned_result().examples.training_segments
    band = training.transform.band
    exact = np.fft.rfft(segments)[:, band.bins]

    def spectra(program: PrunedFftProgram) -> Any:
        return np.einsum("ksp,kp->sk", program.bin_terms(segments), program.weights)

    for pruning in training.tried[1:8]:
        gate_program = cheapest_program(pruning.gates, band)
        fitted_program = fit_weights(gate_program, segments)
        errors = [
            np.square(np.abs(spectra(program) - exact)).mean(axis=0)
            for program in (gate_program, fitted_program)
        ]
        assert (errors[1] <= 2 * errors[0] + 1e-18).all()
        assert errors[1].sum() <= errors[0].sum()
        got = np.square(np.abs(spectra(fitted_program)))
        power = np.square(np.abs(exact)).mean(axis=0)
        np.testing.assert_allclose(got.mean(axis=0), power, rtol=1e-6)


def test_training_is_reproducible_and_resumable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training with one seed gives the same bits, interrupted or not; another seed does
    not.
    """
    monkeypatch.setenv("RLX_FAST", "background")
    options = {**LEARN_OPTIONS, "nperseg": 64, "steps": 5}
    x = training_recordings()[:, :6000]
    uninterrupted = rlx.learn_welch(x, FS, **options)
    state = tmp_path / "state.npz"

    def stop(step: int, loss: float) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rlx.learn_welch(x, FS, **options, save_to=state, told=stop)
    reported_steps: list[int] = []
    resumed = rlx.learn_welch(
        x,
        FS,
        **options,
        save_to=state,
        told=lambda step, _: reported_steps.append(step),
    )
    assert reported_steps == [3, 4, 5]
    assert resumed.trained.gates.tobytes() == uninterrupted.trained.gates.tobytes()
    assert resumed.as_json()["losses"] == uninterrupted.as_json()["losses"]
    weights = [
        result.transform.program.weights.tobytes()
        for result in (uninterrupted, resumed)
    ]
    assert weights[0] == weights[1]
    for change in ({"seed": 1}, {"price": 0.2}, {"k": 3}, {"steps": 9}):
        with pytest.raises(InputError, match="other recordings or settings"):
            rlx.learn_welch(x, FS, **{**options, **change}, save_to=state)


def test_gates_lie_between_zero_and_one() -> None:
    gates = learned_result().trained.gates
    assert gates.shape == (7, N // 2)
    assert gates.min() >= 0.0
    assert gates.max() <= 1.0


def make_pruning(program_cost: float, error: float) -> Pruning:
    """Return a pruning with this cost and error."""
    program = type("Costs", (), {"cost": program_cost})()
    return Pruning(np.ones((2, 2), np.bool_), program, 4, error, 1.0)


def test_cheapest_pruning_within_the_error_is_chosen() -> None:
    exact = make_pruning(10, 0.0)
    prunings = [
        exact,
        make_pruning(5, 0.1),
        make_pruning(4, 0.2),
        make_pruning(4, 0.05),
        make_pruning(2, 0.5),
    ]
    assert cheapest_within_error(prunings, 0.3) is prunings[3]
    assert cheapest_within_error(prunings, 0.01) is exact
    assert cheapest_within_error([exact, make_pruning(20, 0.0)], 0.01) is exact
    assert pareto_front(prunings) == [exact, prunings[3], prunings[4]]


def test_recall_counts_true_peaks_at_their_bins() -> None:
    power = np.array([[0, 5, 0, 4, 0, 3, 0.0]])
    assert peak_recall(power, power, 3) == 1.0
    shifted = np.array([[0, 5, 0, 0, 4, 0, 0.0]])
    assert peak_recall(shifted, power, 3) == pytest.approx(1 / 3)
    assert peak_recall(shifted, power, 1) == 1.0
    assert peak_recall(np.zeros((1, 7)), np.zeros((1, 7)), 3) == 1.0


def test_error_is_relative_and_weak_bins_count_against_the_strongest() -> None:
    expected = np.array([[1.0, 1e-9, 0.0]])
    assert spectrum_error(expected, expected) == 0.0
    assert spectrum_error(1.1 * expected, expected) == pytest.approx(
        0.1 / np.sqrt(3), rel=1e-2
    )
    assert spectrum_error(expected + np.array([0, 1e-9, 0]), expected) < 1e-3
    assert spectrum_error(np.empty((0, 3)), np.empty((0, 3))) == 0.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nperseg": 100}, "nperseg is 100; must be a power of two"),
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
def test_invalid_settings_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(rlx.RlxError, match=words):
        rlx.learn_welch(training_recordings(), FS, **{**LEARN_OPTIONS, **change})


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([], "got no recording"),
        (np.zeros((2, 3, 4)), "shape"),
        (np.zeros((2, 3000), complex), "real numbers"),
        (np.zeros((2, 9000)), "silent"),
        (
            np.full((2, 9000), np.nan),
            "channel 0 of recording 0 is nan at sample 0; 18000",
        ),
        (np.ones((1, 1000)), "training segments and 0 test rows"),
        ("night.edf", "learn a transform"),
    ],
)
def test_unusable_recordings_are_refused(x: Any, words: str) -> None:
    with pytest.raises(rlx.RlxError, match=words):
        rlx.learn_welch(x, FS, **LEARN_OPTIONS)


def test_first_non_finite_sample_is_named() -> None:
    """The earliest bad sample in any channel is named."""
    x = training_recordings().copy()
    x[2, 700], x[0, 900] = -np.inf, np.nan
    message = (
        "channel 2 of recording 1 is -inf at sample 700; 2 of the recording's "
        "72000 samples"
    )
    with pytest.raises(NotFinite, match=message):
        rlx.learn_welch([training_recordings(), x], FS, **LEARN_OPTIONS)


@pytest.mark.parametrize("error", ["a", 0, 1, -0.5, np.nan, True, None])
def test_within_refuses_errors_out_of_range(error: Any) -> None:
    with pytest.raises(UsageError, match=r"learn a transform: error is "):
        learned_result().within(error)


def test_welch_peaks_accepts_a_training_result() -> None:
    """`welch_peaks` accepts a training result just as its transform."""
    x = training_recordings()
    options = {"fs": FS, "nperseg": N, "preset": "scipy", "k": 4}
    by_result, by_transform = (
        rlx.welch_peaks(
            x, **options, fmin=16.0, fmax=200.0, strategy="learned", model=m
        )
        for m in (learned_result(), learned_result().transform)
    )
    np.testing.assert_array_equal(by_result.power, by_transform.power)
    assert by_result.decision.what.startswith("learned on ")


def test_recordings_of_any_number_and_length() -> None:
    """The last part of each recording is held out for the test; shorter ones add what
    they have.
    """
    x = training_recordings()
    overrides = {"steps": 0, "k": None, "nperseg": 64}
    single, several = (
        rlx.learn_welch(data, FS, **{**LEARN_OPTIONS, **overrides})
        for data in (x, [x[0], x[1:], x[0, :100]])
    )
    assert (
        len(several.examples.training_segments)
        == len(single.examples.training_segments) + 1
    )
    assert single.examples.test_rows.shape == several.examples.test_rows.shape
    assert single.examples.test_rows.shape[1] == 64 + (TEST_SEGMENTS - 1) * 32
    assert single.transform.k == min(16, len(single.transform.band))
    integers = np.round(1000 * x).astype(np.int16)
    assert (
        rlx.learn_welch(integers, FS, **{**LEARN_OPTIONS, **overrides}).transform.error
        < 0.02
    )


def test_fmin_above_half_the_rate_is_refused() -> None:
    with pytest.raises(UsageError):
        rlx.learn_welch(training_recordings(), FS, nperseg=64, fmin=2000.0)
