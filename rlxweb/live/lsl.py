"""Lab Streaming Layer, by the library pylsl. It is loaded here and nowhere else."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from rlxweb.errors import RecordingError, Unsupported, UsageError, not_installed, shown
from rlxweb.live.source import Chunk, Stream, arrived

_DOING: Final = "listening to the Lab Streaming Layer"
WAIT_S: Final = 5.0
_LATE_S: Final = 0.5
"""Chunks are stamped late by up to so much; what jumps further lost samples."""


class LslSource:
    """One stream of the network.

    name     of the stream, or its type ("EEG"); "": the only one there is
    wait_s   how long it is looked for
    Errors   Unsupported without pylsl; UsageError where no stream is seen in time, or
             none by that name, with those that were seen; or of no fixed rate
    """

    can_wait = False

    def __init__(self, name: str = "", wait_s: float = WAIT_S) -> None:
        lsl = _library()
        info = _found(lsl, name, wait_s)
        self._lost_error = lsl.util.LostError
        self._inlet = lsl.StreamInlet(info, recover=False)
        try:
            full = self._inlet.info(timeout=wait_s)
            self._inlet.open_stream(timeout=wait_s)
        except (lsl.util.LostError, lsl.util.TimeoutError) as error:
            raise UsageError(
                _DOING, f"the stream {info.name()!r} does not answer", f"{wait_s:g} s"
            ) from error
        rate = float(full.nominal_srate())
        if rate <= 0:
            raise UsageError(
                _DOING,
                f"the stream {full.name()!r} has no fixed rate",
                "a spectrum needs one",
            )
        names, unit = _channels(full)
        self.stream = Stream(f"LSL {full.name()!r}", rate, names, unit)
        self._stamp: float | None = None

    def read(self, timeout_s: float) -> Chunk | None:
        """See `Source`. Errors  RecordingError where the stream ends or changes."""
        try:
            found, stamps = self._inlet.pull_chunk(timeout=timeout_s, max_samples=4096)
        except self._lost_error as error:
            raise RecordingError(
                _DOING,
                f"{self.stream.name} is gone",
                "it ended, or it begins anew with other channels",
                "begin anew",
            ) from error
        if not len(stamps):
            return None
        rows = np.asarray(found, np.float32 if _is_single(found) else np.float64).T
        return Chunk(np.ascontiguousarray(rows), arrived(), self._missing(stamps))

    def _missing(self, stamps: Any) -> int:
        """Samples that the stamps jump over before this chunk."""
        before, self._stamp = self._stamp, float(stamps[-1])
        if before is None:
            return 0
        steps = (float(stamps[0]) - before) * self.stream.fs
        return round(steps) - 1 if steps > 1 + _LATE_S * self.stream.fs else 0

    def close(self) -> None:
        self._inlet.close_stream()


def _is_single(found: Any) -> bool:
    return isinstance(found, np.ndarray) and found.dtype == np.float32


def _library() -> Any:
    try:
        import pylsl
        import pylsl.util
    except ImportError as error:
        raise not_installed(_DOING, "pylsl", "pip install 'rlxweb[live]'") from error
    except (OSError, RuntimeError) as error:
        raise Unsupported(
            _DOING, f"pylsl cannot load liblsl ({error})", hint="install liblsl"
        ) from error
    if hasattr(pylsl, "set_config_content"):
        pylsl.set_config_content("[log]\nlevel=-3\n")  # it would write on our screen
    return pylsl


def _found(lsl: Any, name: str, wait_s: float) -> Any:
    """The stream's description. Errors  UsageError."""
    for prop in ("name", "type") if name else ():
        seen = lsl.resolve_byprop(prop, name, timeout=wait_s / 2)
        if len(seen) == 1:
            return seen[0]
    seen = lsl.resolve_streams(wait_time=1.0 if name else wait_s)
    numeric = [one for one in seen if one.channel_format() != lsl.cf_string]
    if not name and len(numeric) == 1:
        return numeric[0]
    said = ", ".join(f"{one.name()!r} ({one.type()})" for one in seen) or "none"
    if name:
        what = f"no stream, or several, called {shown(name)} in {wait_s:g} s"
    elif numeric:
        what = f"there are {len(numeric)} streams"
    else:
        what = f"no stream in {wait_s:g} s"
    raise UsageError(_DOING, what, f"seen: {said}", "name one: lsl:NAME")


def _channels(info: Any) -> tuple[tuple[str, ...], str]:
    """Names and unit, as the description tells them."""
    count = info.channel_count()
    names: list[str] = []
    units: set[str] = set()
    one = info.desc().child("channels").child("channel")
    while not one.empty() and len(names) < count:
        names.append(one.child_value("label") or f"ch{len(names) + 1}")
        units.add(one.child_value("unit"))
        one = one.next_sibling("channel")
    names += [f"ch{at + 1}" for at in range(len(names), count)]
    unit = units.pop() if len(units) == 1 else ""
    known = {"microvolts": "uV", "microvolt": "uV", "volts": "V", "millivolts": "mV"}
    seen: dict[str, int] = {}
    for at, name in enumerate(names):
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            names[at] = f"{name}-{seen[name]}"
    return tuple(names), known.get(unit.lower(), unit)
