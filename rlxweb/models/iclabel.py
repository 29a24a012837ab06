"""ICLabel: is a component of EEG brain, muscle, eye, heart, mains, a channel, or other?

Of an ICA that MNE made, of arrays, or of a recording, whose components are then found
here: average reference, 1 to 100 Hz, extended infomax, as the network was trained with.

Source   Pion-Tonachini, Kreutz-Delgado & Makeig 2019, ICLabel: an automated
electroencephalographic independent component classifier
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rlxweb.device import DeviceLike
from rlxweb.errors import UsageError, shown
from rlxweb.given import named
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.io.dispatch import open_recording
from rlxweb.io.preparing import prepared
from rlxweb.io.recording import Group, Recording, check_finite
from rlxweb.models.ica import decompose
from rlxweb.models.iclabel_features import (
    BINS,
    SIDE,
    ComponentFeatures,
    component_features,
)
from rlxweb.models.onnx_file import File, onnx_model
from rlxweb.onnx.model import Model
from rlxweb.runtime.from_file import Asked
from rlxweb.signal.electrodes import positions as known_positions

Array = npt.NDArray[Any]
Tell = Callable[[str, float], object]

PACKAGE, INSIDE = "mne_icalabel", "iclabel/network/assets/ICLabelNet.onnx"
CLASSES = (
    "brain",
    "muscle artifact",
    "eye blink",
    "heart beat",
    "line noise",
    "channel noise",
    "other",
)
HIGHPASS, LOWPASS = 1.0, 100.0
BLOCKS = (4, 16)
"""Components that are run at once."""
_VIEWS = 4
"""In which a component is shown: as it is, its sign turned, and both mirrored."""
_FITTED = 1 << 18
"""Samples of each channel that components are found in: evenly taken from more."""
_MICROVOLTS = {"uV": 1.0, "µV": 1.0, "μV": 1.0, "mV": 1e3, "V": 1e6, "nV": 1e-3}
_LEAST = 4
_DOING = "label components"


@dataclass(frozen=True, slots=True)
class Components:
    """Components of EEG, and what each is.

    probabilities  (N, 7) float32, of each class of `CLASSES`
    mixing         (C, N), the map of each a column; of a recording in µV each, of
                   deviation 1 over the channels
    unmixing       (N, C)
    names          of the channels
    positions      (C, 3) of the electrodes: x to the right ear, y to the nose, z up
    features       what the network saw
    left_out       channels without a place, that took no part
    """

    probabilities: Array
    mixing: Array
    unmixing: Array
    names: tuple[str, ...]
    positions: Array
    features: ComponentFeatures
    left_out: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.probabilities)

    def __repr__(self) -> str:
        counts = {one: self.labels.count(one) for one in CLASSES}
        said = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
        return f"Components({len(self)} of {len(self.names)} channels: {said})"

    @property
    def labels(self) -> tuple[str, ...]:
        """The class of each that is most probable."""
        return tuple(CLASSES[at] for at in self.probabilities.argmax(axis=1))

    def artifacts(self, least: float = 0.5) -> tuple[int, ...]:
        """Which are muscle, eye, heart, mains or a channel with such a probability."""
        kept = {CLASSES.index("brain"), CLASSES.index("other")}
        which = self.probabilities.argmax(axis=1).tolist()
        sure = self.probabilities.max(axis=1) >= least
        return tuple(n for n, one in enumerate(which) if one not in kept and sure[n])

    def without(self, x: Any, which: Sequence[int]) -> Array:
        """Samples (C, T) of the same channels without some components."""
        own, bad = np.asarray(x, np.float64), list(which)
        found: Array = own - self.mixing[:, bad] @ (self.unmixing[bad] @ own)
        return found


class ICLabel:
    """A model that tells components of EEG apart. Made by `ICLabel.load`.

    A context manager. Threads may share it: they take turns where something is
    compiled.

    model   the model of ONNX that it runs
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    @classmethod
    def load(cls, file: File | None = None) -> Self:
        """The model of the package mne-icalabel, or of a file.

        file     path of `ICLabelNet.onnx`, or its bytes; None: the installed package,
                 of which no code is run
        Errors   Unsupported where the package is not installed, or `onnx`; ModelError
        for a file that is missing, broken, or another model
        """
        wanted = {"topo": (None, 1, SIDE, SIDE), "psds": (None, 1, 1, BINS)}
        return cls(onnx_model(file, PACKAGE, INSIDE, "load ICLabel", wanted))

    def probabilities(
        self,
        features: ComponentFeatures,
        device: DeviceLike | None = None,
        *,
        adapter: str = "",
    ) -> Array:
        """Of each class of `CLASSES`, (N, 7) float32.

        device   where; None: rlxweb chooses
        adapter  part of an adapter's name, where a device has several
        Errors   those of `Model.run`
        """
        return drive(self._run(features, device, adapter))

    async def probabilities_async(
        self,
        features: ComponentFeatures,
        device: DeviceLike | None = None,
        *,
        adapter: str = "",
    ) -> Array:
        """`probabilities` beside the caller's event loop."""
        return await awaited_here(lambda: self._run(features, device, adapter))

    async def _run(
        self, features: ComponentFeatures, device: DeviceLike | None, adapter: str
    ) -> Array:
        count = len(features.topo)
        made = np.zeros((count, len(CLASSES)), np.float32)
        block = next((b for b in BLOCKS if b >= count), BLOCKS[-1])
        asked = Asked(device, adapter, None, keep=False)
        for first in range(0, count, block):
            feeds = _views(features, first, block)
            outs = await self.model.computed(feeds, asked)
            last = min(first + block, count)
            made[first:last] = outs["labels"][: last - first]
        return made

    def label(
        self,
        ica: Any,
        inst: Any,
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
    ) -> Components:
        """What the components of an ICA that MNE made are.

        ica      mne.preprocessing.ICA, fitted: by extended infomax or picard, for the
                 network knows no others
        inst     the Raw or Epochs it was fitted to, referenced to the average, 1 to
                 100 Hz, its electrodes placed
        returns  the probabilities of mne-icalabel
        Errors   UsageError for what is neither, and for electrodes without a place;
        those of `probabilities`
        """
        for name, one, wanted in (("ica", ica, _OF_ICA), ("inst", inst, _OF_INST)):
            lacks = [part for part in wanted if not hasattr(one, part)]
            if lacks:
                problem = f"{name} is {named(one)} without {lacks[0]}"
                rule = "a fitted ICA of MNE, and its Raw or Epochs"
                raise UsageError(_DOING, problem, rule)
        count = int(ica.n_components_)
        unmixing = np.asarray(ica.unmixing_matrix_) @ ica.pca_components_[:count]
        mixing = np.linalg.pinv(unmixing)
        names = tuple(ica.ch_names)
        at = _places_in(inst.info, names)
        x = np.asarray(inst.get_data(picks=list(names))) * 1e6
        activations = unmixing @ x
        if x.ndim == 3:
            activations = activations.transpose(1, 2, 0)
        fs = float(inst.info["sfreq"])
        features = component_features(mixing, activations, fs, at)
        heard = self.probabilities(features, device, adapter=adapter)
        return Components(heard, mixing, unmixing, names, at, features)

    def label_recording(
        self,
        recording: Any,
        n_components: int | None = None,
        *,
        positions: Mapping[str, Sequence[float]] | None = None,
        device: DeviceLike | None = None,
        adapter: str = "",
        tell: Tell | None = None,
    ) -> Components:
        """The components of a recording of EEG, and what they are.

        recording     path, Recording or Group; of what has no unit µV are assumed
        n_components  so many; None: as many as the channels have
        positions     of electrodes by channel name, as in `Components`; None: channels
                      with names of the 10-20 system and its extensions have a place,
                      and others are left out
        tell          hears (what is being done, share done)
        Errors   UsageError for fewer than 4 channels with a place; NotFinite;
        Unsupported without SciPy, by which it is filtered; those of `decompose`,
        `component_features` and `probabilities`
        Warns    ModelWarning where the components did not converge; RecordingWarning
        where the recording is shorter than its filter goes on
        """
        heard = tell or (lambda what, share: None)
        is_path = isinstance(recording, str | os.PathLike)
        opened = open_recording(recording) if is_path else nullcontext(recording)
        with opened as given:
            group, at, left = _placed(_group(given), positions)
            heard("filter", 0.0)
            x = _filtered(group)
        fs, names = group.fs, group.names
        step = -(-x.shape[1] // _FITTED)

        def passed(passes: int, gradient: float) -> None:
            heard("find components", min(1.0, 1e-4 / gradient))

        found = decompose(x[:, ::step], n_components, tell=passed)
        size = np.sqrt((found.mixing**2).mean(axis=0))
        mixing, unmixing = found.mixing / size, found.unmixing * size[:, None]
        activations = (unmixing @ (x - found.mean)).astype(np.float32)
        heard("look at components", 0.0)
        features = component_features(mixing, activations, fs, at)
        told = self.probabilities(features, device, adapter=adapter)
        return Components(told, mixing, unmixing, names, at, features, left)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ICLabel({self.model!r})"

    def close(self) -> None:
        """Free what was compiled. Idempotent."""
        self.model.close()


_OF_ICA = ("n_components_", "unmixing_matrix_", "pca_components_", "ch_names")
_OF_INST = ("info", "get_data")


def _views(features: ComponentFeatures, first: int, block: int) -> dict[str, Array]:
    """Some components in their four views, view by view."""
    last = first + block

    def own(x: Array) -> Array:
        part = x[first:last]
        return np.pad(part, [(0, block - len(part)), *[(0, 0)] * (x.ndim - 1)])

    topo = own(features.topo)
    mirrored = topo[:, :, ::-1]
    four = np.concatenate([topo, -topo, mirrored, -mirrored])
    rest = {"psds": features.psd, "autocorr": features.autocorrelation}
    more = {n: np.tile(own(x), (_VIEWS, 1))[:, None, None] for n, x in rest.items()}
    return {"topo": four[:, None], **more}


def _group(given: Any) -> Group:
    if isinstance(given, Group):
        return given
    if not isinstance(given, Recording):
        rule = "a path, a Recording or a Group"
        raise UsageError(_DOING, f"{named(given)} was given", rule)
    return max(given.signals, key=lambda group: len(group.channels))


def _placed(
    group: Group, given: Mapping[str, Sequence[float]] | None
) -> tuple[Group, Array, tuple[str, ...]]:
    """(the channels with a place, (C, 3), the names of others)."""
    if given is None:
        at, which = known_positions(group.names)
    else:
        which = [n for n, name in enumerate(group.names) if name in given]
        at = np.array([given[group.names[n]] for n in which], np.float64)
    if len(which) < _LEAST:
        raise UsageError(
            _DOING,
            f"{len(which)} of {len(group.names)} channels of {shown(group.recording)} "
            "have a place on the head",
            f"{_LEAST} at least",
            "name them as the 10-20 system does (Fp1, Cz, O2), or give positions",
        )
    left = tuple(name for n, name in enumerate(group.names) if n not in set(which))
    channels = tuple(group.channels[n] for n in which)
    return replace(group, channels=channels), at.reshape(-1, 3), left


def _filtered(group: Group) -> Array:
    """(C, T) in µV, referenced to the average, 1 to 100 Hz."""
    units = {one.unit for one in group.channels}
    unit = units.pop() if len(units) == 1 else "several units"
    if unit and unit not in _MICROVOLTS:
        raise UsageError(_DOING, f"channels are in {unit}", "EEG is a voltage")
    low = LOWPASS if group.fs / 2 > LOWPASS else None
    own = prepared(group, reference="average", highpass=HIGHPASS, lowpass=low)
    parts = []
    for piece in own.pieces:
        x: Any = piece.read()
        check_finite(x, piece)
        parts.append(x)
    scale = _MICROVOLTS.get(unit, 1.0)
    found: Array = np.concatenate(parts, axis=1) * scale
    return found


def _places_in(info: Any, names: Sequence[str]) -> Array:
    """(C, 3) of MNE's. Errors  UsageError for a channel without a place."""
    by_name = {one["ch_name"]: np.asarray(one["loc"][:3]) for one in info["chs"]}
    found = np.array([by_name.get(name, np.full(3, np.nan)) for name in names])
    none = [n for n, at in zip(names, found, strict=True) if not np.abs(at).max() > 0]
    if none:
        problem = f"channel {shown(none[0])} has no place"
        hint = "inst.set_montage('standard_1020') places those it knows"
        raise UsageError(_DOING, problem, "every channel has one", hint)
    return found
