"""A smoke report as JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from rlxweb.smoke.junit_report import ENGINE_CASE_NAME, junit_xml
from tests.unit.smoke.report_factory import make_engine, make_report, make_row

ROWS = (
    make_row("samples/add/0"),
    make_row("samples/add/1", "wrong", why="2 of 12 elements are wrong"),
    make_row("samples/add/2", "refused"),
    make_row("views/add/3", "known", known={"reason": "it folds", "evidence": "seen"}),
    make_row("samples/add/4", "unexpected pass", variant="add.wide"),
    make_row("samples/add/5", "not run"),
)


def parse_junit(document: dict[str, Any], **options: Any) -> ET.Element:
    return ET.fromstring(junit_xml(document, **options))


def find_case(root: ET.Element, name: str) -> ET.Element:
    (match,) = (
        element for element in root.iter("testcase") if element.get("name") == name
    )
    return match


def test_each_engine_is_a_suite_and_each_case_a_case() -> None:
    """Engines are suites with properties, times and counts that add up."""
    root = parse_junit(
        make_report(make_engine("vulkan:llvmpipe", *ROWS), make_engine("cpu", ROWS[0]))
    )
    suite, cpu = root.findall("testsuite")
    assert suite.get("name") == "vulkan:llvmpipe"
    assert suite.get("timestamp") == "2026-11-22T15:50:00+00:00"
    facts = {
        element.get("name"): element.get("value") for element in suite.iter("property")
    }
    assert facts["driver"] == "Mesa 22.3.6 (LLVM 15.0.6)"
    assert {name: suite.get(name) for name in ("tests", "failures", "skipped")} == {
        "tests": "7",
        "failures": "1",
        "skipped": "3",
    }
    assert cpu.get("tests") == "2"
    assert root.get("tests") == "9"
    assert root.get("failures") == "1"
    first = find_case(suite, "samples/add/0")
    assert first.get("classname") == "rlxweb.smoke.vulkan:llvmpipe.samples"
    assert first.get("time") == "0.015000"
    dotted = parse_junit(make_report(make_engine("vulkan:LLVM 15.0", ROWS[0])))
    class_name = find_case(dotted, "samples/add/0").get("classname")
    assert class_name == "rlxweb.smoke.vulkan:LLVM 15_0.samples"
    assert list(first) == []


def test_failures_and_skips_have_reasons() -> None:
    """Failures have the first wrong element, skipped cases their reason."""
    root = parse_junit(make_report(make_engine("vulkan", *ROWS)))
    failure = find_case(root, "samples/add/1").find("failure")
    assert failure is not None
    assert failure.get("message") == "2 of 12 elements are wrong"
    assert "at [1, 2]: expected 0.5, got nan" in str(failure.text)
    messages = {
        element.get("name"): element[0].get("message")
        for element in root.iter("testcase")
        if element.find("skipped") is not None
    }
    assert messages == {
        "samples/add/2": "refused: refused for a reason",
        "views/add/3": "known: it folds",
        "samples/add/5": "not run: not run for a reason",
    }
    passed = find_case(root, "samples/add/4 (add.wide)")
    assert passed.findtext("system-out", "").startswith("unexpected pass")
    strict = find_case(
        parse_junit(make_report(make_engine("v", *ROWS)), strict_known=True),
        passed.attrib["name"],
    )
    assert strict.find("failure") is not None


@pytest.mark.parametrize(
    ("word", "required", "tag"),
    [
        ("crashed", [], "error"),
        ("hung", [], "error"),
        ("out of memory", [], "error"),
        ("lost", [], "error"),
        ("missing", ["cuda"], "error"),
        ("missing", ["cuda:llvm"], "error"),
        ("missing", [], "skipped"),
        ("right", ["cuda"], None),
        ("wrong", [], "error"),
    ],
)
def test_failures_of_an_engine_are_errors(
    word: str, required: list[str], tag: str | None
) -> None:
    """An engine that failed as a whole, or is missing though required, is an error."""
    document = make_report(
        make_engine("cuda", word=word, why="the reason"), required=required
    )
    root = parse_junit(document)
    engine_case = find_case(root, ENGINE_CASE_NAME)
    assert [child.tag for child in engine_case] == ([tag] if tag else [])
    if tag:
        assert engine_case[0].get("message") == "the reason"
    assert root.get("errors") == str(int(tag == "error"))
    case_failure = parse_junit(make_report(make_engine("cuda", ROWS[1])))
    assert list(find_case(case_failure, ENGINE_CASE_NAME)) == []


def test_texts_of_drivers_are_escaped() -> None:
    """Characters that XML does not allow are written as escapes, and markup as text."""
    why = 'a "quote" <b> & \x00\x1b[31m \ud800 \uffff\nline two'
    document = make_report(make_engine("v\x07", make_row("a/b/0", "wrong", why=why)))
    failure = find_case(parse_junit(document), "a/b/0").find("failure")
    assert failure is not None
    assert failure.get("message") == r'a "quote" <b> & \x00\x1b[31m \xd800 \xffff'
    assert str(failure.text).startswith("line two")
