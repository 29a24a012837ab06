"""Changes from one smoke report to the next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlxweb.core.errors import RecordingError, UsageError
from rlxweb.smoke.report_comparison import compare_reports
from rlxweb.smoke.report_reader import read_report
from tests.unit.smoke.report_factory import make_engine, make_report, make_row


def change_keys(old: dict[str, Any], new: dict[str, Any], **options: Any) -> list[Any]:
    """Return (what, engine, subject) of each change."""
    lines = compare_reports(old, new, **options)["lines"]
    return [(line["what"], line["engine"], line["subject"]) for line in lines]


def single_case_report(word: str, **overrides: Any) -> dict[str, Any]:
    return make_report(
        make_engine("vulkan", make_row("samples/fft/1", word, **overrides))
    )


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("right", "wrong", "became wrong"),
        ("refused", "wrong", "became wrong"),
        ("known", "wrong", "became wrong"),
        ("wrong", "right", "became right"),
        ("known", "unexpected pass", "became right"),
        ("right", "known", "became a known failure"),
        ("right", "refused", "now refused"),
        ("refused", "right", "no longer refused"),
        ("right", "unexpected pass", None),
        ("right", "not run", None),
        ("not run", "right", None),
        ("wrong", "wrong", None),
    ],
)
def test_a_changed_case_is_a_line(old: str, new: str, what: str | None) -> None:
    """A changed case is a line; only one that became wrong gives exit code 1."""
    result = compare_reports(single_case_report(old), single_case_report(new))
    keys = [(x["what"], x["engine"], x["subject"]) for x in result["lines"]]
    assert keys == ([(what, "vulkan", "samples/fft/1")] if what else [])
    assert result["exit_code"] == int(what == "became wrong")
    if what:
        assert result["counts"][what] == 1


def test_slower_cases_are_reported_beyond_a_ratio_and_a_floor() -> None:
    """Times below the floor are noise."""
    for before, after, ratio, expected in (
        (4.0, 6.5, 1.5, "became slower"),
        (4.0, 5.5, 1.5, None),
        (4.0, 5.5, 1.3, "became slower"),
        (6.5, 4.0, 1.5, "became faster"),
        (0.01, 0.9, 1.5, None),
        (0.01, 1.2, 1.5, None),
        (0.01, 1.6, 1.5, "became slower"),
    ):
        result = compare_reports(
            single_case_report("right", warm_ms=before),
            single_case_report("right", warm_ms=after),
            ratio=ratio,
        )
        lines = [line["what"] for line in result["lines"]]
        assert lines == ([expected] if expected else []), (before, after)
        assert result["exit_code"] == 0
    assert result["times"] == {"vulkan": 1.6}
    assert "was 0.01 ms" in result["lines"][0]["said"]


def test_cases_appear_and_disappear_where_both_runs_completed() -> None:
    """A variant is a case of its own; cases that a crash omitted did not disappear."""
    a, b = make_row("samples/fft/1"), make_row("samples/fft/1", variant="fft.rows")
    old = make_report(make_engine("vulkan", a))
    new = make_report(make_engine("vulkan", b))
    assert change_keys(old, new) == [
        ("appeared", "vulkan", "samples/fft/1 (fft.rows)"),
        ("disappeared", "vulkan", "samples/fft/1"),
    ]
    crashed = make_report(make_engine("vulkan", word="crashed", why="signal 11"))
    result = compare_reports(old, crashed)
    (line,) = result["lines"]
    assert line["what"] == "became wrong"
    assert line["said"] == "crashed, was right: signal 11"
    assert result["exit_code"] == 1
    assert change_keys(crashed, old) == [("became right", "vulkan", "")]


def test_an_engine_that_no_longer_opens_became_wrong() -> None:
    """An engine that no longer opens became wrong, though no case did."""
    a = make_row("samples/fft/1")
    old = make_report(make_engine("cuda", a))
    new = make_report(
        make_engine("cuda", word="wrong", why="it cannot be opened: no driver")
    )
    assert ("became wrong", "cuda", "") in change_keys(old, new)
    assert ("became wrong", "cuda", "") not in change_keys(new, new)
    assert ("became right", "cuda", "") in change_keys(new, old)


def test_engines_appear_and_disappear() -> None:
    """An engine that disappears is no wrong result; `--require` is for that."""
    missing = make_report(make_engine("cuda", word="missing", why="no driver"))
    present = make_report(make_engine("cuda", make_row("samples/add/0")))
    assert change_keys(present, missing) == [("disappeared", "cuda", "")]
    assert change_keys(missing, present) == [("appeared", "cuda", "")]
    assert change_keys(present, make_report()) == [("disappeared", "cuda", "")]
    assert change_keys(make_report(), present) == [("appeared", "cuda", "")]
    assert change_keys(missing, make_report()) == []
    assert compare_reports(present, missing)["exit_code"] == 0


def test_a_new_engine_that_crashes_only_appeared() -> None:
    """An engine that appears and crashes has appeared; its crash is the new run's."""
    crashed = make_report(make_engine("cuda", word="crashed"))
    assert change_keys(make_report(), crashed) == [("appeared", "cuda", "")]


def test_a_driver_change_is_reported() -> None:
    """A driver change is reported first, since it may explain the other changes."""
    newer = make_report(make_engine("vulkan", driver="Mesa 23.1"))
    (line,) = compare_reports(make_report(make_engine("vulkan")), newer)["lines"]
    assert line["what"] == "other driver"
    assert line["said"] == "driver Mesa 23.1, was Mesa 22.3.6 (LLVM 15.0.6)"


def test_a_report_is_no_different_from_itself(tmp_path: Path) -> None:
    """A report is no different from itself, written and read again."""
    document = make_report(
        make_engine("vulkan", make_row("a/b/0"), make_row("a/b/1", "wrong")),
        make_engine("cpu"),
    )
    path = tmp_path / "old.json"
    path.write_text(json.dumps(document), "utf-8")
    result = compare_reports(read_report(str(path)), document)
    assert result["lines"] == []
    assert result["exit_code"] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "invalid JSON"),
        ("[]", "got schema None"),
        ('{"schema": "rlxweb.check/1"}', "got schema 'rlxweb.check/1'"),
        ('{"schema": "rlxweb.smoke/1"}', "has no 'engines'"),
        ('{"schema": "rlxweb.smoke/1", "engines": [3]}', "engine 0 has no 'key'"),
        (
            '{"schema": "rlxweb.smoke/1", "engines": '
            '[{"key": "a", "word": "right", "rows": [{"case": "b"}]}]}',
            "a row of 'a' has no 'word'",
        ),
    ],
)
def test_invalid_reports_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """A file that is no report is refused before anything is compared with it."""
    path = tmp_path / "old.json"
    path.write_text(text, "utf-8")
    with pytest.raises(UsageError, match="reading the report") as error_info:
        read_report(str(path))
    assert message in str(error_info.value)
    with pytest.raises(RecordingError, match="No such file"):
        read_report(str(tmp_path / "nothing.json"))
