"""Lab Streaming Layer, by the library pylsl. It is loaded here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.errors import RecordingError, Unsupported, UsageError, not_installed, shown
from rlxweb.live.source import Chunk, Stream, arrived

Array = NDArray[Any]

_DOING: Final = "listening to the Lab Streaming Layer"
WAIT_S: Final = 5.0
_ANOTHER_S: Final = 0.5
_MOST_LISTED: Final = 16
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
        self._rest: list[tuple[Array, Array]] = []

    def read(self, timeout_s: float) -> Chunk | None:
        """See `Source`. Errors  RecordingError where the stream ends or changes."""
        if not self._rest:
            self._rest = self._pulled(timeout_s)
        if not self._rest:
            return None
        rows, stamps = self._rest.pop(0)
        return Chunk(np.ascontiguousarray(rows), arrived(), self._missing(stamps))

    def _pulled(self, timeout_s: float) -> list[tuple[Array, Array]]:
        """What came, with its stamps, cut where they jump."""
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
            return []
        rows = np.asarray(found, np.float32 if _is_single(found) else np.float64).T
        at = np.asarray(stamps, np.float64)
        cuts = np.flatnonzero(np.diff(at) * self.stream.fs > self._most_steps) + 1
        parts = np.split(rows, cuts, axis=1)
        return list(zip(parts, np.split(at, cuts), strict=True))

    @property
    def _most_steps(self) -> float:
        """From one stamp to the next, in samples; further apart, some are lost."""
        return 1 + _LATE_S * self.stream.fs

    def _missing(self, stamps: Any) -> int:
        """Samples that the stamps jump over before this chunk."""
        before, self._stamp = self._stamp, float(stamps[-1])
        if before is None:
            return 0
        steps = (float(stamps[0]) - before) * self.stream.fs
        return round(steps) - 1 if steps > self._most_steps else 0

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
    fit = 0
    for prop in ("name", "type") if name else ():
        seen = lsl.resolve_byprop(prop, name, timeout=wait_s / 2)
        if seen:  # it returns with the first; is there another?
            seen = lsl.resolve_byprop(prop, name, minimum=2, timeout=_ANOTHER_S)
        fit = len(seen)
        if fit == 1:
            return seen[0]
        if fit:
            break
    seen = lsl.resolve_streams(wait_time=1.0 if name else wait_s)
    numeric = [one for one in seen if one.channel_format() != lsl.cf_string]
    if not name and len(numeric) == 1:
        return numeric[0]
    hint = "name one: lsl:NAME"
    if fit:
        what = f"{fit} streams are called {shown(name)}"
        hint = "name one that no other is called, or end the others"
    elif name:
        what = f"no stream is called {shown(name)}, in {wait_s:g} s"
    elif numeric:
        what = f"there are {len(numeric)} streams"
    else:
        what = f"no stream in {wait_s:g} s"
    if not seen:
        hint = "start what sends it, on this network"
    raise UsageError(_DOING, what, f"seen: {_listed(seen)}", hint)


def _listed(seen: Sequence[Any]) -> str:
    """What was seen, for people; a network may have any number of them."""
    some = [
        f"{one.name()!r} ({one.type()}, {one.channel_count()} channels at "
        f"{one.nominal_srate():g} Hz)"
        for one in seen[:_MOST_LISTED]
    ]
    more = len(seen) - len(some)
    return ", ".join(some + [f"{more} more"] * (more > 0)) or "none"


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
