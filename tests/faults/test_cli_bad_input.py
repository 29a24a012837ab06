"""Bad input on the command line: one line, the documented code, no half-written file.

Every case is tried with all four outputs asked for, and each must leave the folder as
it found it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import soundfile

from rlxweb import whole_file
from rlxweb.errors import DeviceLost
from rlxweb.io import source
from tests.command_line import Call, check_refused, spawn
from tests.recordings import written

Case = tuple[Callable[[Path], list[object]], int, tuple[str, ...]]
FS = ["--fs", 100]


def npy(folder: Path, name: str = "x.npy", bad: float | None = None) -> Path:
    """Two channels of 1,000 samples; `bad` is put at sample 777 of the second."""
    x = np.random.default_rng(11).standard_normal((2, 1000))
    if bad is not None:
        x[1, 777] = bad
    np.save(folder / name, x)
    return folder / name


def wav(folder: Path) -> Path:
    x = np.random.default_rng(12).uniform(-0.5, 0.5, (2000, 2))
    soundfile.write(folder / "x.wav", x, 1000)
    return folder / "x.wav"


def edf(folder: Path) -> Path:
    return written(folder / "x.edf", ("EEG Fp1", 100), ("EEG Cz", 100), seconds=10)


def holding(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def cut(path: Path, nbytes: int) -> Path:
    path.write_bytes(path.read_bytes()[:-nbytes])
    return path


def npz(folder: Path) -> Path:
    np.savez(folder / "x.npz", a=np.ones(500), b=np.zeros(500))
    return folder / "x.npz"


def folder_named(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


CASES: dict[str, Case] = {
    "missing": (lambda d: [d / "gone.edf"], 2, ("gone.edf", "no such file")),
    "missing folder": (lambda d: [d / "no" / "x.edf"], 2, ("no/x.edf", "folder")),
    "empty": (lambda d: [holding(d, "e.edf", b"")], 2, ("e.edf", "empty")),
    "folder": (lambda d: [folder_named(d, "f.edf")], 2, ("f.edf", "folder")),
    "cut EDF header": (lambda d: [cut(edf(d), 4500)], 2, ("x.edf",)),
    "cut NPY": (lambda d: [cut(npy(d), 8), *FS], 2, ("x.npy", "cut short")),
    "a picture": (
        lambda d: [holding(d, "x.edf", b"\x89PNG\r\n\x1a\n" * 99)],
        2,
        ("x.edf", "does not begin like EDF"),
    ),
    "text named NPY": (lambda d: [holding(d, "x.npy", b"hello\n" * 9)], 2, ("NPY",)),
    "FLAC": (lambda d: [holding(d, "x.flac", b"fLaC" * 9)], 2, ("libsndfile",)),
    "MATLAB": (
        lambda d: [holding(d, "x.mat", b"MATLAB 5.0 MAT-file".ljust(192))],
        2,
        ("MATLAB",),
    ),
    "objects in NPZ": (lambda d: [npz(d), *FS], 2, ("x.npz", "array")),
    "unknown array": (lambda d: [npz(d), *FS, "--array", "c"], 2, ("'c'",)),
    "second file missing": (lambda d: [edf(d), d / "gone.edf"], 2, ("gone.edf",)),
    "unknown channel": (
        lambda d: [edf(d), "-c", "EEG Fp2"],
        2,
        ("'EEG Fp2'", "did you mean 'EEG Fp1'"),
    ),
    "no channel named": (lambda d: [edf(d), "-c", " , "], 2, ("--channels",)),
    "fs missing": (lambda d: [npy(d)], 2, ("x.npy", "--fs HZ")),
    "fs zero": (lambda d: [npy(d), "--fs", 0], 2, ("fs is 0", "1e-15 to 1e+15 Hz")),
    "fs negative": (lambda d: [npy(d), "--fs", -2], 2, ("fs is -2",)),
    "fs too large": (
        lambda d: [npy(d), "--fs", "1e300"],
        2,
        ("fs is 1e+300", "1e+15 Hz"),
    ),
    "fs not a number": (lambda d: [npy(d), "--fs", "nan"], 2, ("fs is nan",)),
    "fs in words": (lambda d: [npy(d), "--fs", "fast"], 2, ("'--fs'", "'fast'")),
    "fs contradicts": (lambda d: [wav(d), "--fs", 99], 2, ("99", "1000 Hz")),
    "nperseg too long": (
        lambda d: [npy(d), *FS, "--nperseg", 1001],
        2,
        ("nperseg is 1001", "1000 samples", "smaller --nperseg"),
    ),
    "nperseg zero": (lambda d: [npy(d), *FS, "--nperseg", 0], 2, ("nperseg",)),
    "nperseg negative": (lambda d: [npy(d), *FS, "--nperseg", -8], 2, ("-8",)),
    "noverlap too long": (lambda d: [npy(d), *FS, "--noverlap", 256], 2, ("256",)),
    "nsegments zero": (lambda d: [npy(d), *FS, "--nsegments", 0], 2, ("nsegments",)),
    "nsegments too many": (lambda d: [npy(d), *FS, "--nsegments", 99], 2, ("99",)),
    "k zero": (lambda d: [npy(d), *FS, "--k", 0], 2, ("k is 0", "1 to 129")),
    "k negative": (lambda d: [npy(d), *FS, "--k", -1], 2, ("k is -1",)),
    "k too large": (lambda d: [npy(d), *FS, "--k", 130], 2, ("k is 130", "129")),
    "k in words": (lambda d: [npy(d), *FS, "--k", "all"], 2, ("'--k'",)),
    "NaN": (
        lambda d: [npy(d, bad=np.nan), *FS],
        2,
        ("'ch2' is nan", "sample 777", "propagate"),
    ),
    "infinity": (lambda d: [npy(d, bad=-np.inf), *FS], 2, ("-inf", "sample 777")),
    "unknown window": (lambda d: [npy(d), *FS, "--window", "hahn"], 2, ("hahn",)),
    "unknown preset": (lambda d: [npy(d), *FS, "--preset", "mme"], 2, ("'mme'",)),
    "unknown mode": (lambda d: [npy(d), *FS, "--mode", "top"], 2, ("'top'",)),
    "unknown option": (lambda d: [npy(d), "--npersegs", 9], 2, ("--npersegs",)),
    "prominence of bins": (lambda d: [npy(d), *FS, "--prominence", 1], 2, ("bins",)),
    "prominence negative": (
        lambda d: [npy(d), *FS, "--mode", "peaks", "--prominence", -1],
        2,
        ("-1",),
    ),
    "array of an EDF": (
        lambda d: [edf(d), "--array", "x"],
        2,
        ("NPZ, Zarr, HDF5 and MATLAB only",),
    ),
    "no file": (lambda d: [], 2, ("FILE",)),
    "unknown device": (
        lambda d: [edf(d), "--device", "vulcan"],
        2,
        ("'vulcan'", "did you mean 'vulkan'"),
    ),
    "undriven device": (
        lambda d: [edf(d), "--device", "cuda"],
        3,
        ("cuda", "rlxweb[cuda]"),
    ),
    "foreign device": (lambda d: [edf(d), "--device", "directx"], 3, ("Windows",)),
    "unknown adapter": (
        lambda d: [edf(d), "--device", "vulkan", "--adapter", "Voodoo 2"],
        3,
        ("Voodoo 2",),
    ),
    "adapter alone": (lambda d: [edf(d), "--adapter", "Voodoo 2"], 3, ("Voodoo 2",)),
}


def outputs(folder: Path) -> list[object]:
    """All four outputs, each over a file that is already there."""
    asked: list[object] = []
    for option in ("csv", "npz", "json", "png"):
        path = folder / f"out.{option}"
        path.write_text("old")
        asked += ["--plot" if option == "png" else f"--{option}", path]
    return asked


def listing(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def refused(tmp_path: Path, call: Call) -> Callable[..., None]:
    """Runs `rlxweb welch ARGS`, which must be refused and change nothing on disk."""

    def run(args: Sequence[object], code: int, *words: str) -> None:
        before = listing(tmp_path)
        check_refused(call("welch", *args), code, *words)
        assert listing(tmp_path) == before

    return run


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_in_one_line(
    tmp_path: Path, refused: Callable[..., None], case: str
) -> None:
    """Bad input is refused in one line that names the trouble, and nothing is written.

    The code is 2, and 3 for a device whose name means something and is not here.
    """
    make, code, words = CASES[case]
    refused([*make(tmp_path), *outputs(tmp_path)], code, *words)


def test_a_machine_without_a_vulkan_driver_says_so(tmp_path: Path) -> None:
    """`vulkan` is exit code 3 without a driver, and `auto` is NumPy."""
    path, nowhere = npy(tmp_path), str(tmp_path / "none.json")
    drivers = {"VK_ICD_FILENAMES": nowhere, "VK_DRIVER_FILES": nowhere}
    said = spawn("welch", path, *FS, "--device", "vulkan", **drivers)
    check_refused(said, 3, "vulkan", "no adapter", "rlxweb devices")
    said = spawn("welch", path, *FS, "--json", "-", **drivers)
    assert (said.code, said.group["device"]) == (0, "cpu")


@pytest.mark.requires_wgpu
def test_float64_on_a_device_is_refused(tmp_path: Path, call: Call) -> None:
    """Samples that were asked for in float64 are not narrowed for a device."""
    said = call("welch", npy(tmp_path), *FS, "--device", "gpu", "--precision", "f64")
    check_refused(said, 2, "float64", "narrowed")


def test_a_file_this_user_may_not_read(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message tells about permissions, not about the format."""
    path = edf(tmp_path)
    path.chmod(0)
    if os.access(path, os.R_OK):  # root may: then the system's answer is made
        denied = PermissionError(errno.EACCES, "Permission denied", str(path))
        monkeypatch.setattr(source, "open_regular", Mock(side_effect=denied))
    said = call("welch", path)
    path.chmod(0o600)
    check_refused(said, 2, "x.edf", "may not read")


def test_a_recording_that_was_cut_is_analysed_with_a_warning(
    tmp_path: Path, call: Call
) -> None:
    """One line names the file and what is missing, whatever Python's filters say."""
    path = cut(edf(tmp_path), 100)
    words = ("rlxweb: reading", "x.edf", "says 10 data records, 9 are there", "1 s are")
    for said in (call("welch", path), spawn("welch", path, PYTHONWARNINGS="ignore")):
        assert (said.code, len(said.errors)) == (0, 1)
        assert all(word in said.errors[0] for word in words), said.errors
        assert "Fp1" in said.out
    said = call("welch", path, "--json", "-", "-q")
    (text,) = said.record["files"][0]["warnings"]
    assert f"rlxweb: reading {str(path)!r}: {text}" == said.errors[0]


@pytest.mark.parametrize("option", ["--csv", "--npz", "--json", "--plot"])
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("no/such/out.png", "no such folder"),
        ("a-folder.png", "folder"),
        ("x.edf/out.png", "no such folder"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path,
    refused: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    place: str,
    words: str,
) -> None:
    """No sample is read when the results would have no place."""
    path = edf(tmp_path)
    (tmp_path / "a-folder.png").mkdir()
    monkeypatch.setattr("rlxweb.jobs.analysis.open_recording", None)
    refused([path, option, tmp_path / place], 2, words)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--csv", "-", "--json", "/dev/stdout"], ("--json", "the file of --csv")),
        (["--plot", "x.jpeg"], (".jpeg", ".png")),
        (["--csv", "x.edf"], ("the recording",)),
        (["--csv", "o", "--npz", "./o"], ("--npz", "the file of --csv")),
    ],
)
def test_outputs_that_make_no_sense(
    tmp_path: Path,
    refused: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    words: tuple[str, ...],
) -> None:
    """Two outputs in one file, or one over the recording, are refused."""
    edf(tmp_path)
    monkeypatch.chdir(tmp_path)
    refused(["x.edf", *args], 2, *words)


def test_pictures_of_files_with_one_name(tmp_path: Path, call: Call) -> None:
    """Recordings of one name are refused: they would draw one picture."""
    (tmp_path / "b").mkdir()
    args = edf(tmp_path), edf(tmp_path / "b"), "--plot", tmp_path / "p.png"
    check_refused(call("welch", *args), 2, "share a name")


@pytest.mark.parametrize("option", ["--csv", "--npz", "--json", "--plot"])
def test_a_disk_that_fills_up_leaves_the_old_file(
    tmp_path: Path,
    refused: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    option: str,
) -> None:
    """A write that breaks off half way is an error line, and the old file stays."""
    path, out = edf(tmp_path), tmp_path / "out.png"
    out.write_text("old")
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(whole_file.os, "fsync", Mock(side_effect=full))
    refused([path, option, out], 1, "No space left", "out.png", "free some space")


def test_a_picture_without_matplotlib(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing library is exit code 4 and says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    said = call("welch", edf(tmp_path), "--plot", tmp_path / "p.png")
    check_refused(said, 4, "rlxweb[plot]")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["demo", "gone.edf"], ("gone.edf", "no such file")),
        (["demo", "--out", "file"], ("'file'", "folder")),
        (["demo", "--device", "vulcan"], ("vulcan",)),
        (["devices", "--jsn"], ("--jsn",)),
        (["welsh"], ("welsh",)),
    ],
)
def test_bad_input_to_the_other_commands(
    tmp_path: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("taken")
    said = call(*args)
    assert said.code == 2
    (line,) = said.errors
    assert all(word in line for word in words), line


def test_a_driver_with_much_to_say_still_gets_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Lines inside a driver's message are joined; a lost device is exit code 75."""
    lost = DeviceLost("run", "the device is lost\n  caused by\n  a cable")
    monkeypatch.setattr("rlxweb.jobs.analysis.analyse", Mock(side_effect=lost))
    check_refused(call("welch", edf(tmp_path)), 75, "a cable")
