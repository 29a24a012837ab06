"""A smoke report as JUnit XML, for whatever shows the results of tests in CI.

A test suite per engine, a test case per case. Wrong is a failure; refused, known and
not run are skipped, with the reason; what happened to the engine as a whole (it
crashed, hung, is missing and required) is an error of a case of its own.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

from rlxweb.smoke.report import fits

ENGINE_CASE = "the engine itself"
_FACTS = ("device", "adapter", "kind", "backend", "vendor", "driver", "compiler")
_SKIPPED = ("refused", "known", "not run")
_ENGINE_ERRORS = ("crashed", "hung", "out of memory", "lost")
# What XML 1.0 cannot hold at all, escaped or not.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(document: Mapping[str, Any], strict_known: bool = False) -> bytes:
    """The XML of a report `rlxweb.smoke/1`, in UTF-8.

    strict_known   a right result that is known to fail is a failure
    """
    root = ET.Element("testsuites", name="rlxweb smoke")
    for engine in document["engines"]:
        root.append(_suite(document, engine, strict_known))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    root.set("time", _seconds(document.get("seconds")))
    ET.indent(root)
    made: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return made + b"\n"


def _suite(
    document: Mapping[str, Any], engine: Mapping[str, Any], strict_known: bool
) -> ET.Element:
    suite = ET.Element("testsuite", name=_text(engine["key"]))
    suite.set("timestamp", _text(document.get("began")))
    suite.set("time", _seconds(engine.get("seconds")))
    facts = ET.SubElement(suite, "properties")
    for name in _FACTS:
        if engine.get(name):
            ET.SubElement(facts, "property", name=name, value=_text(engine[name]))
    cases = [_engine_case(document, engine)]
    cases += [_case(engine, row, strict_known) for row in engine["rows"]]
    suite.extend(cases)
    suite.set("tests", str(len(cases)))
    for name, tag in (("failures", "failure"), ("errors", "error")):
        suite.set(name, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    return suite


def _engine_case(document: Mapping[str, Any], engine: Mapping[str, Any]) -> ET.Element:
    case = _named(engine, "engine", ENGINE_CASE)
    word, why = engine["word"], engine.get("why")
    names = document.get("required", ())
    required = any(fits(name, engine["device"], engine["adapter"]) for name in names)
    of_a_case = any(row["word"] == "wrong" for row in engine["rows"])
    is_wrong = word == "wrong" and not of_a_case  # it cannot be opened, say
    if is_wrong or word in _ENGINE_ERRORS or (word == "missing" and required):
        _told(case, "error", word, why)
    elif word == "missing":
        _told(case, "skipped", word, why)
    return case


def _case(
    engine: Mapping[str, Any], row: Mapping[str, Any], strict_known: bool
) -> ET.Element:
    name = f"{row['case']} ({row['variant']})" if row.get("variant") else row["case"]
    case = _named(engine, row.get("family") or "cases", name)
    case.set("time", _seconds((_ms(row, "cold_ms") + _ms(row, "warm_ms")) / 1000))
    word = row["word"]
    if word == "wrong":
        _told(case, "failure", row.get("raised") or word, row.get("why"), _first(row))
    elif word in _SKIPPED:
        _told(case, "skipped", word, _reason(row))
    elif word == "unexpected pass" and strict_known:
        _told(case, "failure", word, row.get("why"))
    elif word == "unexpected pass":
        ET.SubElement(case, "system-out").text = _text(f"{word}: {row.get('why')}")
    return case


def _named(engine: Mapping[str, Any], family: str, name: str) -> ET.Element:
    # Readers take what stands before the last dot for a package.
    where = f"rlxweb.smoke.{engine['key'].replace('.', '_')}.{family}"
    return ET.Element("testcase", classname=_text(where), name=_text(name))


def _told(case: ET.Element, tag: str, kind: str, why: Any, more: str = "") -> None:
    """`kind` is the type of a failure; a reader of XML sees the message first."""
    said = _text(why or kind)
    first, *rest = said.splitlines() or [kind]
    told = ET.SubElement(case, tag, type=_text(kind), message=first)
    told.text = "\n".join([*rest, _text(more)]).strip() or said


def _reason(row: Mapping[str, Any]) -> str:
    known = row.get("known")
    if not known:
        return f"{row['word']}: {row.get('why') or 'no reason was given'}"
    return f"known: {known['reason']}\n{known['evidence']}\n{row.get('why')}"


def _first(row: Mapping[str, Any]) -> str:
    first = row.get("first")
    if not first:
        return ""
    at, got, want = first["at"], first["got"], first["want"]
    return f"first wrong at {at}: got {got}, wanted {want}; inputs {row.get('inputs')}"


def _ms(row: Mapping[str, Any], name: str) -> float:
    return float(row.get(name) or 0.0)


def _seconds(value: Any) -> str:
    return f"{float(value or 0):.6f}"


def _text(value: Any) -> str:
    return _NO_XML.sub(lambda found: f"\\x{ord(found[0]):02x}", str(value or ""))
