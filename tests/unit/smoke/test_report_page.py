"""Smoke report as an HTML file; a browser test covers its look and behaviour."""

from __future__ import annotations

import json
import re

import pytest

from rlxweb.core.errors import RlxError
from rlxweb.export.site_file_reader import PACKAGED_SITE_DIR
from rlxweb.smoke import report_page as module
from rlxweb.smoke.report_page import SCRIPTS, STYLES, render_report_page
from tests.cli_runners import ROOT
from tests.unit.smoke.report_factory import make_engine, make_report, make_row


def test_the_page_embeds_the_document_and_loads_nothing_else() -> None:
    """No URL in the page leads elsewhere, and its policy would block it."""
    nasty = "</script><script>alert(1)</script><!-- @styles@ <b>"
    document = make_report(
        make_engine("vulkan", make_row("samples/add/0", "wrong", why=nasty))
    )
    html = render_report_page(document)
    embedded = re.search(r'id="document">(.*?)</script>', html, re.DOTALL)
    assert embedded
    assert json.loads(embedded[1]) == document
    tags = re.sub("<style>.*?</style>", "", html, flags=re.DOTALL)
    assert tags.count("<script") == 2
    assert "default-src 'none'" in html
    assert not re.search(r"""(src|href)=["'](?!#)""", tags)
    assert "@document@" not in html


def test_the_wheel_gets_the_parts_of_the_check_page() -> None:
    """The site's files that the page inlines are included in the wheel."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    shared = [name for name in (*STYLES, *SCRIPTS) if name.startswith("demo/")]
    for name in shared:
        assert included[f"site/{name}"] == f"rlxweb/{PACKAGED_SITE_DIR}/{name}"


@pytest.mark.parametrize(
    "statement", ['import "./x.js";', "export { a };", "const u = import.meta.url;"]
)
def test_scripts_that_cannot_be_inlined_are_refused(
    monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """A script with a remaining import or export is refused, since it would load a
    file.
    """
    monkeypatch.setattr(
        module, "_read_part", lambda name: f"{statement}\nconst a = 1;\n"
    )
    with pytest.raises(RlxError, match="inlining"):
        render_report_page(make_report())


def test_a_missing_part_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing part is reported with the file's name."""
    monkeypatch.setattr(module, "STYLES", ("demo/none.css",))
    with pytest.raises(RlxError, match=r"none\.css is missing from the package"):
        render_report_page(make_report())
