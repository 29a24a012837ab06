"""Manual's table of what engines answer in arithmetic edge cases.

The answers stand in site/answers/edges.json, taken from a report of the smoke test:

    rlxweb smoke -k edges/ --browser --wasm --json report.json
    python site/hooks/edge_case_answers_table.py report.json

Questions come from the suite, so that one without answers stops the build.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rlxweb.smoke.case import SmokeCase
from rlxweb.smoke.edge_case_table import EDGE_CASES
from rlxweb.smoke.edge_cases import EdgeCase, edge_cases

ANSWERS = Path(__file__).resolve().parents[1] / "answers" / "edges.json"
SCHEMA = "rlxweb.edges/1"
NUMPY = "NumPy"
_REFUSED = "refused"
_KIND_SUFFIXES = {"here": "", "browser": ", in a tab", "wasm": ", in WebAssembly"}
Record = Mapping[str, Any]


def answers_from_report(report: Record) -> dict[str, Any]:
    """Return the answers in a smoke report, of engines that ran to the end."""
    engines = [
        {
            "engine": engine["adapter"],
            "device": engine["device"],
            "kind": engine["kind"],
            "driver": engine["driver"],
            "compiler": engine["compiler"],
            "answers": {row["case"]: _answer_text(row) for row in engine["rows"]},
        }
        for engine in report["engines"]
        if engine["word"] in ("right", "wrong")
    ]
    return {"schema": SCHEMA, "versions": report["versions"], "engines": engines}


def _answer_text(row: Record) -> str:
    if row["word"] == "refused":
        return _REFUSED
    return str(row["answer"]) if row["word"] != "wrong" else f"wrong: {row['answer']}"


def questions_with_cases() -> list[tuple[EdgeCase, SmokeCase]]:
    """Return every question with its case, in order."""
    return list(zip(EDGE_CASES, edge_cases(EDGE_CASES), strict=True))


def table() -> str:
    """Return the legend of the columns, then a table per topic."""
    record = json.loads(ANSWERS.read_text(encoding="utf-8"))
    engines = sorted(record["engines"], key=lambda engine: engine["device"] != "cpu")
    parts = [_column_legend(engines)]
    for topic, rows in groupby(questions_with_cases(), key=lambda pair: pair[0].topic):
        questions = list(rows)
        lines = [(case.name, case.note) for _, case in questions]
        title = topic[0].upper() + topic[1:]
        if questions[0][0].is_guaranteed:
            parts += [f"### {title}", _promised_table(lines, engines)]
        else:
            parts += [
                f"### {title}: no result is guaranteed",
                _unpromised_table(lines, engines),
            ]
    return "\n\n".join(parts)


def _column_legend(engines: Sequence[Record]) -> str:
    lines = ["| column | engine | driver | shader compiler |", "|---|---|---|---|"]
    for letter, engine in zip(_column_labels(engines), engines, strict=True):
        compiler = engine["compiler"] if engine["compiler"] != engine["driver"] else ""
        cells = (
            engine["engine"] + _KIND_SUFFIXES[engine["kind"]],
            _driver_label(engine),
            compiler,
        )
        lines.append(f"| {letter} | {' | '.join(map(_escape_cell, cells))} |")
    return "\n".join(lines)


def _driver_label(engine: Record) -> str:
    """Return an engine's driver; for a browser only its name and version."""
    if engine["kind"] != "browser":
        return str(engine["driver"])
    match = re.search(r"(Edg|\w*Chrome|Firefox|Version)/[\d.]+", engine["driver"])
    return match[0].replace("/", " ") if match else str(engine["driver"])


def _column_labels(engines: Sequence[Record]) -> list[str]:
    return [NUMPY, *(chr(ord("A") + index) for index in range(len(engines) - 1))]


def _promised_table(
    questions: Sequence[tuple[str, str]], engines: Sequence[Record]
) -> str:
    """Table with the promised answer, and the engines that lack the type or answer
    differently.
    """
    lines = ["| question | answer | exceptions |", "|---|---|---|"]
    for name, note in questions:
        expected, *others = (engine["answers"][name] for engine in engines)
        pairs = zip(_column_labels(engines)[1:], others, strict=True)
        exceptions = [
            f"{_escape_cell(other)} by {k}"
            for k, other in pairs
            if not _is_same_answer(other, expected)
        ]
        lines.append(
            f"| {_escape_cell(note)} | {_escape_cell(expected)} | "
            f"{'; '.join(exceptions)} |"
        )
    return "\n".join(lines)


def _unpromised_table(
    questions: Sequence[tuple[str, str]], engines: Sequence[Record]
) -> str:
    """Table with a column per engine; a dot is NumPy's answer."""
    headers = _column_labels(engines)
    lines = [f"| question | {' | '.join(headers)} |", "|---|" + "---|" * len(headers)]
    for name, note in questions:
        expected, *others = (engine["answers"][name] for engine in engines)
        cells = ["·" if other == expected else _escape_cell(other) for other in others]
        lines.append(
            f"| {_escape_cell(note)} | {' | '.join([_escape_cell(expected), *cells])} |"
        )
    return "\n".join(lines)


def _is_same_answer(answer: str, expected: str) -> bool:
    """Tell whether two answers are equal apart from the sign of zeros, which is not
    promised.
    """
    return answer.replace("-0,", "0,") == expected.replace("-0,", "0,")


def _escape_cell(words: str) -> str:
    """Escape text for a cell of a Markdown table."""
    return words.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


if __name__ == "__main__":
    (path,) = sys.argv[1:]
    answers = answers_from_report(json.loads(Path(path).read_text(encoding="utf-8")))
    text = json.dumps(answers, indent=1, ensure_ascii=False) + "\n"
    ANSWERS.write_text(text, encoding="utf-8")
