"""Basic Pitch: notes out of sound, whatever instrument plays and however many at once.

Runs Spotify's `nmp.onnx` over windows of two seconds that overlap, several at once, and
makes notes of what it finds. A sound is read and run in stretches; of an hour only what
notes are made of is kept, in files where it is much.

Source   Bittner et al. 2022, A Lightweight Instrument-Agnostic Model for Polyphonic
Note Transcription and Multipitch Estimation
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rlxweb.arguments import whole
from rlxweb.device import DeviceLike
from rlxweb.errors import UsageError
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.models.note import LOWEST, PITCHES, Note
from rlxweb.models.note_events import NoteSettings, bends_of, events_of
from rlxweb.models.notes import Notes
from rlxweb.models.onnx_file import File, onnx_model, saved_graph
from rlxweb.models.sound import Sound, sound_of
from rlxweb.onnx.imported import Computed
from rlxweb.onnx.model import Model
from rlxweb.runtime.from_file import Asked
from rlxweb.runtime.loaded import LoadedGraph

Array = npt.NDArray[Any]
Tell = Callable[[float, float], object]

PACKAGE, INSIDE = "basic_pitch", "saved_models/icassp_2022/nmp.onnx"
RATE = 22050
HOP = 256
WINDOW = 43844
FRAMES = 172
"""Of a window."""
OVERLAP = 30
"""Frames that a window shares with the next."""
STEP = WINDOW - OVERLAP * HOP
KEPT = FRAMES - OVERLAP
"""Frames of a window that are taken, from its middle."""
FRAME_RATE = RATE // HOP
"""By which Basic Pitch counts how many frames a sound has."""
BATCHES = (1, 2, 4, 8)
_DRIFT = HOP / RATE * (FRAMES - WINDOW / HOP) + 0.0018
"""s that frames run ahead in each window, as Basic Pitch measured it."""
_INPUT = "serving_default_input_2:0"
_CONTOUR, _NOTE, _ONSET = (f"StatefulPartitionedCall:{at}" for at in range(3))
_IN_MEMORY = 64 << 20
_DOING = "transcribe"


@dataclass(frozen=True, slots=True)
class Activations:
    """What the model finds, frame by frame.

    times    (n,) s
    note     (n, 88), how much each key of the piano sounds, from A0
    onset    (n, 88), how much it begins to
    contour  (n, 264), the same in thirds of semitones
    seconds  of the sound
    """

    times: Array
    note: Array
    onset: Array
    contour: Array
    seconds: float

    def notes(self, settings: NoteSettings | None = None) -> Notes:
        """The notes, by other settings without running the model again.

        Errors   UsageError for settings that cannot be meant.
        """
        own = (settings or NoteSettings()).checked(_DOING)
        bends = bends_of(self.contour) if own.pitch_bends else self.contour[:0]
        return Notes(_notes(self.note, self.onset, bends, own), self.seconds)


class BasicPitch:
    """A model that hears notes. Made by `BasicPitch.load`; a context manager.

    Threads may share it: they take turns where something is compiled.

    model   the model of ONNX, or the saved graph, that it runs
    """

    def __init__(self, model: Model | LoadedGraph) -> None:
        self.model = model

    @classmethod
    def load(cls, file: File | None = None) -> Self:
        """The model of the package basic-pitch, or of a file.

        file     path of `nmp.onnx` or of what `save` wrote (.rlxg), or the bytes of
                 one; None: the installed package, of which no code is run
        Errors   Unsupported where the package is not installed, or `onnx`; ModelError
        for a file that is missing, broken, or another model
        """
        wanted = {_INPUT: (None, WINDOW, 1)}
        doing = "load Basic Pitch"
        saved = None if file is None else saved_graph(file, doing, wanted)
        return cls(saved or onnx_model(file, PACKAGE, INSIDE, doing, wanted))

    def save(self, path: str | os.PathLike[str], windows: int = 1) -> None:
        """The model as a graph of rlxweb, which a page runs without the package `onnx`.

        path     usually NAME.rlxg; it appears whole or not at all
        windows  of two seconds that are run at once
        Errors   UsageError for less than one, and where it is such a graph already;
        RecordingError where it cannot be written
        """
        doing = "save Basic Pitch"
        count = whole("windows", windows, doing)
        if count < 1 or not isinstance(self.model, Model):
            problem = f"windows is {count}" if count < 1 else "it is a saved graph"
            raise UsageError(doing, problem, "one window at least, of a model of ONNX")
        zeros = np.zeros((count, WINDOW, 1), np.float32)
        made = self.model.imported({_INPUT: zeros})
        places = {n: one.at for n, one in made.outputs.items() if type(one) is Computed}
        names = sorted(places, key=places.__getitem__)
        params = {name: weight.array for name, weight in made.params.items()}
        made.graph.save(path, params, outputs=names)

    @property
    def _batches(self) -> tuple[int, ...]:
        """How many windows may be run at once."""
        if isinstance(self.model, LoadedGraph):
            return (self.model.inputs[_INPUT].shape[0],)
        return BATCHES

    def transcribe(
        self,
        sound: Any,
        fs: float | None = None,
        *,
        settings: NoteSettings | None = None,
        device: DeviceLike | None = None,
        adapter: str = "",
        tell: Tell | None = None,
    ) -> Notes:
        """The notes of a sound.

        sound    path of a sound file of any rate and length; a Recording or Group;
                 samples (n,) or (channels, n), float in [-1, 1] or integers. Channels
                 are averaged
        fs       Hz of an array
        settings what counts as a note
        device   where; None: rlxweb chooses
        adapter  part of an adapter's name, where a device has several
        tell     hears (seconds done, seconds in all)
        Errors   UsageError, NotFinite for what is given; RecordingError for a file;
        those of `Model.run`
        """
        return drive(self._transcribed(sound, fs, settings, device, adapter, tell))

    async def transcribe_async(
        self,
        sound: Any,
        fs: float | None = None,
        *,
        settings: NoteSettings | None = None,
        device: DeviceLike | None = None,
        adapter: str = "",
        tell: Tell | None = None,
    ) -> Notes:
        """`transcribe` beside the caller's event loop."""
        return await awaited_here(
            lambda: self._transcribed(sound, fs, settings, device, adapter, tell)
        )

    async def _transcribed(
        self,
        given: Any,
        fs: float | None,
        settings: NoteSettings | None,
        device: DeviceLike | None,
        adapter: str,
        tell: Tell | None,
    ) -> Notes:
        own = (settings or NoteSettings()).checked(_DOING)
        name = os.fspath(given) if isinstance(given, str | os.PathLike) else ""
        with sound_of(given, fs, RATE, _DOING) as sound:
            count = frames_of(sound.n_samples)
            note, onset = (_room((count, PITCHES), np.float32) for _ in range(2))
            bends = _room((count if own.pitch_bends else 0, PITCHES), np.int8)
            async for at, found in self._stretches(sound, device, adapter, tell):
                rows = slice(at, at + len(found[_NOTE]))
                note[rows], onset[rows] = found[_NOTE], found[_ONSET]
                if own.pitch_bends:
                    bends[rows] = bends_of(found[_CONTOUR])
            seconds = sound.seconds
        return Notes(_notes(note, onset, bends, own), seconds, name)

    def activations(
        self,
        sound: Any,
        fs: float | None = None,
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
        tell: Tell | None = None,
    ) -> Activations:
        """What the model finds frame by frame, all in memory: 150 kB a second.

        Arguments and errors are those of `transcribe`.
        """
        return drive(self._activations(sound, fs, device, adapter, tell))

    async def activations_async(
        self,
        sound: Any,
        fs: float | None = None,
        *,
        device: DeviceLike | None = None,
        adapter: str = "",
        tell: Tell | None = None,
    ) -> Activations:
        """`activations` beside the caller's event loop."""
        return await awaited_here(
            lambda: self._activations(sound, fs, device, adapter, tell)
        )

    async def _activations(
        self,
        given: Any,
        fs: float | None,
        device: DeviceLike | None,
        adapter: str,
        tell: Tell | None,
    ) -> Activations:
        parts: dict[str, list[Array]] = {_NOTE: [], _ONSET: [], _CONTOUR: []}
        with sound_of(given, fs, RATE, "find notes") as sound:
            async for _, found in self._stretches(sound, device, adapter, tell):
                for name, rows in found.items():
                    parts[name].append(rows)
            seconds = sound.seconds
        note, onset, contour = (np.concatenate(one) for one in parts.values())
        return Activations(times_of(len(note)), note, onset, contour, seconds)

    async def _stretches(
        self, sound: Sound, device: DeviceLike | None, adapter: str, tell: Tell | None
    ) -> AsyncIterator[tuple[int, dict[str, Array]]]:
        """(first frame, the frames of each output), one stretch after the other."""
        before = OVERLAP // 2 * HOP
        windows = -(-(sound.n_samples + before) // STEP)
        sizes = self._batches
        batch = next((b for b in sizes if b >= windows), sizes[-1])
        count = frames_of(sound.n_samples)
        asked = Asked(device, adapter, None, keep=False)
        for first in range(0, windows, batch):
            begin = first * STEP - before
            x = sound.read(begin, begin + (batch - 1) * STEP + WINDOW)
            rows = np.lib.stride_tricks.sliding_window_view(x, WINDOW)[::STEP]
            outs = await self.model.computed({_INPUT: rows[:, :, None]}, asked)
            at = first * KEPT
            found = {n: _middle(outs[n], count - at) for n in (_NOTE, _ONSET, _CONTOUR)}
            yield at, found
            if tell is not None:
                done = min(sound.seconds, (first + batch) * STEP / RATE)
                tell(done, sound.seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"BasicPitch({self.model!r})"

    def close(self) -> None:
        """Free what was compiled. Idempotent."""
        self.model.close()


def frames_of(n_samples: int) -> int:
    """Frames of so many samples at 22,050 Hz."""
    return int(np.floor(n_samples * (FRAME_RATE / RATE)))


def times_of(count: int) -> Array:
    """When frames begin, in s; each window's drift is taken off."""
    frame = np.arange(count)
    return frame * HOP / float(RATE) - _DRIFT * np.floor(frame / FRAMES)


def _middle(rows: Array, most: int) -> Array:
    """What is kept of windows (batch, 172, n), one after the other."""
    half = OVERLAP // 2
    kept = rows[:, half:-half]
    return kept.reshape(-1, kept.shape[-1])[: max(0, most)]


def _room(shape: tuple[int, ...], dtype: Any) -> Array:
    """Room for numbers: of many in a file that goes with the array."""
    if int(np.prod(shape)) * np.dtype(dtype).itemsize <= _IN_MEMORY:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(prefix="rlxweb-") as file:
        return np.memmap(file, dtype, "w+", shape=shape)


def _notes(
    note: Array, onset: Array, bends: Array, settings: NoteSettings
) -> tuple[Note, ...]:
    least = round(settings.minimum_note_length / 1000 * (RATE / HOP))
    times = times_of(len(note))
    made = []
    for one in events_of(note, onset, least, settings):
        own = bends[one.start : one.end, one.key]  # empty where none are kept
        made.append(
            Note(
                float(times[one.start]),
                float(times[one.end]),
                one.key + LOWEST,
                one.amplitude,
                tuple(own.tolist()),
            )
        )
    return tuple(sorted(made))
