"""ICLabel: the features and labels of mne-icalabel, and components of our own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mne
import numpy as np
import numpy.typing as npt
import pytest

from rlxweb.errors import (
    ModelError,
    ModelWarning,
    NotFinite,
    RecordingWarning,
    ShapeError,
    UsageError,
)
from rlxweb.io import open_recording, write_recording
from rlxweb.models.ica import decompose
from rlxweb.models.iclabel import CLASSES, INSIDE, PACKAGE, ICLabel
from rlxweb.models.iclabel_features import component_features
from rlxweb.signal.electrodes import positions
from tests.unit.models.made_head import NAMES, head
from tests.unit.models.theirs import folder_of, loaded

FEATURES = ("topo", "psd", "autocorrelation")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    before = mne.set_log_level("ERROR", return_old_level=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The provided", RuntimeWarning)
        yield
    mne.set_log_level(before)


@pytest.fixture(scope="module")
def theirs() -> Any:
    """(features, how the network is run) of the package."""
    return loaded(PACKAGE, ("iclabel.features", "iclabel.network.onnx"), {})


@pytest.fixture(scope="module")
def model() -> Iterator[ICLabel]:
    with ICLabel.load() as made:
        yield made


def raw_of(x: npt.NDArray[Any], fs: float) -> Any:
    info = mne.create_info(list(NAMES), fs, "eeg")
    raw = mne.io.RawArray(x, info).set_montage("standard_1020")
    return raw.set_eeg_reference("average")


def fitted(inst: Any, count: int = 6) -> Any:
    fit = {"extended": True}
    ica = mne.preprocessing.ICA(
        count, method="infomax", fit_params=fit, max_iter=4, random_state=1
    )
    return ica.fit(inst)


CASES = [(250.0, 8.0), (249.7, 5.5), (100.0, 3.0)]


@pytest.mark.parametrize(("fs", "seconds"), [*CASES, (250.0, 0.0)])
def test_components_of_mne_are_labelled_as_its_package_does(
    model: ICLabel, theirs: Any, fs: float, seconds: float
) -> None:
    """Raws short and long, of rates odd and low; and epochs, where it says 0 s."""
    inst = raw_of(head(fs, seconds or 9.0), fs)
    if not seconds:
        inst = mne.make_fixed_length_epochs(inst, 0.9, preload=True)
    ica = fitted(inst)
    features, network = theirs
    want = features.get_iclabel_features(inst, ica)
    found = model.label(ica, inst, device="cpu")
    for name, one in zip(FEATURES, want, strict=True):
        own = getattr(found.features, name)
        plain = one[:, :, 0].transpose(2, 0, 1).reshape(own.shape)
        np.testing.assert_allclose(own, plain, atol=2e-6)
    heard = network._run_iclabel(*want)
    np.testing.assert_allclose(found.probabilities, heard, atol=2e-5)
    assert found.labels == tuple(CLASSES[at] for at in heard.argmax(axis=1))


def test_more_components_than_are_run_at_once_are_labelled_alike(
    model: ICLabel, theirs: Any
) -> None:
    rng = np.random.default_rng(0)
    at, _ = positions(NAMES)
    mixing, x = rng.standard_normal((20, 19)), rng.standard_normal((19, 900))
    features = component_features(mixing, x, 100.0, at)
    topo = features.topo.transpose(1, 2, 0)[:, :, None]
    rows = features.psd, features.autocorrelation
    plain = [topo, *(one.T[None, :, None] for one in rows)]
    want = theirs[1]._run_iclabel(*plain)
    np.testing.assert_allclose(model.probabilities(features, "cpu"), want, atol=2e-5)


def test_sources_are_found_apart_as_mne_finds_them() -> None:
    """Of both kinds, to a permutation and signs; what there is is all of it."""
    rng = np.random.default_rng(3)
    sources = rng.laplace(size=(7, 6000))
    sources[:3] = rng.uniform(-1, 1, (3, 6000))
    sources[3] = np.sin(0.13 * np.arange(6000))
    mixing = rng.standard_normal((9, 7))
    x = mixing @ sources + 5.0
    heard: list[int] = []
    found = decompose(x, tell=lambda passes, gradient: heard.append(passes))
    assert found.unmixing.shape == (7, 9)
    assert found.gradient < 1e-4
    assert heard == list(range(1, found.passes + 1))
    shares = np.abs(found.unmixing @ mixing * sources.std(axis=1))
    assert (np.sort(shares.max(axis=0)) > 0.99).all()
    assert sorted(shares.argmax(axis=0)) == list(range(7))
    again = found.mixing @ found.components(x) + found.mean
    np.testing.assert_allclose(again, x, atol=1e-9)
    np.testing.assert_allclose(found.components(x).std(axis=1), 1.0, atol=1e-6)
    white = (found.components(x)[[3, 0, 1, 2, 4, 5, 6]]).T
    theirs = mne.preprocessing.infomax(white, extended=True, rng=1, verbose=False)
    theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
    assert (np.sort(np.abs(theirs).max(axis=0)) > 0.985).all()
    assert decompose(x, 3).mixing.shape == (9, 3)
    with pytest.warns(ModelWarning, match="after 2 passes"):
        decompose(x, most_passes=2)


def test_a_recording_is_taken_apart_and_labelled(
    model: ICLabel, tmp_path: Path
) -> None:
    """Blinks are eye blinks; without them the channels are what they were."""
    fs = 250.0
    x = head(fs, 40.0)
    path = str(tmp_path / "eeg.edf")
    more = np.concatenate([1e6 * x, np.ones((1, x.shape[1]))])
    write_recording(path, more, fs=fs, channels=[*NAMES, "Pulse"], units="uV")
    heard: list[str] = []
    found = model.label_recording(
        path, device="cpu", tell=lambda what, share: heard.append(what)
    )
    assert len(found) == len(NAMES) - 1, "an average reference takes one away"
    assert found.names == NAMES
    assert found.left_out == ("Pulse",)
    assert list(dict.fromkeys(heard)) == [
        *("filter", "find components", "look at components")
    ]
    eye = CLASSES.index("eye blink")
    blink = int(found.probabilities[:, eye].argmax())
    assert found.probabilities[blink, eye] > 0.5
    assert blink in found.artifacts()
    assert np.abs(found.mixing[:, blink]).argmax() in (0, 1)
    own = 1e6 * (x - x.mean(axis=0))
    left = found.without(own, [blink])
    assert left[0].std() < 0.6 * own[0].std()
    np.testing.assert_allclose(found.without(own, []), own)
    with open_recording(path) as recording:
        at = dict(zip(NAMES, positions(NAMES)[0].tolist(), strict=True))
        other = model.label_recording(recording, 5, positions=at, device="cpu")
    assert other.mixing.shape == (20, 5)


def test_a_recording_is_labelled(model: ICLabel, eeg_recordings: Path) -> None:
    """72 channels of a second: eight of them are on no head, and more were asked of."""
    path = eeg_recordings / "test.bdf"
    with pytest.warns(RecordingWarning, match=r"1\.94 s, and the recording for 1 s"):
        found = model.label_recording(path, 8, device="cpu")
    assert len(found.left_out) == 6
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, atol=1e-5)
    with pytest.raises(UsageError, match=r"0 of 138 channels .* have a place"):
        model.label_recording(eeg_recordings / "test.edf")


def test_what_is_no_component_is_told(model: ICLabel, tmp_path: Path) -> None:
    at, _ = positions(NAMES)
    a, x = np.ones((20, 2)), np.random.default_rng(1).standard_normal((2, 500))
    for args, error, words in (
        ((a, x[:1], 100, at), ShapeError, r"mixing is \[20, 2\]"),
        ((a, x, 100, at[:3]), ShapeError, r"positions are \[3, 3\]"),
        ((a, x * np.nan, 100, at), NotFinite, "activations are not finite"),
        ((a, x * 0, 100, at), UsageError, "component 0 is 0 throughout"),
        ((a, x[:, :50], 100, at), UsageError, "50 samples at 100 Hz"),
    ):
        with pytest.raises(error, match=words):
            component_features(*args)
    with pytest.raises(UsageError, match="ica is a list without n_components_"):
        model.label([], [])
    with pytest.raises(UsageError, match="40 components of 50 samples"):
        decompose(np.random.default_rng(1).standard_normal((60, 50)), 40)
    with pytest.raises(NotFinite):
        decompose(np.full((3, 9), np.inf))
    raw = raw_of(head(100.0, 9.0), 100.0)
    ica = fitted(raw, 3)
    raw.set_montage(None)
    with pytest.raises(UsageError, match="channel 'Fp1' has no place"):
        model.label(ica, raw)
    other = folder_of("basic_pitch") / "saved_models" / "icassp_2022" / "nmp.onnx"
    with pytest.raises(ModelError, match="another model"):
        ICLabel.load(other)
    assert len(ICLabel.load((folder_of(PACKAGE) / INSIDE).read_bytes()).model.inputs)
