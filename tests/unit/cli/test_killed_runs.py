"""Runs that are killed, share one output, or run out of disk space.

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

from rlxweb.batch.journal import Journal
from tests.cli_runners import (
    CommandResult,
    CommandRunner,
    check_rejected,
    run_forked,
    running_program,
)
from tests.unit.cli.resumable_run import (
    FILES,
    JOURNAL_PATH,
    OUT_ARGS,
    WELCH_ARGS,
    night,
    uninterrupted_output,
)
from tests.wait_with_deadline import next_line, wait_until

__all__ = ["night", "uninterrupted_output"]

# Is killed at the n-th write of notes with a word in them, of which a share is done;
# keeps a list of what it analyses.
KILLED_SCRIPT = """
import os, signal, sys
from rlxweb.cli.main import main
from rlxweb.batch import journal, recording_analysis
word, at, share = sys.argv.pop(1), int(sys.argv.pop(1)), float(sys.argv.pop(1))
write, really = journal.Journal._write_bytes, recording_analysis.analyse
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
journal.Journal._write_bytes, recording_analysis.analyse = dying, analyse
main(sys.argv[1:])
"""
HEADER_MARK, FACTS_MARK, FILE_MARK = "process", '{"facts"', '{"file"'


def run_killed(word: str, at: int, share: float, *options: object) -> CommandResult:
    """Run until the `at`-th journal write with this word, and kill the process when a
    share of it is written.
    """
    return run_forked(
        "-c", KILLED_SCRIPT, word, at, share, *WELCH_ARGS, *OUT_ARGS, *options
    )


def test_repeatedly_killed_run_ends_with_same_bytes(
    uninterrupted_output: bytes,
) -> None:
    """Runs killed at their second recording, in the journal or not, end with the same
    bytes.
    """
    codes = []
    for share in (0.5, 1.0, 0.97):
        codes.append(run_killed(FILE_MARK, 2, share, "--resume").code)
        assert JOURNAL_PATH.exists()
        assert not Path("o.parquet").exists()
    assert codes == [-signal.SIGKILL] * 3
    assert run_killed(FILE_MARK, 2, 0.0, "--resume").code == 0
    assert Path("o.parquet").read_bytes() == uninterrupted_output
    assert not JOURNAL_PATH.exists()
    # What was noted when it was killed is not done again, and the rest is.
    done = Path("done.txt").read_text().split()
    assert done == [FILES[n] for n in (0, 1, 1, 2, 3, 4, 4)]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("word", [HEADER_MARK, FACTS_MARK])
def test_run_killed_before_first_result_starts_over(
    uninterrupted_output: bytes, call: CommandRunner, word: str, share: float
) -> None:
    """A run that was killed with a partial header or partial settings starts over."""
    assert run_killed(word, 1, share).code == -signal.SIGKILL
    assert call(*WELCH_ARGS, *OUT_ARGS).code == 0
    assert Path("o.parquet").read_bytes() == uninterrupted_output
    assert not JOURNAL_PATH.exists()


def test_run_that_ends_before_removing_journal_loses_nothing(
    uninterrupted_output: bytes, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output exists; resuming all recordings finds that it is complete."""

    def close(self: Journal, remove: bool) -> None:
        assert remove
        self._file.close()

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "close", close)
        assert call(*WELCH_ARGS, *OUT_ARGS).code == 0
    assert Path("o.parquet").read_bytes() == uninterrupted_output
    message = "5 of the 5 recordings of this run are done"
    check_rejected(call(*WELCH_ARGS, *OUT_ARGS), 2, message)
    result = call(*WELCH_ARGS, *OUT_ARGS, "--resume")
    assert "resuming: 5 of 5 recordings already done" in result.err
    assert Path("o.parquet").read_bytes() == uninterrupted_output
    assert not JOURNAL_PATH.exists()


def journal_nbytes() -> int:
    """Return the size of the journal so far, in bytes."""
    try:
        return JOURNAL_PATH.stat().st_size
    except FileNotFoundError:
        return 0


def has_journaled_or_ended(process: Any, before: int) -> bool:
    """Return whether the run has written a result to the journal or has ended."""
    return journal_nbytes() > before + 900 or process.poll() is not None


@pytest.mark.slow
def test_run_killed_at_any_moment_resumes(uninterrupted_output: bytes) -> None:
    """A run that is killed after each journal entry resumes to the same bytes."""
    for _ in range(40):
        with running_program(
            "-m", "rlxweb", *WELCH_ARGS, *OUT_ARGS, "--resume"
        ) as process:
            has_progressed = partial(has_journaled_or_ended, process, journal_nbytes())
            wait_until(has_progressed, "something is noted", poll_s=0.001)
            process.kill()
            code = process.wait(60)
        if code == 0:
            break
    assert code == 0
    assert Path("o.parquet").read_bytes() == uninterrupted_output
    assert not JOURNAL_PATH.exists()


def test_two_runs_of_one_output_do_not_mix(
    uninterrupted_output: bytes, call: CommandRunner
) -> None:
    """The second run is rejected with the process of the first, and changes nothing."""
    waiting_script = (
        "import sys\nfrom rlxweb.cli.main import main\n"
        "from rlxweb.batch import recording_analysis\n"
        "really = recording_analysis.analyse\n"
        "def analyse(*args):\n"
        "    print('at work', flush=True); sys.stdin.readline()\n"
        "    return really(*args)\n"
        "recording_analysis.analyse = analyse\nmain(sys.argv[1:])"
    )
    with running_program("-c", waiting_script, *WELCH_ARGS, *OUT_ARGS) as process:
        assert next_line(process.stdout, "its state") == "at work\n"
        for flag in ((), ("--resume",), ("--no-resume",)):
            result = call(*WELCH_ARGS, *OUT_ARGS, *flag)
            words = (
                "another run is writing the same output",
                f"process {process.pid} on ",
            )
            check_rejected(result, 2, *words)
        process.stdin.write("\n" * len(FILES))
        process.stdin.close()
        assert process.wait(60) == 0, process.stderr.read()
    assert Path("o.parquet").read_bytes() == uninterrupted_output


def test_missing_file_locks_are_reported(
    uninterrupted_output: bytes, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run goes on where the file system has no locks, as on some clusters."""

    def flock(*args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    result = call(*WELCH_ARGS, *OUT_ARGS)
    assert result.code == 0
    assert (
        "does not support locks: do not start another run that writes 'o.parquet'"
        in result.err
    )
    assert Path("o.parquet").read_bytes() == uninterrupted_output


def test_removed_journal_is_not_written_to(
    uninterrupted_output: bytes, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal that another run removed between opening and locking is started
    again.
    """
    original, removed = fcntl.flock, []

    def flock(*args: object) -> None:
        original(*args)  # type: ignore[arg-type]
        if not removed:
            removed.append(JOURNAL_PATH.stat())
            JOURNAL_PATH.unlink()

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(Journal, "close", lambda self, remove: self._file.close())
    assert call(*WELCH_ARGS, *OUT_ARGS).code == 0
    assert Path("o.parquet").read_bytes() == uninterrupted_output
    assert JOURNAL_PATH.stat().st_size > 1000


def test_full_disk_keeps_finished_recordings(
    uninterrupted_output: bytes, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal entry that the full disk truncated does not disturb the next run."""
    limited_script = (
        "import resource, signal, sys\n"
        "from rlxweb.cli.main import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))\n"
        "main(sys.argv[1:])"
    )
    result = run_forked("-c", limited_script, *WELCH_ARGS, *OUT_ARGS, "--keep-going")
    assert result.code == 1
    progress_line, error_line = result.err.splitlines()
    assert error_line.startswith("rlxweb: writing '")
    assert "free disk space and run the command again" in error_line
    n_done = int(progress_line.split()[1])
    assert 0 < n_done < 5
    assert JOURNAL_PATH.stat().st_size < 6000
    assert JOURNAL_PATH.read_bytes().endswith(b"\n")
    result = call(*WELCH_ARGS, *OUT_ARGS, "--resume")
    assert f"resuming: {n_done} of 5 recordings already done" in result.err
    assert Path("o.parquet").read_bytes() == uninterrupted_output
