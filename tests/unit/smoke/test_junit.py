"""A smoke report as JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from rlxweb.smoke.junit import ENGINE_CASE, junit
from tests.unit.smoke.made_report import engine, report, row

ROWS = (
    row("samples/add/0"),
    row("samples/add/1", "wrong", why="2 of 12 elements are wrong"),
    row("samples/add/2", "refused"),
    row("views/add/3", "known", known={"reason": "it folds", "evidence": "seen"}),
    row("samples/add/4", "unexpected pass", variant="add.wide"),
    row("samples/add/5", "not run"),
)


def read(document: dict[str, Any], **more: Any) -> ET.Element:
    return ET.fromstring(junit(document, **more))


def case(root: ET.Element, name: str) -> ET.Element:
    (found,) = (one for one in root.iter("testcase") if one.get("name") == name)
    return found


def test_each_engine_is_a_suite_and_each_case_a_case() -> None:
    """Engines are suites with facts, times and counts that add up."""
    root = read(report(engine("vulkan:llvmpipe", *ROWS), engine("cpu", ROWS[0])))
    suite, cpu = root.findall("testsuite")
    assert suite.get("name") == "vulkan:llvmpipe"
    assert suite.get("timestamp") == "2026-11-22T15:50:00+00:00"
    facts = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert facts["driver"] == "Mesa 22.3.6 (LLVM 15.0.6)"
    assert {name: suite.get(name) for name in ("tests", "failures", "skipped")} == {
        "tests": "7",
        "failures": "1",
        "skipped": "3",
    }
    assert cpu.get("tests") == "2"
    assert root.get("tests") == "9"
    assert root.get("failures") == "1"
    first = case(suite, "samples/add/0")
    assert first.get("classname") == "rlxweb.smoke.vulkan:llvmpipe.samples"
    assert first.get("time") == "0.015000"
    dotted = read(report(engine("vulkan:LLVM 15.0", ROWS[0])))
    named = case(dotted, "samples/add/0").get("classname")
    assert named == "rlxweb.smoke.vulkan:LLVM 15_0.samples"
    assert list(first) == []


def test_what_is_not_right_says_why() -> None:
    """Failures with the first wrong element, skipped ones with their reason."""
    root = read(report(engine("vulkan", *ROWS)))
    wrong = case(root, "samples/add/1").find("failure")
    assert wrong is not None
    assert wrong.get("message") == "2 of 12 elements are wrong"
    assert "at [1, 2]: got nan, wanted 0.5" in str(wrong.text)
    said = {
        one.get("name"): one[0].get("message")
        for one in root.iter("testcase")
        if one.find("skipped") is not None
    }
    assert said == {
        "samples/add/2": "refused: refused for a reason",
        "views/add/3": "known: it folds",
        "samples/add/5": "not run: not run for a reason",
    }
    passed = case(root, "samples/add/4 (add.wide)")
    assert passed.findtext("system-out", "").startswith("unexpected pass")
    strict = case(
        read(report(engine("v", *ROWS)), strict_known=True), passed.attrib["name"]
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
def test_what_happens_to_an_engine_is_an_error(
    word: str, required: list[str], tag: str | None
) -> None:
    """An engine that failed as a whole, or is missing though required, is an error."""
    made = report(engine("cuda", word=word, why="the reason"), required=required)
    root = read(made)
    own = case(root, ENGINE_CASE)
    assert [child.tag for child in own] == ([tag] if tag else [])
    if tag:
        assert own[0].get("message") == "the reason"
    assert root.get("errors") == str(int(tag == "error"))
    of_a_case = read(report(engine("cuda", ROWS[1])))
    assert list(case(of_a_case, ENGINE_CASE)) == []


def test_no_text_of_a_driver_breaks_the_file() -> None:
    """Letters that XML cannot hold are written out, markup is text."""
    why = 'a "quote" <b> & \x00\x1b[31m \ud800 \uffff\nline two'
    made = report(engine("v\x07", row("a/b/0", "wrong", why=why)))
    found = case(read(made), "a/b/0").find("failure")
    assert found is not None
    assert found.get("message") == r'a "quote" <b> & \x00\x1b[31m \xd800 \xffff'
    assert str(found.text).startswith("line two")
