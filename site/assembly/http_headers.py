"""HTTP headers of the site's pages, which limit what a browser lets them do.

There are three kinds of files. The manual runs its own scripts and nothing else. The
demos run Python: WebAssembly, and the few lines of JavaScript that Pyodide and rlxweb
evaluate. The live demo is one of them, and the manual's front page shows it in a frame.

A Worker obeys the content policy its own file came with, so every file has one. Where
the host sends none, a policy is in each page (`meta_policy`), and a demo starts its
Worker from a blob, which inherits it.
"""

from __future__ import annotations

MANUAL, DEMO, LIVE = "manual", "demo", "live"
DEMO_FOLDER, LIVE_FOLDER = "demo/", "demo/live/"
_SELF = "'self'"
_NONE = "'none'"
_PYTHON_SOURCES = f"{_SELF} 'wasm-unsafe-eval' 'unsafe-eval'"

COMMON_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # whoever opened the page has no handle of it, and so cannot change its address
    "Cross-Origin-Opener-Policy": "same-origin",
    # with it a page is isolated: Workers of Python's may share memory with it
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self), payment=()",
}
"""Headers of all kinds of files."""
POLICY_HEADER = "Content-Security-Policy"


def file_kind(path: str) -> str:
    """Return the kind of a file from its path in the site, such as
    `demo/live/index.html`.
    """
    if path.startswith(LIVE_FOLDER):
        return LIVE
    return DEMO if path.startswith(DEMO_FOLDER) else MANUAL


def policy_directives(kind: str) -> dict[str, str]:
    """Return the content security policy of a kind of files, by directive."""
    python = kind != MANUAL
    return {
        "default-src": _NONE,
        "script-src": _PYTHON_SOURCES if python else _SELF,
        "style-src": _SELF,
        "img-src": f"{_SELF} data:",
        "font-src": _SELF,
        "connect-src": _SELF,
        "worker-src": f"{_SELF} blob:" if python else _SELF,
        "frame-src": _NONE if python else _SELF,
        "object-src": _NONE,
        "base-uri": _NONE,
        "form-action": _NONE,
        "frame-ancestors": _SELF if kind == LIVE else _NONE,
    }


def widest_directives() -> dict[str, str]:
    """Return the directives that cover every page, for hosts that only add rules."""
    return {**policy_directives(LIVE), "frame-src": _SELF}


def policy_text(directives_by_name: dict[str, str]) -> str:
    """Return directives as the value of the policy header."""
    return "; ".join(
        f"{name} {sources}" for name, sources in directives_by_name.items()
    )


def headers(kind: str) -> dict[str, str]:
    """Return all headers of a kind of files."""
    return {POLICY_HEADER: policy_text(policy_directives(kind)), **COMMON_HEADERS}


def meta_policy(kind: str) -> str:
    """Return the policy for a page's meta element, which cannot say who may frame
    it.
    """
    page_directives = policy_directives(kind)
    del page_directives["frame-ancestors"]
    return policy_text(page_directives)
