"""Bad input on the command line: one error line, the documented exit code, no
half-written file.

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

from rlxweb.core import atomic_file
from rlxweb.core.errors import DeviceLost
from rlxweb.io import byte_source
from tests.cli_runners import CommandRunner, check_rejected, run_cli
from tests.edf_bdf_recordings import write_recording

BadInputCase = tuple[Callable[[Path], list[object]], int, tuple[str, ...]]
FS = ["--fs", 100]


def write_npy(folder: Path, name: str = "x.npy", bad: float | None = None) -> Path:
    """Write two channels of 1,000 samples; `bad` is put at sample 777 of the second."""
    x = np.random.default_rng(11).standard_normal((2, 1000))
    if bad is not None:
        x[1, 777] = bad
    np.save(folder / name, x)
    return folder / name


def write_wav(folder: Path) -> Path:
    x = np.random.default_rng(12).uniform(-0.5, 0.5, (2000, 2))
    soundfile.write(folder / "x.wav", x, 1000)
    return folder / "x.wav"


def write_edf(folder: Path) -> Path:
    return write_recording(
        folder / "x.edf", ("EEG Fp1", 100), ("EEG Cz", 100), seconds=10
    )


def write_bytes(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def truncate_file(path: Path, nbytes: int) -> Path:
    path.write_bytes(path.read_bytes()[:-nbytes])
    return path


def write_npz(folder: Path) -> Path:
    np.savez(folder / "x.npz", a=np.ones(500), b=np.zeros(500))
    return folder / "x.npz"


def make_folder(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


CASES: dict[str, BadInputCase] = {
    "missing": (lambda d: [d / "gone.edf"], 2, ("gone.edf", "the file does not exist")),
    "missing folder": (lambda d: [d / "no" / "x.edf"], 2, ("no/x.edf", "folder")),
    "empty": (lambda d: [write_bytes(d, "e.edf", b"")], 2, ("e.edf", "empty")),
    "folder": (lambda d: [make_folder(d, "f.edf")], 2, ("f.edf", "folder")),
    "cut EDF header": (lambda d: [truncate_file(write_edf(d), 4500)], 2, ("x.edf",)),
    "cut NPY": (
        lambda d: [truncate_file(write_npy(d), 8), *FS],
        2,
        ("x.npy", "truncated"),
    ),
    "a picture": (
        lambda d: [write_bytes(d, "x.edf", b"\x89PNG\r\n\x1a\n" * 99)],
        2,
        ("x.edf", "the content is not EDF"),
    ),
    "text named NPY": (
        lambda d: [write_bytes(d, "x.npy", b"hello\n" * 9)],
        2,
        ("NPY",),
    ),
    "FLAC": (lambda d: [write_bytes(d, "x.flac", b"fLaC" * 9)], 2, ("libsndfile",)),
    "MATLAB": (
        lambda d: [write_bytes(d, "x.mat", b"MATLAB 5.0 MAT-file".ljust(192))],
        2,
        ("MATLAB",),
    ),
    "objects in NPZ": (lambda d: [write_npz(d), *FS], 2, ("x.npz", "array")),
    "unknown array": (lambda d: [write_npz(d), *FS, "--array", "c"], 2, ("'c'",)),
    "second file missing": (lambda d: [write_edf(d), d / "gone.edf"], 2, ("gone.edf",)),
    "unknown channel": (
        lambda d: [write_edf(d), "-c", "EEG Fp2"],
        2,
        ("'EEG Fp2'", "did you mean 'EEG Fp1'"),
    ),
    "no channel named": (lambda d: [write_edf(d), "-c", " , "], 2, ("--channels",)),
    "fs missing": (lambda d: [write_npy(d)], 2, ("x.npy", "--fs HZ")),
    "fs zero": (
        lambda d: [write_npy(d), "--fs", 0],
        2,
        ("fs is 0", "1e-15 to 1e+15 Hz"),
    ),
    "fs negative": (lambda d: [write_npy(d), "--fs", -2], 2, ("fs is -2",)),
    "fs too large": (
        lambda d: [write_npy(d), "--fs", "1e300"],
        2,
        ("fs is 1e+300", "1e+15 Hz"),
    ),
    "fs not a number": (lambda d: [write_npy(d), "--fs", "nan"], 2, ("fs is nan",)),
    "fs in words": (lambda d: [write_npy(d), "--fs", "fast"], 2, ("'--fs'", "'fast'")),
    "fs contradicts": (lambda d: [write_wav(d), "--fs", 99], 2, ("99", "1000 Hz")),
    "nperseg too long": (
        lambda d: [write_npy(d), *FS, "--nperseg", 1001],
        2,
        ("nperseg is 1001", "1000 samples", "smaller --nperseg"),
    ),
    "nperseg zero": (lambda d: [write_npy(d), *FS, "--nperseg", 0], 2, ("nperseg",)),
    "nperseg negative": (lambda d: [write_npy(d), *FS, "--nperseg", -8], 2, ("-8",)),
    "noverlap too long": (
        lambda d: [write_npy(d), *FS, "--noverlap", 256],
        2,
        ("256",),
    ),
    "nsegments zero": (
        lambda d: [write_npy(d), *FS, "--nsegments", 0],
        2,
        ("nsegments",),
    ),
    "nsegments too many": (
        lambda d: [write_npy(d), *FS, "--nsegments", 99],
        2,
        ("99",),
    ),
    "k zero": (lambda d: [write_npy(d), *FS, "--k", 0], 2, ("k is 0", "1 to 129")),
    "k negative": (lambda d: [write_npy(d), *FS, "--k", -1], 2, ("k is -1",)),
    "k too large": (lambda d: [write_npy(d), *FS, "--k", 130], 2, ("k is 130", "129")),
    "k in words": (lambda d: [write_npy(d), *FS, "--k", "all"], 2, ("'--k'",)),
    "NaN": (
        lambda d: [write_npy(d, bad=np.nan), *FS],
        2,
        ("'ch2' is nan", "sample 777", "propagate"),
    ),
    "infinity": (lambda d: [write_npy(d, bad=-np.inf), *FS], 2, ("-inf", "sample 777")),
    "unknown window": (lambda d: [write_npy(d), *FS, "--window", "hahn"], 2, ("hahn",)),
    "unknown preset": (lambda d: [write_npy(d), *FS, "--preset", "mme"], 2, ("'mme'",)),
    "unknown mode": (lambda d: [write_npy(d), *FS, "--mode", "top"], 2, ("'top'",)),
    "unknown option": (lambda d: [write_npy(d), "--npersegs", 9], 2, ("--npersegs",)),
    "prominence of bins": (
        lambda d: [write_npy(d), *FS, "--prominence", 1],
        2,
        ("bins",),
    ),
    "prominence negative": (
        lambda d: [write_npy(d), *FS, "--mode", "peaks", "--prominence", -1],
        2,
        ("-1",),
    ),
    "array of an EDF": (
        lambda d: [write_edf(d), "--array", "x"],
        2,
        ("only to NPZ, Zarr, HDF5 and MATLAB",),
    ),
    "no file": (lambda d: [], 2, ("FILE",)),
    "unknown device": (
        lambda d: [write_edf(d), "--device", "vulcan"],
        2,
        ("'vulcan'", "did you mean 'vulkan'"),
    ),
    "undriven device": (
        lambda d: [write_edf(d), "--device", "cuda"],
        3,
        ("cuda", "rlxweb[cuda]"),
    ),
    "foreign device": (
        lambda d: [write_edf(d), "--device", "directx"],
        3,
        ("Windows",),
    ),
    "unknown adapter": (
        lambda d: [write_edf(d), "--device", "vulkan", "--adapter", "Voodoo 2"],
        3,
        ("Voodoo 2",),
    ),
    "adapter alone": (
        lambda d: [write_edf(d), "--adapter", "Voodoo 2"],
        3,
        ("Voodoo 2",),
    ),
}


def existing_outputs(folder: Path) -> list[object]:
    """Return options for all four outputs, each over an existing file."""
    options: list[object] = []
    for option in ("csv", "npz", "json", "png"):
        path = folder / f"out.{option}"
        path.write_text("old")
        options += ["--plot" if option == "png" else f"--{option}", path]
    return options


def folder_contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def check_rejected_unchanged(
    tmp_path: Path, call: CommandRunner
) -> Callable[..., None]:
    """Checker that `rlxweb welch ARGS` is rejected and changes nothing on disk."""

    def run(args: Sequence[object], code: int, *words: str) -> None:
        before = folder_contents(tmp_path)
        check_rejected(call("welch", *args), code, *words)
        assert folder_contents(tmp_path) == before

    return run


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_rejected_with_one_line(
    tmp_path: Path, check_rejected_unchanged: Callable[..., None], case: str
) -> None:
    """Bad input is rejected with one line that names the problem, and nothing is
    written.

    The code is 2, and 3 for a device whose name means something and is not here.
    """
    make, code, words = CASES[case]
    check_rejected_unchanged(
        [*make(tmp_path), *existing_outputs(tmp_path)], code, *words
    )


def test_missing_vulkan_driver_is_reported(tmp_path: Path) -> None:
    """`vulkan` is exit code 3 without a driver, and `auto` is NumPy."""
    path, missing_driver = write_npy(tmp_path), str(tmp_path / "none.json")
    drivers = {"VK_ICD_FILENAMES": missing_driver, "VK_DRIVER_FILES": missing_driver}
    result = run_cli("welch", path, *FS, "--device", "vulkan", **drivers)
    check_rejected(result, 3, "vulkan", "no adapter", "rlxweb devices")
    result = run_cli("welch", path, *FS, "--json", "-", **drivers)
    assert (result.code, result.group["device"]) == (0, "cpu")


@pytest.mark.requires_wgpu
def test_float64_on_gpu_is_rejected(tmp_path: Path, call: CommandRunner) -> None:
    """Samples requested in float64 are not narrowed for a device."""
    result = call(
        "welch", write_npy(tmp_path), *FS, "--device", "gpu", "--precision", "f64"
    )
    check_rejected(result, 2, "float64", "never converted to float32")


def test_unreadable_file_is_a_permission_error(
    tmp_path: Path, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is about permissions, not about the format."""
    path = write_edf(tmp_path)
    path.chmod(0)
    if os.access(path, os.R_OK):  # root may: then the system's answer is made
        denied = PermissionError(errno.EACCES, "Permission denied", str(path))
        monkeypatch.setattr(byte_source, "open_regular_file", Mock(side_effect=denied))
    result = call("welch", path)
    path.chmod(0o600)
    check_rejected(result, 2, "x.edf", "do not have permission to read")


def test_truncated_recording_is_analysed_with_a_warning(
    tmp_path: Path, call: CommandRunner
) -> None:
    """One line names the file and what is missing, whatever Python's filters say."""
    path = truncate_file(write_edf(tmp_path), 100)
    expected = (
        "rlxweb: reading",
        "x.edf",
        "declares 10 data records, the file has 9",
        "1 s are",
    )
    for result in (
        call("welch", path),
        run_cli("welch", path, PYTHONWARNINGS="ignore"),
    ):
        assert (result.code, len(result.errors)) == (0, 1)
        assert all(word in result.errors[0] for word in expected), result.errors
        assert "Fp1" in result.out
    result = call("welch", path, "--json", "-", "-q")
    (text,) = result.document["files"][0]["warnings"]
    assert f"rlxweb: reading {str(path)!r}: {text}" == result.errors[0]


@pytest.mark.parametrize("option", ["--csv", "--npz", "--json", "--plot"])
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("no/such/out.png", "the folder does not exist"),
        ("a-folder.png", "folder"),
        ("x.edf/out.png", "the folder does not exist"),
    ],
)
def test_unwritable_output_is_rejected_before_reading(
    tmp_path: Path,
    check_rejected_unchanged: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    place: str,
    words: str,
) -> None:
    """No sample is read when the results cannot be written."""
    path = write_edf(tmp_path)
    (tmp_path / "a-folder.png").mkdir()
    monkeypatch.setattr("rlxweb.batch.recording_analysis.open_recording", None)
    check_rejected_unchanged([path, option, tmp_path / place], 2, words)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["--csv", "-", "--json", "/dev/stdout"],
            ("--json", "the output file of --csv"),
        ),
        (["--plot", "x.jpeg"], (".jpeg", ".png")),
        (["--csv", "x.edf"], ("the recording",)),
        (["--csv", "o", "--npz", "./o"], ("--npz", "the output file of --csv")),
    ],
)
def test_conflicting_outputs_are_rejected(
    tmp_path: Path,
    check_rejected_unchanged: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    words: tuple[str, ...],
) -> None:
    """Two outputs in one file, or one over the recording, are rejected."""
    write_edf(tmp_path)
    monkeypatch.chdir(tmp_path)
    check_rejected_unchanged(["x.edf", *args], 2, *words)


def test_pictures_of_recordings_with_equal_names_are_rejected(
    tmp_path: Path, call: CommandRunner
) -> None:
    """Recordings of one name are rejected: they would draw one picture."""
    (tmp_path / "b").mkdir()
    args = write_edf(tmp_path), write_edf(tmp_path / "b"), "--plot", tmp_path / "p.png"
    check_rejected(call("welch", *args), 2, "have the same name")


@pytest.mark.parametrize("option", ["--csv", "--npz", "--json", "--plot"])
def test_full_disk_keeps_the_old_file(
    tmp_path: Path,
    check_rejected_unchanged: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    option: str,
) -> None:
    """A write that fails half way is an error line, and the old file stays."""
    path, out = write_edf(tmp_path), tmp_path / "out.png"
    out.write_text("old")
    error = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(atomic_file.os, "fsync", Mock(side_effect=error))
    check_rejected_unchanged(
        [path, option, out], 1, "No space left", "out.png", "free some space"
    )


def test_missing_matplotlib_is_reported(
    tmp_path: Path, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing library is exit code 4, and the message names what to install."""
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    result = call("welch", write_edf(tmp_path), "--plot", tmp_path / "p.png")
    check_rejected(result, 4, "rlxweb[plot]")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["demo", "gone.edf"], ("gone.edf", "the file does not exist")),
        (["demo", "--out", "file"], ("'file'", "folder")),
        (["demo", "--device", "vulcan"], ("vulcan",)),
        (["devices", "--jsn"], ("--jsn",)),
        (["welsh"], ("welsh",)),
    ],
)
def test_bad_input_to_the_other_commands(
    tmp_path: Path,
    call: CommandRunner,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("taken")
    result = call(*args)
    assert result.code == 2
    (line,) = result.errors
    assert all(word in line for word in words), line


def test_multiline_driver_error_becomes_one_line(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Lines inside a driver's message are joined; a lost device is exit code 75."""
    error = DeviceLost("run", "the device is lost\n  caused by\n  a cable")
    monkeypatch.setattr(
        "rlxweb.batch.recording_analysis.analyse", Mock(side_effect=error)
    )
    check_rejected(call("welch", write_edf(tmp_path)), 75, "a cable")
