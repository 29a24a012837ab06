"""The report of a smoke test for people: a line each, and in words what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from rlxweb.cli.screen import Cell, counted, say, show_table
from rlxweb.smoke.diagnosis import first_wrong, in_common
from rlxweb.smoke.report import Document, fits, missing_required

STYLES = {"right": "green", "missing": "dim", "lost": "yellow", "refused": "dim"}
_WRONG = "bold red"
_COUNTED = ("right", "wrong", "refused", "not run")
_NUMBERS = (*_COUNTED, "seconds", "GB/s", "GFLOP/s")
_LEFT_OUT = ("GFLOP/s", "GB/s", "not run", "refused", "seconds", "right")
"""Columns a narrow terminal goes without, the first of them first."""
_ROOM = 24
"""For the names of engines, before a column is left out."""


def show_report(console: Console, report: Document, verbose: bool) -> None:
    """The table of engines, and what is wrong below it.

    verbose   every case and every missing device as well
    """
    engines = report["engines"]
    if verbose:
        for engine in engines:
            _show_cases(console, engine)
    there = [engine for engine in engines if engine["word"] != "missing"]
    if there:
        _show_engines(console, there)
    for engine in engines:
        is_missing = engine["word"] == "missing"
        # One with a name is a broken driver, or like other kinds was asked for.
        is_told = engine["adapter"] or engine["kind"] != "here" or not there
        if verbose or (is_missing and is_told):
            said = f"missing: {engine['why']}" if is_missing else engine["compiler"]
            say(console, f"{_name(engine)}: {said}", style="dim")
    for engine in engines:
        for line in _troubles(engine):
            say(console, line)
    for one in report["apart"]:
        who = " and ".join(one["engines"])
        say(console, f"{one['case']}: of {one['of']} engines {who} stands apart")
    say(console, *_summary(report, verbose))


def _show_engines(console: Console, engines: Sequence[Mapping[str, Any]]) -> None:
    rows: list[Sequence[Cell]] = []
    for engine in engines:
        word = engine["word"]
        style = STYLES.get(word, _WRONG)
        counts = engine["counts"]
        ran = bool(engine["rows"])
        numbers = [f"{counts[w]:,}" if ran else "" for w in _COUNTED]
        best = [_best(engine["rows"], name) for name in ("gb_s", "gflop_s")]
        took = f"{engine['seconds']:.1f}" if ran else ""
        rows.append((_name(engine), (word, style), *numbers, took, *best))
    heads = ("engine", "", *_NUMBERS)
    kept = _fitting(console, heads, rows)
    shown = [[row[at] for at in kept] for row in rows]
    names = [heads[at] for at in kept]
    show_table(console, names, shown, right=_NUMBERS, whole=names[1:])


def _fitting(
    console: Console, heads: Sequence[str], rows: Sequence[Sequence[Cell]]
) -> list[int]:
    """The columns that a terminal has room for; all of them elsewhere."""
    kept = list(range(len(heads)))
    wide = [
        max(map(len, (head, *map(_text, cells))))
        for head, cells in zip(heads, zip(*rows, strict=True), strict=True)
    ]
    wide[0] = min(wide[0], _ROOM)
    for head in _LEFT_OUT if console.is_terminal else ():
        # Between two columns there are three characters.
        if sum(wide[at] + 3 for at in kept) > console.width:
            kept.remove(heads.index(head))
    return kept


def _text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell[0]


def _name(engine: Mapping[str, Any]) -> str:
    """The device, and the adapter or library behind it."""
    key, adapter = engine["key"], engine["adapter"]
    return key.replace(":", " ", 1) if adapter in key else f"{key} {adapter}"


def _best(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """The most that any case reached."""
    most = max((row[name] or 0.0 for row in rows), default=0.0)
    return f"{most:.3g}" if most else ""


def _troubles(engine: Mapping[str, Any]) -> Iterator[str]:
    """What is the matter with an engine; nothing where it is right."""
    if engine["word"] in ("right", "missing"):
        return
    rows, common = engine["rows"], in_common(engine["rows"])
    is_told = engine["word"] == "wrong" and rows
    said = "" if is_told else f" {engine['why']};"
    yield f"{_name(engine)}: {engine['word']}.{said} {common}".rstrip("; ")
    yield from (f"  {line}" for line in first_wrong(rows))
    left = engine["counts"]["not run"]
    if left:
        yield f"  {counted(left, 'case')} not run"


def _summary(report: Document, verbose: bool) -> Iterator[str]:
    engines = report["engines"]
    there = [one for one in engines if one["word"] != "missing"]
    right = sum(one["word"] == "right" for one in there)
    cases = sum(len(one["rows"]) for one in there)
    gone = dict.fromkeys(one["device"] for one in engines if one["word"] == "missing")
    hint = "" if verbose or not there else "; -v says why"
    missing = f"; missing: {', '.join(gone)}{hint}" if gone else ""
    partial = "stopped before the end: " if report["partial"] else ""
    yield (
        f"{partial}{right} of {counted(len(there), 'engine')} right, "
        f"{counted(cases, 'case')} in {report['seconds']:.0f} s{missing}"
    )
    left = sum(one["counts"]["not run"] for one in there if one["word"] == "right")
    if left and not report["partial"]:
        yield (
            f"{counted(left, 'case')} of these not run, to be quick; each op, family "
            "and kernel was tried, and leaving out --quick runs all"
        )
    for name in missing_required(report):
        label = name.partition(":")[0]
        mine = [one for one in engines if fits(label, one["device"], "")]
        # What is wrong with one that is there, or has a name, stands above.
        gone_by = (one for one in mine if one["word"] == "missing")
        why = "; ".join(one["why"] for one in gone_by if not one["adapter"])
        yield f"required, but not right: {name}" + (f" ({why})" if why else "")


def _show_cases(console: Console, engine: Mapping[str, Any]) -> None:
    if not engine["rows"]:
        return
    say(console, f"{_name(engine)}: {counted(len(engine['rows']), 'case')}")
    numbers = ("error", "of allowed", "cold ms", "warm ms", "GB/s", "GFLOP/s")
    names = ("max_error", "share", "cold_ms", "warm_ms", "gb_s", "gflop_s")
    rows: list[Sequence[Cell]] = []
    for row in engine["rows"]:
        style = STYLES.get(row["word"], _WRONG)
        cells = [_shown(row[name]) for name in names]
        rows.append((row["case"], (row["word"], style), *cells))
    show_table(
        console, ("case", "", *numbers), rows, right=numbers, whole=("", *numbers)
    )


def _shown(value: float | str | None) -> str:
    """A number of the report in few digits."""
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.3g}"
