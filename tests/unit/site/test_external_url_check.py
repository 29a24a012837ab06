"""Pages of the site that load from another host or by an absolute path are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from assembly.errors import SiteError
from assembly.external_url_check import iter_external_urls, refuse_external_urls

EXTERNAL_LOADS = [
    '<script src="https://cdn.example/x.js"></script>',
    '<script type="module" src="//cdn.example/x.js"></script>',
    '<link rel="stylesheet" href="https://fonts.example/css">',
    '<link rel="preconnect" href="https://fonts.example" crossorigin>',
    '<img alt="" src="HTTP://img.example/x.png">',
    '<iframe src=" /demo/live/"></iframe>',
    '<script src="/runtime/pyodide.js"></script>',
]
ALLOWED_TAGS = [
    '<a href="https://example.org/">a link</a>',
    '<link rel="canonical" href="https://example.org/">',
    '<script src="../runtime/pyodide.js"></script><script>1</script>',
    '<link rel="icon" href="data:,">',
    '<img alt="" src="a.png">',
]


@pytest.mark.parametrize("html", EXTERNAL_LOADS)
def test_a_page_with_external_loads_is_refused(tmp_path: Path, html: str) -> None:
    """A page with external loads is refused and named."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "index.html").write_text(html, "utf-8")
    with pytest.raises(SiteError, match=r"deep/index\.html loads"):
        refuse_external_urls(tmp_path)


@pytest.mark.parametrize("html", ALLOWED_TAGS)
def test_links_and_relative_urls_are_allowed(tmp_path: Path, html: str) -> None:
    """Links to other hosts are allowed, since they load nothing."""
    (tmp_path / "index.html").write_text(html, "utf-8")
    refuse_external_urls(tmp_path)


def test_the_404_page_may_use_absolute_paths(tmp_path: Path) -> None:
    """The 404 page may use absolute paths, but no other host."""
    page = tmp_path / "404.html"
    page.write_text('<script src="/assets/x.js"></script>', "utf-8")
    refuse_external_urls(tmp_path)
    page.write_text('<script src="https://cdn.example/x.js"></script>', "utf-8")
    with pytest.raises(SiteError, match=r"cdn.example.*relative URLs only"):
        refuse_external_urls(tmp_path)


def test_style_sheets_are_read_too(tmp_path: Path) -> None:
    """Imports and images of style sheets are loads; XML namespaces are not."""
    (tmp_path / "a.css").write_text('@import "https://a.example/x.css";', "utf-8")
    (tmp_path / "b.css").write_text("p{background:url(//b.example/y.png)}", "utf-8")
    svg = "p{background:url('data:image/svg+xml,<svg xmlns=\"http://www.w3.org/\"/>')}"
    (tmp_path / "c.css").write_text(svg, "utf-8")
    assert list(iter_external_urls(tmp_path)) == [
        ("a.css", "https://a.example/x.css"),
        ("b.css", "//b.example/y.png"),
    ]
