"""What a transform is trained and tested on: segments and rows of recordings.

Each recording is cut along time: the first part is learned from, the last is kept to
test on and seen by nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rlxweb.errors import UsageError
from rlxweb.host.segment_power import remove_constant
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import frames, welch_power

F64 = npt.NDArray[np.float64]
Rows = npt.NDArray[Any]

TESTED: Final = 0.3
"""The last part of each recording, which is tested on."""
SEGMENTS: Final = 8
"""Averaged in a row that is tested on."""
MOST_SEGMENTS: Final = 4096
MOST_ROWS: Final = 512
_MOST_SAMPLES: Final = 1 << 24
"""Of the segments, and of the rows: they are held as float64."""
_DOING: Final = "learn a transform"


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Of one estimate.

    spec      of segments of n samples
    learned   (S, n) segments, ready for their transform: windowed
    rows      (B, T) of SEGMENTS segments each, to be tested on
    right     (B, bins of the whole spectrum) their exact power
    """

    spec: WelchSpec
    learned: F64
    rows: F64
    right: F64


def examples_of(recordings: Sequence[Rows], spec: WelchSpec, seed: int = 0) -> Examples:
    """Of recordings, each (C, T) at the same rate.

    Errors   UsageError for recordings that are too short, or not finite.
    """
    rng = np.random.default_rng(seed)
    row = spec.nperseg + (SEGMENTS - 1) * spec.hop
    learned: list[F64] = []
    tested: list[F64] = []
    for number, x in enumerate(recordings):
        if not np.isfinite(x).all():
            where = f"recording {number} has samples that are not finite"
            raise UsageError(_DOING, where, "every sample must be a number")
        split = round((1 - TESTED) * x.shape[-1])
        for channel in np.atleast_2d(x):
            learned += _cut(channel[:split], spec.nperseg, spec.hop)
            tested += _cut(channel[split:], row, row)
    least = 4 * SEGMENTS
    if len(learned) < least or not tested:
        rule = f"at least {least} to learn from, and one row of {row:,} samples more"
        hint = "give longer recordings, more channels, or a smaller nperseg"
        found = f"there are {len(learned)} segments and {len(tested)} rows to test on"
        raise UsageError(_DOING, found, rule, hint)
    few = replace(spec, n_segments=SEGMENTS, dtype="float64")
    most_rows = max(1, min(MOST_ROWS, _MOST_SAMPLES // row))
    most = max(least, min(MOST_SEGMENTS, _MOST_SAMPLES // spec.nperseg))
    rows = np.stack(_some(tested, most_rows, rng)).astype(np.float64)
    segments = np.stack(_some(learned, most, rng)).astype(np.float64)
    rng.shuffle(segments)  # some of them shall stand for all
    if spec.detrend == "constant":
        remove_constant(segments)
    segments *= spec.window_array
    loud = np.sqrt(np.square(segments).mean(axis=1))
    segments = segments[loud > 1e-9 * loud.max(initial=0.0)]
    if len(segments) < least:
        found = "nearly all segments are silent"
        raise UsageError(_DOING, found, f"at least {least} with a signal in them")
    return Examples(few, segments, rows, welch_power(rows, few))


def _cut(x: Rows, length: int, hop: int) -> list[Rows]:
    if len(x) < length:
        return []
    return list(frames(x, length, hop, 1 + (len(x) - length) // hop))


def _some(of: list[Rows], most: int, rng: np.random.Generator) -> list[Rows]:
    """At most so many, from all over."""
    if len(of) <= most:
        return of
    return [of[i] for i in sorted(rng.choice(len(of), most, replace=False))]
