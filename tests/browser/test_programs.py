"""How far a program in the playground reaches: hosts, the next program, the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.demo_page import Change, OpenPage, all_changed
from tests.browser.other_hosts import Reports, elsewhere, plain_host
from tests.browser.playground_page import LITTLE_MEMORY, ready, run
from tests.site_build import BuiltSite

pytestmark = pytest.mark.requires_browser


REACH = """\
import js
from pyodide.code import run_js
names = [n for n in (
    'fetch', 'XMLHttpRequest', 'WebSocket', 'EventSource', 'WebTransport', 'Worker',
    'SharedWorker', 'importScripts', 'indexedDB', 'caches', 'BroadcastChannel',
    'FontFace', 'postMessage') if hasattr(js, n)]
told = run_js(
    "globalThis.told = [];"
    " addEventListener('securitypolicyviolation',"
    " (event) => told.push(event.blockedURI));"
    " told")
said = []
for way in (
    "fetch(HOST + 'fetch')",
    "import(HOST + 'import.js')",
    "new Promise((done, no) => { const w = new WebSocket(HOST.replace('http', 'ws'));"
    " w.onopen = done; w.onerror = () => no(Error('no')); })",
):
    try:
        await run_js(way.replace('HOST', repr(HOST)))
        said.append(way[:12] + ' went through')
    except Exception as error:
        said.append('refused')
await run_js("new Promise((done) => { const look = () =>"
             f" told.length < {LEAST} ? setTimeout(look, 10) : done(); look(); }})")
print(names, said, sorted(told.to_py()))
"""


def reach(host: str, least: int) -> str:
    """The program that tries to reach `host` and waits for so many refusals."""
    return f"HOST, LEAST = {host!r}, {least}\n{REACH}"


def refuses(browser: Browser, url: str, host: str) -> None:
    """The playground there promises that a program reaches no `host`, and none does."""
    page = browser.new_page()
    page.add_init_script(LITTLE_MEMORY)
    page.goto(f"{url}demo/playground/")
    ready(page)
    expect(page.locator("#promise")).to_contain_text("Nothing leaves this machine")
    said = run(page, reach(host, 1))
    assert said.startswith("[] ['refused', 'refused', 'refused'] ["), said
    assert said.rstrip().endswith(f"['{host}import.js']"), said
    page.context.close()


@pytest.mark.parametrize("headers", [True, False], ids=["headers", "no headers"])
def test_a_program_reaches_no_other_host(
    browser: Browser,
    built_site: BuiltSite,
    site_url: str,
    violations: Reports,
    headers: bool,
) -> None:
    """A program reaches no other host, whether or not the site's host sends headers."""
    with plain_host(built_site) as plain, elsewhere() as (host, asked):
        violations.may_tell_of(host)
        refuses(browser, site_url if headers else plain, host)
        assert asked == []


@pytest.mark.parametrize(
    "sent",
    [
        "connect-src 'self'",
        pytest.param(
            "connect-src 'self'; script-src * 'unsafe-eval'", marks=pytest.mark.full
        ),
        pytest.param(
            "connect-src *; connect-src 'self'; script-src 'self' 'unsafe-eval'",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "connect-src 'self'; script-src 'self' 'unsafe-eval'; script-src-elem *",
            marks=pytest.mark.full,
        ),
    ],
)
def test_half_a_policy_of_the_host_is_none(
    browser: Browser, built_site: BuiltSite, sent: str
) -> None:
    """The page's policy holds where the host's own leaves a door open."""
    with plain_host(built_site, sent) as plain, elsewhere() as (host, asked):
        refuses(browser, plain, host)
        assert asked == []


@pytest.fixture(scope="module")
def unsealed(browser: Browser, site_url: str) -> Iterator[Page]:
    """The playground with every door of its Workers left open."""
    page = browser.new_page()
    page.add_init_script(LITTLE_MEMORY)
    body = "export const seal = () => {}; export const limited = (post) => post;"
    page.route(
        "**/demo/sealed.js",
        lambda route: route.fulfill(body=body, content_type="text/javascript"),
    )
    page.goto(f"{site_url}demo/playground/")
    yield ready(page)
    page.context.close()


def test_the_list_of_doors_is_not_all_that_holds(
    unsealed: Page, violations: Reports
) -> None:
    """The policy alone keeps a program in, with every door left open."""
    with elsewhere() as (host, asked):
        violations.may_tell_of(host, host.replace("http", "ws"))
        said = run(unsealed, reach(host, 3))
        assert "'fetch', 'XMLHttpRequest'" in said
        assert "['refused', 'refused', 'refused']" in said
        for refused in ("fetch", "import.js"):
            assert f"'{host}{refused}'" in said
        assert host.replace("http", "ws") in said
        assert asked == []


def test_where_nobody_holds_programs_in_nothing_is_promised(
    open_page: OpenPage,
) -> None:
    """A host without headers and a page without a policy: as in the checkout."""
    changes: dict[str, Change] = {
        "policy.js": lambda text: text.replace(
            "function closes(policies) {", "function closes(policies) { return false;"
        ),
        "worker.js": lambda _: "",  # no program is run here
    }
    page = all_changed(open_page, "playground/", changes)
    expect(page.locator("#promise")).to_contain_text("run only what you trust")
    assert "Nothing leaves" not in page.inner_text(".intro")


def test_the_promise_names_the_one_host_that_can_hear(
    launch: Callable[..., Browser], site_url: str
) -> None:
    """A program can ask the site's own host for a script: only where that is this very
    machine does nothing leave it.
    """
    browser = launch("--host-resolver-rules=MAP site.example 127.0.0.1")
    page = browser.new_page()
    page.route("**/runtime/**", lambda route: route.abort())  # Python is not needed
    page.goto(f"{site_url.replace('127.0.0.1', 'site.example')}demo/playground/")
    promise = page.locator("#promise")
    expect(promise).to_contain_text("another host than this site's own, site.example")
    assert "Nothing leaves" not in page.inner_text(".intro")
    browser.close()


BESIDE_POSTS = """\
import os
from pyodide.code import run_js
run_js('for (const id of [1, 2, 3]) dispatchEvent(new MessageEvent('
       '"message", { data: { id, unmount: "/tmp" } }))')
for i in range(50):
    os.write(2, b'flood' + bytes([10]))
run_js('Promise.reject(new Error("flood")); 0')
print('after')
run_js('close()')
"""


def test_a_program_speaks_by_posts_alone(bench: Page) -> None:
    """A program speaks to the page by posts alone, which have an end.

    What it makes up in its Worker is no message of the page, what it writes past
    Python's streams goes nowhere, and it cannot leave a run without end.
    """
    said = run(bench, BESIDE_POSTS)
    assert said.startswith("after"), said
    assert "close is not defined" in said
    expect(bench.locator(".problem")).to_have_count(0)
    heard = bench.evaluate("heard.map((one) => JSON.stringify(one))")
    assert '{"posted":{"out":"after"},"buffers":[]}' in heard
    assert not [one for one in heard if "flood" in one]


CUSTOM = """\
import rlxweb
rlxweb.register_custom('halve', arity=1, reference=lambda xp, a, x: x / 2)
"""


def test_each_run_knows_nothing_of_the_others(bench: Page) -> None:
    """Each run knows no names, ops, patches or files of the others.

    A run that patches what prints is told to have said nothing.
    """
    patch = (
        f"{CUSTOM}import builtins, json, sys, numpy as np, js\n"
        "x = 1\n"
        "from pyodide.code import run_js\n"
        "builtins.print = lambda *a: None\n"
        'json.dumps = lambda *a, **k: \'{"out": "stolen"}\'\n'
        "rlxweb.welch_peaks = None\n"
        "np.pi = 3\n"
        "run_js('globalThis.mark = 1; String.prototype.trim = () => 0')\n"
        "with open('/tmp/left', 'w') as file:\n"
        "    file.write('x')\n"
    )
    assert run(bench, patch).strip() == "It ran and said nothing."
    look = (
        f"{CUSTOM}import os, js, numpy as np\n"  # not: the name is taken
        "print(np.pi > 3.1, callable(rlxweb.welch_peaks), hasattr(js, 'mark'),"
        " os.path.exists('/tmp/left'), 'x' in globals())"
    )
    assert run(bench, look).strip() == "True True False False False"


FORGED = """\
import js
from pyodide.ffi import to_js
def send(what):
    js.postMessage(to_js(what, dict_converter=js.Object.fromEntries))
for what in (
    None, 5, "x", [], {}, {"posted": None}, {"posted": 7},
    {"posted": {"out": {"a": 1}}},
    {"posted": {"plot": {"lines": 10**9, "labels": 5, "log": 3}}, "buffers": []},
    {"posted": {"plot": {"lines": 1}}, "buffers": [1, 2]},
    {"posted": {"heat": {"rows": 10**8, "columns": 10**8}}, "buffers": []},
    {"posted": {"heat": {"rows": -1, "columns": 2}}},
    {"id": 99, "result": 1}, {"id": "constructor", "result": 1},
    {"progress": "ready"}, {"progress": {"a": 1}}, {"ready": True}, {"id": None},
    {"posted": {"out": "<img src=x onerror=alert(1)><b>fake</b>"}},
):
    send(what)
"""


FORGED_ENDS = (
    "{'id': k, 'result': {'error': {'frames': 5, 'message': [1]}}}",
    "{'id': k, 'error': {'message': {'a': 1}}}",
    "{'ended': {'type': 3}}",
)


def test_messages_that_a_program_made_up_are_no_messages(
    unsealed: Page, is_full_tier: bool
) -> None:
    """Messages that a program made up break nothing, if it could send them.

    A made-up end is the end. Python restarts after each, which takes seconds: tiers
    other than the full one take the first.
    """
    page = unsealed
    for end in FORGED_ENDS if is_full_tier else FORGED_ENDS[:1]:
        code = f"{FORGED}for k in range(9):\n    send({end})\nwhile True: pass"
        assert "<b>fake</b>" in run(page, code), end  # after the one before, too
    said = run(page, FORGED + "print('true')")
    assert "<b>fake</b>" in said
    assert "true" in said
    assert "more lines, which are not shown" in said
    assert page.locator("#output img, #output b").count() == 0
    expect(page.locator(".problem")).to_have_count(0)
