"""The JavaScript of this room: one module, whose source is read in parts.

runtime.js           the plan: loading, running, checking
runtime_browser.js   adapters and files
runtime_arrays.js    arrays, and Welch's method around a run

Beside it a page that runs a plan and shows it: page.html, early.js, page.js, page.css.
"""

from __future__ import annotations

from importlib import resources

PARTS = ("runtime.js", "runtime_browser.js", "runtime_arrays.js")


def module_text() -> str:
    """The module that runs any plan: its parts, one after the other."""
    return "".join(source(part) for part in PARTS)


def source(file: str) -> str:
    """A text that lies beside this one."""
    return (resources.files("rlxweb.export") / file).read_text(encoding="utf-8")
