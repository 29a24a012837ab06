"""Microphone source, through the optional library sounddevice."""

from __future__ import annotations

import queue
from typing import Any, Final

import numpy as np

from rlxweb.core.errors import Unsupported, UsageError, not_installed, shown
from rlxweb.live.source import SampleChunk, StreamInfo, arrival_clock

_CONTEXT: Final = "listening to a microphone"
_MAX_QUEUED_CHUNKS: Final = 256


class MicrophoneSource:
    """Source of the samples of a sound input, from -1 to 1.

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
        sounddevice = _import_sounddevice()
        properties = _find_input(sounddevice, device)
        rate = fs or float(properties["default_samplerate"])
        self._chunks: queue.Queue[SampleChunk] = queue.Queue(_MAX_QUEUED_CHUNKS)
        self._n_lost = 0
        try:
            self._input_stream = sounddevice.InputStream(
                samplerate=rate,
                device=properties["index"],
                channels=channels,
                dtype="float32",
                callback=self._on_samples,
            )
            self._input_stream.start()
        except (sounddevice.PortAudioError, ValueError) as error:
            raise UsageError(
                _CONTEXT,
                f"{properties['name']!r} cannot be opened ({error})",
                f"requested {channels} channels at {rate:g} Hz; the device supports "
                f"at most {properties['max_input_channels']} channels and has a "
                f"default rate of {properties['default_samplerate']:g} Hz",
            ) from error
        names = tuple(f"mic{index + 1}" for index in range(channels))
        self.stream_info = StreamInfo(
            f"microphone {properties['name']!r}", rate, names, ""
        )

    def _on_samples(self, samples: Any, frames: int, when: Any, status: Any) -> None:
        """Queue the samples of a callback on PortAudio's thread, without blocking."""
        chunk = SampleChunk(np.array(samples.T), arrival_clock(), self._n_lost)
        if status.input_overflow:
            # PortAudio does not say how many; a block of this size is the least.
            chunk = SampleChunk(
                chunk.samples, chunk.arrival_time, chunk.n_lost_before + frames
            )
        try:
            self._chunks.put_nowait(chunk)
            self._n_lost = 0
        except queue.Full:
            self._n_lost = chunk.n_lost_before + frames

    def read(self, timeout_s: float) -> SampleChunk | None:
        """Return the next samples, see `SignalSource`."""
        try:
            return self._chunks.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Close the input stream."""
        self._input_stream.close()


def _import_sounddevice() -> Any:
    """Import sounddevice; raise Unsupported if it or PortAudio is missing."""
    try:
        import sounddevice
    except ImportError as error:
        raise not_installed(
            _CONTEXT, "sounddevice", "pip install 'rlxweb[live]'"
        ) from error
    except OSError as error:
        raise Unsupported(
            _CONTEXT,
            f"sounddevice cannot be loaded ({error})",
            hint="install PortAudio; on Debian: apt-get install libportaudio2",
        ) from error
    return sounddevice


def _find_input(sounddevice: Any, device: str) -> Any:
    """Return the properties of a sound input; raise UsageError if there is not exactly
    one.
    """
    inputs = [
        properties
        for properties in sounddevice.query_devices()
        if properties["max_input_channels"] > 0
    ]
    input_list = (
        ", ".join(
            f"{properties['index']} {properties['name']!r}" for properties in inputs
        )
        or "none"
    )
    if not inputs:
        raise UsageError(
            _CONTEXT, "this machine has no sound input", "an input device is required"
        )
    if not device:
        try:
            return sounddevice.query_devices(kind="input")
        except (sounddevice.PortAudioError, ValueError):
            return inputs[0]
    name_part = device.lower()
    matches = [
        properties
        for properties in inputs
        if str(properties["index"]) == device
        or name_part in str(properties["name"]).lower()
    ]
    if len(matches) != 1:
        problem = "several inputs match" if matches else "no input matches"
        raise UsageError(
            _CONTEXT, f"{problem} {shown(device)}", f"available: {input_list}"
        )
    return matches[0]
