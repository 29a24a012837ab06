"""Check how far a program in the playground reaches: other hosts, the next program, the
page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.foreign_web_servers import (
    ViolationReports,
    host_without_headers,
    third_party_host,
)
from tests.browser.patched_demo_page import Change, OpenPage, open_with_changes
from tests.browser.playground_page import LITTLE_MEMORY, run_program, wait_until_ready
from tests.built_site_fixture import BuiltSite

pytestmark = pytest.mark.requires_browser


REACH_CODE = """\
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


def reach_program(host: str, min_refusals: int) -> str:
    """Return a program that tries to reach `host` and waits for this many refusals."""
    return f"HOST, LEAST = {host!r}, {min_refusals}\n{REACH_CODE}"


def check_host_unreachable(browser: Browser, url: str, host: str) -> None:
    """Check that the playground promises that a program reaches no `host`, and that
    none does.
    """
    page = browser.new_page()
    page.add_init_script(LITTLE_MEMORY)
    page.goto(f"{url}demo/playground/")
    wait_until_ready(page)
    expect(page.locator("#promise")).to_contain_text("Nothing leaves this machine")
    output = run_program(page, reach_program(host, 1))
    assert output.startswith("[] ['refused', 'refused', 'refused'] ["), output
    assert output.rstrip().endswith(f"['{host}import.js']"), output
    page.context.close()


@pytest.mark.parametrize("headers", [True, False], ids=["headers", "no headers"])
def test_a_program_reaches_no_other_host(
    browser: Browser,
    built_site: BuiltSite,
    site_url: str,
    violations: ViolationReports,
    headers: bool,
) -> None:
    """A program reaches no other host, whether or not the site's host sends headers."""
    with (
        host_without_headers(built_site) as plain_url,
        third_party_host() as (host, requests),
    ):
        violations.ignore_hosts(host)
        check_host_unreachable(browser, site_url if headers else plain_url, host)
        assert requests == []


@pytest.mark.parametrize(
    "policy",
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
def test_page_policy_holds_where_host_policy_is_incomplete(
    browser: Browser, built_site: BuiltSite, policy: str
) -> None:
    """The page's policy holds where the host's own leaves a gap."""
    with (
        host_without_headers(built_site, policy) as plain_url,
        third_party_host() as (host, requests),
    ):
        check_host_unreachable(browser, plain_url, host)
        assert requests == []


@pytest.fixture(scope="module")
def unsealed_playground(browser: Browser, site_url: str) -> Iterator[Page]:
    """Yield the playground with every restriction of its Workers removed."""
    page = browser.new_page()
    page.add_init_script(LITTLE_MEMORY)
    body = "export const seal = () => {}; export const limited = (post) => post;"
    page.route(
        "**/demo/sealed.js",
        lambda route: route.fulfill(body=body, content_type="text/javascript"),
    )
    page.goto(f"{site_url}demo/playground/")
    yield wait_until_ready(page)
    page.context.close()


def test_policy_alone_keeps_programs_in(
    unsealed_playground: Page, violations: ViolationReports
) -> None:
    """The content security policy alone keeps a program in, with the Workers' own
    restrictions removed.
    """
    with third_party_host() as (host, requests):
        violations.ignore_hosts(host, host.replace("http", "ws"))
        output = run_program(unsealed_playground, reach_program(host, 3))
        assert "'fetch', 'XMLHttpRequest'" in output
        assert "['refused', 'refused', 'refused']" in output
        for refused_path in ("fetch", "import.js"):
            assert f"'{host}{refused_path}'" in output
        assert host.replace("http", "ws") in output
        assert requests == []


def test_nothing_is_promised_without_headers_and_policy(
    open_page: OpenPage,
) -> None:
    """A host without headers and a page without a policy promise nothing, as in the
    checkout.
    """
    changes: dict[str, Change] = {
        "policy.js": lambda text: text.replace(
            "function closes(policies) {", "function closes(policies) { return false;"
        ),
        "worker.js": lambda _: "",  # no program is run here
    }
    page = open_with_changes(open_page, "playground/", changes)
    expect(page.locator("#promise")).to_contain_text("run only what you trust")
    assert "Nothing leaves" not in page.inner_text(".intro")


def test_promise_names_the_only_reachable_host(
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


OTHER_MESSAGES_CODE = """\
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


def test_program_reaches_page_by_post_messages_only(bench: Page) -> None:
    """A program speaks to the page by posts alone, which have an end.

    What it makes up in its Worker is no message of the page, what it writes past
    Python's streams goes nowhere, and it cannot leave a run without end.
    """
    output = run_program(bench, OTHER_MESSAGES_CODE)
    assert output.startswith("after"), output
    assert "close is not defined" in output
    expect(bench.locator(".problem")).to_have_count(0)
    messages = bench.evaluate("heard.map((one) => JSON.stringify(one))")
    assert '{"posted":{"out":"after"},"buffers":[]}' in messages
    assert not [message for message in messages if "flood" in message]


CUSTOM_OP_CODE = """\
import rlxweb
rlxweb.register_custom('halve', arity=1, reference=lambda xp, a, x: x / 2)
"""


def test_runs_are_isolated_from_each_other(bench: Page) -> None:
    """Each run knows no names, ops, patches or files of the others.

    A run that patches what prints is told to have said nothing.
    """
    patch_code = (
        f"{CUSTOM_OP_CODE}import builtins, json, sys, numpy as np, js\n"
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
    assert run_program(bench, patch_code).strip() == "The program printed nothing."
    check_code = (
        f"{CUSTOM_OP_CODE}import os, js, numpy as np\n"  # not: the name is taken
        "print(np.pi > 3.1, callable(rlxweb.welch_peaks), hasattr(js, 'mark'),"
        " os.path.exists('/tmp/left'), 'x' in globals())"
    )
    assert run_program(bench, check_code).strip() == "True True False False False"


FORGED_MESSAGES_CODE = """\
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


def test_forged_messages_are_ignored(
    unsealed_playground: Page, is_full_tier: bool
) -> None:
    """Messages that a program made up break nothing, if it could send them.

    A made-up end is the end. Python restarts after each, which takes seconds: tiers
    other than the full one take the first.
    """
    page = unsealed_playground
    for end in FORGED_ENDS if is_full_tier else FORGED_ENDS[:1]:
        code = (
            f"{FORGED_MESSAGES_CODE}for k in range(9):\n    send({end})\nwhile "
            f"True: pass"
        )
        assert "<b>fake</b>" in run_program(page, code), (
            end
        )  # after the one before, too
    output = run_program(page, FORGED_MESSAGES_CODE + "print('true')")
    assert "<b>fake</b>" in output
    assert "true" in output
    assert "more lines, which are not shown" in output
    assert page.locator("#output img, #output b").count() == 0
    expect(page.locator(".problem")).to_have_count(0)
