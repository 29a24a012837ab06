"""The report's page as a file; how it looks and works is tried in a real browser."""

from __future__ import annotations

import json
import re

import pytest

from rlxweb.errors import RlxError
from rlxweb.pages.parts import KEPT_AT
from rlxweb.smoke import page as module
from rlxweb.smoke.page import SCRIPTS, STYLES, page
from tests.command_line import ROOT
from tests.unit.smoke.made_report import engine, report, row


def test_the_page_holds_the_document_and_asks_for_nothing_else() -> None:
    """No address in it leads anywhere, and its policy would refuse it."""
    nasty = "</script><script>alert(1)</script><!-- @styles@ <b>"
    made = report(engine("vulkan", row("samples/add/0", "wrong", why=nasty)))
    html = page(made)
    held = re.search(r'id="document">(.*?)</script>', html, re.DOTALL)
    assert held
    assert json.loads(held[1]) == made
    tags = re.sub("<style>.*?</style>", "", html, flags=re.DOTALL)
    assert tags.count("<script") == 2
    assert "default-src 'none'" in html
    assert not re.search(r"""(src|href)=["'](?!#)""", tags)
    assert "@document@" not in html


def test_the_wheel_gets_the_parts_of_the_check_page() -> None:
    """Files of the site that the page inlines are named where the wheel is made."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    shared = [name for name in (*STYLES, *SCRIPTS) if name.startswith("demo/")]
    for name in shared:
        assert included[f"site/{name}"] == f"rlxweb/{KEPT_AT}/{name}"


@pytest.mark.parametrize(
    "left", ['import "./x.js";', "export { a };", "const u = import.meta.url;"]
)
def test_what_cannot_be_inlined_is_refused(
    monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """An import that stayed would be a page that asks for a file."""
    monkeypatch.setattr(module, "_part", lambda name: f"{left}\nconst a = 1;\n")
    with pytest.raises(RlxError, match="inlining"):
        page(report())


def test_a_part_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing part is told with the file's name."""
    monkeypatch.setattr(module, "STYLES", ("demo/none.css",))
    with pytest.raises(RlxError, match=r"none\.css is neither in the package"):
        page(report())
