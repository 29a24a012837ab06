"""Segments and rows of recordings that a transform is trained and tested on.

Each recording is cut along time: the first part is trained on, the last part is held
out for the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rlxweb.core.errors import NotFinite, UsageError
from rlxweb.ops.welch.cpu.segment_fft_workspace import remove_constant
from rlxweb.ops.welch.cpu.spectrum import segment_view, welch_power
from rlxweb.ops.welch.spec import WelchSpec

F64 = npt.NDArray[np.float64]
SampleArray = npt.NDArray[Any]

TEST_SHARE: Final = 0.3
"""Share of each recording that is held out for the test."""
TEST_SEGMENTS: Final = 8
"""Number of segments that are averaged in a row of the test."""
_MIN_SEGMENTS: Final = 4 * TEST_SEGMENTS
_MAX_SEGMENTS: Final = 4096
_MAX_ROWS: Final = 512
_MAX_SAMPLES: Final = 1 << 24
"""Maximum number of samples of the segments, and of the rows, which are stored as
float64.
"""
_CONTEXT: Final = "learn a transform"


@dataclass(frozen=True, slots=True, eq=False)
class TrainingExamples:
    """Training and test data of one estimate.

    spec      of segments of n samples
    training_segments  (S, n) segments to train on, windowed
    test_rows  (B, T) of SEGMENTS segments each, to test on
    test_power  (B, bins of the whole spectrum) their exact power
    """

    spec: WelchSpec
    training_segments: F64
    test_rows: F64
    test_power: F64


def make_examples(
    recordings: Sequence[SampleArray], spec: WelchSpec, seed: int = 0
) -> TrainingExamples:
    """Cut recordings, each (C, T), into examples.

    Errors   UsageError for recordings that are too short or silent; NotFinite.
    """
    rng = np.random.default_rng(seed)
    row_length = spec.nperseg + (TEST_SEGMENTS - 1) * spec.hop
    training_parts: list[F64] = []
    test_parts: list[F64] = []
    for number, x in enumerate(recordings):
        _check_finite(number, x)
        split = round((1 - TEST_SHARE) * x.shape[-1])
        for channel in x:
            training_parts += _split_frames(channel[:split], spec.nperseg, spec.hop)
            test_parts += _split_frames(channel[split:], row_length, row_length)
    if len(training_parts) < _MIN_SEGMENTS or not test_parts:
        raise UsageError(
            _CONTEXT,
            f"got {len(training_parts)} training segments and "
            f"{len(test_parts)} test rows",
            f"at least {_MIN_SEGMENTS} training segments and one test row of "
            f"{row_length:,} samples are required",
            "pass longer recordings or more channels, or use a smaller nperseg",
        )
    rows = _draw_parts(
        test_parts, max(1, min(_MAX_ROWS, _MAX_SAMPLES // row_length)), rng
    )
    max_segments = max(_MIN_SEGMENTS, min(_MAX_SEGMENTS, _MAX_SAMPLES // spec.nperseg))
    segments = _draw_parts(training_parts, max_segments, rng)
    rng.shuffle(segments)  # the first of them stand for all
    if spec.detrend == "constant":
        remove_constant(segments)
    segments *= spec.window_array
    loudness = np.sqrt(np.square(segments).mean(axis=1))
    segments = segments[loudness > 1e-9 * loudness.max(initial=0.0)]
    if len(segments) < _MIN_SEGMENTS:
        rule = (
            f"at least {_MIN_SEGMENTS} segments must contain a signal, got "
            f"{len(segments)}"
        )
        raise UsageError(_CONTEXT, "nearly all segments are silent", rule)
    spec = replace(spec, n_segments=TEST_SEGMENTS, dtype="float64")
    return TrainingExamples(spec, segments, rows, welch_power(rows, spec))


def _check_finite(number: int, x: SampleArray) -> None:
    """Raise NotFinite for the earliest sample that is no number."""
    finite = np.isfinite(x)
    if finite.all():
        return
    sample = int(np.argmin(finite.all(axis=0)))
    row = int(np.argmin(finite[:, sample]))
    raise NotFinite(
        _CONTEXT,
        f"channel {row} of recording {number} is {float(x[row, sample])} at sample "
        f"{sample}",
        f"{int((~finite).sum())} of the recording's {x.size} samples are not finite",
        "repair the recording, or remove the channel",
    )


def _split_frames(x: SampleArray, length: int, hop: int) -> list[SampleArray]:
    """Split samples into frames of a length; return none where the samples are too
    few.
    """
    if len(x) < length:
        return []
    return list(segment_view(x, length, hop, 1 + (len(x) - length) // hop))


def _draw_parts(
    parts: list[SampleArray], max_parts: int, rng: np.random.Generator
) -> F64:
    """Draw at most `max_parts` of the parts at random, in their order, as float64."""
    if len(parts) > max_parts:
        chosen = sorted(rng.choice(len(parts), max_parts, replace=False))
        parts = [parts[i] for i in chosen]
    return np.stack(parts).astype(np.float64)
