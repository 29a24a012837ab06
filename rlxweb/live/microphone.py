"""The microphone, by the library sounddevice. It is loaded here and nowhere else."""

from __future__ import annotations

import queue
from typing import Any, Final

import numpy as np

from rlxweb.errors import Unsupported, UsageError, not_installed, shown
from rlxweb.live.source import Chunk, Stream, arrived

_DOING: Final = "listening to a microphone"
_MOST: Final = 256


class Microphone:
    """Samples of a sound input, from -1 to 1.

    device    its number, or part of its name; "" is the system's own
    fs        Hz; None: the device's own
    channels  how many of its channels
    Errors    Unsupported where sounddevice or PortAudio is missing; UsageError for no
              such input, with those there are
    """

    can_wait = False

    def __init__(
        self, device: str = "", fs: float | None = None, channels: int = 1
    ) -> None:
        sound = _library()
        about = _input(sound, device)
        rate = fs or float(about["default_samplerate"])
        self._chunks: queue.Queue[Chunk] = queue.Queue(_MOST)
        self._lost = 0
        try:
            self._stream = sound.InputStream(
                samplerate=rate,
                device=about["index"],
                channels=channels,
                dtype="float32",
                callback=self._came,
            )
            self._stream.start()
        except (sound.PortAudioError, ValueError) as error:
            raise UsageError(
                _DOING,
                f"{about['name']!r} cannot be opened ({error})",
                f"{channels} channels at {rate:g} Hz were asked for, it has "
                f"{about['max_input_channels']} at {about['default_samplerate']:g} Hz",
            ) from error
        names = tuple(f"mic{at + 1}" for at in range(channels))
        self.stream = Stream(f"microphone {about['name']!r}", rate, names, "")

    def _came(self, samples: Any, frames: int, when: Any, status: Any) -> None:
        """On PortAudio's thread: must not wait."""
        chunk = Chunk(np.array(samples.T), arrived(), self._lost)
        if status.input_overflow:
            # PortAudio does not say how many; a block of this size is the least.
            chunk = Chunk(chunk.samples, chunk.came, chunk.lost + frames)
        try:
            self._chunks.put_nowait(chunk)
            self._lost = 0
        except queue.Full:
            self._lost = chunk.lost + frames

    def read(self, timeout_s: float) -> Chunk | None:
        """See `Source`."""
        try:
            return self._chunks.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def close(self) -> None:
        self._stream.close()


def _library() -> Any:
    try:
        import sounddevice
    except ImportError as error:
        raise not_installed(
            _DOING, "sounddevice", "pip install 'rlxweb[live]'"
        ) from error
    except OSError as error:
        raise Unsupported(
            _DOING,
            f"sounddevice cannot be loaded ({error})",
            hint="install PortAudio; on Debian: apt-get install libportaudio2",
        ) from error
    return sounddevice


def _input(sound: Any, device: str) -> Any:
    """What the library knows of an input. Errors  UsageError."""
    inputs = [one for one in sound.query_devices() if one["max_input_channels"] > 0]
    there = ", ".join(f"{one['index']} {one['name']!r}" for one in inputs) or "none"
    if not inputs:
        raise UsageError(_DOING, "this machine has no sound input", "one is wanted")
    if not device:
        try:
            return sound.query_devices(kind="input")
        except (sound.PortAudioError, ValueError):
            return inputs[0]
    named = device.lower()
    fit = [
        one
        for one in inputs
        if str(one["index"]) == device or named in str(one["name"]).lower()
    ]
    if len(fit) != 1:
        found = "several inputs are" if fit else "no input is"
        raise UsageError(_DOING, f"{found} called {shown(device)}", f"there: {there}")
    return fit[0]
