"""What changed from one smoke report to the next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlxweb.errors import RecordingError, UsageError
from rlxweb.smoke.compare import comparison
from rlxweb.smoke.report_file import read_report
from tests.unit.smoke.made_report import engine, report, row


def changes(old: dict[str, Any], new: dict[str, Any], **more: Any) -> list[Any]:
    """(what, engine, subject) of each."""
    lines = comparison(old, new, **more)["lines"]
    return [(one["what"], one["engine"], one["subject"]) for one in lines]


def one(word: str, **more: Any) -> dict[str, Any]:
    return report(engine("vulkan", row("samples/fft/1", word, **more)))


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("right", "wrong", "became wrong"),
        ("refused", "wrong", "became wrong"),
        ("known", "wrong", "became wrong"),
        ("wrong", "right", "became right"),
        ("known", "unexpected pass", "became right"),
        ("right", "known", "became known"),
        ("right", "refused", "is refused now"),
        ("refused", "right", "is not refused any more"),
        ("right", "unexpected pass", None),
        ("right", "not run", None),
        ("not run", "right", None),
        ("wrong", "wrong", None),
    ],
)
def test_a_case_that_turned_is_a_line(old: str, new: str, what: str | None) -> None:
    """A case that turned is a line; only what became wrong is worth exit code 1."""
    found = comparison(one(old), one(new))
    said = [(x["what"], x["engine"], x["subject"]) for x in found["lines"]]
    assert said == ([(what, "vulkan", "samples/fft/1")] if what else [])
    assert found["exit_code"] == int(what == "became wrong")
    if what:
        assert found["counts"][what] == 1


def test_slower_is_told_beyond_a_ratio_and_over_a_floor() -> None:
    """Below the floor all times are noise."""
    for before, after, ratio, said in (
        (4.0, 6.5, 1.5, "became slower"),
        (4.0, 5.5, 1.5, None),
        (4.0, 5.5, 1.3, "became slower"),
        (6.5, 4.0, 1.5, "became faster"),
        (0.01, 0.9, 1.5, None),
        (0.01, 1.2, 1.5, None),
        (0.01, 1.6, 1.5, "became slower"),
    ):
        found = comparison(
            one("right", warm_ms=before), one("right", warm_ms=after), ratio=ratio
        )
        lines = [line["what"] for line in found["lines"]]
        assert lines == ([said] if said else []), (before, after)
        assert found["exit_code"] == 0
    assert found["times"] == {"vulkan": 1.6}
    assert "was 0.01 ms" in found["lines"][0]["said"]


def test_cases_appear_and_disappear_where_both_runs_came_to_their_end() -> None:
    """A variant is a case of its own; what a crash left out did not disappear."""
    a, b = row("samples/fft/1"), row("samples/fft/1", variant="fft.rows")
    old, new = report(engine("vulkan", a)), report(engine("vulkan", b))
    assert changes(old, new) == [
        ("appeared", "vulkan", "samples/fft/1 (fft.rows)"),
        ("disappeared", "vulkan", "samples/fft/1"),
    ]
    crashed = report(engine("vulkan", word="crashed", why="signal 11"))
    found = comparison(old, crashed)
    (line,) = found["lines"]
    assert line["what"] == "became wrong"
    assert line["said"] == "crashed, was right: signal 11"
    assert found["exit_code"] == 1
    assert changes(crashed, old) == [("became right", "vulkan", "")]


def test_an_engine_that_cannot_be_opened_any_more_became_wrong() -> None:
    """An engine that cannot be opened any more became wrong, though no case did."""
    a = row("samples/fft/1")
    old = report(engine("cuda", a))
    new = report(engine("cuda", word="wrong", why="it cannot be opened: no driver"))
    assert ("became wrong", "cuda", "") in changes(old, new)
    assert ("became wrong", "cuda", "") not in changes(new, new)
    assert ("became right", "cuda", "") in changes(new, old)


def test_engines_come_and_go() -> None:
    """An engine that disappears is no wrong result; `--require` is for that."""
    gone = report(engine("cuda", word="missing", why="no driver"))
    here = report(engine("cuda", row("samples/add/0")))
    assert changes(here, gone) == [("disappeared", "cuda", "")]
    assert changes(gone, here) == [("appeared", "cuda", "")]
    assert changes(here, report()) == [("disappeared", "cuda", "")]
    assert changes(report(), here) == [("appeared", "cuda", "")]
    assert changes(gone, report()) == []
    assert comparison(here, gone)["exit_code"] == 0


def test_an_engine_that_comes_and_crashes_is_no_change_for_the_worse() -> None:
    """An engine that appears and crashes has appeared; its crash is the new run's."""
    here = report(engine("cuda", word="crashed"))
    assert changes(report(), here) == [("appeared", "cuda", "")]


def test_another_driver_is_told() -> None:
    """Another driver is told first: it may explain whatever else changed."""
    newer = report(engine("vulkan", driver="Mesa 23.1"))
    (line,) = comparison(report(engine("vulkan")), newer)["lines"]
    assert line["what"] == "other driver"
    assert line["said"] == "driver Mesa 23.1, was Mesa 22.3.6 (LLVM 15.0.6)"


def test_a_report_is_no_different_from_itself(tmp_path: Path) -> None:
    """A report is no different from itself, written and read again."""
    made = report(engine("vulkan", row("a/b/0"), row("a/b/1", "wrong")), engine("cpu"))
    path = tmp_path / "old.json"
    path.write_text(json.dumps(made), "utf-8")
    found = comparison(read_report(str(path)), made)
    assert found["lines"] == []
    assert found["exit_code"] == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is no JSON"),
        ("[]", "its schema is None"),
        ('{"schema": "rlxweb.check/1"}', "its schema is 'rlxweb.check/1'"),
        ('{"schema": "rlxweb.smoke/1"}', "has no 'engines'"),
        ('{"schema": "rlxweb.smoke/1", "engines": [3]}', "engine 0 has no 'key'"),
        (
            '{"schema": "rlxweb.smoke/1", "engines": '
            '[{"key": "a", "word": "right", "rows": [{"case": "b"}]}]}',
            "a row of 'a' has no 'word'",
        ),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """A file that is no report is refused before anything is compared with it."""
    path = tmp_path / "old.json"
    path.write_text(text, "utf-8")
    with pytest.raises(UsageError, match="reading the report") as told:
        read_report(str(path))
    assert said in str(told.value)
    with pytest.raises(RecordingError, match="No such file"):
        read_report(str(tmp_path / "nothing.json"))
