"""Option `--jobs`: the results of a run are the same, whichever process analyses the
recordings.
"""

from __future__ import annotations

import json
import os
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlxweb.cli import process_pool
from rlxweb.cli.console import make_console
from rlxweb.cli.process_pool import ProcessPool
from rlxweb.cli.recording_progress import RecordingProgress
from rlxweb.core.thread_tasks import usable_cpus
from tests.cli_runners import CommandResult, CommandRunner, check_rejected, drop_times
from tests.edf_bdf_recordings import save_recording

FILES = [f"r{n}.npz" for n in range(4)]
CPU_ARGS = "--device", "cpu", "-q"
DIFFERING_FIELDS = ("path",)  # the folder of what was written
BANDS_ARGS = "--bands", "a=1:9,b=9:30"
COMMAND_MODULES = [
    f"rlxweb.cli.{n}_command" for n in ("bands", "spectrogram", "convert")
]


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write four recordings, one of which is invalid."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process_pool, "MIN_PARALLEL_NBYTES", 0)
    for n, name in enumerate(FILES):
        x = np.random.default_rng(n).standard_normal((2, 2000))
        save_recording(name, x, fs=100)
    Path("r2.npz").write_bytes(b"PK\x03\x04 and no more")


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the worker processes from one that has already loaded their modules.

    They get the same as fresh ones, which stand for all in `welch`: pickled.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(
        ["rlxweb.batch.worker_process", "rlxweb.cli.batch", *COMMAND_MODULES]
    )
    monkeypatch.setattr(process_pool, "get_context", lambda way: context)


@pytest.mark.usefixtures("night")
@pytest.mark.parametrize("command", ["welch", "bands", "spectrogram", "convert"])
def test_results_equal_single_process(
    call: CommandRunner, command: str, request: pytest.FixtureRequest
) -> None:
    """Results and lines are in the order of the files, as in one process."""
    if command != "welch":
        request.getfixturevalue("forked_workers")
    results: list[CommandResult] = []
    output_args: tuple[str, ...] = {
        "welch": (*CPU_ARGS, "--csv", "{}.csv", "--out", "{}.parquet"),
        "bands": (*CPU_ARGS, *BANDS_ARGS, "--csv", "{}.csv", "--parquet", "{}.parquet"),
        "spectrogram": (*CPU_ARGS, "--csv", "{}.csv"),
        "convert": ("--to", "npz", "-o", "{}/", "-q"),
    }[command]
    for name, jobs in (("one", "1"), ("two", "2")):
        Path(name).mkdir()
        args = [one.format(name) for one in output_args]
        args += ["--keep-going", "--jobs", jobs, "--json", f"{name}.json"]
        results.append(call(command, *FILES, *args))
    assert [one.code for one in results] == [1, 1]
    assert results[0].err.replace("one.", "two.") == results[1].err
    assert "r2.npz" in results[0].err
    first, second = (json.loads(Path(f"{n}.json").read_text()) for n in ("one", "two"))
    assert drop_times(first, *DIFFERING_FIELDS) == drop_times(second, *DIFFERING_FIELDS)
    assert [one["path"] for one in second["files"]] == ["r0.npz", "r1.npz", "r3.npz"]
    for suffix in ("csv", "parquet"):
        if Path(f"one.{suffix}").exists():
            one, two = (
                Path(f"{name}.{suffix}").read_bytes() for name in ("one", "two")
            )
            assert one == two
    for record in (first, second):
        for file in record["files"]:
            assert {"open", "read"} <= file["stages"].keys()
            assert sum(file["stages"].values()) <= file["wall_s"] <= record["wall_s"]


@pytest.mark.usefixtures("night")
def test_the_first_bad_file_ends_the_run(call: CommandRunner) -> None:
    """A bad file ends a run with processes as in one process: nothing is written."""
    result = call("welch", *FILES, *CPU_ARGS, "--csv", "x.csv", "--jobs", "2")
    check_rejected(result, 2, "r2.npz", "--keep-going to process the other recordings")
    assert not [name for name in os.listdir() if name not in FILES]


def test_auto_uses_process_per_core(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    process_counts: list[int] = []
    original_init = ProcessPool.__init__

    def record_init(self: ProcessPool[Any], job: Any, n: int) -> None:
        process_counts.append(n)
        original_init(self, job, n)

    monkeypatch.setattr(ProcessPool, "__init__", record_init)
    call("welch", "there-is-none.npz", "--jobs", "auto")
    assert process_counts in ([usable_cpus()], [])
    assert process_counts or usable_cpus() == 1


def test_little_work_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little work, or a single file, is done without starting a process."""

    def fail_to_start(*_: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(process_pool, "_WorkerProcess", fail_to_start)
    pool = ProcessPool(lambda path, progress=None: path, 4)
    assert [*pool.process_files([*"abc"], lambda *arguments: None)] == [
        *zip("abc", "abc", strict=True)
    ]
    monkeypatch.setattr(process_pool, "MIN_PARALLEL_NBYTES", 0)
    assert [*pool.process_files(["a"], lambda *arguments: None)] == [("a", "a")]


def test_long_work_moves_to_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Long jobs move to processes, judged by the first job's time and the number
    left.
    """
    clock = iter(range(100))
    monkeypatch.setattr(process_pool, "monotonic", lambda: float(next(clock)))
    spread_files: list[list[str]] = []

    def record_spread(self: Any, waiting: Any, progress: Any) -> Any:
        spread_files.append([*waiting])
        return iter(())

    monkeypatch.setattr(ProcessPool, "_run_on_workers", record_spread)
    pool = ProcessPool(lambda path, progress=None: path, 2)
    # A second each: after two there are six to do, which two processes do in three.
    assert len([*pool.process_files([*"abcdefgh"], lambda *arguments: None)]) == 2
    assert spread_files == [[*"cdefgh"]]


def test_progress_adds_up_concurrent_files() -> None:
    progress = RecordingProgress(make_console(stderr=True), 4)
    progress.add_samples("a", 100, 50)
    progress.add_samples("b", 100, 25)
    assert progress.fraction == pytest.approx(0.75 / 4)
    progress.mark_finished("a")
    progress.add_samples("b", 100, 500)
    assert progress.fraction == pytest.approx(0.5)
