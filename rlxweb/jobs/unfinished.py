"""What a run has done so far, kept beside its output until that is complete.

A recording that is done is noted at once, with what it was made of: the file as it was,
the settings, and the versions that computed. A later run takes up what is still true
and does the rest again; notes that are no longer true stay until the output is there,
for who gives the old settings once more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from rlxweb.errors import RlxError, UsageError, shown
from rlxweb.io.identity import identity
from rlxweb.jobs.entries import Entry, entry_problem, file_entry
from rlxweb.jobs.journal import Journal, Place
from rlxweb.jobs.results import FileResult
from rlxweb.streams import is_stream

Facts = Mapping[str, Any]
"""What results depend on besides the files: settings and versions, maybe nested."""

_LONGEST_NAME = 255
# What notes say: of a recording that is done, and of the settings of a run.
_OF_FILE = ("file", "facts", "where", "stamp")
_OF_FACTS = ("facts",)


@dataclass(frozen=True, slots=True)
class _Noted:
    """A recording that was done: where its entry stands, and of what it was made."""

    place: Place
    facts: str
    where: str
    stamp: str


@dataclass(slots=True)
class TakenUp:
    """What a run found of the one before.

    files     recordings that need not be done again
    again     why others are done again → which
    n_damaged notes that were cut, of whatever files
    """

    files: list[str] = field(default_factory=list)
    again: dict[str, list[str]] = field(default_factory=dict)
    n_damaged: int = 0


def notes_beside(output: str) -> Path:
    """Where the notes of a run lie whose output goes to `output`.

    Beside what a link leads to, but for a pipe or a device: they do not lie in /dev.
    """
    whole = os.path.abspath if is_stream(output) else os.path.realpath
    target = Path(whole(output))
    name = f".{target.name}.unfinished"
    if len(os.fsencode(name)) > _LONGEST_NAME:
        short = sha256(os.fsencode(target.name)).hexdigest()[:16]
        name = f".rlxweb-{short}.unfinished"
    return target.with_name(name)


class Unfinished:
    """The recordings a run has done; a block of `with` that leaves notes when it fails.

    output   the path that is worked for
    facts    what the results depend on besides the files
    resume   take up what is there; False forgets it, None refuses it
    state_of tells one state of a file from another

    Errors   those of `Journal`
    """

    def __init__(
        self,
        output: str,
        facts: Facts,
        resume: bool | None,
        state_of: Callable[[str], str] = identity,
    ) -> None:
        self.output = output
        self._state_of = state_of
        self._facts = dict(facts)
        self._resume = resume
        self._digest = _digest(facts)
        self._places: dict[str, Place] = {}
        self._journal = Journal(notes_beside(output), output)
        self._is_of_use = not self._journal.is_empty

    def __enter__(self) -> Unfinished:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._journal.close(remove=not self._is_of_use)

    @property
    def takes_up(self) -> bool:
        """Shall what was done before be taken up?"""
        return bool(self._resume)

    @property
    def is_locked(self) -> bool:
        """False where the file system cannot keep another run away."""
        return self._journal.is_locked

    def __len__(self) -> int:
        """How many recordings are done."""
        return len(self._places)

    def take_up(self, files: Sequence[str]) -> TakenUp:
        """What of `files` was done before and is still true.

        Errors   UsageError where something was done before, and nobody said whether it
                 shall be taken up; RecordingError for notes that no rlxweb wrote.
        """
        noted, known = ({}, {}) if self._resume is False else self._noted()
        if noted and self._resume is None:
            self._refuse(sum(file in noted for file in files), len(files))
        taken = TakenUp()
        if self._resume:
            taken.n_damaged = self._journal.n_damaged
            try:
                for file in files:
                    if file in noted:
                        self._judge(file, noted[file], known, taken)
            except RlxError:
                self._places.clear()  # nothing is taken up of notes like these
                raise
        else:
            self._journal.clear()
        self._is_of_use = bool(self._resume and noted)
        self._journal.add({"facts": self._digest}, self._facts)
        return taken

    def _noted(self) -> tuple[dict[str, list[_Noted]], dict[str, Place]]:
        """The notes of each file, the latest last, and where facts stand."""
        noted: dict[str, list[_Noted]] = {}
        known: dict[str, Place] = {}
        for note, place in self._journal.notes():
            names = _OF_FILE if "file" in note else _OF_FACTS
            if set(note) != set(names) or not all(
                isinstance(value, str) for value in note.values()
            ):
                raise self._journal.foreign(f"it holds {shown(note)}")
            if "file" in note:
                one = _Noted(place, note["facts"], note["where"], note["stamp"])
                noted.setdefault(note["file"], []).append(one)
            else:
                known[note["facts"]] = place
        return noted, known

    def _refuse(self, n_done: int, n_files: int) -> None:
        raise UsageError(
            f"writing {self.output!r}",
            "an earlier run of it is not finished",
            f"{n_done} of these {n_files} recordings are done",
        )

    def _judge(
        self,
        file: str,
        noted: Sequence[_Noted],
        known: Mapping[str, Place],
        taken: TakenUp,
    ) -> None:
        same = [one for one in noted if one.facts == self._digest]
        why = ""
        if not same:
            why = self._differing(noted[-1].facts, known)
        elif same[-1].where != _where(file):
            why = "another file of that name was done"
        elif not same[-1].stamp:
            why = "nothing tells whether the file is still the same"
        elif same[-1].stamp != self._state_of(file):
            why = "the file has changed since"
        if why:
            taken.again.setdefault(why, []).append(file)
        else:
            self._entry_at(same[-1].place)
            self._places[file] = same[-1].place
            taken.files.append(file)

    def _differing(self, digest: str, known: Mapping[str, Place]) -> str:
        if digest not in known:
            return "nothing tells with which settings it was done"
        facts = self._journal.body(known[digest])
        if not isinstance(facts, dict):
            raise self._journal.foreign(f"its settings are {shown(facts)}")
        then = _flat(facts)
        now = _flat(json.loads(_canonical(self._facts)))
        changes = [
            f"{name} was {_shown(then.get(name))} and is {_shown(now.get(name))}"
            for name in sorted({*then, *now})
            if then.get(name) != now.get(name)
        ]
        return ", ".join(changes)

    def keep(self, result: FileResult) -> None:
        """Note that a recording is done.

        Errors   NotWritten
        """
        note = {
            "file": result.path,
            "facts": self._digest,
            "where": _where(result.path),
            "stamp": result.stamp,
        }
        self._places[result.path] = self._journal.add(note, file_entry(result))
        self._is_of_use = True

    def entry(self, file: str) -> Entry:
        """What was noted of a file that is done.

        Errors   RecordingError where the note was damaged since, or is foreign.
        """
        return self._entry_at(self._places[file])

    def _entry_at(self, place: Place) -> Entry:
        found = self._journal.body(place)
        why = entry_problem(found)
        if why:
            raise self._journal.foreign(why)
        return cast(Entry, found)

    def finish(self) -> None:
        """The output is complete: the notes are of no more use."""
        self._is_of_use = False


def _where(file: str) -> str:
    """The whole path; that of an address is the address."""
    return file if "://" in file else os.path.abspath(file)


def _canonical(facts: Facts) -> str:
    return json.dumps(facts, sort_keys=True, default=str)


def _digest(facts: Facts) -> str:
    return sha256(_canonical(facts).encode()).hexdigest()[:32]


def _flat(facts: Facts) -> dict[str, Any]:
    """The facts by their own names, however they are nested."""
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value)
        else:
            flat[name] = value
    return flat


def _shown(value: object) -> str:
    return "not given" if value is None else json.dumps(value, ensure_ascii=False)
