"""Spoken vowels, made: a source of harmonics through the resonances of a vocal tract.

Pitch and resonances (formants) of each vowel are the means that Peterson and Barney
measured (1952) of men, women and children. Each speaker departs from them, and each
utterance from its speaker. Everything comes of a seed.
"""

from dataclasses import dataclass

import numpy as np

FS = 8000  # samples a second
FRAME = 512  # samples that are judged at once, 64 ms
HIGHEST = 3900.0  # Hz; no harmonic lies above

# Name → a word that has it; Hz of pitch and three formants of men, women, children.
VOWELS = {
    "ee": (
        "see",
        ((136, 270, 2290, 3010), (235, 310, 2790, 3310), (272, 370, 3200, 3730)),
    ),
    "eh": (
        "bed",
        ((130, 530, 1840, 2480), (223, 610, 2330, 2990), (260, 690, 2610, 3570)),
    ),
    "ah": (
        "father",
        ((124, 730, 1090, 2440), (212, 850, 1220, 2810), (256, 1030, 1370, 3170)),
    ),
    "aw": (
        "law",
        ((129, 570, 840, 2410), (216, 590, 920, 2710), (263, 680, 1060, 3180)),
    ),
    "oo": (
        "too",
        ((141, 300, 870, 2240), (231, 370, 950, 2670), (274, 430, 1170, 3260)),
    ),
}
NAMES = tuple(VOWELS)
MEANS = np.array([means for _, means in VOWELS.values()], np.float64)
WIDTHS = np.array([60.0, 90.0, 120.0, 200.0])  # Hz, of the resonances
FOURTH = np.array([3400.0, 3900.0, 4300.0])  # Hz, of a formant that tells no vowel
GROUPS = ("a man", "a woman", "a child")


@dataclass(frozen=True)
class Utterances:
    """What is said, one number or row each.

    vowel, group   their places in NAMES and GROUPS
    pitch, drift   Hz; by which part of it the pitch rises in a second
    formants       [n, 4] Hz
    tilt           dB an octave, of voice, room and microphone together
    noise          dB of the noise below the voice
    """

    vowel: np.ndarray
    group: np.ndarray
    pitch: np.ndarray
    drift: np.ndarray
    formants: np.ndarray
    tilt: np.ndarray
    noise: np.ndarray

    def __len__(self):
        return len(self.vowel)

    def only(self, places):
        """Some of them."""
        return Utterances(*(getattr(self, name)[places] for name in _FIELDS))


_FIELDS = tuple(Utterances.__dataclass_fields__)


def utterances(rng, speakers, each):
    """`each` utterances of every vowel by every one of so many speakers, shuffled."""
    group = rng.integers(0, len(GROUPS), speakers)
    tract = rng.normal(1.0, 0.04, speakers)  # a long vocal tract has low formants
    voice = rng.normal(1.0, 0.12, speakers)
    tilt = rng.normal(-6.0, 2.0, speakers)
    who, vowel = np.divmod(np.arange(speakers * len(NAMES) * each), len(NAMES) * each)
    vowel %= len(NAMES)
    n = len(who)
    means = MEANS[vowel, group[who]]
    fourth = FOURTH[group[who], None]
    formants = np.hstack([means[:, 1:], fourth]) * tract[who, None]
    made = Utterances(
        vowel=vowel,
        group=group[who],
        pitch=means[:, 0] * voice[who] * rng.normal(1.0, 0.08, n),
        drift=rng.normal(0.0, 0.3, n),
        formants=formants * rng.normal(1.0, 0.03, (n, 4)),
        tilt=tilt[who] + rng.normal(0.0, 0.5, n),
        noise=rng.uniform(10.0, 40.0, n),
    )
    return made.only(rng.permutation(n))


def sounds(rng, said, samples=FRAME):
    """Utterances with their noise, float32 [n, samples], each with an rms of 1."""
    t = np.arange(samples) / FS
    turns = said.pitch[:, None] * (t + 0.5 * said.drift[:, None] * t * t)
    turns += rng.uniform(0.0, 1.0, (len(said), 1))
    once = np.exp(2j * np.pi * turns).astype(np.complex64)
    out = np.zeros(turns.shape, np.float32)
    wave = np.ones_like(once)
    for k in range(1, int(HIGHEST / said.pitch.min()) + 1):
        wave *= once  # the k-th harmonic
        out += (resonance(said, k)[:, None] * wave).real
    out /= rms(out)
    noise = rng.standard_normal(out.shape, np.float32)
    out += noise * (10.0 ** (-said.noise / 20.0)).astype(np.float32)[:, None]
    return out / rms(out)


def resonance(said, k):
    """How strong the k-th harmonic leaves the mouth: complex64 [n], 0 above HIGHEST."""
    hz = k * said.pitch
    squares = said.formants**2
    through = squares / (squares - (hz**2)[:, None] + 1j * WIDTHS * hz[:, None])
    source = 10.0 ** (said.tilt * np.log2(k) / 20.0)
    return (np.where(hz < HIGHEST, source, 0.0) * through.prod(1)).astype(np.complex64)


def rms(x):
    """Root of the mean square of each row [n, 1], never 0."""
    return np.sqrt((x * x).mean(-1, keepdims=True) + 1e-20)


# --- sounds of a microphone ---------------------------------------------------------


def resampled(x, fs):
    """Sound of any rate as float32 samples at FS.

    By a windowed sinc that lets pass what both rates can hold. The ends, where samples
    before and after are missing, count as silence.
    """
    if fs == FS:
        return np.asarray(x, np.float32)
    cut = 0.46 * min(fs, FS)  # Hz
    half = int(np.ceil(12 * fs / min(fs, FS)))
    at = np.arange(int(len(x) * FS / fs)) * (fs / FS)
    near = np.floor(at).astype(int)
    taps = np.arange(1 - half, half + 1)
    away = (near[:, None] + taps) - at[:, None]
    weights = 2 * cut / fs * np.sinc(2 * cut / fs * away)
    weights *= 0.5 + 0.5 * np.cos(np.pi * np.clip(away / half, -1.0, 1.0))
    padded = np.pad(np.asarray(x, np.float64), half)
    return (padded[near[:, None] + taps + half] * weights).sum(1).astype(np.float32)


def frames(x, hop=FRAME // 2):
    """Stretches of FRAME samples [n, FRAME] of a sound at FS, a hop apart."""
    starts = np.arange(0, len(x) - FRAME + 1, hop)
    return (
        x[starts[:, None] + np.arange(FRAME)]
        if len(starts)
        else x[:0].reshape(0, FRAME)
    )


def loud(rows, below_db=20.0):
    """Which rows are no quieter than the loudest by so much, and not silent."""
    level = rms(rows)[:, 0]
    return (level > level.max(initial=0.0) * 10 ** (-below_db / 20)) & (level > 1e-4)
