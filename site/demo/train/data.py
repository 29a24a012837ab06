"""Training data: synthetic voices, the visitor's own, or both, as bands and vowels.

Speakers of the held-out part are not among those of the training part. Of a recording
the end is held out, and no frame of one part shares samples with the other.
"""

import numpy as np
from network import bands
from vowels import (
    FRAME,
    FS,
    GROUPS,
    NAMES,
    VOWELS,
    frames,
    loud,
    resampled,
    sounds,
    utterances,
)

import rlxweb as rlx

SEED = 1952
SPEAKERS, HELD_OUT, EACH = 48, 12, 5
PARTS = ("train", "test")
MIN_FRAMES = 8  # frames of a recording
OWN_HELD_OUT = 0.25  # of a recording that is held out


class Data:
    """Examples of both parts, and the single ones that the page plays."""

    def __init__(self):
        rng = np.random.default_rng(SEED)
        spoken = [utterances(rng, n, EACH) for n in (SPEAKERS, HELD_OUT)]
        self.said = dict(zip(PARTS, spoken, strict=True))
        synthetic = {part: sounds(rng, voices) for part, voices in self.said.items()}
        self._bands = rlx.function(bands, device="cpu")
        self._made = {
            part: (self._bands(x), self.said[part].vowel)
            for part, x in synthetic.items()
        }
        self._own = {part: [] for part in PARTS}

    def counts(self):
        """Return the number of examples of each kind, and of each vowel recorded."""
        own = np.zeros(len(NAMES), int)
        for part in PARTS:
            for _, vowel in self._own[part]:
                own += np.bincount(vowel, minlength=len(NAMES))
        synthetic = {part: len(self._made[part][1]) for part in PARTS}
        return {
            "made": synthetic,
            "speakers": [SPEAKERS, HELD_OUT],
            "own": own.tolist(),
        }

    def record(self, vowel, sound, fs):
        """Keep the recording of a vowel; return the number of frames that were loud
        enough.
        """
        recording = resampled(sound, fs)
        cut = int(len(recording) * (1 - OWN_HELD_OUT))
        rows_by_part = {}
        for part, samples in zip(
            PARTS, (recording[:cut], recording[cut:]), strict=True
        ):
            rows = frames(samples, FRAME // 4)
            rows_by_part[part] = rows[loud(rows)]
        count = sum(map(len, rows_by_part.values()))
        if min(map(len, rows_by_part.values())) < 2 or count < MIN_FRAMES:
            return 0
        for part, rows in rows_by_part.items():
            self._own[part].append((self._bands(rows), np.full(len(rows), vowel)))
        return count

    def forget(self):
        """Drop all recordings."""
        self._own = {part: [] for part in PARTS}

    def part(self, name, which):
        """Return the bands [n, BANDS] of a part, and rows with a 1 for the vowel [n,
        5].

        which   "made", "own" or "both"
        """
        examples = [] if which == "own" else [self._made[name]]
        if which != "made":
            examples += self._own[name]
        x = np.concatenate([x for x, _ in examples])
        y = np.concatenate([vowel for _, vowel in examples])
        return x, np.eye(len(NAMES), dtype=np.float32)[y]

    def missing(self, which):
        """Return the reason a choice cannot be trained on, or ""."""
        if which == "own" and np.count_nonzero(self.counts()["own"]) < 2:
            return "Record at least two vowels first, or train on synthetic voices"
        return ""

    def example(self, seed, seconds):
        """Return a held-out voice that speaks longer: who says what, the sound, a
        frame.
        """
        rng = np.random.default_rng(seed)
        voice = self.said["test"].only(rng.integers(0, len(self.said["test"]), 1))
        sound = sounds(rng, voice, int(seconds * FS))[0]
        middle = len(sound) // 2
        vowel, group = NAMES[int(voice.vowel[0])], GROUPS[int(voice.group[0])]
        facts = {"vowel": vowel, "word": VOWELS[vowel][0], "speaker": group}
        return facts, sound, sound[middle : middle + FRAME]
