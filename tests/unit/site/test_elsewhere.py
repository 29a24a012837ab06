"""No page may load from another host or from a fixed root."""

from __future__ import annotations

from pathlib import Path

import pytest
from assembly.elsewhere import elsewhere, refuse_elsewhere
from assembly.errors import SiteError

BAD = [
    '<script src="https://cdn.example/x.js"></script>',
    '<script type="module" src="//cdn.example/x.js"></script>',
    '<link rel="stylesheet" href="https://fonts.example/css">',
    '<link rel="preconnect" href="https://fonts.example" crossorigin>',
    '<img alt="" src="HTTP://img.example/x.png">',
    '<iframe src=" /demo/live/"></iframe>',
    '<script src="/runtime/pyodide.js"></script>',
]
GOOD = [
    '<a href="https://example.org/">a link</a>',
    '<link rel="canonical" href="https://example.org/">',
    '<script src="../runtime/pyodide.js"></script><script>1</script>',
    '<link rel="icon" href="data:,">',
    '<img alt="" src="a.png">',
]


@pytest.mark.parametrize("html", BAD)
def test_a_page_that_loads_from_elsewhere_is_refused(tmp_path: Path, html: str) -> None:
    """A page that loads from elsewhere is refused by its name."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "index.html").write_text(html, "utf-8")
    with pytest.raises(SiteError, match=r"deep/index\.html loads"):
        refuse_elsewhere(tmp_path)


@pytest.mark.parametrize("html", GOOD)
def test_links_and_relative_urls_are_free(tmp_path: Path, html: str) -> None:
    """A visitor may follow a link; nothing is loaded by it."""
    (tmp_path / "index.html").write_text(html, "utf-8")
    refuse_elsewhere(tmp_path)


def test_the_page_for_wrong_addresses_may_be_rooted(tmp_path: Path) -> None:
    """The page for wrong addresses may be rooted, but not on another host."""
    page = tmp_path / "404.html"
    page.write_text('<script src="/assets/x.js"></script>', "utf-8")
    refuse_elsewhere(tmp_path)
    page.write_text('<script src="https://cdn.example/x.js"></script>', "utf-8")
    with pytest.raises(SiteError, match="no other host"):
        refuse_elsewhere(tmp_path)


def test_style_sheets_are_read_too(tmp_path: Path) -> None:
    """Imports and pictures; names of XML are not loads."""
    (tmp_path / "a.css").write_text('@import "https://a.example/x.css";', "utf-8")
    (tmp_path / "b.css").write_text("p{background:url(//b.example/y.png)}", "utf-8")
    svg = "p{background:url('data:image/svg+xml,<svg xmlns=\"http://www.w3.org/\"/>')}"
    (tmp_path / "c.css").write_text(svg, "utf-8")
    assert list(elsewhere(tmp_path)) == [
        ("a.css", "https://a.example/x.css"),
        ("b.css", "//b.example/y.png"),
    ]
