"""What is trained on: made voices, the visitor's own, or both; as bands and as names.

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
LEAST = 8  # frames of a recording
OWN_OUT = 0.25  # of a recording that is held out


class Data:
    """Examples of both parts, and what the page does with single ones."""

    def __init__(self):
        rng = np.random.default_rng(SEED)
        said = [utterances(rng, n, EACH) for n in (SPEAKERS, HELD_OUT)]
        self.said = dict(zip(PARTS, said, strict=True))
        made = {part: sounds(rng, one) for part, one in self.said.items()}
        self._bands = rlx.function(bands, device="cpu")
        self._made = {
            part: (self._bands(x), self.said[part].vowel) for part, x in made.items()
        }
        self._own = {part: [] for part in PARTS}

    def counts(self):
        """How many examples there are of each kind, and of each vowel recorded."""
        own = np.zeros(len(NAMES), int)
        for part in PARTS:
            for _, vowel in self._own[part]:
                own += np.bincount(vowel, minlength=len(NAMES))
        made = {part: len(self._made[part][1]) for part in PARTS}
        return {"made": made, "speakers": [SPEAKERS, HELD_OUT], "own": own.tolist()}

    def record(self, vowel, sound, fs):
        """Keep what was recorded of a vowel; how many frames were loud enough."""
        whole = resampled(sound, fs)
        cut = int(len(whole) * (1 - OWN_OUT))
        found = {}
        for part, piece in zip(PARTS, (whole[:cut], whole[cut:]), strict=True):
            rows = frames(piece, FRAME // 4)
            found[part] = rows[loud(rows)]
        count = sum(map(len, found.values()))
        if min(map(len, found.values())) < 2 or count < LEAST:
            return 0
        for part, rows in found.items():
            self._own[part].append((self._bands(rows), np.full(len(rows), vowel)))
        return count

    def forget(self):
        """Drop what was recorded."""
        self._own = {part: [] for part in PARTS}

    def part(self, name, which):
        """Bands [n, BANDS] and rows with a 1 for the vowel [n, 5] of a part.

        which   "made", "own" or "both"
        """
        some = [] if which == "own" else [self._made[name]]
        if which != "made":
            some += self._own[name]
        x = np.concatenate([x for x, _ in some])
        y = np.concatenate([vowel for _, vowel in some])
        return x, np.eye(len(NAMES), dtype=np.float32)[y]

    def missing(self, which):
        """What keeps a choice from being trained on, in words, or ""."""
        if which == "own" and np.count_nonzero(self.counts()["own"]) < 2:
            return "Record at least two vowels first, or train on made voices"
        return ""

    def example(self, seed, seconds):
        """A held-out voice that speaks longer: who says what, the sound, a frame."""
        rng = np.random.default_rng(seed)
        one = self.said["test"].only(rng.integers(0, len(self.said["test"]), 1))
        sound = sounds(rng, one, int(seconds * FS))[0]
        middle = len(sound) // 2
        vowel, group = NAMES[int(one.vowel[0])], GROUPS[int(one.group[0])]
        told = {"vowel": vowel, "word": VOWELS[vowel][0], "speaker": group}
        return told, sound, sound[middle : middle + FRAME]
