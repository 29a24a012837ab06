"""Several recordings: which are meant, and what one bad file among them costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from rich.console import Console
from scipy.io import wavfile
from scipy.signal import welch

from rlxweb.cli import meter, plot
from rlxweb.cli.batch import run_batch
from rlxweb.cli.screen import screen
from rlxweb.errors import DeviceLost, RecordingError
from rlxweb.jobs import analysis
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.spreading import Outcome, one_by_one
from tests.command_line import Call, Said, check_refused
from tests.recordings import written

FS = "--fs", 100


@pytest.fixture
def night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> Path:
    """A folder with two recordings, other files, hidden ones, and a folder below."""
    folder = tmp_path / "night"
    (folder / "deeper").mkdir(parents=True)
    for name in ("b.npy", "a.npy", "deeper/c.npy", ".hidden.npy", "[x].npy"):
        np.save(folder / name, rng.standard_normal((2, 600)))
    for name in ("notes.txt", "report.pdf", "README"):
        (folder / name).write_text("no recording")
    monkeypatch.chdir(tmp_path)
    return folder


def taken(said: Said) -> list[str]:
    assert said.code == 0, said.err
    return [file["path"] for file in said.record["files"]]


@pytest.mark.parametrize(
    ("named", "files"),
    [
        (["night"], ["night/[x].npy", "night/a.npy", "night/b.npy"]),
        (["night/"], ["night/[x].npy", "night/a.npy", "night/b.npy"]),
        (["night/?.npy"], ["night/a.npy", "night/b.npy"]),
        (
            ["night/**/*.npy"],
            ["night/[x].npy", "night/a.npy", "night/b.npy", "night/deeper/c.npy"],
        ),
        (["night/[x].npy"], ["night/[x].npy"]),
        (["night/b.npy", "night"], ["night/b.npy", "night/[x].npy", "night/a.npy"]),
        (["night/a.npy", "./night/../night/a.npy"], ["night/a.npy"]),
        (["night/deeper", "night/d*/c.npy"], ["night/deeper/c.npy"]),
    ],
)
def test_folders_and_patterns_stand_for_files(
    night: Path, call: Call, named: list[str], files: list[str]
) -> None:
    """Folders and patterns give files by name, each once, and none from below."""
    assert taken(call("welch", *named, *FS, "--json", "-")) == files


def test_what_a_folder_holds_besides_is_told(night: Path, call: Call) -> None:
    said = call("welch", "night", *FS, "-q")
    (line,) = said.err.splitlines()
    assert line == (
        "night: passed over 3 files of other kinds (.pdf, .txt, no suffix) and "
        "1 folder ('night/**/*.edf' reaches down)"
    )


def test_results_of_the_last_run_are_no_recordings(night: Path, call: Call) -> None:
    """`--csv` into the folder that is read works the second time as well."""
    for _ in range(2):
        said = call("welch", "night", *FS, "--csv", "night/all.csv", "-q")
        assert said.code == 0, said.err


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("empty", ("empty", "no recording in it", "0 other files")),
        ("texts", ("no recording in it", "1 other file", ".edf")),
        ("above", ("no recording in it", "1 folder", "'above/**/*.edf' reaches down")),
        ("night/*.edf", ("'night/*.edf'", "no file matches")),
        ("nowhere/*.edf", ("'nowhere/*.edf'", "no file matches")),
        ("nowhere", ("'nowhere'", "no such file")),
    ],
)
def test_what_stands_for_nothing_is_refused(
    night: Path, call: Call, named: str, words: tuple[str, ...]
) -> None:
    for folder in ("empty", "texts", "above/below"):
        Path(folder).mkdir(parents=True)
    Path("texts/x.txt").write_text("x")
    check_refused(call("welch", named, *FS), 2, *words)


BAD: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "empty": Path.touch,
    "no samples": lambda path: np.save(path, np.ones((2, 0))),
    "too short": lambda path: np.save(path, np.ones((2, 5))),
    "not finite": lambda path: np.save(path, np.full((2, 600), np.nan)),
    "a folder": Path.mkdir,
    "no format": lambda path: path.write_bytes(bytes(range(256)) * 9),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_costs_itself_alone(
    night: Path, call: Call, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are done and written; exit code 1, and why, also in the record.

    What their pictures show is no matter here: they show nothing.
    """
    monkeypatch.setattr(plot, "_figure", lambda *given: plot.new_figure(1, 1))
    bad = night / "bad.npy"
    BAD[case](bad)
    named = "night/a.npy", "night/bad.npy", "night/b.npy"
    kept = [word for out in ("csv", "npz", "png") for word in _output(out)]
    said = call("welch", *named, *FS, "--keep-going", "--json", "-", *kept)
    assert said.code == 1
    assert [file["path"] for file in said.record["files"]] == [named[0], named[2]]
    ((failed),) = said.record["failed"]
    assert failed["path"] == "night/bad.npy"
    assert "bad.npy" in failed["error"]
    assert f"rlxweb: {failed['error']}" in said.err.splitlines()
    told = [line for line in said.errors if line.startswith("rlxweb: ")]
    assert told[-1] == "rlxweb: 1 of 3 recordings failed: 'night/bad.npy'"
    assert sorted(p.name for p in Path().iterdir()) == [
        *("night", "o-a.png", "o-b.png", "o.csv", "o.npz")
    ]
    assert "bad" not in Path("o.csv").read_text()
    # Without the option nothing is done and nothing is written.
    said = call("welch", *named, *FS, "--csv", "p.csv")
    check_refused(said, 2, "bad.npy")
    faulty = case != "too short"  # which is a matter of --nperseg
    assert ("--keep-going does the other recordings" in said.err) == faulty
    assert not Path("p.csv").exists()


def _output(suffix: str) -> tuple[str, str]:
    return "--plot" if suffix == "png" else f"--{suffix}", f"o.{suffix}"


def test_when_everything_is_bad_the_report_is_written(night: Path, call: Call) -> None:
    (night / "a.npy").write_bytes(b"")
    said = call("welch", "night/a.npy", "gone.npy", *FS, "--keep-going", "--json", "o")
    assert said.code == 1
    record = json.loads(Path("o").read_text())
    assert record["files"] == []
    assert [one["path"] for one in record["failed"]] == ["night/a.npy", "gone.npy"]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)])
def test_whoever_does_the_files_the_results_are_in_their_order(
    night: Path, order: tuple[int, ...]
) -> None:
    """Results and failures are in order of files; what stands for none comes first."""
    named = [f"night/{name}.npy" for name in ("a", "gone", "b", "lost")]

    def spread(
        files: Sequence[str], settings: Settings
    ) -> Iterator[tuple[str, Outcome]]:
        outcomes = list(one_by_one(files, settings))
        yield from (outcomes[at] for at in order)

    err = screen(stderr=True)
    settings = Settings(fs=100, device="cpu")
    asked = [*named, "nothing*"]
    done = run_batch(asked, settings, err, keep_going=True, spread=spread)
    assert [result.path for result in done.results] == [named[0], named[2]]
    failed = [failure.path for failure in done.failed]
    assert failed == ["nothing*", named[1], named[3]]
    with pytest.raises(RecordingError, match="no such file"):
        run_batch(named, settings, err, spread=spread)


def test_whoever_does_the_files_is_told_at_once_that_the_run_has_ended(
    night: Path,
) -> None:
    """The one who does the files learns of the end while the error is on its way."""
    told: list[str] = []

    def spread(
        files: Sequence[str], settings: Settings
    ) -> Iterator[tuple[str, Outcome]]:
        try:
            yield from one_by_one(files, settings)
        finally:
            told.append("ended")

    named = ["night/gone.npy", "night/a.npy"]
    with pytest.raises(RecordingError) as caught:
        run_batch(named, Settings(fs=100), screen(stderr=True), spread=spread)
    assert caught.value.__traceback__ is not None
    assert told == ["ended"]


def test_a_bar_shows_how_far_the_recordings_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A part of a recording is a part of its share; work that is short shows none."""
    for patience, shown in ((0.0, True), (3600.0, False)):
        monkeypatch.setattr(meter, "PATIENCE_S", patience)
        console = Console(force_terminal=True, file=StringIO(), width=80)
        with meter.Meter(console, 4) as bar:
            bar.within("night/a.npy", 1000, 500)
            bar.finished("night/a.npy")
            bar.within("night/b.npy", 1000, 500)
            assert bar.share == 0.375
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("b.npy" in text and "38 %" in text) == shown
        assert bool(text) == shown


def test_a_bar_says_who_is_at_work_before_anything_is_done() -> None:
    """Workers may need a while to start, and hours for a recording."""
    there = iter(["no worker yet"] * 3)
    console = Console(force_terminal=True, file=StringIO(), width=80)
    with meter.Meter(console, 4, lambda: next(there, "2 workers")) as bar:
        assert "0 of 4, " in console.file.getvalue()  # type: ignore[attr-defined]
        bar._bar.refresh()
        text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "0 of 4, 2 workers" in text


def test_no_memory_for_one_file_is_no_reason_to_end(
    night: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No memory for one file costs that file; a lost device ends the run."""
    really = analysis.analyse
    for error, code in ((MemoryError(), 1), (DeviceLost("run", "it is gone"), 75)):
        tries = Mock(side_effect=[error, None])

        def analyse(*args: object, tries: Mock = tries) -> object:
            return tries() or really(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(analysis, "analyse", analyse)
        said = call("welch", "night/a.npy", "night/b.npy", *FS, "-q", "--keep-going")
        assert said.code == code
        assert ("out of memory" if code == 1 else "it is gone") in said.err


def test_what_is_left_out_is_told_once_with_the_names(
    tmp_path: Path, call: Call
) -> None:
    """Files that share what is left out share one line; others have their own."""
    names = [f"{n:02}.edf" for n in range(20)]
    for name in names:
        written(tmp_path / name, ("EEG Fp1", 100), seconds=10)
    written(tmp_path / "z.edf", ("EEG Fp1", 100), ("Status", 100), seconds=10)
    said = call("welch", tmp_path, "-q")
    assert said.code == 0, said.err
    lines = said.err.splitlines()
    assert len(lines) == len(set(lines)) <= 2
    (status,) = [line for line in lines if "'Status'" in line]
    assert "z.edf" in status
    for line in lines:
        assert line.startswith("left out of '")


def test_names_in_messages_cannot_forge_a_line(
    tmp_path: Path, call: Call, rng: np.random.Generator
) -> None:
    """A file, a channel and an array by any name stay on the line that names them."""
    evil = "x\nrlxweb: all is well\x1b[2J\u202e"
    folder = tmp_path / evil
    folder.mkdir()
    said = call("welch", folder)
    (line,) = said.err.splitlines()
    assert line.isprintable()
    np.savez(tmp_path / "x.npz", **{evil: np.ones(9), "y": np.ones(9)})
    for args in ([], ["--array", evil + "z"], ["-c", evil]):
        said = call("welch", tmp_path / "x.npz", *FS, *args)
        (line,) = said.err.splitlines()
        assert line.isprintable()
    said = call("welch", tmp_path / "x.npz", f"--{evil}", 1)
    assert all(line.isprintable() for line in said.err.splitlines())
    said = call(evil)
    assert all(line.isprintable() for line in said.err.splitlines())
    np.save(folder / "x.npy", rng.standard_normal((2, 600)))
    out = folder / "o\n.png"
    for args in (
        ("welch", folder / "x.npy", *FS, "--explain", "--plot", out),
        ("explain", folder / "x.npy", *FS),
        ("demo", folder / "x.npy", *FS, "--out", folder / "out"),
    ):
        said = call(*args)
        assert said.code == 0, said.err
        lines = [*said.out.splitlines(), *said.err.splitlines()]
        assert all(line.isprintable() for line in lines)
        assert not any(line.startswith("rlxweb: all") for line in lines)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--nsegments", 99], "leave out --nsegments 99"),
        (["--k", 999], "give a larger --nperseg N"),
        (["--window", "kaiser"], "write its parameters: --window kaiser,…"),
        (["--prominence", 3], "--prominence 3.0 was given for --mode bins"),
    ],
)
def test_what_one_file_refuses_names_it_and_the_flags(
    night: Path, call: Call, args: list[object], said: str
) -> None:
    """Among hundreds of files the one is found; no Python keyword is suggested."""
    named = "night/a.npy", "night/b.npy"
    check_refused(call("welch", *named, *FS, *args), 2, "'night/a.npy'", said)


@pytest.mark.parametrize(
    ("args", "given"),
    [(["--fs", 99], "--fs 99"), (["--layout", "samples-first"], None)],
)
def test_a_file_that_knows_better_is_told_by_the_flag(
    tmp_path: Path,
    call: Call,
    args: list[object],
    given: str | None,
    rng: np.random.Generator,
) -> None:
    path = tmp_path / "x.wav"
    wavfile.write(path, 100, rng.standard_normal(600))
    given = given or "--layout samples-first"
    check_refused(call("welch", path, *args), 2, f"{given} was given")


def test_a_power_beyond_the_type_names_file_and_channel(
    tmp_path: Path, call: Call, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((2, 600)) * [[1.0], [1e200]]
    np.savez(tmp_path / "x.npz", x=x, channels=np.array(["Fz", "Cz"]), fs=100.0)
    said = call("welch", tmp_path / "x.npz", "--array", "x")
    check_refused(said, 2, "x.npz", "the power of channel 'Cz'")


def test_a_window_takes_parameters(
    tmp_path: Path, call: Call, rng: np.random.Generator
) -> None:
    """`kaiser,8.6` is scipy's ('kaiser', 8.6)."""
    x = rng.standard_normal(600)
    np.save(tmp_path / "x.npy", x)
    args = *FS, "--preset", "scipy", "--window", "kaiser,8.6", "--npz"
    out = tmp_path / "out.npz"
    assert call("welch", tmp_path / "x.npy", *args, out, "-q").code == 0
    with np.load(out) as found:
        _, power = welch(x, 100, window=("kaiser", 8.6), nperseg=256)
        np.testing.assert_allclose(found["psd"][0], power, rtol=1e-10)
    said = call("welch", tmp_path / "x.npy", *FS, "--window", "kaiser,x")
    check_refused(said, 2, "'--window'", "'x' is no number", "kaiser,8.6")
