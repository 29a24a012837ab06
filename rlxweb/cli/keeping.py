"""What becomes of each result of a run: held, noted beside the output, or both.

Owns what is told of a run that takes up an earlier one, and of one that did not end
well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlxweb.cli.screen import counted
from rlxweb.errors import UsageError
from rlxweb.jobs.unfinished import TakenUp, Unfinished
from rlxweb.printable import abridged

# How many names a line lists.
_LISTED = 6
_MOST_NAME = 40

Tell = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where results go as they come.

    unfinished  notes each of them; None where nothing is noted
    holds       every result stays in memory until the end
    """

    unfinished: Unfinished | None = None
    holds: bool = True

    def note(self, result: Any) -> None:
        """Of what is noted, once it is done: a FileResult."""
        if self.unfinished is not None:
            self.unfinished.keep(result)

    def to_do(self, files: Sequence[str], tell: Tell) -> list[str]:
        """The files that are not done yet.

        Errors   those of `Unfinished.take_up`
        """
        if self.unfinished is None:
            return list(files)
        try:
            taken = self.unfinished.take_up(files)
        except UsageError as error:
            error.hint = "--resume takes them up, --no-resume begins anew"
            raise
        for line in _told(taken, self.unfinished, len(files)):
            tell(line)
        done = set(taken.files)
        return [file for file in files if file not in done]


def _told(taken: TakenUp, unfinished: Unfinished, n_files: int) -> list[str]:
    lines = []
    if not unfinished.is_locked:
        lines.append(
            f"this file system has no locks: let no other run write "
            f"{unfinished.output!r} meanwhile"
        )
    if taken.files:
        of = f"{len(taken.files)} of {counted(n_files, 'recording')}"
        lines.append(f"taken up: {of} done before")
    elif unfinished.takes_up and not taken.again:
        lines.append(f"no unfinished run of {unfinished.output!r} to take up")
    lines += [f"done again, {listed(f)}: {why}" for why, f in taken.again.items()]
    if taken.n_damaged:
        damaged = counted(taken.n_damaged, "note")
        lines.append(f"{damaged} of the earlier run not whole, and passed over")
    return lines


def left_behind(unfinished: Unfinished, n_files: int) -> str:
    """What the next run can take up."""
    kept = f"{len(unfinished)} of {counted(n_files, 'recording')} are done"
    return f"{kept}, and kept: --resume goes on with the rest"


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    rest = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(f"'{abridged(n, _MOST_NAME)}'" for n in names[:_LISTED]) + rest
