"""Documents and lines of every command: a command line, and what its output says.

Each runs in a folder with copies of the files that it names. What takes more than one
call, or a document and another, is in the file of its command.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.signal

import rlxweb as rlx
from tests.cli_runners import CommandResult, CommandRunner, matches
from tests.numpy_welch_peaks_reference import reference_welch
from tests.unit.cli.shared_files import NOTES, RHYTHM, SHORT, WELCH

Check = Callable[[Any], object]
QUICK_SMOKE = "smoke --quick -k samples/exp/*"


def read_document(result: CommandResult, words: list[str]) -> Any:
    """Return the arrays of `--npz`, else the columns of `--csv -`, else the JSON
    document on standard output.
    """
    if "--npz" in words:
        with np.load(words[words.index("--npz") + 1]) as arrays:
            return dict(arrays)
    if "--csv" in words and words[words.index("--csv") + 1] == "-":
        rows = list(csv.DictReader(io.StringIO(result.out)))
        return {name: [row[name] for row in rows] for name in rows[0]}
    return result.document


def look_up(value: Any, path: str) -> Any:
    """Return what is at a path of a document.

    group  the first group of the first file
    *      each of the items
    #      their number
    @      the names
    """
    path = path.replace("group.", "files.0.groups.0.")
    step, _, rest = path.partition(".")
    if step == "*":
        return [look_up(item, rest) for item in value] if rest else value
    if step in ("#", "@"):
        return len(value) if step == "#" else set(value)
    inner = value[int(step) if isinstance(value, list) else step]
    return look_up(inner, rest) if rest else inner


def close(expected: Callable[[], Any], rtol: float = 1e-9) -> Check:
    """Return a check that numbers, or texts of numbers, are nearly those computed."""

    def check(got: Any) -> bool:
        np.testing.assert_allclose(np.asarray(got, np.float64), expected(), rtol=rtol)
        return True

    return check


def band_power(log: bool = False) -> Any:
    return rlx.band_power(RHYTHM, 200, log=log)


LOG_RATIOS = "bands rhythm.npy --fs 200 --ratios 'theta/beta, alpha/theta' --log"
SEGMENTS = "welch welch.npy --fs 9 --preset scipy --nsegments 3"
NIGHT = ["night/[x].npy", "night/a.npy", "night/b.npy"]
FILES = {
    "night": NIGHT,
    "night/": NIGHT,
    "night/?.npy": NIGHT[1:],
    "night/**/*.npy": [*NIGHT, "night/deeper/c.npy"],
    "night/[x].npy": NIGHT[:1],
    "night/b.npy night": [NIGHT[2], *NIGHT[:2]],
    "night/a.npy ./night/../night/a.npy": [NIGHT[1]],
    "night/deeper night/d*/c.npy": ["night/deeper/c.npy"],
}
"""Folders and patterns → files by name, each once, and none from subfolders."""
CHANNELS = {
    "labels.edf -c 'ecg, EEG*' -c EOG": ["ECG", "EEG Fp1", "EEG Cz", "EOG"],
    # A name is quoted as in CSV; a quote inside a name is part of it.
    """names.npz -c '"b, left"'""": ["b, left"],
    """names.npz -c 'c, "b, left" '""": ["c", "b, left"],
    """names.npz -c '"c"' -c 'b?*'""": ["c", "b, left"],
    """names.npz -c '5" tube,c'""": ['5" tube', "c"],
}
"""Recording and patterns → channels."""
JOBS = {
    "rates.edf -c ECG": "rates.edf: 1 channel at 500 Hz",
    "arrays.npz --array b": "arrays.npz: 3 channels at 100 Hz",
    "arrays.npz --array a --layout samples-first": "arrays.npz: 2 channels at 100 Hz",
}
"""Options that say what is read of a file as in `welch` → title of the one job."""
DOCUMENTS: dict[str, dict[str, Any]] = {
    "welch welch.npy --fs 250 --json - --explain": {
        "schema": "rlxweb.welch/1",
        "@": {"rlxweb", "versions", "settings", "files"}.issubset,
        "settings.nperseg": 256,
        "files.*.groups.#": [1],
        "group.fs": 250,
        "group.n_samples": 5000,
        "group.n_segments": 38,
        "group.device": "cpu",
        "group.engine": re.compile("NumPy").match,
        "group.decision.@": {"what", "why", "numbers", "candidates"},
        "group.channels.*.name": ["ch1", "ch2", "ch3"],
        "group.channels.*.peaks.#": [16, 16, 16],
        "stderr": "…strongest bin…",
    },
    # The rlx preset: a symmetric Hann window, half overlap, the unscaled power.
    "welch welch.npy --fs 1 --npz o.npz": {
        "psd": close(lambda: reference_welch(WELCH, 256))
    },
    # The parabola finds a tone between two bins; weak maxima can be excluded.
    "welch tone.npy --fs 100 --preset scipy --json - --mode peaks --k 3 "
    "--prominence 0.01": {
        "group.channels.*.peaks.#": [1],
        "group.channels.0.peaks.0.hz": pytest.approx(12.34, abs=0.01),
        "group.channels.0.peaks.0.prominence": lambda got: got > 0.01,
    },
    # Rates have axes of their own; equal labels are numbered.
    "welch rates.edf --json - --k 2": {
        "files.*.groups.*.channels.*.name": [[["EEG", "EEG (2)"], ["ECG"]]],
        "files.*.groups.*.fs": [[100, 500]],
        "files.*.left_out.*.channel": [["EDF Annotations"]],
        "stderr": "…skipped channel 'EDF Annotations'…",
    },
    "welch rates.edf --npz o.npz --k 2": {
        "f0_g0_psd": lambda got: got.shape == (2, 129),
        "f0_g1_freqs": lambda got: got[-1] == 250,
    },
    # A channel that is not finite has no peaks; the other is complete.
    "welch bad.npy --fs 9 --nan propagate --k 2 --json - --csv o.csv --plot p.png": {
        "group.channels.#": 2,
        "group.channels.0.peaks.*.power": lambda got: min(got) > 0,
        "group.channels.1.peaks": [],
        "o.csv": b"file",
        "p.png": b"\x89PNG",
    },
    # Fewer bins than the usual number of peaks are all shown.
    "welch welch.npy --fs 250 --nperseg 20 --json -": {"group.channels.0.peaks.#": 11},
    "explain welch.npy --fs 250 --nperseg 20 --json": {"jobs.0.numbers.k": 11},
    "welch x.npy --fs 100 --fmin 10 --fmax 11 --json -": {
        "group.channels.*.peaks.#": [3, 3, 3]
    },
    # The beginning of a recording is averaged, and nothing else is read.
    f"{SEGMENTS} --json -": {"group.n_segments": 3},
    f"{SEGMENTS} --npz o.npz": {
        "psd": close(
            lambda: scipy.signal.welch(WELCH[:, : 256 + 2 * 128], 9, nperseg=256)[1]
        )
    },
    "welch x.npy --fs 100 --preset scipy --window kaiser,8.6 --npz o.npz -q": {
        "psd": close(
            lambda: scipy.signal.welch(SHORT, 100, ("kaiser", 8.6), 256)[1], rtol=1e-10
        )
    },
    "welch single.npy --fs 9 --json - --device cpu": {"group.dtype": "float32"},
    "welch single.npy --fs 9 --json - --device cpu --precision f64": {
        "group.dtype": "float64"
    },
    # A sine of half amplitude has the same power whatever the width of a sample.
    "welch tone.wav --preset scipy --window boxcar --k 1 --json -": {
        "group.channels.*.peaks.*.hz": [[125]],
        "group.channels.0.peaks.0.power": pytest.approx(
            0.5**2 / 2 * 256 / 1000, rel=1e-3
        ),
    },
    "bands rhythm.npy --fs 200 --bands 'mu=8:12, high=60:90' --segment-s 1 --json -": {
        "schema": "rlxweb.bands/1",
        "files.*.groups.#": [1],
        "group.bands": {"mu": [8.0, 12.0], "high": [60.0, 90.0]},
        "group.nperseg": 200,
        "group.rows.*.mu.absolute": close(
            lambda: rlx.band_power(
                *(RHYTHM, 200, {"mu": (8, 12), "high": (60, 90)}), nperseg=200
            )["mu"]
        ),
        "stderr": "…mu 8–12 Hz…",
    },
    f"{LOG_RATIOS} --csv -": {
        "theta/beta": close(
            lambda: np.repeat(band_power(log=True).ratio("theta", "beta"), 5), 1e-7
        ),
        "value": close(lambda: band_power(log=True).values.ravel()),
        "stderr": "…log10 of the power…alpha/theta…",
    },
    f"{LOG_RATIOS} --relative --json -": {
        "files.*.groups.#": [1],
        "group.rows.1.alpha.value": close(
            lambda: np.log10(band_power().relative[1, 2]), 1e-6
        ),
        "group.rows.1.ratios.alpha/theta": close(
            lambda: band_power(log=True).ratio("alpha", "theta")[1], 1e-6
        ),
        "stderr": "…log10 of the share of the power…",
    },
    # A short recording has a column for each segment.
    "spectrogram rhythm.npy --fs 200 --npz o.npz": {"t": lambda t: t.size == 201},
    "spectrogram rhythm.npy --fs 200 --npz o.npz --overlap 0.5": {
        "t": lambda t: t.size == 39
    },
    "spectrogram rhythm.npy --fs 200 --json - --plot s.svg --axis log": {
        "files.*.groups.#": [1],
        "group.channels.1.hz": 10.0,
        "stderr": "…10.00 Hz…",
        "s.svg": b"<?xml",
    },
    "info info.edf --json -": {
        "schema": "rlxweb.info/1",
        "files.*.begun_s": [86_370.0],
        "files.*.seconds": [90.0],
        "files.*.date": ["2002-03-02"],
        "files.0.groups.*.fs": [128.0, 2.0],
        "group.channels.1": {"name": "Pz", "label": "Pz", "unit": "uV"},
        "files.0.annotations.1.most_duration_s": 1.5,
    },
    "info info.edf --csv -": {
        "onset_s": close(lambda: [onset for onset, _, _ in NOTES], 0),
        "text": [text for _, _, text in NOTES],
    },
    # A device that is named twice is one.
    "explain --device cpu --device ' CPU ' --json": {
        "jobs.*.candidates.#": [2],
        "stderr": "",
    },
    # The flags of `rlxweb welch`, which errors name.
    "explain x.npy --fs 100 --device cpu --nperseg 128 --nsegments 3 --json": {
        "jobs.*.numbers.n_fft": [128],
        "jobs.*.numbers.segments": [3],
    },
    f"{QUICK_SMOKE} --device cpu --json -": {"engines.0.word": "right"},
    **{
        f"welch {words} --fs 100 --json -": {"files.*.path": paths}
        for words, paths in FILES.items()
    },
    **{
        f"welch {words} --json -": {"group.channels.*.name": names}
        for words, names in CHANNELS.items()
    },
    **{
        f"explain {words} --device cpu --json": {"jobs.*.job": [job]}
        for words, job in JOBS.items()
    },
}
"""Command line → path in its document → value, or a function that checks it; a file →
how it begins; stderr → what it says, as `matches` reads it.
"""


def marks(line: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a command line: what it takes a while for, or needs."""
    is_slow = line.startswith("smoke")
    has_picture = "--plot" in line or line.startswith("demo")
    needs = [pytest.mark.needs("matplotlib")] * has_picture
    return [*needs, *[pytest.mark.slow] * is_slow]


@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize(
    ("line", "facts"),
    [
        pytest.param(line, facts, id=line, marks=marks(line))
        for line, facts in DOCUMENTS.items()
    ],
)
def test_document_says(
    call: CommandRunner,
    place_files: Callable[[str], None],
    line: str,
    facts: dict[str, Any],
) -> None:
    place_files(line)
    words = shlex.split(line)
    result = call(*words)
    assert result.code == 0, result.err
    found = read_document(result, words)
    for path, expected in facts.items():
        if path == "stderr":
            assert matches(expected, result.err), result.err
        elif isinstance(expected, bytes):
            assert Path(path).read_bytes().startswith(expected)
        else:
            got = look_up(found, path)
            assert expected(got) if callable(expected) else got == expected, (path, got)


def printed(
    line: str,
    *lines: str,
    code: int = 0,
    err: str = "…",
) -> Any:
    """Return a case: a command line, lines that it prints, exit code and stderr.

    A line is as it is printed, or with one blank between its words.
    """
    return pytest.param(line, lines, code, err, id=line, marks=marks(line))


PRINTED = [
    printed("--version", "rlxweb, version …"),
    printed("info x.npy --fs 250"),
    printed(
        "info info.edf",
        "info.edf: EDF+C, begins on 2002-03-02 at 23:59:30, lasts 0:01:30 (90 s)",
        "  2 channels at 128 Hz, 11,520 samples each, read as int16",
        "  1 channel at 2 Hz, 180 samples each, read as int16",
        "    in µV: Cz, Pz",
        "  skipped channel 'EDF Annotations': contains annotations (text)",
        "  4 annotations with 2 different texts",
        "go 2 1 3 –",
        "Größe 2 2.5 3.5 0.5 to 1.5",
        err="",
    ),
    printed(
        "welch night --fs 100 -q",
        err="night: skipped 3 files of other kinds (.pdf, .txt, no suffix) and "
        "1 folder (use 'night/**/*.edf' to include subfolders)",
    ),
    printed(
        "demo --out . --device cpu",
        *("…strongest peak…", "…ran on NumPy…", "…it was requested…"),
        err="…picture: demo.png…",
    ),
    printed(
        "smoke --quick -k exp --device cpu --sabotage kernel:samples/exp/*",
        *("…cpu NumPy…", "…cases are wrong: only cases of exp…"),
        *("…elements are wrong, first at…", "…0 of 1 engine right…"),
        code=1,
    ),
    *(
        printed(f"{QUICK_SMOKE} {options}", *lines, code=code)
        for options, code, *lines in (
            (
                "--device cpu --sabotage abort:samples/exp/3",
                *(1, "…crashed…", "…SIGABRT…", "…samples/exp/3…"),
            ),
            (
                "--device cpu --sabotage lose:samples/exp/3",
                *(75, "…lost on purpose…"),
            ),
            (
                "-v --device cpu --device cuda",
                *(4, "…samples/exp/0…"),
                "…required device missing or without correct results: cuda…",
            ),
            (
                "--device cuda",
                *(3, "…0 of 0 engines right…", "…cuda: missing: no NVIDIA driver…"),
            ),
            (
                "--device cpu --require cpu,rocm",
                *(4, "…required device missing or without correct results: rocm…"),
            ),
        )
    ),
]


@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize(("line", "lines", "code", "err"), PRINTED)
def test_command_prints(
    *,
    call: CommandRunner,
    place_files: Callable[[str], None],
    line: str,
    lines: tuple[str, ...],
    code: int,
    err: str,
) -> None:
    place_files(line)
    result = call(*shlex.split(line))
    assert result.code == code, result
    assert matches(err, result.err), result.err
    shown = [line.rstrip() for line in result.out.splitlines()]
    shown += [" ".join(line.split()) for line in shown]
    missing = [x for x in lines if not any(matches(x, text) for text in shown)]
    assert missing == [], result.out
