"""The segments and rows of recordings that a transform is trained and tested on.

Each recording is cut along time: the first part is trained on, the last part is held
out for the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rlxweb.errors import NotFinite, UsageError
from rlxweb.host.segment_power import remove_constant
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import frames, welch_power

F64 = npt.NDArray[np.float64]
Rows = npt.NDArray[Any]

TESTED: Final = 0.3
"""The share of each recording that is held out."""
SEGMENTS: Final = 8
"""Segments that are averaged in a row of the test."""
_LEAST_SEGMENTS: Final = 4 * SEGMENTS
_MOST_SEGMENTS: Final = 4096
_MOST_ROWS: Final = 512
_MOST_SAMPLES: Final = 1 << 24
"""Limit of the segments, and of the rows, which are held as float64."""
_DOING: Final = "learn a transform"


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Training and test data of one estimate.

    spec      of segments of n samples
    learned   (S, n) segments to train on, windowed
    rows      (B, T) of SEGMENTS segments each, to test on
    right     (B, bins of the whole spectrum) their exact power
    """

    spec: WelchSpec
    learned: F64
    rows: F64
    right: F64


def examples_of(recordings: Sequence[Rows], spec: WelchSpec, seed: int = 0) -> Examples:
    """Cut recordings, each (C, T), into examples.

    Errors   UsageError for recordings that are too short or silent; NotFinite.
    """
    rng = np.random.default_rng(seed)
    row = spec.nperseg + (SEGMENTS - 1) * spec.hop
    learned: list[F64] = []
    tested: list[F64] = []
    for number, x in enumerate(recordings):
        _check_finite(number, x)
        split = round((1 - TESTED) * x.shape[-1])
        for channel in x:
            learned += _cut(channel[:split], spec.nperseg, spec.hop)
            tested += _cut(channel[split:], row, row)
    if len(learned) < _LEAST_SEGMENTS or not tested:
        raise UsageError(
            _DOING,
            f"there are {len(learned)} segments and {len(tested)} rows to test on",
            f"at least {_LEAST_SEGMENTS} to learn from, and one row of {row:,} samples"
            " more",
            "give longer recordings, more channels, or a smaller nperseg",
        )
    rows = _drawn(tested, max(1, min(_MOST_ROWS, _MOST_SAMPLES // row)), rng)
    most = max(_LEAST_SEGMENTS, min(_MOST_SEGMENTS, _MOST_SAMPLES // spec.nperseg))
    segments = _drawn(learned, most, rng)
    rng.shuffle(segments)  # the first of them stand for all
    if spec.detrend == "constant":
        remove_constant(segments)
    segments *= spec.window_array
    loudness = np.sqrt(np.square(segments).mean(axis=1))
    segments = segments[loudness > 1e-9 * loudness.max(initial=0.0)]
    if len(segments) < _LEAST_SEGMENTS:
        rule = f"at least {_LEAST_SEGMENTS} with a signal in them"
        raise UsageError(_DOING, "nearly all segments are silent", rule)
    spec = replace(spec, n_segments=SEGMENTS, dtype="float64")
    return Examples(spec, segments, rows, welch_power(rows, spec))


def _check_finite(number: int, x: Rows) -> None:
    """Raise NotFinite for the earliest sample that is no number."""
    finite = np.isfinite(x)
    if finite.all():
        return
    at = int(np.argmin(finite.all(axis=0)))
    row = int(np.argmin(finite[:, at]))
    raise NotFinite(
        _DOING,
        f"recording {number}, channel {row} is {float(x[row, at])} at sample {at}",
        f"{int((~finite).sum())} of its {x.size} samples are not finite",
        "repair the recording, or leave the channel out",
    )


def _cut(x: Rows, length: int, hop: int) -> list[Rows]:
    if len(x) < length:
        return []
    return list(frames(x, length, hop, 1 + (len(x) - length) // hop))


def _drawn(parts: list[Rows], most: int, rng: np.random.Generator) -> F64:
    """Draw at most `most` of the parts at random, in their order, as float64."""
    if len(parts) > most:
        drawn = sorted(rng.choice(len(parts), most, replace=False))
        parts = [parts[i] for i in drawn]
    return np.stack(parts).astype(np.float64)
