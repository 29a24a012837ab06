"""A short run of the fuzzer; every file that ever failed; failures that are seen."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rlxweb.errors import RecordingError
from tests.fuzz import demands, fleet
from tests.fuzz.__main__ import main
from tests.fuzz.cases import KINDS, Case, make_case
from tests.fuzz.demands import judge, write_case
from tests.fuzz.fleet import HANG, Finding, Worker, run_fleet
from tests.fuzz.seeds import rate_of, write_seeds
from tests.fuzz.seeds_of_libraries import companions_of

CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())
CASES = 240
SEED = 7


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    return write_seeds(tmp_path_factory.mktemp("seeds"))


def case_of(path: Path, cli: str = "") -> Case:
    return Case(path.suffix[1:], path.name, path.read_bytes(), None, None, None, cli)


def test_every_seed_is_read_or_refused_for_what_it_is(
    seeds: dict[str, list[Path]], tmp_path: Path
) -> None:
    """The fuzzer begins with files that are good: else it would find nothing."""
    assert tuple(seeds) == KINDS
    outcomes = {}
    (tmp_path / "home").mkdir()
    for path in (path for kind in KINDS for path in seeds[kind]):
        case = replace(
            case_of(path), fs=rate_of(path.name), companions=companions_of(path.name)
        )
        stem = path.name.removesuffix(f".{case.kind}")
        laid = write_case(replace(case, stem=stem), tmp_path / "home")
        outcomes[path.name] = judge(laid, case).outcome
    assert outcomes.pop("gaps.edf") == "warned"
    refused = {name for name, outcome in outcomes.items() if outcome != "read"}
    assert refused == {"objects.npy", "many.npz", "set.mat"}


def test_a_case_follows_from_the_seed_and_its_number(
    seeds: dict[str, list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed and a number make the same case another day.

    Neighbours and other runs differ.
    """

    def bytes_of(seed: int) -> list[bytes]:
        cases = [make_case(seed, at, seeds) for at in range(60)]
        return [b"".join([case.raw, *case.companions.values()]) for case in cases]

    found = bytes_of(SEED)
    monkeypatch.setattr("time.time", lambda: 1e9)
    assert found == bytes_of(SEED)
    assert found != bytes_of(SEED + 1)
    assert len(set(found)) == 60


@pytest.mark.parametrize("part", range(4))
def test_mutated_files_are_read_or_refused(
    seeds: dict[str, list[Path]], tmp_path: Path, part: int
) -> None:
    """The beginning of what `./dev fuzz` does for minutes."""
    broken = []
    for at in range(part, CASES, 4):
        case = make_case(SEED, at, seeds)
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        path = write_case(case, home)
        verdict = judge(path, case)
        if verdict.broken:
            broken.append((at, case.origin, verdict.broken))
    assert broken == []


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
@pytest.mark.parametrize("cli", ["", "tables"])
def test_a_file_that_failed_once_fails_no_more(
    path: Path, cli: str, tmp_path: Path
) -> None:
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    assert judge(copy, case_of(copy, cli)).broken == ""


def raise_foreign(*args: object, **more: object) -> None:
    raise ZeroDivisionError("planted")


def warn_foreign(*args: object, **more: object) -> None:
    warnings.warn("planted", RuntimeWarning, stacklevel=1)
    raise RecordingError("reading", "nothing there")


def say_nothing(*args: object, **more: object) -> None:
    raise RecordingError("reading", "")


def say_everything(*args: object, **more: object) -> None:
    raise RecordingError("reading", "planted " * 1000)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (raise_foreign, "ZeroDivisionError: planted"),
        (warn_foreign, "RuntimeWarning at test_fuzz.py:"),
        (say_nothing, "message"),
        (say_everything, "message"),
    ],
)
def test_what_is_not_ours_is_seen(
    seeds: dict[str, list[Path]],
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[..., None],
    words: str,
) -> None:
    monkeypatch.setattr(demands, "open_recording", fault)
    path = seeds["wav"][0]
    assert words in judge(path, case_of(path)).broken


@pytest.mark.parametrize(
    ("made", "code", "said", "words"),
    [
        (("out.csv",), 0, "", "exit 0 left ['out.csv']"),
        (("out.csv", "out.json", "out.npz", ".rlxweb-1"), 0, "", "left ['.rlxweb-1'"),
        (("out.csv", "out.json", "out.npz"), 1, "", "exit 1 left"),
        ((), 1, "Traceback (most recent call last)", "Traceback"),
        ((), 139, "", "exit 139"),
        (("out.csv", "out.json", "out.npz"), 0, "", ""),
    ],
)
def test_half_of_the_outputs_is_seen(
    seeds: dict[str, list[Path]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    made: tuple[str, ...],
    code: int,
    said: str,
    words: str,
) -> None:
    path = tmp_path / "case.wav"
    path.write_bytes(seeds["wav"][0].read_bytes())

    def planted(args: list[str]) -> None:
        for name in made:
            (tmp_path / name).touch()
        print(said)
        raise SystemExit(code)

    monkeypatch.setattr(demands, "main", planted)
    broken = judge(path, case_of(path, "tables")).broken
    assert (words in broken) if words else broken == ""
    assert [p.name for p in tmp_path.iterdir()] == ["case.wav"]


def answering(outcome: str, grown: int) -> str:
    """A script that answers so, whatever it is asked."""
    said = {"kind": "wav", "origin": "a.wav", "broken": "", "how": {}}
    text = json.dumps({**said, "outcome": outcome, "grown": grown})
    return f"input(); print({text!r})"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("while True: pass", "no answer in 1 s"),
        ("import os; os._exit(11)", "the process ended"),
        (answering("refused", 200 << 20), "grew by 200 MiB"),
        (answering("read", 200 << 20), ""),
        (answering("read", 900 << 20), "grew by 900 MiB"),
    ],
    ids=["hang", "crash", "grown refusal", "reading", "grown reading"],
)
def test_a_hang_a_crash_and_growth_are_seen(
    tmp_path: Path, script: str, words: str
) -> None:
    """A hang, a crash and growth are seen, with the file that was being read."""
    prefix = "import sys, pathlib\n"
    prefix += "pathlib.Path(sys.argv[2], 'case.wav').write_bytes(b'left')\n"
    worker = Worker(tmp_path, sys.executable, "-u", "-c", prefix + script)
    try:
        finding = worker.ask({"seed": 1, "at": 2}, 1 if "while" in script else 60)
    finally:
        worker.close()
    assert words in finding.broken if words else finding.broken == ""
    assert finding.kind == "wav"
    assert finding.raw == (b"left" if words else b"")


@pytest.mark.parametrize("hangs", [1, 2])
def test_a_hang_is_one_that_hangs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: int
) -> None:
    """A file hangs only where it hangs again: the machine may have stood still."""
    made: list[object] = []

    class Slow:
        is_tired = True

        def __init__(self, shared: Path) -> None:
            made.append(self)

        def ask(self, asked: dict[str, int], timeout: float = 0.0) -> Finding:
            return Finding(asked, broken=f"{HANG}!" if len(made) <= hangs else "")

        def rested(self) -> None:
            pass

        close = rested

    monkeypatch.setattr(fleet, "Worker", Slow)
    findings: list[Finding] = []
    run_fleet(tmp_path, iter([{"at": 1}]), findings.append, 1)
    assert [finding.broken for finding in findings] == [
        "" if hangs == 1 else f"{HANG}!"
    ]
    assert len(made) == 2


def test_a_run_counts_its_files_and_what_failed_is_kept_and_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command from its options to its exit codes.

    A process reads the files, and another what was kept; none what is planted.
    """
    asked = ["--files", "6", "--seed", "3", "--json", "--workers", "1"]
    assert main([*asked, "--keep", str(tmp_path / "kept")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["files"], said["seed"], said["broken"]) == (6, 3, [])
    assert sum(sum(ends.values()) for ends in said["counts"].values()) == 6

    def planted(shared: Path, work, heard, workers: int) -> None:
        for one in work:
            heard(Finding(one, "wav", "x", "broken", "planted", {}, b"1"))

    monkeypatch.setattr("tests.fuzz.__main__.run_fleet", planted)
    asked = ["--files", "1", "--seed", "5", "--workers", "1"]
    assert main([*asked, "--keep", str(tmp_path / "kept")]) == 1
    monkeypatch.undo()
    # A file that is no WAV file loads none of what other seeds would warm up.
    monkeypatch.setattr(fleet, "warm_up", lambda worker, shared: None)
    kept = tmp_path / "kept" / "wav-5-0.wav"
    assert kept.read_bytes() == b"1"
    assert json.loads(kept.with_suffix(".json").read_text())["broken"] == "planted"
    assert main(["--replay", str(kept)]) == 0
    assert "wav-5-0.wav: refused" in " ".join(capsys.readouterr().err.split())
