"""Fuzz cases by number: the seed file, the damage and the command line options of each.

A case follows from the seed of the run and its number alone, so that any of them can be
made again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.damage_builtin_formats import DAMAGE_BY_KIND
from tests.fuzz.damage_library_formats import damage_hdf5
from tests.fuzz.library_format_seeds import companion_files
from tests.fuzz.mutate_bytes import GENERAL_MUTATIONS, MAX_FILE_NBYTES, splice
from tests.fuzz.seed_files import GRAPH_KINDS, seed_rate

KINDS = (
    *("edf", "bdf", "wav", "npy", "npz", "csv", "rlxg"),
    *("fif", "vhdr", "gdf", "set", "mat", "h5", "nwb", "zip", "parquet"),
    *("flac", "ogg", "mp3", "aiff", "onnx", "rlxl"),
)
# Of so many cases one also goes through the command line; a picture takes longest.
_CLI_INTERVAL, _PLOT_INTERVAL = 8, 150
_EXTRA_OPTIONS = (
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
class FuzzCase:
    """Mutated file and how it is to be opened.

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


def make_case(seed: int, index: int, seeds: Mapping[str, Sequence[Path]]) -> FuzzCase:
    """Make the case with a given number of a run."""
    rng = random.Random(f"{seed}:{index}")
    kind = KINDS[index % len(KINDS)]
    origin = rng.choice(seeds[kind])
    raw = bytearray(origin.read_bytes())
    count = rng.choice((1, 1, 1, 2, 3))
    # What changes the structure comes first, and by h5py only once: a library that
    # writes into a file whose bytes are damaged already may crash, at once or later.
    for draw_index, draw in enumerate(sorted(rng.random() for _ in range(count))):
        if draw < 0.55 and not (draw_index and DAMAGE_BY_KIND[kind] is damage_hdf5):
            DAMAGE_BY_KIND[kind](raw, rng)
        elif draw < 0.92:
            rng.choice(GENERAL_MUTATIONS)(raw, rng)
        else:
            other_seed = rng.choice(seeds[rng.choice((kind, kind, *KINDS))])
            splice(raw, other_seed.read_bytes(), rng)
    companions = {
        name: bytearray(content)
        for name, content in companion_files(origin.name).items()
    }
    if companions and rng.random() < 0.3:
        raw = bytearray(origin.read_bytes())  # the file beside it is damaged instead
        rng.choice(GENERAL_MUTATIONS)(companions[rng.choice(sorted(companions))], rng)
    layout = rng.choice((None, None, "samples-first"))
    return FuzzCase(
        kind,
        origin.name,
        bytes(raw[:MAX_FILE_NBYTES]),
        seed_rate(origin.name) if rng.random() < 0.9 else rng.choice(_RATES),
        rng.choice(_CHANNELS) if rng.random() < 0.15 else None,
        layout if kind in ("npy", "npz", "h5") else None,
        "" if kind in GRAPH_KINDS else _cli_mode(index // len(KINDS)),
        tuple(rng.choice(_EXTRA_OPTIONS).split()),
        _choose_stem(kind, rng),
        {name: bytes(content) for name, content in companions.items()},
    )


def _choose_stem(kind: str, rng: random.Random) -> str:
    stem = rng.choice(_STEMS) if os.name == "posix" else "case"
    return f"{stem}.zarr" if kind == "zip" else stem


def _cli_mode(round_index: int) -> str:
    if round_index % _PLOT_INTERVAL == 0:
        return "plot"
    return "tables" if round_index % _CLI_INTERVAL == 0 else ""
