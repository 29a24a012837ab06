"""The table of what engines do at the edges of arithmetic, from answers they gave.

The answers stand in site/answers/edges.json, taken from a report of the smoke test:

    rlxweb smoke -k edges/ --browser --wasm --json report.json
    python site/hooks/edges_table.py report.json

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

from rlxweb.smoke.case import Case
from rlxweb.smoke.edge_questions import EDGES
from rlxweb.smoke.edges import Edge, edge_cases

ANSWERS = Path(__file__).resolve().parents[1] / "answers" / "edges.json"
SCHEMA = "rlxweb.edges/1"
NUMPY = "NumPy"
_REFUSED = "refused"
_WHERE = {"here": "", "browser": ", in a tab", "wasm": ", in WebAssembly"}
Record = Mapping[str, Any]


def taken_from(report: Record) -> dict[str, Any]:
    """The answers of a smoke report's engines, those that ran to the end."""
    engines = [
        {
            "engine": engine["adapter"],
            "device": engine["device"],
            "kind": engine["kind"],
            "driver": engine["driver"],
            "compiler": engine["compiler"],
            "answers": {row["case"]: _answer(row) for row in engine["rows"]},
        }
        for engine in report["engines"]
        if engine["word"] in ("right", "wrong")
    ]
    return {"schema": SCHEMA, "versions": report["versions"], "engines": engines}


def _answer(row: Record) -> str:
    if row["word"] == "refused":
        return _REFUSED
    return str(row["answer"]) if row["word"] != "wrong" else f"wrong: {row['answer']}"


def asked() -> list[tuple[Edge, Case]]:
    """Every question with its case, in order."""
    return list(zip(EDGES, edge_cases(EDGES), strict=True))


def table() -> str:
    """A table per topic, promises first; and what the columns are."""
    record = json.loads(ANSWERS.read_text(encoding="utf-8"))
    engines = sorted(record["engines"], key=lambda one: one["device"] != "cpu")
    parts = [_legend(engines)]
    for topic, rows in groupby(asked(), key=lambda pair: pair[0].topic):
        questions = list(rows)
        lines = [(case.name, case.note) for _, case in questions]
        title = topic[0].upper() + topic[1:]
        if questions[0][0].promised:
            parts += [f"### {title}", _promised(lines, engines)]
        else:
            parts += [f"### {title}: nothing is promised", _each(lines, engines)]
    return "\n\n".join(parts)


def _legend(engines: Sequence[Record]) -> str:
    lines = ["| column | engine | driver | compiler of shaders |", "|---|---|---|---|"]
    for letter, one in zip(_letters(engines), engines, strict=True):
        compiler = one["compiler"] if one["compiler"] != one["driver"] else ""
        cells = (one["engine"] + _WHERE[one["kind"]], _driver(one), compiler)
        lines.append(f"| {letter} | {' | '.join(map(_text, cells))} |")
    return "\n".join(lines)


def _driver(engine: Record) -> str:
    """Of a tab: the browser and its version, of all that it says of itself."""
    if engine["kind"] != "browser":
        return str(engine["driver"])
    named = re.search(r"(Edg|\w*Chrome|Firefox|Version)/[\d.]+", engine["driver"])
    return named[0].replace("/", " ") if named else str(engine["driver"])


def _letters(engines: Sequence[Record]) -> list[str]:
    return [NUMPY, *(chr(ord("A") + at) for at in range(len(engines) - 1))]


def _promised(questions: Sequence[tuple[str, str]], engines: Sequence[Record]) -> str:
    """One answer for all, and who has not the type or answers something else."""
    lines = ["| asked | answer | but |", "|---|---|---|"]
    for name, note in questions:
        right, *others = (one["answers"][name] for one in engines)
        pairs = zip(_letters(engines)[1:], others, strict=True)
        but = [
            f"{_text(other)} by {k}" for k, other in pairs if not _same(other, right)
        ]
        lines.append(f"| {_text(note)} | {_text(right)} | {'; '.join(but)} |")
    return "\n".join(lines)


def _each(questions: Sequence[tuple[str, str]], engines: Sequence[Record]) -> str:
    """A column an engine; a dot is NumPy's answer."""
    heads = _letters(engines)
    lines = [f"| asked | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for name, note in questions:
        right, *others = (one["answers"][name] for one in engines)
        cells = ["·" if other == right else _text(other) for other in others]
        lines.append(f"| {_text(note)} | {' | '.join([_text(right), *cells])} |")
    return "\n".join(lines)


def _same(answer: str, right: str) -> bool:
    """Which zero it is, nobody promises."""
    return answer.replace("-0,", "0,") == right.replace("-0,", "0,")


def _text(words: str) -> str:
    """Words as Markdown shows them: a star or a bar is one."""
    return words.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


if __name__ == "__main__":
    (path,) = sys.argv[1:]
    answers = taken_from(json.loads(Path(path).read_text(encoding="utf-8")))
    text = json.dumps(answers, indent=1, ensure_ascii=False) + "\n"
    ANSWERS.write_text(text, encoding="utf-8")
