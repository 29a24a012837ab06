"""Synthetic vowels: a source of harmonics through the resonances of a vocal tract.

Pitch and resonances (formants) of each vowel are the means that Peterson and Barney
measured (1952) of men, women and children. Each speaker departs from them, and each
utterance from its speaker. Everything comes of a seed.
"""

from dataclasses import dataclass

import numpy as np

FS = 8000  # samples a second
FRAME = 512  # samples that are judged at once, 64 ms
MAX_HARMONIC_HZ = 3900.0  # Hz; no harmonic lies above

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
FOURTH_FORMANT = np.array(
    [3400.0, 3900.0, 4300.0]
)  # Hz, of a formant that tells no vowel
GROUPS = ("a man", "a woman", "a child")


@dataclass(frozen=True)
class Utterances:
    """Spoken vowels, one number or row each.

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
        """Return the utterances at these indices."""
        return Utterances(*(getattr(self, name)[places] for name in _FIELDS))


_FIELDS = tuple(Utterances.__dataclass_fields__)


def utterances(rng, speakers, each):
    """Return `each` utterances of every vowel by each of `speakers` speakers,
    shuffled.
    """
    group = rng.integers(0, len(GROUPS), speakers)
    tract = rng.normal(1.0, 0.04, speakers)  # a long vocal tract has low formants
    voice = rng.normal(1.0, 0.12, speakers)
    tilt = rng.normal(-6.0, 2.0, speakers)
    speaker, vowel = np.divmod(
        np.arange(speakers * len(NAMES) * each), len(NAMES) * each
    )
    vowel %= len(NAMES)
    n = len(speaker)
    means = MEANS[vowel, group[speaker]]
    fourth = FOURTH_FORMANT[group[speaker], None]
    formants = np.hstack([means[:, 1:], fourth]) * tract[speaker, None]
    result = Utterances(
        vowel=vowel,
        group=group[speaker],
        pitch=means[:, 0] * voice[speaker] * rng.normal(1.0, 0.08, n),
        drift=rng.normal(0.0, 0.3, n),
        formants=formants * rng.normal(1.0, 0.03, (n, 4)),
        tilt=tilt[speaker] + rng.normal(0.0, 0.5, n),
        noise=rng.uniform(10.0, 40.0, n),
    )
    return result.only(rng.permutation(n))


def sounds(rng, voices, samples=FRAME):
    """Return the utterances with their noise, float32 [n, samples], each with an rms of
    1.
    """
    t = np.arange(samples) / FS
    phase = voices.pitch[:, None] * (t + 0.5 * voices.drift[:, None] * t * t)
    phase += rng.uniform(0.0, 1.0, (len(voices), 1))
    fundamental = np.exp(2j * np.pi * phase).astype(np.complex64)
    out = np.zeros(phase.shape, np.float32)
    wave = np.ones_like(fundamental)
    for k in range(1, int(MAX_HARMONIC_HZ / voices.pitch.min()) + 1):
        wave *= fundamental  # the k-th harmonic
        out += (resonance(voices, k)[:, None] * wave).real
    out /= rms(out)
    noise = rng.standard_normal(out.shape, np.float32)
    out += noise * (10.0 ** (-voices.noise / 20.0)).astype(np.float32)[:, None]
    return out / rms(out)


def resonance(voices, k):
    """Return the amplitude of the k-th harmonic at the mouth: complex64 [n], 0 above
    HIGHEST.
    """
    hz = k * voices.pitch
    squares = voices.formants**2
    response = squares / (squares - (hz**2)[:, None] + 1j * WIDTHS * hz[:, None])
    source = 10.0 ** (voices.tilt * np.log2(k) / 20.0)
    return (np.where(hz < MAX_HARMONIC_HZ, source, 0.0) * response.prod(1)).astype(
        np.complex64
    )


def rms(x):
    """Return the root of the mean square of each row [n, 1], never 0."""
    return np.sqrt((x * x).mean(-1, keepdims=True) + 1e-20)


# --- sounds of a microphone ---------------------------------------------------------


def resampled(x, fs):
    """Resample sound of any rate to float32 samples at FS.

    By a windowed sinc that lets pass what both rates can hold. The ends, where samples
    before and after are missing, count as silence.
    """
    if fs == FS:
        return np.asarray(x, np.float32)
    cut = 0.46 * min(fs, FS)  # Hz
    half = int(np.ceil(12 * fs / min(fs, FS)))
    positions = np.arange(int(len(x) * FS / fs)) * (fs / FS)
    centres = np.floor(positions).astype(int)
    taps = np.arange(1 - half, half + 1)
    offsets = (centres[:, None] + taps) - positions[:, None]
    weights = 2 * cut / fs * np.sinc(2 * cut / fs * offsets)
    weights *= 0.5 + 0.5 * np.cos(np.pi * np.clip(offsets / half, -1.0, 1.0))
    padded = np.pad(np.asarray(x, np.float64), half)
    return (padded[centres[:, None] + taps + half] * weights).sum(1).astype(np.float32)


def frames(x, hop=FRAME // 2):
    """Return stretches of FRAME samples [n, FRAME] of a sound at FS, a hop apart."""
    starts = np.arange(0, len(x) - FRAME + 1, hop)
    return (
        x[starts[:, None] + np.arange(FRAME)]
        if len(starts)
        else x[:0].reshape(0, FRAME)
    )


def loud(rows, below_db=20.0):
    """Return a mask of the rows that are not silent and at most `below_db` below the
    loudest.
    """
    level = rms(rows)[:, 0]
    return (level > level.max(initial=0.0) * 10 ** (-below_db / 20)) & (level > 1e-4)
