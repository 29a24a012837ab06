"""Resumable runs: a journal of the recordings done so far, kept beside the output until
that is complete.

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

from rlxweb.batch.journal import Journal, LineSpan
from rlxweb.batch.results import FileResult
from rlxweb.batch.run_record_entries import RecordEntry, entry_problem, file_entry
from rlxweb.core.errors import RlxError, UsageError, shown
from rlxweb.core.output_streams import is_stream
from rlxweb.io.recording_state_fingerprint import state_fingerprint

RunFacts = Mapping[str, Any]
"""Facts that results depend on besides the files: settings and versions, possibly
nested.
"""

_MAX_NAME_NBYTES = 255
# What notes say: of a recording that is done, and of the settings of a run.
_FILE_ENTRY_KEYS = ("file", "facts", "where", "stamp")
_FACTS_ENTRY_KEYS = ("facts",)


@dataclass(frozen=True, slots=True)
class _CompletedFile:
    """Recording that was done: the place of its entry, and what it was computed
    from.
    """

    span: LineSpan
    facts: str
    absolute_path: str
    stamp: str


@dataclass(slots=True)
class ResumedFiles:
    """Files that a run takes over from an earlier one, and those it does again.

    files     recordings that need not be done again
    redo_reasons  why others are done again → which
    n_damaged notes that were cut, of whatever files
    """

    files: list[str] = field(default_factory=list)
    redo_reasons: dict[str, list[str]] = field(default_factory=dict)
    n_damaged: int = 0


def journal_path(output: str) -> Path:
    """Return the path of the journal of a run whose output goes to `output`.

    Beside what a link leads to, but for a pipe or a device: they do not lie in /dev.
    """
    resolve = os.path.abspath if is_stream(output) else os.path.realpath
    target = Path(resolve(output))
    name = f".{target.name}.unfinished"
    if len(os.fsencode(name)) > _MAX_NAME_NBYTES:
        digest = sha256(os.fsencode(target.name)).hexdigest()[:16]
        name = f".rlxweb-{digest}.unfinished"
    return target.with_name(name)


class ResumableRun:
    """Recordings that a run has done; a context manager that leaves the journal when
    the run fails.

    output   the path that is worked for
    facts    what the results depend on besides the files
    resume   take up what is there; False forgets it, None refuses it
    state_of tells one state of a file from another

    Errors   those of `Journal`
    """

    def __init__(
        self,
        output: str,
        facts: RunFacts,
        resume: bool | None,
        file_state: Callable[[str], str] = state_fingerprint,
    ) -> None:
        self.output = output
        self._file_state = file_state
        self._facts = dict(facts)
        self._resume = resume
        self._digest = _facts_digest(facts)
        self._spans: dict[str, LineSpan] = {}
        self._journal = Journal(journal_path(output), output)
        self._keeps_journal = not self._journal.is_empty

    def __enter__(self) -> ResumableRun:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._journal.close(remove=not self._keeps_journal)

    @property
    def resumes(self) -> bool:
        """Return whether the work of an earlier run is to be resumed."""
        return bool(self._resume)

    @property
    def is_locked(self) -> bool:
        """Return False where the file system cannot exclude another run."""
        return self._journal.is_locked

    def __len__(self) -> int:
        """Return the number of recordings that are done."""
        return len(self._spans)

    def resume_files(self, files: Sequence[str]) -> ResumedFiles:
        """Take over those of `files` that an earlier run did and that are still valid.

        Errors   UsageError where something was done before, and nobody said whether it
                 shall be taken up; RecordingError for notes that no rlxweb wrote.
        """
        completed, facts_spans = (
            ({}, {}) if self._resume is False else self._read_journal()
        )
        if completed and self._resume is None:
            self._refuse_resume(sum(file in completed for file in files), len(files))
        resumed = ResumedFiles()
        if self._resume:
            resumed.n_damaged = self._journal.n_damaged
            try:
                for file in files:
                    if file in completed:
                        self._resume_file(file, completed[file], facts_spans, resumed)
            except RlxError:
                self._spans.clear()  # nothing is taken up of notes like these
                raise
        else:
            self._journal.clear()
        self._keeps_journal = bool(self._resume and completed)
        self._journal.append({"facts": self._digest}, self._facts)
        return resumed

    def _read_journal(
        self,
    ) -> tuple[dict[str, list[_CompletedFile]], dict[str, LineSpan]]:
        """Return the entries of each file, the latest last, and the places of the
        facts.
        """
        completed: dict[str, list[_CompletedFile]] = {}
        facts_spans: dict[str, LineSpan] = {}
        for entry, span in self._journal.read_entries():
            keys = _FILE_ENTRY_KEYS if "file" in entry else _FACTS_ENTRY_KEYS
            if set(entry) != set(keys) or not all(
                isinstance(value, str) for value in entry.values()
            ):
                raise self._journal.foreign_entry_error(f"it contains {shown(entry)}")
            if "file" in entry:
                completed_file = _CompletedFile(
                    span, entry["facts"], entry["where"], entry["stamp"]
                )
                completed.setdefault(entry["file"], []).append(completed_file)
            else:
                facts_spans[entry["facts"]] = span
        return completed, facts_spans

    def _refuse_resume(self, n_done: int, n_files: int) -> None:
        raise UsageError(
            f"writing {self.output!r}",
            "an earlier run with this output is unfinished",
            f"{n_done} of the {n_files} recordings of this run are done",
        )

    def _resume_file(
        self,
        file: str,
        completed: Sequence[_CompletedFile],
        facts_spans: Mapping[str, LineSpan],
        resumed: ResumedFiles,
    ) -> None:
        same_facts = [
            completed_file
            for completed_file in completed
            if completed_file.facts == self._digest
        ]
        redo_reason = ""
        if not same_facts:
            redo_reason = self._settings_changes(completed[-1].facts, facts_spans)
        elif same_facts[-1].absolute_path != _absolute_path(file):
            redo_reason = "the file was at another path in the earlier run"
        elif not same_facts[-1].stamp:
            redo_reason = (
                "it is unknown whether the file has changed since the earlier run"
            )
        elif same_facts[-1].stamp != self._file_state(file):
            redo_reason = "the file has changed since the earlier run"
        if redo_reason:
            resumed.redo_reasons.setdefault(redo_reason, []).append(file)
        else:
            self._read_entry_at(same_facts[-1].span)
            self._spans[file] = same_facts[-1].span
            resumed.files.append(file)

    def _settings_changes(
        self, digest: str, facts_spans: Mapping[str, LineSpan]
    ) -> str:
        if digest not in facts_spans:
            return "the settings of the earlier run are unknown"
        facts = self._journal.read_body(facts_spans[digest])
        if not isinstance(facts, dict):
            raise self._journal.foreign_entry_error(f"its settings are {shown(facts)}")
        old = _flatten_facts(facts)
        new = _flatten_facts(json.loads(_canonical_json(self._facts)))
        changes = [
            f"{name} was {_format_value(old.get(name))}, now "
            f"{_format_value(new.get(name))}"
            for name in sorted({*old, *new})
            if old.get(name) != new.get(name)
        ]
        return ", ".join(changes)

    def record_result(self, result: FileResult) -> None:
        """Record that a recording is done.

        Errors   NotWritten
        """
        entry = {
            "file": result.path,
            "facts": self._digest,
            "where": _absolute_path(result.path),
            "stamp": result.stamp,
        }
        self._spans[result.path] = self._journal.append(entry, file_entry(result))
        self._keeps_journal = True

    def read_entry(self, file: str) -> RecordEntry:
        """Return the record entry of a file that is done.

        Errors   RecordingError where the note was damaged since, or is foreign.
        """
        return self._read_entry_at(self._spans[file])

    def _read_entry_at(self, span: LineSpan) -> RecordEntry:
        entry = self._journal.read_body(span)
        problem = entry_problem(entry)
        if problem:
            raise self._journal.foreign_entry_error(problem)
        return cast(RecordEntry, entry)

    def discard_journal(self) -> None:
        """Mark the output as complete, so that the journal is removed."""
        self._keeps_journal = False


def _absolute_path(file: str) -> str:
    """Return the absolute path of a file; a URL is returned as it is."""
    return file if "://" in file else os.path.abspath(file)


def _canonical_json(facts: RunFacts) -> str:
    return json.dumps(facts, sort_keys=True, default=str)


def _facts_digest(facts: RunFacts) -> str:
    return sha256(_canonical_json(facts).encode()).hexdigest()[:32]


def _flatten_facts(facts: RunFacts) -> dict[str, Any]:
    """Return the facts by their own names, however they are nested."""
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flatten_facts(value)
        else:
            flat[name] = value
    return flat


def _format_value(value: object) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)
