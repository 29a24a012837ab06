"""Console view of a smoke report: a table of engines and the problems found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from rlxweb.cli.console import Cell, format_count, print_lines, print_table
from rlxweb.smoke.failure_diagnosis import first_wrong_lines, summarize_failures
from rlxweb.smoke.report import ReportDocument, matches_engine, missing_required

RESULT_STYLES = {"right": "green", "missing": "dim", "lost": "yellow", "refused": "dim"}
_WRONG_STYLE = "bold red"
_COUNT_COLUMNS = ("right", "wrong", "refused", "not run")
_NUMERIC_COLUMNS = (*_COUNT_COLUMNS, "seconds", "GB/s", "GFLOP/s")
_DROP_ORDER = ("GFLOP/s", "GB/s", "not run", "refused", "seconds", "right")
"""Columns omitted on a narrow terminal, in this order."""
_MAX_NAME_WIDTH = 24
"""Characters reserved for engine names before a column is dropped."""


def print_report(console: Console, report: ReportDocument, verbose: bool) -> None:
    """Print the table of engines and the problems below it.

    verbose   every case and every missing device as well
    """
    engines = report["engines"]
    if verbose:
        for engine in engines:
            _print_cases(console, engine)
    present = [engine for engine in engines if engine["word"] != "missing"]
    if present:
        _print_engines(console, present)
    for engine in engines:
        is_missing = engine["word"] == "missing"
        # One with a name is a broken driver, or like other kinds was asked for.
        is_listed = engine["adapter"] or engine["kind"] != "here" or not present
        if verbose or (is_missing and is_listed):
            text = f"missing: {engine['why']}" if is_missing else engine["compiler"]
            print_lines(console, f"{_engine_name(engine)}: {text}", style="dim")
    for engine in engines:
        for line in _engine_problems(engine):
            print_lines(console, line)
    for outlier in report["apart"]:
        engine_names = " and ".join(outlier["engines"])
        print_lines(
            console,
            f"{outlier['case']}: deviating results among {outlier['of']} engines: "
            f"{engine_names}",
        )
    print_lines(console, *_summary_lines(report, verbose))


def _print_engines(console: Console, engines: Sequence[Mapping[str, Any]]) -> None:
    rows: list[Sequence[Cell]] = []
    for engine in engines:
        word = engine["word"]
        style = RESULT_STYLES.get(word, _WRONG_STYLE)
        counts = engine["counts"]
        ran = bool(engine["rows"])
        numbers = [f"{counts[w]:,}" if ran else "" for w in _COUNT_COLUMNS]
        best = [_best_value(engine["rows"], name) for name in ("gb_s", "gflop_s")]
        seconds_text = f"{engine['seconds']:.1f}" if ran else ""
        rows.append(
            (_engine_name(engine), (word, style), *numbers, seconds_text, *best)
        )
    headers = ("engine", "", *_NUMERIC_COLUMNS)
    columns = _fitting_columns(console, headers, rows)
    shown_rows = [[row[index] for index in columns] for row in rows]
    shown_headers = [headers[index] for index in columns]
    print_table(
        console,
        shown_headers,
        shown_rows,
        right_aligned=_NUMERIC_COLUMNS,
        no_wrap=shown_headers[1:],
    )


def _fitting_columns(
    console: Console, headers: Sequence[str], rows: Sequence[Sequence[Cell]]
) -> list[int]:
    """Return the indices of the columns that fit the terminal; all of them
    elsewhere.
    """
    columns = list(range(len(headers)))
    widths = [
        max(map(len, (header, *map(_cell_text, cells))))
        for header, cells in zip(headers, zip(*rows, strict=True), strict=True)
    ]
    widths[0] = min(widths[0], _MAX_NAME_WIDTH)
    for header in _DROP_ORDER if console.is_terminal else ():
        # Between two columns there are three characters.
        if sum(widths[index] + 3 for index in columns) > console.width:
            columns.remove(headers.index(header))
    return columns


def _cell_text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell[0]


def _engine_name(engine: Mapping[str, Any]) -> str:
    """Return the device and the adapter or library behind it."""
    key, adapter = engine["key"], engine["adapter"]
    return key.replace(":", " ", 1) if adapter in key else f"{key} {adapter}"


def _best_value(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return the largest value that any case reached, as text."""
    maximum = max((row[name] or 0.0 for row in rows), default=0.0)
    return f"{maximum:.3g}" if maximum else ""


def _engine_problems(engine: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines that describe the problems of an engine; nothing where it is
    right.
    """
    if engine["word"] in ("right", "missing"):
        return
    rows, common = engine["rows"], summarize_failures(engine["rows"])
    has_wrong_rows = engine["word"] == "wrong" and rows
    reason = "" if has_wrong_rows else f" {engine['why']};"
    yield f"{_engine_name(engine)}: {engine['word']}.{reason} {common}".rstrip("; ")
    yield from (f"  {line}" for line in first_wrong_lines(rows))
    n_not_run = engine["counts"]["not run"]
    if n_not_run:
        yield f"  {format_count(n_not_run, 'case')} not run"


def _summary_lines(report: ReportDocument, verbose: bool) -> Iterator[str]:
    engines = report["engines"]
    present = [engine for engine in engines if engine["word"] != "missing"]
    n_right = sum(engine["word"] == "right" for engine in present)
    n_cases = sum(len(engine["rows"]) for engine in present)
    missing_devices = dict.fromkeys(
        engine["device"] for engine in engines if engine["word"] == "missing"
    )
    hint = "" if verbose or not present else "; -v shows why"
    missing_text = (
        f"; missing: {', '.join(missing_devices)}{hint}" if missing_devices else ""
    )
    partial = "interrupted: " if report["partial"] else ""
    yield (
        f"{partial}{n_right} of {format_count(len(present), 'engine')} right, "
        f"{format_count(n_cases, 'case')} in {report['seconds']:.0f} s{missing_text}"
    )
    n_not_run = sum(
        engine["counts"]["not run"] for engine in present if engine["word"] == "right"
    )
    if n_not_run and not report["partial"]:
        yield (
            f"--quick skipped {n_not_run:,} of these cases, but tested every op, "
            "family and kernel; omit --quick to run all of them"
        )
    for name in missing_required(report):
        label = name.partition(":")[0]
        matches = [
            engine for engine in engines if matches_engine(label, engine["device"], "")
        ]
        # What is wrong with one that is there, or has a name, stands above.
        missing_matches = (engine for engine in matches if engine["word"] == "missing")
        why = "; ".join(
            engine["why"] for engine in missing_matches if not engine["adapter"]
        )
        yield f"required device missing or without correct results: {name}" + (
            f" ({why})" if why else ""
        )


def _print_cases(console: Console, engine: Mapping[str, Any]) -> None:
    if not engine["rows"]:
        return
    print_lines(
        console, f"{_engine_name(engine)}: {format_count(len(engine['rows']), 'case')}"
    )
    number_headers = ("error", "error / limit", "cold ms", "warm ms", "GB/s", "GFLOP/s")
    field_names = ("max_error", "share", "cold_ms", "warm_ms", "gb_s", "gflop_s")
    rows: list[Sequence[Cell]] = []
    for row in engine["rows"]:
        style = RESULT_STYLES.get(row["word"], _WRONG_STYLE)
        cells = [_format_value(row[name]) for name in field_names]
        rows.append((row["case"], (row["word"], style), *cells))
    print_table(
        console,
        ("case", "", *number_headers),
        rows,
        right_aligned=number_headers,
        no_wrap=("", *number_headers),
    )


def _format_value(value: float | str | None) -> str:
    """Format a value of the report in few digits."""
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.3g}"
