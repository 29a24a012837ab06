"""An option that a function does not take: it names itself, and what is meant."""

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


def said(function: Any, *args: Any, **options: Any) -> str:
    def run() -> None:
        done = function(*args, **options)
        if asyncio.iscoroutine(done):
            asyncio.run(done)

    with pytest.raises(TypeError) as caught:
        run()
    return str(caught.value)


@pytest.mark.parametrize("given", [X, RAW], ids=["array", "object"])
@pytest.mark.parametrize("name", NAMES)
def test_a_function_names_itself(name: str, given: Any) -> None:
    args = (given, given) if name in PAIRS else (given,)
    words = said(getattr(rlx, name), *args, not_an_option=1)
    assert words == f"{name}() got an unexpected keyword argument 'not_an_option'"


@pytest.mark.parametrize("name", [n for n in NAMES if hasattr(rlx, f"{n}_async")])
def test_so_does_its_form_beside_an_event_loop(name: str) -> None:
    args = (X, X) if name in PAIRS else (X,)
    words = said(getattr(rlx, f"{name}_async"), *args, preciison="f32")
    assert words.startswith(f"{name}_async() got an unexpected keyword argument")
    assert words.endswith("did you mean 'precision'?")


@pytest.mark.parametrize("given", [X, RAW], ids=["array", "object"])
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
def test_the_option_that_is_meant_is_told(
    name: str, wrong: str, meant: str, given: Any
) -> None:
    args = (given, given) if name in PAIRS else (given,)
    words = said(getattr(rlx, name), *args, **{wrong: 1})
    assert words.startswith(f"{name}() got an unexpected keyword argument {wrong!r}")
    assert meant in words.partition("; did you mean ")[2]


def test_a_function_with_two_names_tells_the_one_that_was_called() -> None:
    words = said(rlx.read, "x.npy", chanels="Cz")
    assert words == (
        "read() got an unexpected keyword argument 'chanels'; did you mean 'channels'?"
    )


def test_bands_by_tapers_take_the_options_of_tapers() -> None:
    words = said(rlx.band_power, X, 256.0, method="multitaper", window="hann")
    assert words.startswith("band_power() got an unexpected keyword argument 'window'")
    words = said(rlx.band_power, X, 256.0, method="multitaper", band_width=2.0)
    assert words.endswith("did you mean 'bandwidth'?")
    assert rlx.band_power(X, 256.0, method="multitaper", bandwidth=2.0)


def test_a_stream_names_itself() -> None:
    words = said(rlx.WelchStream, 256.0, nperseq=64)
    assert words.startswith("WelchStream() got an unexpected keyword")
    assert "did you mean 'nperseg'" in words


def test_what_fails_inside_a_function_is_not_renamed() -> None:
    def failing(segment: Any) -> Any:
        raise TypeError("of the caller's own")

    assert said(rlx.welch, X, 256.0, detrend=failing) == "of the caller's own"


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
def test_pictures_name_themselves(result: Any, name: str) -> None:
    words = said(result().plot, not_an_option=1)
    assert words == f"{name}() got an unexpected keyword argument 'not_an_option'"
