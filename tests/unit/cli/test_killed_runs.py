"""Runs that are killed, that meet on one output, or that run out of disk.

Real processes each; what they leave behind is what the next run goes on with.
"""

from __future__ import annotations

import errno
import fcntl
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlxweb.jobs.journal import Journal
from tests.command_line import Call, Said, check_refused, forked, running
from tests.unit.cli.night import ARGS, FILES, NOTES, OUT, night, whole
from tests.waiting import next_line, until

__all__ = ["night", "whole"]

# Is killed at the n-th write of notes with a word in them, of which a share is done;
# keeps a list of what it analyses.
KILLED = """
import os, signal, sys
from rlxweb.cli.main import main
from rlxweb.jobs import analysis, journal
word, at, share = sys.argv.pop(1), int(sys.argv.pop(1)), float(sys.argv.pop(1))
write, really = journal.Journal._write, analysis.analyse
writes = 0
def dying(self, place, data):
    global writes
    writes += word.encode() in bytes(data)
    if writes == at:
        write(self, place, data[:int(share * len(data))])
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, place, data)
def analyse(recording, *rest):
    with open("done.txt", "a") as file:
        print(recording.path, file=file)
    return really(recording, *rest)
journal.Journal._write, analysis.analyse = dying, analyse
main(sys.argv[1:])
"""
HEAD, FACTS, FILE = "process", '{"facts"', '{"file"'


def killed(word: str, at: int, share: float, *more: object) -> Said:
    """A run that is killed at such a write, when a share of it is done."""
    return forked("-c", KILLED, word, at, share, *ARGS, *OUT, *more)


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bytes(
    whole: bytes,
) -> None:
    """Runs killed at their second recording, noted or not, end with the same bytes."""
    codes = []
    for share in (0.5, 1.0, 0.97):
        codes.append(killed(FILE, 2, share, "--resume").code)
        assert NOTES.exists()
        assert not Path("o.parquet").exists()
    assert codes == [-signal.SIGKILL] * 3
    assert killed(FILE, 2, 0.0, "--resume").code == 0
    assert Path("o.parquet").read_bytes() == whole
    assert not NOTES.exists()
    # What was noted when it was killed is not done again, and the rest is.
    done = Path("done.txt").read_text().split()
    assert done == [FILES[n] for n in (0, 1, 1, 2, 3, 4, 4)]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("word", [HEAD, FACTS])
def test_a_run_killed_before_anything_is_done_begins_anew(
    whole: bytes, call: Call, word: str, share: float
) -> None:
    """A run that was killed with half a head or half its settings begins anew."""
    assert killed(word, 1, share).code == -signal.SIGKILL
    assert call(*ARGS, *OUT).code == 0
    assert Path("o.parquet").read_bytes() == whole
    assert not NOTES.exists()


def test_a_run_that_ends_between_its_output_and_its_notes_costs_nothing(
    whole: bytes, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output is there; that it is complete is found out by taking all up."""

    def close(self: Journal, remove: bool) -> None:
        assert remove
        self._file.close()

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "close", close)
        assert call(*ARGS, *OUT).code == 0
    assert Path("o.parquet").read_bytes() == whole
    check_refused(call(*ARGS, *OUT), 2, "5 of these 5 recordings are done")
    said = call(*ARGS, *OUT, "--resume")
    assert "taken up: 5 of 5 recordings done before" in said.err
    assert Path("o.parquet").read_bytes() == whole
    assert not NOTES.exists()


def noted() -> int:
    """Bytes of the notes so far."""
    try:
        return NOTES.stat().st_size
    except FileNotFoundError:
        return 0


def has_noted_or_ended(process: Any, before: int) -> bool:
    """Return whether the run has noted a result or has ended."""
    return noted() > before + 900 or process.poll() is not None


@pytest.mark.slow
def test_a_kill_at_any_moment_from_outside(whole: bytes) -> None:
    """A run that is killed whenever something was noted resumes to the same bytes."""
    for _ in range(40):
        with running("-m", "rlxweb", *ARGS, *OUT, "--resume") as process:
            has_done = partial(has_noted_or_ended, process, noted())
            until(has_done, "something is noted", look_s=0.001)
            process.kill()
            code = process.wait(60)
        if code == 0:
            break
    assert code == 0
    assert Path("o.parquet").read_bytes() == whole
    assert not NOTES.exists()


def test_two_runs_of_one_output_do_not_mix(whole: bytes, call: Call) -> None:
    """The second is refused with the process of the first, and harms nothing."""
    waits = (
        "import sys\nfrom rlxweb.cli.main import main\n"
        "from rlxweb.jobs import analysis\n"
        "really = analysis.analyse\n"
        "def analyse(*args):\n"
        "    print('at work', flush=True); sys.stdin.readline()\n"
        "    return really(*args)\n"
        "analysis.analyse = analyse\nmain(sys.argv[1:])"
    )
    with running("-c", waits, *ARGS, *OUT) as process:
        assert next_line(process.stdout, "its state") == "at work\n"
        for flag in ((), ("--resume",), ("--no-resume",)):
            said = call(*ARGS, *OUT, *flag)
            words = "another run is at work on it", f"process {process.pid} on "
            check_refused(said, 2, *words)
        process.stdin.write("\n" * len(FILES))
        process.stdin.close()
        assert process.wait(60) == 0, process.stderr.read()
    assert Path("o.parquet").read_bytes() == whole


def test_where_there_are_no_locks_it_is_told(
    whole: bytes, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run goes on where the file system has no locks, as on some clusters."""

    def flock(*args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    said = call(*ARGS, *OUT)
    assert said.code == 0
    assert "has no locks: let no other run write 'o.parquet'" in said.err
    assert Path("o.parquet").read_bytes() == whole


def test_notes_that_another_run_removed_are_not_written_into(
    whole: bytes, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notes that another run removed between opening and lock are begun anew."""
    really, removed = fcntl.flock, []

    def flock(*args: object) -> None:
        really(*args)  # type: ignore[arg-type]
        if not removed:
            removed.append(NOTES.stat())
            NOTES.unlink()

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(Journal, "close", lambda self, remove: self._file.close())
    assert call(*ARGS, *OUT).code == 0
    assert Path("o.parquet").read_bytes() == whole
    assert NOTES.stat().st_size > 1000


def test_a_full_disk_ends_the_run_with_what_was_done(
    whole: bytes, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note that the full disk cut in the middle does not disturb the next run."""
    limited = (
        "import resource, signal, sys\n"
        "from rlxweb.cli.main import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))\n"
        "main(sys.argv[1:])"
    )
    said = forked("-c", limited, *ARGS, *OUT, "--keep-going")
    assert said.code == 1
    kept, refused = said.err.splitlines()
    assert refused.startswith("rlxweb: writing '")
    assert "free some space and run it again" in refused
    n_done = int(kept.split()[1])
    assert 0 < n_done < 5
    assert NOTES.stat().st_size < 6000
    assert NOTES.read_bytes().endswith(b"\n")
    said = call(*ARGS, *OUT, "--resume")
    assert f"taken up: {n_done} of 5 recordings done before" in said.err
    assert Path("o.parquet").read_bytes() == whole
