"""Storage of a run's results as they arrive: in memory, in the journal that `--resume`
reads, or both.

Owns what is told of a run that takes up an earlier one, and of one that did not end
well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlxweb.batch.resumable_run import ResumableRun, ResumedFiles
from rlxweb.cli.console import format_count
from rlxweb.core.errors import UsageError
from rlxweb.core.message_text import abbreviate

# How many names a line lists.
_MAX_LISTED = 6
_MAX_NAME_LENGTH = 40

Notify = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class ResultRetention:
    """Storage of results as they arrive.

    journal     notes each of them; None where nothing is noted
    keeps_in_memory  every result stays in memory until the end
    """

    journal: ResumableRun | None = None
    keeps_in_memory: bool = True

    def store(self, result: Any) -> None:
        """Store a FileResult in the journal, if there is one."""
        if self.journal is not None:
            self.journal.record_result(result)

    def remaining_files(self, files: Sequence[str], notify: Notify) -> list[str]:
        """Return the files that are not done yet.

        Errors   those of `ResumableRun.take_up`
        """
        if self.journal is None:
            return list(files)
        try:
            resumed = self.journal.resume_files(files)
        except UsageError as error:
            error.hint = (
                "add --resume to continue that run, or --no-resume to start over"
            )
            raise
        for line in _resume_lines(resumed, self.journal, len(files)):
            notify(line)
        done_files = set(resumed.files)
        return [file for file in files if file not in done_files]


def _resume_lines(
    resumed: ResumedFiles, journal: ResumableRun, n_files: int
) -> list[str]:
    """Return the lines that describe how a run resumes an earlier one."""
    lines = []
    if not journal.is_locked:
        lines.append(
            f"this file system does not support locks: do not start another run that "
            f"writes {journal.output!r} at the same time"
        )
    if resumed.files:
        done_text = f"{len(resumed.files)} of {format_count(n_files, 'recording')}"
        lines.append(f"resuming: {done_text} already done")
    elif journal.resumes and not resumed.redo_reasons:
        lines.append(f"nothing to resume: {journal.output!r} has no unfinished run")
    lines += [
        f"processing {list_names(file_names)} again: {reason}"
        for reason, file_names in resumed.redo_reasons.items()
    ]
    if resumed.n_damaged:
        damaged_text = format_count(resumed.n_damaged, "damaged record")
        lines.append(f"ignored {damaged_text} of the earlier run")
    return lines


def resume_hint(journal: ResumableRun, n_files: int) -> str:
    """Describe how many recordings are done and how the next run can continue."""
    done_text = f"{len(journal)} of {format_count(n_files, 'recording')} are done"
    return f"{done_text} and saved; --resume continues with the others"


def list_names(names: Sequence[str]) -> str:
    """Return the first names as text, and how many more there are."""
    rest_text = (
        f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    )
    return (
        ", ".join(
            f"'{abbreviate(name, _MAX_NAME_LENGTH)}'" for name in names[:_MAX_LISTED]
        )
        + rest_text
    )
