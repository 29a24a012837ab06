"""A voice that still runs: samples go in as they come, and each frame is told of."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rlxweb.errors import NotFinite, SessionClosed, ShapeError
from rlxweb.given import array_of
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.models.resampling import Running
from rlxweb.models.sound import scaled
from rlxweb.models.speech import SpeechSettings, Turns, VoiceFrame
from rlxweb.models.voice_frames import FRAMES, VoiceFrames

Array = npt.NDArray[Any]

_DOING = "push samples"


class VoiceStream:
    """Made by `VoiceActivity.stream`; a context manager. Used by one thread.

    fs       Hz of the samples that are pushed
    frame_s  s of a frame
    """

    def __init__(
        self, frames: VoiceFrames, fs: float, settings: SpeechSettings
    ) -> None:
        self.fs = fs
        self._frames, self._settings = frames, settings
        self._frame, self._before = FRAMES[frames.rate]
        self.frame_s = self._frame / frames.rate
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        rate = self._frames.rate
        self._running = None if self.fs == rate else Running(self.fs, rate)
        self._left = np.zeros(self._before, np.float32)
        self._turns = Turns(self._settings, rate, self._frame)

    @property
    def is_speaking(self) -> bool:
        """Does somebody talk, as far as is known?"""
        return self._turns.is_speaking

    def push(self, samples: Any) -> list[VoiceFrame]:
        """The frames that are complete now, none or several.

        samples  (n,) or (channels, n), of any length: float in [-1, 1] or integers
        Errors   ShapeError, NotFinite; SessionClosed; those of `Model.run`
        """
        return drive(self._pushed(samples))

    async def push_async(self, samples: Any) -> list[VoiceFrame]:
        """`push` beside the caller's event loop."""
        return await awaited_here(lambda: self._pushed(samples))

    async def _pushed(self, samples: Any) -> list[VoiceFrame]:
        if self._closed:
            raise SessionClosed(_DOING, "this stream was closed")
        x = _mono(samples)
        if self._running is not None:
            x = self._running.push(x)
        self._left = np.concatenate([self._left, x])
        count = (len(self._left) - self._before) // self._frame
        made = []
        for _ in range(count):  # one by one: a frame's state is the next one's
            heard = await self._frames.heard(self._left[: self._before + self._frame])
            self._left = self._left[self._frame :]
            made.append(self._turns.step(float(heard[0])))
        return made

    def reset(self) -> None:
        """Begin anew, as if nothing had been heard."""
        self._frames.reset()
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"VoiceStream({self.fs:g} Hz, frames of {1000 * self.frame_s:g} ms)"

    def close(self) -> None:
        """Free the state. Idempotent."""
        self._closed = True
        self._frames.close()


def _mono(samples: Any) -> Array:
    x = array_of(samples, _DOING)
    if x.ndim not in (1, 2):
        rule = "(n,) or (channels, n)"
        raise ShapeError(_DOING, f"the samples are {list(x.shape)}", rule)
    x = scaled(np.atleast_2d(x))
    if not np.isfinite(x).all():
        problem = "a sample is not finite"
        raise NotFinite(_DOING, problem, "every sample must be finite")
    mixed: Array = x.mean(axis=0) if len(x) != 1 else x[0]
    return mixed.astype(np.float32)
