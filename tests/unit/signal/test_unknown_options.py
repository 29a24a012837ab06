"""Errors for unknown options: they name the function and suggest the intended
option.
"""

from __future__ import annotations

import asyncio
from typing import Any

import mne
import numpy as np
import pytest

import rlxweb as rlx

X = np.random.default_rng(0).standard_normal((2, 1000))
RAW = mne.io.RawArray(X, mne.create_info(2, 256.0, "eeg"), verbose="error")
PAIRS = ("csd", "coherence")
NAMES = (
    *("welch", "welch_peaks", "csd", "coherence", "spectrogram", "stft", "istft"),
    *("multitaper", "tfr_morlet", "band_power", "band_power_of", "aperiodic"),
    *("learn_welch", "export_welch"),
)


def type_error_message(function: Any, *args: Any, **options: Any) -> str:
    """Return the message of the TypeError that a call raises."""

    def run() -> None:
        returned = function(*args, **options)
        if asyncio.iscoroutine(returned):
            asyncio.run(returned)

    with pytest.raises(TypeError) as error_info:
        run()
    return str(error_info.value)


@pytest.mark.parametrize("samples", [X, RAW], ids=["array", "object"])
@pytest.mark.parametrize("name", NAMES)
def test_error_names_the_function(name: str, samples: Any) -> None:
    args = (samples, samples) if name in PAIRS else (samples,)
    message = type_error_message(getattr(rlx, name), *args, not_an_option=1)
    assert message == f"{name}() got an unexpected keyword argument 'not_an_option'"


@pytest.mark.parametrize("name", [n for n in NAMES if hasattr(rlx, f"{n}_async")])
def test_error_names_the_async_function(name: str) -> None:
    args = (X, X) if name in PAIRS else (X,)
    message = type_error_message(getattr(rlx, f"{name}_async"), *args, preciison="f32")
    assert message.startswith(f"{name}_async() got an unexpected keyword argument")
    assert message.endswith("did you mean 'precision'?")


@pytest.mark.parametrize("samples", [X, RAW], ids=["array", "object"])
@pytest.mark.parametrize(
    ("name", "wrong", "meant"),
    [
        ("band_power", "band", "'bands'"),
        ("band_power", "nperseq", "'nperseg'"),
        ("band_power", "windw", "'window'"),
        ("welch", "n_overlap", "'noverlap'"),
        ("welch_peaks", "fmx", "'fmax'"),
        ("coherence", "windw", "'window'"),
        ("multitaper", "band_width", "'bandwidth'"),
        ("tfr_morlet", "freq", "'freqs'"),
        ("aperiodic", "max_peak", "'max_peaks'"),
    ],
)
def test_error_suggests_the_intended_option(
    name: str, wrong: str, meant: str, samples: Any
) -> None:
    args = (samples, samples) if name in PAIRS else (samples,)
    message = type_error_message(getattr(rlx, name), *args, **{wrong: 1})
    assert message.startswith(f"{name}() got an unexpected keyword argument {wrong!r}")
    assert meant in message.partition("; did you mean ")[2]


def test_error_names_the_alias_that_was_called() -> None:
    message = type_error_message(rlx.read, "x.npy", chanels="Cz")
    assert message == (
        "read() got an unexpected keyword argument 'chanels'; did you mean 'channels'?"
    )


def test_multitaper_band_power_takes_multitaper_options() -> None:
    message = type_error_message(
        rlx.band_power, X, 256.0, method="multitaper", window="hann"
    )
    assert message.startswith(
        "band_power() got an unexpected keyword argument 'window'"
    )
    message = type_error_message(
        rlx.band_power, X, 256.0, method="multitaper", band_width=2.0
    )
    assert message.endswith("did you mean 'bandwidth'?")
    assert rlx.band_power(X, 256.0, method="multitaper", bandwidth=2.0)


def test_error_names_the_stream() -> None:
    message = type_error_message(rlx.WelchStream, 256.0, nperseq=64)
    assert message.startswith("WelchStream() got an unexpected keyword")
    assert "did you mean 'nperseg'" in message


def test_error_of_a_callback_is_unchanged() -> None:
    def failing(segment: Any) -> Any:
        raise TypeError("of the caller's own")

    assert (
        type_error_message(rlx.welch, X, 256.0, detrend=failing)
        == "of the caller's own"
    )


@pytest.mark.parametrize(
    ("result", "name"),
    [
        (lambda: rlx.welch(X, 256.0), "Spectrum.plot"),
        (lambda: rlx.welch_peaks(X, 256.0, 64), "peaks"),
        (lambda: rlx.welch_peaks(X, 256.0, 64, spectrum=True), "peaks"),
        (lambda: rlx.band_power(X, 256.0, nperseg=1000), "BandPower.plot"),
        (lambda: rlx.spectrogram(X, 256.0, nperseg=64), "TimeFrequency.plot"),
    ],
)
def test_error_names_the_plot_function(result: Any, name: str) -> None:
    message = type_error_message(result().plot, not_an_option=1)
    assert message == f"{name}() got an unexpected keyword argument 'not_an_option'"
