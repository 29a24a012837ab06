"""`--jobs`: the results of a run are the same, whoever does the recordings."""

from __future__ import annotations

import json
import os
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlxweb.cli import children
from rlxweb.cli.children import Children
from rlxweb.cli.meter import Meter
from rlxweb.cli.screen import screen
from rlxweb.host.row_blocks import usable_cpus
from tests.command_line import Call, Said, check_refused, untimed
from tests.recordings import saved

FILES = [f"r{n}.npz" for n in range(4)]
CPU = "--device", "cpu", "-q"
OTHER = ("path",)  # the folder of what was written
BANDS = "--bands", "a=1:9,b=9:30"
DOING = [f"rlxweb.cli.{n}_command" for n in ("bands", "spectrogram", "convert")]


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four recordings, one of them no recording at all."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(children, "LITTLE_NBYTES", 0)
    for n, name in enumerate(FILES):
        x = np.random.default_rng(n).standard_normal((2, 2000))
        saved(name, x, fs=100)
    Path("r2.npz").write_bytes(b"PK\x03\x04 and no more")


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are forked from one that has loaded what they do.

    They get the same as fresh ones, which stand for all in `welch`: pickled.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(["rlxweb.jobs.child", "rlxweb.cli.batch", *DOING])
    monkeypatch.setattr(children, "get_context", lambda way: context)


@pytest.mark.usefixtures("night")
@pytest.mark.parametrize("command", ["welch", "bands", "spectrogram", "convert"])
def test_the_results_are_those_of_one_process(
    call: Call, command: str, request: pytest.FixtureRequest
) -> None:
    """Results and lines are in the order of the files, as in one process."""
    if command != "welch":
        request.getfixturevalue("forked_workers")
    said: list[Said] = []
    more: tuple[str, ...] = {
        "welch": (*CPU, "--csv", "{}.csv", "--out", "{}.parquet"),
        "bands": (*CPU, *BANDS, "--csv", "{}.csv", "--parquet", "{}.parquet"),
        "spectrogram": (*CPU, "--csv", "{}.csv"),
        "convert": ("--to", "npz", "-o", "{}/", "-q"),
    }[command]
    for name, jobs in (("one", "1"), ("two", "2")):
        Path(name).mkdir()
        args = [one.format(name) for one in more]
        args += ["--keep-going", "--jobs", jobs, "--json", f"{name}.json"]
        said.append(call(command, *FILES, *args))
    assert [one.code for one in said] == [1, 1]
    assert said[0].err.replace("one.", "two.") == said[1].err
    assert "r2.npz" in said[0].err
    first, second = (json.loads(Path(f"{n}.json").read_text()) for n in ("one", "two"))
    assert untimed(first, *OTHER) == untimed(second, *OTHER)
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
def test_the_first_bad_file_ends_the_run(call: Call) -> None:
    """A bad file ends a run in processes as in one process: nothing is written."""
    said = call("welch", *FILES, *CPU, "--csv", "x.csv", "--jobs", "2")
    check_refused(said, 2, "r2.npz", "--keep-going does the other recordings")
    assert not [name for name in os.listdir() if name not in FILES]


def test_who_does_the_recordings_is_said_once(call: Call) -> None:
    for args, words in (
        (("--jobs", "0"), "'0' is neither a number above 0 nor auto"),
        (("--jobs", "many"), "'many' is neither"),
        (("--jobs", "2", "--workers", "2"), "both say who does the recordings"),
        (("--jobs", "2", "--dask", "tcp://a:1"), "--jobs and --dask: both say"),
    ):
        check_refused(call("welch", "x.npz", *args), 2, words)


def test_auto_is_a_process_per_core(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    made = Children.__init__

    def begin(self: Children[Any], job: Any, n: int) -> None:
        asked.append(n)
        made(self, job, n)

    monkeypatch.setattr(Children, "__init__", begin)
    call("welch", "there-is-none.npz", "--jobs", "auto")
    assert asked in ([usable_cpus()], [])
    assert asked or usable_cpus() == 1


def test_little_work_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little work, or a single file, is done without starting a process."""

    def never(*_: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(children, "_Child", never)
    done = Children(lambda path, progress=None: path, 4)
    assert [*done.each([*"abc"], lambda *told: None)] == [
        *zip("abc", "abc", strict=True)
    ]
    monkeypatch.setattr(children, "LITTLE_NBYTES", 0)
    assert [*done.each(["a"], lambda *told: None)] == [("a", "a")]


def test_what_takes_long_here_goes_on_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Long jobs go to processes, judged by the first one's time and those left."""
    clock = iter(range(100))
    monkeypatch.setattr(children, "monotonic", lambda: float(next(clock)))
    spread: list[list[str]] = []

    def elsewhere(self: Any, waiting: Any, progress: Any) -> Any:
        spread.append([*waiting])
        return iter(())

    monkeypatch.setattr(Children, "_spread", elsewhere)
    done = Children(lambda path, progress=None: path, 2)
    # A second each: after two there are six to do, which two processes do in three.
    assert len([*done.each([*"abcdefgh"], lambda *told: None)]) == 2
    assert spread == [[*"cdefgh"]]


def test_the_bar_adds_up_files_that_are_done_together() -> None:
    meter = Meter(screen(stderr=True), 4)
    meter.within("a", 100, 50)
    meter.within("b", 100, 25)
    assert meter.share == pytest.approx(0.75 / 4)
    meter.finished("a")
    meter.within("b", 100, 500)
    assert meter.share == pytest.approx(0.5)
