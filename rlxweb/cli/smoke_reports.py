"""What is made of a smoke report: known failures, what changed, a page, JUnit, JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.screen import Cell, counted, say, show_table
from rlxweb.errors import UsageError
from rlxweb.io import write_json
from rlxweb.printable import abridged
from rlxweb.smoke.compare import RATIO, comparison
from rlxweb.smoke.junit import junit
from rlxweb.smoke.known import KnownFailure, with_known
from rlxweb.smoke.known_files import known_failures
from rlxweb.smoke.page import page
from rlxweb.smoke.report import RIGHT, Document, exit_code
from rlxweb.smoke.report_file import read_report
from rlxweb.whole_file import WholeFiles

FORMS = ("json", "html", "junit")
_STYLES = {"became wrong": "bold red", "became right": "green", "other driver": "cyan"}
_MOST_LINES = 30
_MOST_WORDS = 160
_OPTIONS = (
    options.file_path("json", "Write the whole report as JSON; - is stdout."),
    options.file_path("html", "Write it as one page, to be opened without a network."),
    options.file_path("junit", "Write it as JUnit XML, for CI."),
    click.option(
        "--known-failures",
        "known",
        multiple=True,
        metavar="F",
        help="TOML: what is known to be wrong, and why, beside rlxweb's own file, "
        "which 'none' leaves out. Repeatable.",
    ),
    click.option(
        "--strict-known",
        is_flag=True,
        help="Right where it is known to fail: exit code 1, not only a line.",
    ),
    click.option(
        "--compare",
        metavar="OLD",
        help="Tell what changed since that report (JSON); exit code 1 if something "
        "became wrong.",
    ),
    options.valued(
        "--slower",
        click.FloatRange(min=1.01),
        "How many times as long a case must take to be told, with --compare.",
        RATIO,
    ),
)


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say what is made of the report."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be made of the report; all that it needs has been read."""

    paths: Mapping[str, str]
    known: Sequence[KnownFailure]
    strict_known: bool
    old: Document | None
    old_path: str
    ratio: float

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Wanted:
        """Errors   UsageError, RecordingError: before minutes of work."""
        told = {form: given[f"{form}_path"] for form in FORMS}
        paths = {form: path for form, path in told.items() if path is not None}
        for form, path in paths.items():
            _check_writable(f"--{form}", path)
        if len(set(map(_place, paths.values()))) < len(paths):
            flags = " and ".join(f"--{form}" for form in paths)
            raise UsageError(flags, "two of them name one file", hint="name another")
        old_path = given["compare"] or ""
        return cls(
            paths,
            known_failures(given["known"]),
            given["strict_known"],
            read_report(old_path) if old_path else None,
            old_path,
            given["slower"],
        )

    @property
    def takes_stdout(self) -> bool:
        return "-" in self.paths.values()


def _place(path: str) -> str:
    return path if path == "-" else os.path.realpath(path)


def _check_writable(flag: str, path: str) -> None:
    """Before minutes of work. Errors  UsageError."""
    if path == "-":
        return
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise UsageError(flag, f"there is no folder {str(folder)!r}")
    if Path(path).is_dir():
        raise UsageError(flag, f"{path!r} is a folder", hint="name a file in it")
    if not os.access(folder, os.W_OK):
        raise UsageError(flag, f"nothing may be written in {str(folder)!r}")


def completed(report: Document, wanted: Wanted) -> Document:
    """The report with what is known, what changed, and its final exit code."""
    made = with_known(report, wanted.known) | {"strict_known": wanted.strict_known}
    code = exit_code(made)
    if wanted.old is not None:
        found = comparison(wanted.old, made, ratio=wanted.ratio)
        made["comparison"] = found
        code = found["exit_code"] if code == RIGHT else code
    return made | {"exit_code": code}


def write(report: Document, wanted: Wanted) -> None:
    """Every form that was asked for, all of them or none."""
    with WholeFiles(streams=True) as files:
        for form, path in wanted.paths.items():
            file = files.open(path)
            if form == "json":
                write_json(file, report)
            elif form == "html":
                file.write(page(report).encode())
            else:
                file.write(junit(report, wanted.strict_known))


# --- for people -----------------------------------------------------------------


def show_known(console: Console, report: Document) -> None:
    """A line for each engine that does what is known, or not any more."""
    for engine in report["engines"]:
        counts = engine["counts"]
        if counts["known"]:
            many = counted(counts["known"], "case")
            say(console, f"{engine['key']}: {many} wrong as known")
        if counts["unexpected pass"]:
            say(console, *_passes(engine), style="yellow")


def _passes(engine: Mapping[str, Any]) -> Iterator[str]:
    passed = [row for row in engine["rows"] if row["word"] == "unexpected pass"]
    where = dict.fromkeys(row["known"]["where"] for row in passed)
    yield (
        f"{engine['key']}: {counted(len(passed), 'case')} right though known to fail, "
        f"{passed[0]['case']} first; see {', '.join(where)}"
    )


def show_comparison(console: Console, report: Document, wanted: Wanted) -> None:
    """What changed, the worst first, and the sum of it."""
    found = report.get("comparison")
    if found is None:
        return
    lines = found["lines"]
    shown = lines[:_MOST_LINES]
    rows: list[Sequence[Cell]] = [
        (
            (one["what"], _STYLES.get(one["what"], "")),
            one["engine"],
            one["subject"],
            abridged(one["said"], _MOST_WORDS),
        )
        for one in shown
    ]
    if rows:
        show_table(console, ("", "engine", "case", "what"), rows, whole=("",))
    if len(lines) > len(shown):
        say(console, f"and {len(lines) - len(shown):,} more changes, in the JSON")
    say(console, *_compared(found, wanted.old_path))


def _compared(found: Mapping[str, Any], old: str) -> Iterator[str]:
    counts = [f"{n:,} {what}" for what, n in found["counts"].items() if n]
    yield f"since {old}: {', '.join(counts) or 'nothing changed'}"
    times = [f"{key} {mean:.2f} ×" for key, mean in found["times"].items()]
    if times:
        yield f"a case takes, as a mean: {', '.join(times)} what it took"
