"""Runs over several recordings: which files are chosen, and what one bad file costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from rich.console import Console

from rlxweb.batch import recording_analysis
from rlxweb.batch.file_job_protocol import AnalysisOutcome, analyse_sequentially
from rlxweb.batch.settings import Settings
from rlxweb.cli import recording_progress, welch_plot
from rlxweb.cli.batch import analyze_recordings
from rlxweb.cli.console import make_console
from rlxweb.core.errors import DeviceLost, RecordingError
from tests.cli_runners import CommandRunner, check_rejected
from tests.edf_bdf_recordings import write_recording

FS = "--fs", 100


@pytest.fixture
def night(place_files: Callable[[str], None], tmp_path: Path) -> Path:
    """A folder with two recordings, other files, hidden ones, and a folder below."""
    place_files("night")
    return tmp_path / "night"


def test_earlier_results_are_not_read_as_recordings(
    night: Path, call: CommandRunner
) -> None:
    """Writing `--csv` into the folder that is read works the second time as well."""
    for _ in range(2):
        result = call("welch", "night", *FS, "--csv", "night/all.csv", "-q")
        assert result.code == 0, result.err


BAD_FILES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "empty": Path.touch,
    "no samples": lambda path: np.save(path, np.ones((2, 0))),
    "too short": lambda path: np.save(path, np.ones((2, 5))),
    "not finite": lambda path: np.save(path, np.full((2, 600), np.nan)),
    "a folder": Path.mkdir,
    "no format": lambda path: path.write_bytes(bytes(range(256)) * 9),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_file_does_not_stop_others(
    night: Path, call: CommandRunner, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other files are analysed and written; exit code 1, and the reason is also in
    the document.

    What their pictures show is no matter here: they show nothing.
    """
    monkeypatch.setattr(
        welch_plot, "_build_figure", lambda *arguments: welch_plot.new_figure(1, 1)
    )
    bad = night / "bad.npy"
    BAD_FILES[case](bad)
    paths = "night/a.npy", "night/bad.npy", "night/b.npy"
    output_args = [
        word for out in ("csv", "npz", "png") for word in _output_option(out)
    ]
    result = call("welch", *paths, *FS, "--keep-going", "--json", "-", *output_args)
    assert result.code == 1
    assert [file["path"] for file in result.document["files"]] == [paths[0], paths[2]]
    ((failed),) = result.document["failed"]
    assert failed["path"] == "night/bad.npy"
    assert "bad.npy" in failed["error"]
    assert f"rlxweb: {failed['error']}" in result.err.splitlines()
    error_lines = [line for line in result.errors if line.startswith("rlxweb: ")]
    assert error_lines[-1] == "rlxweb: 1 of 3 recordings failed: 'night/bad.npy'"
    assert sorted(p.name for p in Path().iterdir()) == [
        *("night", "o-a.png", "o-b.png", "o.csv", "o.npz")
    ]
    assert "bad" not in Path("o.csv").read_text()
    # Without the option nothing is done and nothing is written.
    result = call("welch", *paths, *FS, "--csv", "p.csv")
    check_rejected(result, 2, "bad.npy")
    is_file_fault = case != "too short"  # which is a matter of --nperseg
    assert (
        "--keep-going to process the other recordings" in result.err
    ) == is_file_fault
    assert not Path("p.csv").exists()


def _output_option(suffix: str) -> tuple[str, str]:
    return "--plot" if suffix == "png" else f"--{suffix}", f"o.{suffix}"


def test_report_is_written_when_all_files_fail(
    night: Path, call: CommandRunner
) -> None:
    (night / "a.npy").write_bytes(b"")
    result = call(
        "welch", "night/a.npy", "gone.npy", *FS, "--keep-going", "--json", "o"
    )
    assert result.code == 1
    document = json.loads(Path("o").read_text())
    assert document["files"] == []
    assert [failure["path"] for failure in document["failed"]] == [
        "night/a.npy",
        "gone.npy",
    ]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)])
def test_results_are_in_file_order(night: Path, order: tuple[int, ...]) -> None:
    """Results and failures are in the order of the files; arguments that match no file
    come first.
    """
    paths = [f"night/{name}.npy" for name in ("a", "gone", "b", "lost")]

    def spread(
        files: Sequence[str], settings: Settings
    ) -> Iterator[tuple[str, AnalysisOutcome]]:
        outcomes = list(analyse_sequentially(files, settings))
        yield from (outcomes[at] for at in order)

    console = make_console(stderr=True)
    settings = Settings(fs=100, device="cpu")
    arguments = [*paths, "nothing*"]
    batch = analyze_recordings(
        arguments, settings, console, keep_going=True, spread=spread
    )
    assert [file_result.path for file_result in batch.results] == [paths[0], paths[2]]
    failed = [failure.path for failure in batch.failures]
    assert failed == ["nothing*", paths[1], paths[3]]
    with pytest.raises(RecordingError, match="the file does not exist"):
        analyze_recordings(paths, settings, console, spread=spread)


def test_runner_is_closed_when_run_fails(
    night: Path,
) -> None:
    """The file runner is closed while the error propagates."""
    events: list[str] = []

    def spread(
        files: Sequence[str], settings: Settings
    ) -> Iterator[tuple[str, AnalysisOutcome]]:
        try:
            yield from analyse_sequentially(files, settings)
        finally:
            events.append("ended")

    paths = ["night/gone.npy", "night/a.npy"]
    with pytest.raises(RecordingError) as excinfo:
        analyze_recordings(
            paths, Settings(fs=100), make_console(stderr=True), spread=spread
        )
    assert excinfo.value.__traceback__ is not None
    assert events == ["ended"]


def test_progress_bar_shows_share_of_recordings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A part of a recording counts as part of its share; short work shows no bar."""
    for patience, is_shown in ((0.0, True), (3600.0, False)):
        monkeypatch.setattr(recording_progress, "SHOW_BAR_AFTER_S", patience)
        console = Console(force_terminal=True, file=StringIO(), width=80)
        with recording_progress.RecordingProgress(console, 4) as bar:
            bar.add_samples("night/a.npy", 1000, 500)
            bar.mark_finished("night/a.npy")
            bar.add_samples("night/b.npy", 1000, 500)
            assert bar.fraction == 0.375
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("b.npy" in text and "38 %" in text) == is_shown
        assert bool(text) == is_shown


def test_progress_bar_shows_workers_before_first_result() -> None:
    """Workers may need a while to start, and hours for a recording."""
    worker_texts = iter(["no workers yet"] * 3)
    console = Console(force_terminal=True, file=StringIO(), width=80)
    with recording_progress.RecordingProgress(
        console, 4, lambda: next(worker_texts, "2 workers")
    ) as bar:
        assert "0 of 4, " in console.file.getvalue()  # type: ignore[attr-defined]
        bar._bar.refresh()
        text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "0 of 4, 2 workers" in text


def test_out_of_memory_costs_one_file(
    night: Path, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running out of memory fails that file only; a lost device ends the run."""
    original = recording_analysis.analyse
    for error, code in ((MemoryError(), 1), (DeviceLost("run", "it is gone"), 75)):
        attempts = Mock(side_effect=[error, None])

        def analyse(*args: object, attempts: Mock = attempts) -> object:
            return attempts() or original(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(recording_analysis, "analyse", analyse)
        result = call("welch", "night/a.npy", "night/b.npy", *FS, "-q", "--keep-going")
        assert result.code == code
        assert ("out of memory" if code == 1 else "it is gone") in result.err


def test_left_out_channels_are_reported_once(
    tmp_path: Path, call: CommandRunner
) -> None:
    """Files that leave out the same channels share one line; others have their own."""
    names = [f"{n:02}.edf" for n in range(20)]
    for name in names:
        write_recording(tmp_path / name, ("EEG Fp1", 100), seconds=10)
    write_recording(tmp_path / "z.edf", ("EEG Fp1", 100), ("Status", 100), seconds=10)
    result = call("welch", tmp_path, "-q")
    assert result.code == 0, result.err
    lines = result.err.splitlines()
    assert len(lines) == len(set(lines)) <= 2
    (status,) = [line for line in lines if "'Status'" in line]
    assert "z.edf" in status
    for line in lines:
        assert line.startswith("skipped channel")
        assert "' in '" in line


def test_names_in_messages_cannot_forge_a_line(
    tmp_path: Path, call: CommandRunner, rng: np.random.Generator
) -> None:
    """File, channel and array names of any kind stay on the line that names them."""
    evil = "x\nrlxweb: all is well\x1b[2J\u202e"
    folder = tmp_path / evil
    folder.mkdir()
    result = call("welch", folder)
    (line,) = result.err.splitlines()
    assert line.isprintable()
    np.savez(tmp_path / "x.npz", **{evil: np.ones(9), "y": np.ones(9)})
    for args in ([], ["--array", evil + "z"], ["-c", evil]):
        result = call("welch", tmp_path / "x.npz", *FS, *args)
        (line,) = result.err.splitlines()
        assert line.isprintable()
    result = call("welch", tmp_path / "x.npz", f"--{evil}", 1)
    assert all(line.isprintable() for line in result.err.splitlines())
    result = call(evil)
    assert all(line.isprintable() for line in result.err.splitlines())
    np.save(folder / "x.npy", rng.standard_normal((2, 600)))
    out = folder / "o\n.png"
    for args in (
        ("welch", folder / "x.npy", *FS, "--explain", "--plot", out),
        ("explain", folder / "x.npy", *FS),
        ("demo", folder / "x.npy", *FS, "--out", folder / "out"),
    ):
        result = call(*args)
        assert result.code == 0, result.err
        lines = [*result.out.splitlines(), *result.err.splitlines()]
        assert all(line.isprintable() for line in lines)
        assert not any(line.startswith("rlxweb: all") for line in lines)
