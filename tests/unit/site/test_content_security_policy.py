"""Content security policy of the site, in the format of each host and in the pages."""

from __future__ import annotations

import fnmatch
import json
import re
from pathlib import Path

import pytest
from assembly.errors import SiteError
from assembly.http_headers import (
    COMMON_HEADERS,
    DEMO,
    LIVE,
    MANUAL,
    POLICY_HEADER,
    file_kind,
    headers,
    meta_policy,
    policy_directives,
    policy_text,
    widest_directives,
)
from assembly.page_content_policy import add_policy, refuse_inline
from assembly.static_host_config import HOST_FILES, write_host_files

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
    """Return a site with a file of every kind and its hosts' files."""
    for path in PATHS:
        file = tmp_path / (path if Path(path).suffix else f"{path}index.html")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("<!doctype html><head></head>", "utf-8")
    write_host_files(tmp_path)
    return tmp_path


def test_directives_of_each_kind() -> None:
    """Only demos evaluate, and only the live demo is framed, by this site alone."""
    for kind in (MANUAL, DEMO, LIVE):
        policy = policy_directives(kind)
        for directive in ("default-src", "object-src", "base-uri", "form-action"):
            assert policy[directive] == "'none'"
        assert policy["connect-src"] == "'self'"
        assert "unsafe-inline" not in policy_text(policy)
        assert ("unsafe-eval" in policy["script-src"]) is (kind != MANUAL)
        assert policy["frame-ancestors"] == ("'self'" if kind == LIVE else "'none'")
        assert "frame-ancestors" not in meta_policy(kind)  # which a page cannot say


def test_the_widest_policy_allows_what_any_page_may() -> None:
    """The widest policy includes every page's, since hosts may combine rules."""
    for kind in (MANUAL, DEMO, LIVE):
        for name, sources in policy_directives(kind).items():
            allowed = set(sources.split()) - {"'none'"}
            assert allowed <= set(widest_directives()[name].split()), (kind, name)


@pytest.mark.parametrize(("path", "kind"), PATHS.items())
def test_every_host_sends_a_file_its_own_policy(
    site: Path, path: str, kind: str
) -> None:
    """Each host's file is interpreted as that host does and gives the page's own
    policy.
    """
    assert file_kind(path) == kind
    want = headers(kind)
    assert netlify_headers(site / "_headers", path) == (
        [policy_text(widest_directives())]
        + ([] if kind == LIVE else [want[POLICY_HEADER]]),
        COMMON_HEADERS,
    )
    assert apache_headers(site, path) == want
    assert nginx_headers(site / "nginx-headers.conf", path) == want
    assert vercel_headers(site / "vercel.json", path) == want
    assert azure_headers(site / "staticwebapp.config.json", path) == want


def netlify_headers(file: Path, path: str) -> tuple[list[str], dict[str, str]]:
    """Return the headers of Netlify and Cloudflare, which add up all matching rules."""
    policies, other_headers, is_matching = [], {}, False
    for line in file.read_text("utf-8").splitlines():
        if line.startswith("/"):
            is_matching = fnmatch.fnmatchcase(f"/{path}", line)
        elif is_matching and line.startswith("  "):
            name, value = line.strip().split(": ", 1)
            if name == POLICY_HEADER:
                policies.append(value)
            else:
                other_headers[name] = value
    return policies, other_headers


def apache_headers(site: Path, path: str) -> dict[str, str]:
    """Return the headers of Apache: the .htaccess files on the way down, the last of
    which wins.
    """
    sent_headers: dict[str, str] = {}
    folders = [site, *(site / p for p in reversed(Path(f"{path}x").parents))]
    for folder in folders:
        if (folder / ".htaccess").exists():
            text = (folder / ".htaccess").read_text("utf-8")
            sent_headers |= dict(re.findall(r'Header always set (\S+) "(.*)"', text))
    return sent_headers


def nginx_headers(file: Path, path: str) -> dict[str, str]:
    """Return the headers of nginx: `set` and `if` in order, then add_header."""
    sent_headers, policy = {}, ""
    for line in file.read_text("utf-8").splitlines():
        rule = re.match(r'(?:if \(\$uri ~ "(.*?)"\) \{ )?set \S+ "(.*?)";', line)
        if rule and (rule[1] is None or re.search(rule[1], f"/some/path/{path}")):
            policy = rule[2]
        added = re.match(r'add_header (\S+) "?(.*?)"? always;$', line)
        if added:
            sent_headers[added[1]] = policy if added[2].startswith("$") else added[2]
    return sent_headers


def test_hosts_declare_the_type_of_mjs_files(site: Path) -> None:
    """Hosts declare .mjs files as JavaScript; Pyodide is one, and browsers run no other
    type.
    """
    expected_lines = {
        "nginx-headers.conf": r"\.mjs$ { types { } default_type text/javascript; }",
        ".htaccess": "AddType text/javascript .js .mjs",
        "staticwebapp.config.json": '".mjs": "text/javascript"',
    }
    for name, line in expected_lines.items():
        assert line in (site / name).read_text("utf-8")


def vercel_headers(file: Path, path: str) -> dict[str, str]:
    """Return the headers of Vercel, where the last matching rule wins."""
    sent_headers: dict[str, str] = {}
    for rule in json.loads(file.read_text("utf-8"))["headers"]:
        if re.fullmatch(rule["source"], f"/{path}"):
            sent_headers |= {
                header["key"]: header["value"] for header in rule["headers"]
            }
    return sent_headers


def azure_headers(file: Path, path: str) -> dict[str, str]:
    """Return the headers of Azure: the first matching route, over the global ones."""
    config = json.loads(file.read_text("utf-8"))
    for rule in config["routes"]:
        if fnmatch.fnmatchcase(f"/{path}", rule["route"]):
            return {**config["globalHeaders"], **rule["headers"]}
    return config["globalHeaders"]


def test_host_files_exist_and_do_not_name_each_other(site: Path) -> None:
    """All host files exist, and no rule of one names another."""
    assert all((site / name).is_file() for name in HOST_FILES)
    assert "htaccess" not in (site / "_headers").read_text("utf-8")


def test_every_page_declares_its_policy_first(tmp_path: Path) -> None:
    """A page's policy precedes its first script, whatever the page's markup."""
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
        assert meta[1] == meta_policy(file_kind(name))
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
def test_a_page_with_inline_code_is_refused(tmp_path: Path, html: str) -> None:
    """A page with inline code is refused, since the policy would block it."""
    (tmp_path / "index.html").write_text(html, "utf-8")
    with pytest.raises(SiteError, match=r"index\.html has "):
        refuse_inline(tmp_path)


def test_data_blocks_and_script_files_are_allowed(tmp_path: Path) -> None:
    """JSON blocks and scripts in files of their own are allowed."""
    html = '<script type="application/json">{}</script><script src="a.js"></script>'
    (tmp_path / "index.html").write_text(html, "utf-8")
    refuse_inline(tmp_path)
