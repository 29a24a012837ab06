"""JUnit XML form of a smoke report, for test viewers in CI.

A test suite per engine, a test case per case. Wrong is a failure; refused, known and
not run are skipped, with the reason; what happened to the engine as a whole (it
crashed, hung, is missing and required) is an error of a case of its own.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

from rlxweb.smoke.report import matches_engine

ENGINE_CASE_NAME = "the engine itself"
_PROPERTY_NAMES = (
    "device",
    "adapter",
    "kind",
    "backend",
    "vendor",
    "driver",
    "compiler",
)
_SKIPPED_WORDS = ("refused", "known", "not run")
_ENGINE_ERROR_WORDS = ("crashed", "hung", "out of memory", "lost")
# What XML 1.0 cannot hold at all, escaped or not.
_INVALID_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(document: Mapping[str, Any], strict_known: bool = False) -> bytes:
    """Return a report `rlxweb.smoke/1` as JUnit XML in UTF-8.

    strict_known   a right result that is known to fail is a failure
    """
    root = ET.Element("testsuites", name="rlxweb smoke")
    for engine in document["engines"]:
        root.append(_suite_element(document, engine, strict_known))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    root.set("time", _format_seconds(document.get("seconds")))
    ET.indent(root)
    xml: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return xml + b"\n"


def _suite_element(
    document: Mapping[str, Any], engine: Mapping[str, Any], strict_known: bool
) -> ET.Element:
    """Return the test suite element of one engine."""
    suite = ET.Element("testsuite", name=_xml_text(engine["key"]))
    suite.set("timestamp", _xml_text(document.get("began")))
    suite.set("time", _format_seconds(engine.get("seconds")))
    properties = ET.SubElement(suite, "properties")
    for name in _PROPERTY_NAMES:
        if engine.get(name):
            ET.SubElement(
                properties, "property", name=name, value=_xml_text(engine[name])
            )
    cases = [_engine_element(document, engine)]
    cases += [_case_element(engine, row, strict_known) for row in engine["rows"]]
    suite.extend(cases)
    suite.set("tests", str(len(cases)))
    for name, tag in (("failures", "failure"), ("errors", "error")):
        suite.set(name, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    return suite


def _engine_element(
    document: Mapping[str, Any], engine: Mapping[str, Any]
) -> ET.Element:
    """Return the test case that stands for the engine as a whole."""
    case = _testcase_element(engine, "engine", ENGINE_CASE_NAME)
    word, reason = engine["word"], engine.get("why")
    names = document.get("required", ())
    is_required = any(
        matches_engine(name, engine["device"], engine["adapter"]) for name in names
    )
    has_wrong_case = any(row["word"] == "wrong" for row in engine["rows"])
    is_wrong = word == "wrong" and not has_wrong_case  # it cannot be opened, say
    if is_wrong or word in _ENGINE_ERROR_WORDS or (word == "missing" and is_required):
        _add_outcome(case, "error", word, reason)
    elif word == "missing":
        _add_outcome(case, "skipped", word, reason)
    return case


def _case_element(
    engine: Mapping[str, Any], row: Mapping[str, Any], strict_known: bool
) -> ET.Element:
    """Return the test case element of one row."""
    name = f"{row['case']} ({row['variant']})" if row.get("variant") else row["case"]
    case = _testcase_element(engine, row.get("family") or "cases", name)
    case.set(
        "time",
        _format_seconds(
            (_milliseconds(row, "cold_ms") + _milliseconds(row, "warm_ms")) / 1000
        ),
    )
    word = row["word"]
    if word == "wrong":
        _add_outcome(
            case,
            "failure",
            row.get("raised") or word,
            row.get("why"),
            _first_wrong_text(row),
        )
    elif word in _SKIPPED_WORDS:
        _add_outcome(case, "skipped", word, _skip_reason(row))
    elif word == "unexpected pass" and strict_known:
        _add_outcome(case, "failure", word, row.get("why"))
    elif word == "unexpected pass":
        ET.SubElement(case, "system-out").text = _xml_text(f"{word}: {row.get('why')}")
    return case


def _testcase_element(engine: Mapping[str, Any], family: str, name: str) -> ET.Element:
    """Return an empty test case element with its class name and name."""
    # Readers take what stands before the last dot for a package.
    class_name = f"rlxweb.smoke.{engine['key'].replace('.', '_')}.{family}"
    return ET.Element("testcase", classname=_xml_text(class_name), name=_xml_text(name))


def _add_outcome(
    case: ET.Element, tag: str, kind: str, reason: Any, details: str = ""
) -> None:
    """Add a failure, error or skip; `kind` is its type and XML viewers show the message
    first.
    """
    message = _xml_text(reason or kind)
    headline, *more_lines = message.splitlines() or [kind]
    element = ET.SubElement(case, tag, type=_xml_text(kind), message=headline)
    element.text = "\n".join([*more_lines, _xml_text(details)]).strip() or message


def _skip_reason(row: Mapping[str, Any]) -> str:
    """Return why a case was skipped."""
    known = row.get("known")
    if not known:
        return f"{row['word']}: {row.get('why') or 'no reason was given'}"
    return f"known: {known['reason']}\n{known['evidence']}\n{row.get('why')}"


def _first_wrong_text(row: Mapping[str, Any]) -> str:
    """Describe the first wrong element of a row; "" if there is none."""
    first_wrong = row.get("first")
    if not first_wrong:
        return ""
    index, got, want = first_wrong["at"], first_wrong["got"], first_wrong["want"]
    return (
        f"first wrong element at {index}: expected {want}, got {got}; inputs "
        f"{row.get('inputs')}"
    )


def _milliseconds(row: Mapping[str, Any], name: str) -> float:
    """Return a time of the row in ms; 0 if it has none."""
    return float(row.get(name) or 0.0)


def _format_seconds(value: Any) -> str:
    """Format seconds with six decimals."""
    return f"{float(value or 0):.6f}"


def _xml_text(value: Any) -> str:
    """Convert a value to text, escaping characters that XML cannot hold."""
    return _INVALID_XML.sub(lambda match: f"\\x{ord(match[0]):02x}", str(value or ""))
