"""Source for the Lab Streaming Layer, through the optional library pylsl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.errors import (
    RecordingError,
    Unsupported,
    UsageError,
    not_installed,
    shown,
)
from rlxweb.live.source import SampleChunk, StreamInfo, arrival_clock

Array = NDArray[Any]

_CONTEXT: Final = "listening to the Lab Streaming Layer"
RESOLVE_TIMEOUT_S: Final = 5.0
_DUPLICATE_TIMEOUT_S: Final = 0.5
_MAX_LISTED: Final = 16
_STAMP_TOLERANCE_S: Final = 0.5
"""Delay up to which chunks may be stamped late; a larger jump means lost samples."""


class LslSource:
    """Source of one stream of the network.

    name     of the stream, or its type ("EEG"); "": the only one there is
    wait_s   how long it is looked for
    Errors   Unsupported without pylsl; UsageError where no stream is seen in time, or
             none by that name, with those that were seen; or of no fixed rate
    """

    can_wait = False

    def __init__(self, name: str = "", wait_s: float = RESOLVE_TIMEOUT_S) -> None:
        lsl = _import_pylsl()
        info = _resolve_stream(lsl, name, wait_s)
        self._lost_error = lsl.util.LostError
        self._inlet = lsl.StreamInlet(info, recover=False)
        try:
            full_info = self._inlet.info(timeout=wait_s)
            self._inlet.open_stream(timeout=wait_s)
        except (lsl.util.LostError, lsl.util.TimeoutError) as error:
            raise UsageError(
                _CONTEXT,
                f"the stream {info.name()!r} did not answer",
                f"expected an answer within {wait_s:g} s",
            ) from error
        rate = float(full_info.nominal_srate())
        if rate <= 0:
            raise UsageError(
                _CONTEXT,
                f"the stream {full_info.name()!r} has no fixed sampling rate",
                "a spectrum requires a fixed sampling rate",
            )
        names, unit = _channel_names_and_unit(full_info)
        self.stream_info = StreamInfo(f"LSL {full_info.name()!r}", rate, names, unit)
        self._last_stamp: float | None = None
        self._pending: list[tuple[Array, Array]] = []

    def read(self, timeout_s: float) -> SampleChunk | None:
        """Return the next samples, see `SignalSource`; raise RecordingError if the
        stream ends or changes.
        """
        if not self._pending:
            self._pending = self._pull_chunks(timeout_s)
        if not self._pending:
            return None
        rows, stamps = self._pending.pop(0)
        return SampleChunk(
            np.ascontiguousarray(rows),
            arrival_clock(),
            self._count_lost_samples(stamps),
        )

    def _pull_chunks(self, timeout_s: float) -> list[tuple[Array, Array]]:
        """Return the received samples and their stamps, split where the stamps jump."""
        try:
            samples, stamps = self._inlet.pull_chunk(
                timeout=timeout_s, max_samples=4096
            )
        except self._lost_error as error:
            raise RecordingError(
                _CONTEXT,
                f"the connection to {self.stream_info.name} was lost",
                "the stream ended, or restarted with other channels",
                "connect to the stream again",
            ) from error
        if not len(stamps):
            return []
        rows = np.asarray(samples, np.float32 if _is_float32(samples) else np.float64).T
        stamp_array = np.asarray(stamps, np.float64)
        cuts = (
            np.flatnonzero(np.diff(stamp_array) * self.stream_info.fs > self._max_step)
            + 1
        )
        parts = np.split(rows, cuts, axis=1)
        return list(zip(parts, np.split(stamp_array, cuts), strict=True))

    @property
    def _max_step(self) -> float:
        """Maximum distance of two stamps in samples without loss."""
        return 1 + _STAMP_TOLERANCE_S * self.stream_info.fs

    def _count_lost_samples(self, stamps: Any) -> int:
        """Return the number of samples that the stamps skip before this chunk."""
        previous, self._last_stamp = self._last_stamp, float(stamps[-1])
        if previous is None:
            return 0
        distance = (float(stamps[0]) - previous) * self.stream_info.fs
        return round(distance) - 1 if distance > self._max_step else 0

    def close(self) -> None:
        """Close the stream."""
        self._inlet.close_stream()


def _is_float32(samples: Any) -> bool:
    """Return whether pulled samples are a float32 array."""
    return isinstance(samples, np.ndarray) and samples.dtype == np.float32


def _import_pylsl() -> Any:
    """Import pylsl without its log output; raise Unsupported if it is missing."""
    try:
        import pylsl
        import pylsl.util
    except ImportError as error:
        raise not_installed(_CONTEXT, "pylsl", "pip install 'rlxweb[live]'") from error
    except (OSError, RuntimeError) as error:
        raise Unsupported(
            _CONTEXT, f"pylsl cannot load liblsl ({error})", hint="install liblsl"
        ) from error
    if hasattr(pylsl, "set_config_content"):
        pylsl.set_config_content("[log]\nlevel=-3\n")  # it would write on our screen
    return pylsl


def _resolve_stream(lsl: Any, name: str, wait_s: float) -> Any:
    """Return the description of the stream with this name or type; raise UsageError if
    there is not exactly one.
    """
    n_matches = 0
    for prop in ("name", "type") if name else ():
        streams = lsl.resolve_byprop(prop, name, timeout=wait_s / 2)
        if streams:  # it returns with the first; is there another?
            streams = lsl.resolve_byprop(
                prop, name, minimum=2, timeout=_DUPLICATE_TIMEOUT_S
            )
        n_matches = len(streams)
        if n_matches == 1:
            return streams[0]
        if n_matches:
            break
    streams = lsl.resolve_streams(wait_time=1.0 if name else wait_s)
    numeric = [stream for stream in streams if stream.channel_format() != lsl.cf_string]
    if not name and len(numeric) == 1:
        return numeric[0]
    hint = "select one stream: lsl:NAME"
    if n_matches:
        problem = f"{n_matches} streams have the name or type {shown(name)}"
        hint = "select a stream with a unique name, or stop the others"
    elif name:
        problem = f"no stream named {shown(name)} was found in {wait_s:g} s"
    elif numeric:
        problem = f"{len(numeric)} streams were found"
    else:
        problem = f"no stream was found in {wait_s:g} s"
    if not streams:
        hint = "start the sending program on this network"
    raise UsageError(_CONTEXT, problem, f"found: {_list_streams(streams)}", hint)


def _list_streams(streams: Sequence[Any]) -> str:
    """Return a readable list of at most `_MAX_LISTED` streams."""
    descriptions = [
        f"{stream.name()!r} ({stream.type()}, {stream.channel_count()} channels at "
        f"{stream.nominal_srate():g} Hz)"
        for stream in streams[:_MAX_LISTED]
    ]
    n_omitted = len(streams) - len(descriptions)
    return ", ".join(descriptions + [f"{n_omitted} more"] * (n_omitted > 0)) or "none"


def _channel_names_and_unit(info: Any) -> tuple[tuple[str, ...], str]:
    """Return unique channel names and the common unit from the stream's description."""
    count = info.channel_count()
    names: list[str] = []
    units: set[str] = set()
    channel = info.desc().child("channels").child("channel")
    while not channel.empty() and len(names) < count:
        names.append(channel.child_value("label") or f"ch{len(names) + 1}")
        units.add(channel.child_value("unit"))
        channel = channel.next_sibling("channel")
    names += [f"ch{index + 1}" for index in range(len(names), count)]
    unit = units.pop() if len(units) == 1 else ""
    unit_symbols = {
        "microvolts": "uV",
        "microvolt": "uV",
        "volts": "V",
        "millivolts": "mV",
    }
    counts: dict[str, int] = {}
    for index, name in enumerate(names):
        counts[name] = counts.get(name, 0) + 1
        if counts[name] > 1:
            names[index] = f"{name}-{counts[name]}"
    return tuple(names), unit_symbols.get(unit.lower(), unit)
