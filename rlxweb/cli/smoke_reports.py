"""Outputs made from a smoke report: known failures, comparison, HTML page, JUnit,
JSON.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.console import Cell, format_count, print_lines, print_table
from rlxweb.core.atomic_file import AtomicFiles
from rlxweb.core.errors import UsageError
from rlxweb.core.message_text import abbreviate
from rlxweb.io import write_json
from rlxweb.smoke.junit_report import junit_xml
from rlxweb.smoke.known_failure_files import load_known_failures
from rlxweb.smoke.known_failure_matching import KnownFailure, mark_known_failures
from rlxweb.smoke.report import EXIT_RIGHT, ReportDocument, exit_code
from rlxweb.smoke.report_comparison import (
    SLOWDOWN_RATIO,
    compare_reports,
)
from rlxweb.smoke.report_page import render_report_page
from rlxweb.smoke.report_reader import read_report

REPORT_FORMATS = ("json", "html", "junit")
_CHANGE_STYLES = {
    "became wrong": "bold red",
    "became right": "green",
    "other driver": "cyan",
}
_MAX_LINES = 30
_MAX_TEXT_LENGTH = 160
_REPORT_OPTIONS = (
    options.output_file_option("json", "Write the whole report as JSON; - is stdout."),
    options.output_file_option(
        "html", "Write the report as one HTML page that works offline."
    ),
    options.output_file_option("junit", "Write the report as JUnit XML, for CI."),
    click.option(
        "--known-failures",
        "known",
        multiple=True,
        metavar="F",
        help="TOML file of known failures and their reasons, in addition to those "
        "packaged with rlxweb; 'none' ignores the packaged ones. Repeatable.",
    ),
    click.option(
        "--strict-known",
        is_flag=True,
        help="Exit with code 1 if a known failure passes.",
    ),
    click.option(
        "--compare",
        metavar="OLD",
        help="Show the changes since the report OLD (JSON); exit code 1 if a result "
        "became wrong.",
    ),
    options.value_option(
        "--slower",
        options.FiniteFloatRange(min=1.01),
        "With --compare: report cases whose time changed by at least this factor.",
        SLOWDOWN_RATIO,
    ),
)


def add_report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select the outputs of the report."""
    for option in reversed(_REPORT_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class SmokeReportOptions:
    """Requested outputs of the report; every file they need has been read."""

    paths: Mapping[str, str]
    known_failures: Sequence[KnownFailure]
    strict_known: bool
    old_report: ReportDocument | None
    old_path: str
    slowdown_ratio: float

    @classmethod
    def from_params(cls, option_values: Mapping[str, Any]) -> SmokeReportOptions:
        """Read the options and their files before minutes of work; raises UsageError
        and RecordingError.
        """
        all_paths = {form: option_values[f"{form}_path"] for form in REPORT_FORMATS}
        paths = {form: path for form, path in all_paths.items() if path is not None}
        for form, path in paths.items():
            _check_writable(f"--{form}", path)
        if len(set(map(_canonical_path, paths.values()))) < len(paths):
            flags = " and ".join(f"--{form}" for form in paths)
            raise UsageError(
                flags, "two outputs name the same file", hint="choose another name"
            )
        old_path = option_values["compare"] or ""
        return cls(
            paths,
            load_known_failures(option_values["known"]),
            option_values["strict_known"],
            read_report(old_path) if old_path else None,
            old_path,
            option_values["slower"],
        )

    @property
    def uses_stdout(self) -> bool:
        return "-" in self.paths.values()


def _canonical_path(path: str) -> str:
    return path if path == "-" else os.path.realpath(path)


def _check_writable(flag: str, path: str) -> None:
    """Raise UsageError before minutes of work if the file cannot be written."""
    if path == "-":
        return
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise UsageError(flag, f"there is no folder {str(folder)!r}")
    if Path(path).is_dir():
        raise UsageError(
            flag, f"{path!r} is a folder", hint="pass the path of a file in that folder"
        )
    if not os.access(folder, os.W_OK):
        raise UsageError(flag, f"no write permission in {str(folder)!r}")


def complete_report(
    report: ReportDocument, report_options: SmokeReportOptions
) -> ReportDocument:
    """Return the report with known failures, changes, and its final exit code."""
    updated_report = mark_known_failures(report, report_options.known_failures) | {
        "strict_known": report_options.strict_known
    }
    code = exit_code(updated_report)
    if report_options.old_report is not None:
        changes = compare_reports(
            report_options.old_report,
            updated_report,
            ratio=report_options.slowdown_ratio,
        )
        updated_report["comparison"] = changes
        code = changes["exit_code"] if code == EXIT_RIGHT else code
    return updated_report | {"exit_code": code}


def write_reports(report: ReportDocument, report_options: SmokeReportOptions) -> None:
    """Write every requested format, all of them or none."""
    with AtomicFiles(allow_streams=True) as files:
        for form, path in report_options.paths.items():
            file = files.open(path)
            if form == "json":
                write_json(file, report)
            elif form == "html":
                file.write(render_report_page(report).encode())
            else:
                file.write(junit_xml(report, report_options.strict_known))


# --- for people -----------------------------------------------------------------


def print_known_failures(console: Console, report: ReportDocument) -> None:
    """Print a line for each engine with known failures or with cases that unexpectedly
    pass.
    """
    for engine in report["engines"]:
        counts = engine["counts"]
        if counts["known"]:
            case_count = format_count(counts["known"], "case")
            print_lines(
                console,
                f"{engine['key']}: {case_count} wrong, as listed in the known failures",
            )
        if counts["unexpected pass"]:
            print_lines(console, *_unexpected_pass_lines(engine), style="yellow")


def _unexpected_pass_lines(engine: Mapping[str, Any]) -> Iterator[str]:
    unexpected_rows = [
        row for row in engine["rows"] if row["word"] == "unexpected pass"
    ]
    sources = dict.fromkeys(row["known"]["where"] for row in unexpected_rows)
    yield (
        f"{engine['key']}: {format_count(len(unexpected_rows), 'case')} right although "
        f"listed as known failures; first case: "
        f"{unexpected_rows[0]['case']}; see {', '.join(sources)}"
    )


def print_comparison(
    console: Console, report: ReportDocument, report_options: SmokeReportOptions
) -> None:
    """Print the changes, the worst first, and their totals."""
    changes = report.get("comparison")
    if changes is None:
        return
    lines = changes["lines"]
    shown_lines = lines[:_MAX_LINES]
    rows: list[Sequence[Cell]] = [
        (
            (line["what"], _CHANGE_STYLES.get(line["what"], "")),
            line["engine"],
            line["subject"],
            abbreviate(line["said"], _MAX_TEXT_LENGTH),
        )
        for line in shown_lines
    ]
    if rows:
        print_table(console, ("", "engine", "case", "what"), rows, no_wrap=("",))
    if len(lines) > len(shown_lines):
        print_lines(
            console,
            f"and {len(lines) - len(shown_lines):,} more changes; see the JSON report",
        )
    print_lines(console, *_comparison_summary(changes, report_options.old_path))


def _comparison_summary(changes: Mapping[str, Any], old_path: str) -> Iterator[str]:
    counts = [f"{n:,} {w}" for w, n in changes["counts"].items() if n]
    yield f"changes since {old_path}: {', '.join(counts) or 'none'}"
    times = [f"{key} {mean:.2f} ×" for key, mean in changes["times"].items()]
    if times:
        yield f"mean time per case relative to the old report: {', '.join(times)}"
