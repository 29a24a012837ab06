"""The content policy, in the words of each host and in the pages."""

from __future__ import annotations

import fnmatch
import json
import re
from pathlib import Path

import pytest
from assembly.errors import SiteError
from assembly.host_files import FILES, write_host_files
from assembly.inside import add_policy, refuse_inline
from assembly.policy import (
    ALWAYS,
    DEMO,
    LIVE,
    MANUAL,
    POLICY,
    directives,
    headers,
    kind_of,
    meta_policy,
    widest,
    written,
)

PATHS = {
    "": MANUAL,
    "index.html": MANUAL,
    "howto/eeg-file/": MANUAL,
    "runtime/pyodide.mjs": MANUAL,
    "demos/": MANUAL,
    "demo/worker.js": DEMO,
    "demo/playground/": DEMO,
    "demo/playground/index.html": DEMO,
    "demo/check/check.js": DEMO,
    "demo/live/": LIVE,
    "demo/live/live.js": LIVE,
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site with a file of every kind, and its hosts' files."""
    for path in PATHS:
        file = tmp_path / (path if Path(path).suffix else f"{path}index.html")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("<!doctype html><head></head>", "utf-8")
    write_host_files(tmp_path)
    return tmp_path


def test_what_each_kind_may() -> None:
    """Only demos evaluate, and only the live demo is framed, by this site alone."""
    for kind in (MANUAL, DEMO, LIVE):
        said = directives(kind)
        for closed in ("default-src", "object-src", "base-uri", "form-action"):
            assert said[closed] == "'none'"
        assert said["connect-src"] == "'self'"
        assert "unsafe-inline" not in written(said)
        assert ("unsafe-eval" in said["script-src"]) is (kind != MANUAL)
        assert said["frame-ancestors"] == ("'self'" if kind == LIVE else "'none'")
        assert "frame-ancestors" not in meta_policy(kind)  # which a page cannot say


def test_the_widest_policy_allows_what_any_page_may() -> None:
    """The widest policy holds every page's, since hosts may add rules up."""
    for kind in (MANUAL, DEMO, LIVE):
        for name, sources in directives(kind).items():
            allowed = set(sources.split()) - {"'none'"}
            assert allowed <= set(widest()[name].split()), (kind, name)


@pytest.mark.parametrize(("path", "kind"), PATHS.items())
def test_every_host_sends_a_file_its_own_policy(
    site: Path, path: str, kind: str
) -> None:
    """Read as each host reads its file."""
    assert kind_of(path) == kind
    want = headers(kind)
    assert added_up(site / "_headers", path) == (
        [written(widest())] + ([] if kind == LIVE else [want[POLICY]]),
        ALWAYS,
    )
    assert of_folders(site, path) == want
    assert of_nginx(site / "nginx-headers.conf", path) == want
    assert last_of(site / "vercel.json", path) == want
    assert first_of(site / "staticwebapp.config.json", path) == want


def added_up(file: Path, path: str) -> tuple[list[str], dict[str, str]]:
    """Netlify and Cloudflare: every rule that fits adds its headers."""
    policies, rest, fits = [], {}, False
    for line in file.read_text("utf-8").splitlines():
        if line.startswith("/"):
            fits = fnmatch.fnmatchcase(f"/{path}", line)
        elif fits and line.startswith("  "):
            name, value = line.strip().split(": ", 1)
            if name == POLICY:
                policies.append(value)
            else:
                rest[name] = value
    return policies, rest


def of_folders(site: Path, path: str) -> dict[str, str]:
    """Apache: the .htaccess files on the way down, the last one goes."""
    found: dict[str, str] = {}
    folders = [site, *(site / p for p in reversed(Path(f"{path}x").parents))]
    for folder in folders:
        if (folder / ".htaccess").exists():
            text = (folder / ".htaccess").read_text("utf-8")
            found |= dict(re.findall(r'Header always set (\S+) "(.*)"', text))
    return found


def of_nginx(file: Path, path: str) -> dict[str, str]:
    """Nginx: `set` and `if` in order, then add_header."""
    found, policy = {}, ""
    for line in file.read_text("utf-8").splitlines():
        rule = re.match(r'(?:if \(\$uri ~ "(.*?)"\) \{ )?set \S+ "(.*?)";', line)
        if rule and (rule[1] is None or re.search(rule[1], f"/some/path/{path}")):
            policy = rule[2]
        added = re.match(r'add_header (\S+) "?(.*?)"? always;$', line)
        if added:
            found[added[1]] = policy if added[2].startswith("$") else added[2]
    return found


def test_hosts_that_know_no_modules_by_mjs_are_told(site: Path) -> None:
    """Pyodide is one; browsers run none of another type, and nginx knows no type."""
    told = {
        "nginx-headers.conf": r"\.mjs$ { types { } default_type text/javascript; }",
        ".htaccess": "AddType text/javascript .js .mjs",
        "staticwebapp.config.json": '".mjs": "text/javascript"',
    }
    for name, line in told.items():
        assert line in (site / name).read_text("utf-8")


def last_of(file: Path, path: str) -> dict[str, str]:
    """Vercel: the last rule that fits."""
    found: dict[str, str] = {}
    for rule in json.loads(file.read_text("utf-8"))["headers"]:
        if re.fullmatch(rule["source"], f"/{path}"):
            found |= {one["key"]: one["value"] for one in rule["headers"]}
    return found


def first_of(file: Path, path: str) -> dict[str, str]:
    """Azure: the first route that fits, over the global ones."""
    said = json.loads(file.read_text("utf-8"))
    for rule in said["routes"]:
        if fnmatch.fnmatchcase(f"/{path}", rule["route"]):
            return {**said["globalHeaders"], **rule["headers"]}
    return said["globalHeaders"]


def test_nothing_of_a_host_is_a_secret_or_a_page(site: Path) -> None:
    """The files are there, and no rule of one names another."""
    assert all((site / name).is_file() for name in FILES)
    assert "htaccess" not in (site / "_headers").read_text("utf-8")


def test_every_page_says_its_policy_first(tmp_path: Path) -> None:
    """A page's policy comes before its first script, whatever the page looks like."""
    pages = {
        "index.html": '<!doctype html>\n<html><head lang="en"><script src="a.js">',
        "a/b.html": "<!DOCTYPE html><meta charset=utf-8><script src=a.js>",
        "demo/x.html": "<header><script src='a.js'></script>",
    }
    for name, text in pages.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    add_policy(tmp_path)
    for name, text in pages.items():
        new = (tmp_path / name).read_text("utf-8")
        meta = re.search(
            r'<meta http-equiv="Content-Security-Policy" content="(.*?)">', new
        )
        assert meta is not None
        assert meta[1] == meta_policy(kind_of(name))
        assert new.index(meta[0]) < new.index("<script")
        assert new.replace(meta[0], "") == text


@pytest.mark.parametrize(
    "html",
    [
        "<script>1</script>",
        '<script type="module">1</script>',
        "<style>p{}</style>",
        '<p style="color: red">',
        '<img alt="" src="a.png" onerror="x()">',
        '<a href=" JavaScript:x()">x</a>',
    ],
)
def test_a_page_with_code_in_it_is_refused(tmp_path: Path, html: str) -> None:
    """A page with code in it is refused, since the policy would break it."""
    (tmp_path / "index.html").write_text(html, "utf-8")
    with pytest.raises(SiteError, match=r"index\.html has "):
        refuse_inline(tmp_path)


def test_data_in_a_page_is_no_code(tmp_path: Path) -> None:
    """The theme's settings, and scripts of their own files."""
    html = '<script type="application/json">{}</script><script src="a.js"></script>'
    (tmp_path / "index.html").write_text(html, "utf-8")
    refuse_inline(tmp_path)
