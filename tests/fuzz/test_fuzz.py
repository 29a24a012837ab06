"""Run the fuzzer briefly, replay every file that ever failed, and check that failures
are detected.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rlxweb.core.errors import RecordingError
from tests.fuzz import oracle, worker_pool
from tests.fuzz.__main__ import main
from tests.fuzz.cases import KINDS, FuzzCase, make_case
from tests.fuzz.library_format_seeds import companion_files
from tests.fuzz.oracle import check_case, write_case
from tests.fuzz.seed_files import seed_rate, write_seeds
from tests.fuzz.worker_pool import NO_ANSWER, Finding, FuzzWorker, run_workers

CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())
CASES = 240
SEED = 7


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    return write_seeds(tmp_path_factory.mktemp("seeds"))


def file_case(path: Path, cli: str = "") -> FuzzCase:
    return FuzzCase(
        path.suffix[1:], path.name, path.read_bytes(), None, None, None, cli
    )


def test_seed_files_are_read_or_refused_as_expected(
    seeds: dict[str, list[Path]], tmp_path: Path
) -> None:
    """The fuzzer starts from valid files; otherwise it would find nothing."""
    assert tuple(seeds) == KINDS
    outcomes = {}
    (tmp_path / "home").mkdir()
    for path in (path for kind in KINDS for path in seeds[kind]):
        case = replace(
            file_case(path),
            fs=seed_rate(path.name),
            companions=companion_files(path.name),
        )
        stem = path.name.removesuffix(f".{case.kind}")
        case_path = write_case(replace(case, stem=stem), tmp_path / "home")
        outcomes[path.name] = check_case(case_path, case).outcome
    assert outcomes.pop("gaps.edf") == "warned"
    refused = {name for name, outcome in outcomes.items() if outcome != "read"}
    assert refused == {"objects.npy", "many.npz", "set.mat"}


def test_cases_are_determined_by_seed_and_number(
    seeds: dict[str, list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed and a number always make the same case.

    Neighbours and other runs differ.
    """

    def case_bytes(seed: int) -> list[bytes]:
        cases = [make_case(seed, at, seeds) for at in range(60)]
        return [b"".join([case.raw, *case.companions.values()]) for case in cases]

    first_bytes = case_bytes(SEED)
    monkeypatch.setattr("time.time", lambda: 1e9)
    assert first_bytes == case_bytes(SEED)
    assert first_bytes != case_bytes(SEED + 1)
    assert len(set(first_bytes)) == 60


@pytest.mark.parametrize("part", range(4))
def test_mutated_files_are_read_or_refused(
    seeds: dict[str, list[Path]], tmp_path: Path, part: int
) -> None:
    """Run the first cases of `./dev fuzz`, which itself runs for minutes."""
    broken = []
    for at in range(part, CASES, 4):
        case = make_case(SEED, at, seeds)
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        path = write_case(case, home)
        verdict = check_case(path, case)
        if verdict.broken:
            broken.append((at, case.origin, verdict.broken))
    assert broken == []


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
@pytest.mark.parametrize("cli", ["", "tables"])
def test_corpus_files_pass(path: Path, cli: str, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    assert check_case(copy, file_case(copy, cli)).broken == ""


def raise_foreign(*args: object, **options: object) -> None:
    raise ZeroDivisionError("planted")


def warn_foreign(*args: object, **options: object) -> None:
    warnings.warn("planted", RuntimeWarning, stacklevel=1)
    raise RecordingError("reading", "nothing there")


def raise_without_message(*args: object, **options: object) -> None:
    raise RecordingError("reading", "")


def raise_with_long_message(*args: object, **options: object) -> None:
    raise RecordingError("reading", "planted " * 1000)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (raise_foreign, "ZeroDivisionError: planted"),
        (warn_foreign, "RuntimeWarning at test_fuzz.py:"),
        (raise_without_message, "message"),
        (raise_with_long_message, "message"),
    ],
)
def test_foreign_errors_are_detected(
    seeds: dict[str, list[Path]],
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[..., None],
    words: str,
) -> None:
    monkeypatch.setattr(oracle, "open_recording", fault)
    path = seeds["wav"][0]
    assert words in check_case(path, file_case(path)).broken


@pytest.mark.parametrize(
    ("outputs", "code", "printed", "words"),
    [
        (("out.csv",), 0, "", "exit 0 left ['out.csv']"),
        (("out.csv", "out.json", "out.npz", ".rlxweb-1"), 0, "", "left ['.rlxweb-1'"),
        (("out.csv", "out.json", "out.npz"), 1, "", "exit 1 left"),
        ((), 1, "Traceback (most recent call last)", "Traceback"),
        ((), 139, "", "exit 139"),
        (("out.csv", "out.json", "out.npz"), 0, "", ""),
    ],
)
def test_incomplete_outputs_are_detected(
    seeds: dict[str, list[Path]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    outputs: tuple[str, ...],
    code: int,
    printed: str,
    words: str,
) -> None:
    path = tmp_path / "case.wav"
    path.write_bytes(seeds["wav"][0].read_bytes())

    def fake_main(args: list[str]) -> None:
        for name in outputs:
            (tmp_path / name).touch()
        print(printed)
        raise SystemExit(code)

    monkeypatch.setattr(oracle, "main", fake_main)
    broken = check_case(path, file_case(path, "tables")).broken
    assert (words in broken) if words else broken == ""
    assert [p.name for p in tmp_path.iterdir()] == ["case.wav"]


def answer_script(outcome: str, grown: int) -> str:
    """Return a script that gives this answer to any request."""
    answer = {"kind": "wav", "origin": "a.wav", "broken": "", "how": {}}
    text = json.dumps({**answer, "outcome": outcome, "grown": grown})
    return f"input(); print({text!r})"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("while True: pass", "no answer in 1 s"),
        ("import os; os._exit(11)", "the process ended"),
        (answer_script("refused", 200 << 20), "grew by 200 MiB"),
        (answer_script("read", 200 << 20), ""),
        (answer_script("read", 900 << 20), "grew by 900 MiB"),
    ],
    ids=["hang", "crash", "grown refusal", "reading", "grown reading"],
)
def test_hangs_crashes_and_memory_growth_are_detected(
    tmp_path: Path, script: str, words: str
) -> None:
    """A hang, a crash and memory growth are reported with the file that was being
    read.
    """
    prefix = "import sys, pathlib\n"
    prefix += "pathlib.Path(sys.argv[2], 'case.wav').write_bytes(b'left')\n"
    worker = FuzzWorker(tmp_path, sys.executable, "-u", "-c", prefix + script)
    try:
        finding = worker.ask({"seed": 1, "at": 2}, 1 if "while" in script else 60)
    finally:
        worker.close()
    assert words in finding.broken if words else finding.broken == ""
    assert finding.kind == "wav"
    assert finding.raw == (b"left" if words else b"")


@pytest.mark.parametrize("hangs", [1, 2])
def test_a_hang_is_reported_only_if_it_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: int
) -> None:
    """A file counts as hanging only if it hangs again: the machine may have stalled."""
    workers: list[object] = []

    class SlowWorker:
        needs_replacement = True

        def __init__(self, shared: Path) -> None:
            workers.append(self)

        def ask(self, request: dict[str, int], timeout: float = 0.0) -> Finding:
            return Finding(
                request, broken=f"{NO_ANSWER}!" if len(workers) <= hangs else ""
            )

        def reset_growth(self) -> None:
            pass

        close = reset_growth

    monkeypatch.setattr(worker_pool, "FuzzWorker", SlowWorker)
    findings: list[Finding] = []
    run_workers(tmp_path, iter([{"at": 1}]), findings.append, 1)
    assert [finding.broken for finding in findings] == [
        "" if hangs == 1 else f"{NO_ANSWER}!"
    ]
    assert len(workers) == 2


def test_a_run_counts_files_and_keeps_failures_for_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the command from its options to its exit codes.

    A process reads the files, and another what was kept; none what is planted.
    """
    arguments = ["--files", "6", "--seed", "3", "--json", "--workers", "1"]
    assert main([*arguments, "--keep", str(tmp_path / "kept")]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["files"], summary["seed"], summary["broken"]) == (6, 3, [])
    assert sum(sum(ends.values()) for ends in summary["counts"].values()) == 6

    def fake_run_fleet(shared: Path, requests, on_finding, workers: int) -> None:
        for request in requests:
            on_finding(Finding(request, "wav", "x", "broken", "planted", {}, b"1"))

    monkeypatch.setattr("tests.fuzz.__main__.run_workers", fake_run_fleet)
    arguments = ["--files", "1", "--seed", "5", "--workers", "1"]
    assert main([*arguments, "--keep", str(tmp_path / "kept")]) == 1
    monkeypatch.undo()
    # A file that is no WAV file loads none of what other seeds would warm up.
    monkeypatch.setattr(worker_pool, "warm_up", lambda worker, shared: None)
    kept_path = tmp_path / "kept" / "wav-5-0.wav"
    assert kept_path.read_bytes() == b"1"
    assert json.loads(kept_path.with_suffix(".json").read_text())["broken"] == "planted"
    assert main(["--replay", str(kept_path)]) == 0
    assert "wav-5-0.wav: refused" in " ".join(capsys.readouterr().err.split())
