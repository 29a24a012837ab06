"""Label the independent components of an EEG: python iclabel.py FILE COUNT

Needs rlxweb[onnx], MNE 1.13 or newer, mne-icalabel and matplotlib.
"""

from __future__ import annotations

import sys
from pathlib import Path

import mne
import mne_icalabel
import numpy as np
from matplotlib import pyplot
from mne_icalabel.iclabel import get_iclabel_features

import rlxweb as rlx

ASSETS = Path(mne_icalabel.__file__).parent / "iclabel" / "network" / "assets"
CLASSES = (
    *("brain", "muscle artifact", "eye blink", "heart beat"),
    *("line noise", "channel noise", "other"),
)


def load_eeg(path: str) -> mne.io.BaseRaw:
    """Return the EEG as in training of the network: 1–100 Hz, average reference."""
    raw = mne.io.read_raw(path, preload=True).pick("eeg")
    raw.rename_channels(lambda name: name.removeprefix("EEG "))
    raw.set_montage("colin27_1020", on_missing="ignore")
    unplaced = [c["ch_name"] for c in raw.info["chs"] if np.isnan(c["loc"][:3]).any()]
    raw.drop_channels(unplaced)
    return raw.filter(1, 100).set_eeg_reference("average")


def label(raw: mne.io.BaseRaw, ica: mne.preprocessing.ICA) -> np.ndarray:
    """Return the probability of each class for each component.

    Each component is shown four times, as in EEGLAB: its topography as it is, inverted,
    mirrored, and both.
    """
    topo, spectrum, correlation = get_iclabel_features(raw, ica)
    views = [topo, -topo, topo[:, ::-1], -topo[:, ::-1]]
    inputs = {
        "topo": np.concatenate(views, axis=3),
        "psds": np.tile(spectrum, (1, 1, 1, 4)),
        "autocorr": np.tile(correlation, (1, 1, 1, 4)),
    }
    batch = {n: x.transpose(3, 2, 0, 1).astype(np.float32) for n, x in inputs.items()}
    with rlx.onnx.load(ASSETS / "ICLabelNet.onnx") as network:
        (probabilities,) = network.run(batch).values()
    return probabilities


def main(path: str, count: str) -> None:
    """Find so many components, print the class of each, and draw the topographies."""
    raw = load_eeg(path)
    ica = mne.preprocessing.ICA(
        int(count), method="infomax", fit_params={"extended": True}, random_state=1
    ).fit(raw)
    probabilities = label(raw, ica)
    names = [CLASSES[best] for best in probabilities.argmax(axis=1)]
    for index, name in enumerate(names):
        print(f"{index}: {name}, {probabilities[index].max():.2f}")

    fig, axes = pyplot.subplots(1, len(names), figsize=(8, 2.2), layout="constrained")
    for index, ax in enumerate(axes):
        weights = ica.get_components()[:, index]
        mne.viz.plot_topomap(weights, raw.info, axes=ax, show=False, contours=0)
        ax.set_title(f"{index}: {names[index].split()[0]}", fontsize=9)
    fig.savefig("iclabel.svg")


if __name__ == "__main__":
    mne.set_log_level("error")
    main(*sys.argv[1:])
