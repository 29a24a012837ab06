"""Silero VAD: does somebody talk? Of files, and of a sound that still runs.

Each frame of 32 ms is judged by what came before it: the state goes from run to run and
stays on the device. A whole sound is run many frames at once, a stream frame by frame.

Source   Silero Team, Silero VAD, a pre-trained enterprise-grade voice activity detector
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rlxweb.arguments import number
from rlxweb.device import DeviceLike
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.models.onnx_file import File, onnx_model
from rlxweb.models.sound import Sound, check_rate, sound_of
from rlxweb.models.speech import Segment, Speech, SpeechSettings, segments_of
from rlxweb.models.voice_frames import FRAMES, VoiceFrames
from rlxweb.models.voice_stream import VoiceStream
from rlxweb.onnx.model import Model

Array = npt.NDArray[Any]
Tell = Callable[[float, float], object]

PACKAGE = "silero_vad"
SEQUENCE = "data/silero_vad_16k_sequence.onnx"
STREAMING = "data/silero_vad_op18_ifless.onnx"
RATE, TELEPHONE = 16000, 8000
BLOCKS = (8, 64, 512)
"""Frames that are run at once."""
_DOING = "find speech"


class VoiceActivity:
    """A model that hears whether somebody talks. Made by `VoiceActivity.load`.

    A context manager. Threads may share it: they take turns where something is
    compiled; each stream is of one thread.

    sequence   the model of many frames at once; None where none was given
    streaming  the model of one frame; None likewise
    """

    def __init__(self, sequence: Model | None, streaming: Model | None) -> None:
        self.sequence, self.streaming = sequence, streaming

    @classmethod
    def load(cls, file: File | None = None) -> Self:
        """The models of the package silero-vad, or of a file.

        file     path of `silero_vad_16k_sequence.onnx` or `…_op18_ifless.onnx`,
                 or the bytes of one, which then does everything; None: both, of the
                 installed package, of which no code is run
        Errors   Unsupported where the package is not installed, or `onnx`; ModelError
        for a file that is missing, broken, or another model
        """
        doing = "load Silero VAD"
        of_many = {"input": (None, 576), "h": (1, 1, 128), "c": (1, 1, 128)}
        of_one = {"input": (None, None), "sr": (), "state": (2, None, 128)}
        if file is not None:
            model = onnx_model(file, PACKAGE, "", doing, of_many, of_one)
            is_many = "h" in model.inputs
            return cls(model if is_many else None, None if is_many else model)
        many = onnx_model(None, PACKAGE, SEQUENCE, doing, of_many)
        return cls(many, onnx_model(None, PACKAGE, STREAMING, doing, of_one))

    def speech(
        self,
        sound: Any,
        fs: float | None = None,
        *,
        settings: SpeechSettings | None = None,
        device: DeviceLike | None = None,
        adapter: str = "",
        tell: Tell | None = None,
    ) -> Speech:
        """Where somebody talks in a sound.

        sound    path of a sound file of any rate and length; a Recording or Group;
                 samples (n,) or (channels, n), float in [-1, 1] or integers. Channels
                 are averaged
        fs       Hz of an array
        settings what counts as speech
        device   where; None: rlxweb chooses
        adapter  part of an adapter's name, where a device has several
        tell     hears (seconds done, seconds in all)
        Errors   UsageError, NotFinite for what is given; RecordingError for a file;
        those of `Model.run`
        """
        return drive(self._spoken(sound, fs, settings, device, adapter, tell))

    async def speech_async(
        self,
        sound: Any,
        fs: float | None = None,
        *,
        settings: SpeechSettings | None = None,
        device: DeviceLike | None = None,
        adapter: str = "",
        tell: Tell | None = None,
    ) -> Speech:
        """`speech` beside the caller's event loop."""
        return await awaited_here(
            lambda: self._spoken(sound, fs, settings, device, adapter, tell)
        )

    async def _spoken(
        self,
        given: Any,
        fs: float | None,
        settings: SpeechSettings | None,
        device: DeviceLike | None,
        adapter: str,
        tell: Tell | None,
    ) -> Speech:
        own = (settings or SpeechSettings()).checked(_DOING)
        name = os.fspath(given) if isinstance(given, str | os.PathLike) else ""
        with sound_of(given, fs, self._rate_for, _DOING) as sound:
            rate = int(sound.rate)
            heard = await self._heard(sound, device, adapter, tell)
            frame = FRAMES[rate][0]
            found = segments_of(heard.tolist(), sound.n_samples, rate, frame, own)
            segments = tuple(Segment(a / rate, b / rate) for a, b in found)
            return Speech(segments, heard, frame / rate, sound.seconds, name)

    async def _heard(
        self, sound: Sound, device: DeviceLike | None, adapter: str, tell: Tell | None
    ) -> Array:
        """The probability of each frame."""
        rate = int(sound.rate)
        frame, before = FRAMES[rate]
        model = self._model_for(rate, many=True)
        own = VoiceFrames(model, rate, device, adapter)
        count = -(-sound.n_samples // frame)
        block = next((b for b in BLOCKS if b >= count), BLOCKS[-1])
        made = np.zeros(count, np.float32)
        for first in range(0, count, block):
            last = min(first + block, count)
            whole = first + block if own.takes_many else last
            x = sound.read(first * frame - before, whole * frame)
            made[first:last] = (await own.heard(x))[: last - first]
            if tell is not None:
                tell(min(last * frame / rate, sound.seconds), sound.seconds)
        return made

    def stream(
        self,
        fs: float = RATE,
        *,
        settings: SpeechSettings | None = None,
        device: DeviceLike | None = None,
        adapter: str = "",
    ) -> VoiceStream:
        """A sound that still runs; `push` takes its samples and tells of each frame.

        fs       Hz of the samples; others than 16,000 and 8,000 are resampled
        settings `threshold`, `neg_threshold`, `min_silence_duration_ms` and
                 `speech_pad_ms` count
        Errors   UsageError for a rate that no sound has
        """
        doing = "stream speech"
        own = (settings or SpeechSettings()).checked(doing)
        hz = number("fs", fs, doing)
        check_rate(hz, doing)
        rate = self._rate_for(hz)
        model = self._model_for(rate, many=False)
        return VoiceStream(VoiceFrames(model, rate, device, adapter), hz, own)

    def _rate_for(self, fs: float) -> int:
        """Sound of a telephone has a model of its own."""
        return RATE if self.streaming is None or fs >= RATE else TELEPHONE

    def _model_for(self, rate: int, many: bool) -> Model:
        first, other = self.sequence, self.streaming
        if not many or rate != RATE:
            first, other = other, first
        model = first or other
        assert model is not None
        return model

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        models = [one for one in (self.sequence, self.streaming) if one is not None]
        return f"VoiceActivity({', '.join(map(repr, models))})"

    def close(self) -> None:
        """Free what was compiled. Idempotent."""
        for one in (self.sequence, self.streaming):
            if one is not None:
                one.close()
