"""One mutated file per number: which seed, which damage, which options.

A case follows from the seed of the run and its number alone, so that any of them can be
made again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.damage import DAMAGE
from tests.fuzz.damage_libraries import damage_hdf5
from tests.fuzz.mutate import ANY, MOST_NBYTES, splice
from tests.fuzz.seeds import GRAPHS, rate_of
from tests.fuzz.seeds_of_libraries import companions_of

KINDS = (
    *("edf", "bdf", "wav", "npy", "npz", "csv", "rlxg"),
    *("fif", "vhdr", "gdf", "set", "mat", "h5", "nwb", "zip", "parquet"),
    *("flac", "ogg", "mp3", "aiff", "onnx", "rlxl"),
)
# Of so many cases one also goes through the command line; a picture takes longest.
_CLI_EVERY, _PLOT_EVERY = 8, 150
_EXTRA = (
    "",
    "--mode peaks",
    "--preset scipy --k 1",
    "--preset mne --mode peaks --prominence 0.5",
    "--nan propagate",
    "--nan propagate --mode peaks --detrend linear",
    "--precision f32 --noverlap 0",
    "--nsegments 1 --window hamming",
    "--explain",
)
_STEMS = (
    "case",
    "case",
    "c\x1b[2Jase",
    "c\udcffase",
    "=case",
    "c\na s'e",
    "-case",
    "案",
)
_RATES = (None, 64.0, 1e-9, 1e9)
_CHANNELS = ("EEG*", "ch1", "*", "EEG Fp1", "time", "F\xe9", "[", "(1)", "", "x" * 999)


@dataclass(frozen=True, slots=True)
class Case:
    """A file and how it is to be opened.

    cli    "" for Python alone, "tables" for every file the command line writes, "plot"
           for a picture as well
    extra  more options for the command line
    stem   of the file's name
    companions  other files of its folder, by their names
    """

    kind: str
    origin: str
    raw: bytes
    fs: float | None
    channels: str | None
    layout: str | None
    cli: str
    extra: tuple[str, ...] = ()
    stem: str = "case"
    companions: Mapping[str, bytes] = field(default_factory=dict)


def make_case(seed: int, at: int, seeds: Mapping[str, Sequence[Path]]) -> Case:
    """Case `at` of a run."""
    chance = random.Random(f"{seed}:{at}")
    kind = KINDS[at % len(KINDS)]
    origin = chance.choice(seeds[kind])
    raw = bytearray(origin.read_bytes())
    count = chance.choice((1, 1, 1, 2, 3))
    # What changes the structure comes first, and by h5py only once: a library that
    # writes into a file whose bytes are damaged already may crash, at once or later.
    for at_draw, draw in enumerate(sorted(chance.random() for _ in range(count))):
        if draw < 0.55 and not (at_draw and DAMAGE[kind] is damage_hdf5):
            DAMAGE[kind](raw, chance)
        elif draw < 0.92:
            chance.choice(ANY)(raw, chance)
        else:
            other = chance.choice(seeds[chance.choice((kind, kind, *KINDS))])
            splice(raw, other.read_bytes(), chance)
    others = {name: bytearray(one) for name, one in companions_of(origin.name).items()}
    if others and chance.random() < 0.3:
        raw = bytearray(origin.read_bytes())  # the file beside it is damaged instead
        chance.choice(ANY)(others[chance.choice(sorted(others))], chance)
    layout = chance.choice((None, None, "samples-first"))
    return Case(
        kind,
        origin.name,
        bytes(raw[:MOST_NBYTES]),
        rate_of(origin.name) if chance.random() < 0.9 else chance.choice(_RATES),
        chance.choice(_CHANNELS) if chance.random() < 0.15 else None,
        layout if kind in ("npy", "npz", "h5") else None,
        "" if kind in GRAPHS else _cli(at // len(KINDS)),
        tuple(chance.choice(_EXTRA).split()),
        _stem(kind, chance),
        {name: bytes(one) for name, one in others.items()},
    )


def _stem(kind: str, chance: random.Random) -> str:
    stem = chance.choice(_STEMS) if os.name == "posix" else "case"
    return f"{stem}.zarr" if kind == "zip" else stem


def _cli(turn: int) -> str:
    if turn % _PLOT_EVERY == 0:
        return "plot"
    return "tables" if turn % _CLI_EVERY == 0 else ""
