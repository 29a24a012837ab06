"""Speech out of probabilities: where somebody talks, frame by frame or all at once.

Two rules, each with the results of Silero's package: that of a whole sound, in which
short silences are bridged, short sounds dropped and long speech cut where it pauses;
and that of a sound that still runs, which says at once where speech begins.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy.typing as npt

from rlxweb.arguments import number
from rlxweb.errors import UsageError

Array = npt.NDArray[Any]

_HYSTERESIS = 0.15
"""By how much less than the threshold a frame is silent."""
_LEAST_THRESHOLD = 0.01


@dataclass(frozen=True, slots=True)
class SpeechSettings:
    """What counts as speech. The names and what is usual are Silero VAD's.

    threshold                  least probability with which speech begins
    neg_threshold              what is below it is silence; None: 0.15 below `threshold`
    min_speech_duration_ms     shorter speech is dropped
    max_speech_duration_s      longer speech is cut, where it pauses if it does
    min_silence_duration_ms    silence that ends speech
    speech_pad_ms              speech is told so much longer at both ends
    min_silence_at_max_speech  ms of a pause in which long speech may be cut
    use_max_poss_sil_at_max_speech
                               it is cut in its longest pause, else in its last
    """

    threshold: float = 0.5
    neg_threshold: float | None = None
    min_speech_duration_ms: float = 250.0
    max_speech_duration_s: float = math.inf
    min_silence_duration_ms: float = 100.0
    speech_pad_ms: float = 30.0
    min_silence_at_max_speech: float = 98.0
    use_max_poss_sil_at_max_speech: bool = True

    def checked(self, doing: str) -> SpeechSettings:
        """Itself. Errors  UsageError for numbers that cannot be meant."""
        for name in ("threshold", "neg_threshold"):
            given = getattr(self, name)
            if given is not None and not 0 < number(name, given, doing) < 1:
                raise UsageError(doing, f"{name} is {given:g}", "between 0 and 1")
        if self.silent_below > self.threshold:
            problem = f"neg_threshold is {self.silent_below:g}"
            rule = f"at most the threshold, {self.threshold:g}"
            raise UsageError(doing, problem, rule)
        for name in (
            *("min_speech_duration_ms", "min_silence_duration_ms", "speech_pad_ms"),
            "min_silence_at_max_speech",
        ):
            if number(name, getattr(self, name), doing) < 0:
                problem = f"{name} is {getattr(self, name):g}"
                raise UsageError(doing, problem, "0 or more")
        most = self.max_speech_duration_s
        if most != math.inf and number("max_speech_duration_s", most, doing) <= 0:
            problem = f"max_speech_duration_s is {most:g}"
            raise UsageError(doing, problem, "above 0")
        return self

    @property
    def silent_below(self) -> float:
        """The probability below which a frame is silent."""
        if self.neg_threshold is not None:
            return self.neg_threshold
        return max(self.threshold - _HYSTERESIS, _LEAST_THRESHOLD)


class Segment(NamedTuple):
    """A stretch of speech, in s."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Speech:
    """Where somebody talks in a sound; a sequence of segments.

    segments       in order
    probabilities  (n,) float32, that somebody talks, of each frame
    frame_s        s of a frame
    seconds        of the sound
    name           of its file, or ""
    """

    segments: tuple[Segment, ...]
    probabilities: Array
    frame_s: float
    seconds: float
    name: str = ""

    def __len__(self) -> int:
        return len(self.segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def __getitem__(self, at: int) -> Segment:
        return self.segments[at]

    def __repr__(self) -> str:
        many = len(self.segments)
        said = f"{many} segment{'s' * (many != 1)}, {self.spoken:.1f}"
        return f"Speech({said} of {self.seconds:.1f} s)"

    @property
    def spoken(self) -> float:
        """Seconds of speech."""
        return sum(one.end - one.start for one in self.segments)


def segments_of(
    probabilities: Sequence[float],
    n_samples: int,
    rate: int,
    frame: int,
    settings: SpeechSettings,
) -> list[tuple[int, int]]:
    """[start, end) in samples.

    probabilities  of each frame of `frame` samples at `rate` Hz
    n_samples      of the sound
    """
    walk = _Walk(settings, rate, frame)
    for at, probability in enumerate(probabilities):
        walk.step(at * frame, probability)
    return _padded(
        walk.ended(n_samples), n_samples, rate * settings.speech_pad_ms / 1e3
    )


class _Walk:
    """The way through the frames.

    found   [start, end) of the speech so far
    begun   where the speech that goes on began; None: silence
    quiet   where its silence began; None: it is not silent
    """

    def __init__(self, settings: SpeechSettings, rate: int, frame: int) -> None:
        own = settings
        ms = rate / 1000
        self._speaks, self._silent = own.threshold, own.silent_below
        self._least = rate * own.min_speech_duration_ms / 1000
        pad = rate * own.speech_pad_ms / 1000
        self._most = rate * own.max_speech_duration_s - frame - 2 * pad
        self._silence = rate * own.min_silence_duration_ms / 1000
        self._pause = ms * own.min_silence_at_max_speech
        self._in_longest = own.use_max_poss_sil_at_max_speech
        self.found: list[tuple[int, int]] = []
        self.begun: int | None = None
        self._forget()

    def _forget(self) -> None:
        """The pauses of the speech so far."""
        self.quiet: int | None = None
        self._pauses: list[tuple[int, int]] = []
        self._last: int | None = None
        self._after = 0

    def step(self, now: int, probability: float) -> None:
        """The frame that begins at sample `now`."""
        if probability >= self._speaks:
            self._end_pause(now)
            if self.begun is None:
                self.begun = now
                return
        if self.begun is not None and now - self.begun > self._most and self._cut(now):
            return
        if self.begun is not None and probability < self._silent:
            self._be_silent(now, self.begun)

    def _end_pause(self, now: int) -> None:
        if self.quiet is None:
            return
        if now - self.quiet > self._pause:
            self._pauses.append((self.quiet, now - self.quiet))
        self.quiet = None
        if self._last is not None and self._after < self._last:
            self._after = now

    def _cut(self, now: int) -> bool:
        """End speech that is too long. Is the frame done with?"""
        assert self.begun is not None
        begun, last, after = self.begun, self._last, self._after
        pauses = self._pauses if self._in_longest else []
        self._forget()
        if pauses:
            start, length = max(pauses, key=lambda pause: pause[1])
            self.found.append((begun, start))
            self.begun = start + length
            return False
        if last is not None:
            self.found.append((begun, last))
            self.begun = None if after < last else after
            return False
        self.found.append((begun, now))
        self.begun = None
        return True

    def _be_silent(self, now: int, begun: int) -> None:
        self.quiet = now if self.quiet is None else self.quiet
        long = now - self.quiet
        if not self._in_longest and long > self._pause:
            self._last = self.quiet
        if long >= self._silence:
            if self.quiet - begun > self._least:
                self.found.append((begun, self.quiet))
            self.begun = None
            self._forget()

    def ended(self, n_samples: int) -> list[tuple[int, int]]:
        """What was found; what still goes on ends with the sound."""
        last = self.begun
        more = [] if last is None or n_samples - last <= self._least else [last]
        return [*self.found, *((start, n_samples) for start in more)]


def _padded(
    found: list[tuple[int, int]], n_samples: int, pad: float
) -> list[tuple[int, int]]:
    """Each longer at both ends; those that would meet share the silence between."""
    made = [list(one) for one in found]
    if made:
        made[0][0] = int(max(0, made[0][0] - pad))
        made[-1][1] = int(min(n_samples, made[-1][1] + pad))
    for one, other in itertools.pairwise(made):
        silence = other[0] - one[1]
        if silence < 2 * pad:
            one[1] += silence // 2
            other[0] = max(0, other[0] - silence // 2)
        else:
            one[1] = int(min(n_samples, one[1] + pad))
            other[0] = int(max(0, other[0] - pad))
    return [(start, end) for start, end in made]


class VoiceFrame(NamedTuple):
    """A frame of a sound that still runs.

    start        s, where the frame begins
    probability  that somebody talks
    event        "start" or "end" of speech, where it is sure now; else ""
    at           s of the event; NaN without one
    """

    start: float
    probability: float
    event: str = ""
    at: float = math.nan


class Turns:
    """Where speech begins and ends, told as soon as it is sure.

    is_speaking   somebody talks now
    """

    def __init__(self, settings: SpeechSettings, rate: int, frame: int) -> None:
        self.is_speaking = False
        self._speaks, self._silent = settings.threshold, settings.silent_below
        self._pad = rate * settings.speech_pad_ms / 1000
        self._silence = rate * settings.min_silence_duration_ms / 1000
        self._rate, self._frame = rate, frame
        self._now = 0
        self._quiet: int | None = None

    def step(self, probability: float) -> VoiceFrame:
        """The next frame."""
        begun = self._now
        self._now += self._frame
        event, at = "", math.nan
        if probability >= self._speaks:
            self._quiet = None
            if not self.is_speaking:
                self.is_speaking, event = True, "start"
                at = int(max(0, begun - self._pad))
        elif probability < self._silent and self.is_speaking:
            self._quiet = self._now if self._quiet is None else self._quiet
            if self._now - self._quiet >= self._silence:
                self.is_speaking, event = False, "end"
                at = int(self._quiet + self._pad - self._frame)
                self._quiet = None
        rate = self._rate
        return VoiceFrame(begun / rate, probability, event, at / rate)
