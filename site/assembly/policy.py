"""What a browser may do with the pages of the site: the headers they come with.

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
_PYTHON = f"{_SELF} 'wasm-unsafe-eval' 'unsafe-eval'"

ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # whoever opened the page has no handle of it, and so cannot change its address
    "Cross-Origin-Opener-Policy": "same-origin",
    # with it a page is isolated: Workers of Python's may share memory with it
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self), payment=()",
}
"""Headers that all files have, whatever their kind."""
POLICY = "Content-Security-Policy"


def kind_of(path: str) -> str:
    """The kind of a file by its path in the site, such as `demo/live/index.html`."""
    if path.startswith(LIVE_FOLDER):
        return LIVE
    return DEMO if path.startswith(DEMO_FOLDER) else MANUAL


def directives(kind: str) -> dict[str, str]:
    """The content security policy of a kind of files, by directive."""
    python = kind != MANUAL
    return {
        "default-src": _NONE,
        "script-src": _PYTHON if python else _SELF,
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


def widest() -> dict[str, str]:
    """What any page of the site may: for hosts that add rules up and take none away."""
    return {**directives(LIVE), "frame-src": _SELF}


def written(said: dict[str, str]) -> str:
    """Directives as the header has them."""
    return "; ".join(f"{name} {sources}" for name, sources in said.items())


def headers(kind: str) -> dict[str, str]:
    """All headers of a kind of files."""
    return {POLICY: written(directives(kind)), **ALWAYS}


def meta_policy(kind: str) -> str:
    """The policy as a page itself can say it: not who may frame it."""
    said = directives(kind)
    del said["frame-ancestors"]
    return written(said)
