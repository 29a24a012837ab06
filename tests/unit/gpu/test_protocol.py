"""Every port has exactly the verbs of the protocol, with the same signatures.

Read from the source, so that a port which only a browser can import is checked too.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.command_line import ROOT

GPU = ROOT / "rlxweb" / "gpu"
PORTS = {
    "NativePort": GPU / "native.py",
    "BrowserPort": GPU / "browser.py",
    "FakePort": ROOT / "tests" / "fake_port.py",
}


def public_methods(path: Path, name: str) -> dict[str, str]:
    """Each public method of a class: `async def open(self, want: Want) -> …`."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    (found,) = (n for n in body if isinstance(n, ast.ClassDef) and n.name == name)
    return {
        node.name: " ".join(
            [
                *(f"@{ast.unparse(d)}" for d in node.decorator_list),
                type(node).__name__,
                f"({ast.unparse(node.args)})",
                ast.unparse(node.returns) if node.returns else "?",
            ]
        )
        for node in found.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
    }


@pytest.mark.parametrize("name", PORTS)
def test_a_port_defines_exactly_the_protocol(name: str) -> None:
    """A port's verbs are its own; what it tells of its state comes from `Books`."""
    told = public_methods(GPU / "books.py", "Books")
    verbs = public_methods(PORTS[name], name)
    assert told | verbs == public_methods(GPU / "port.py", "Port")


def test_the_protocol_has_nine_verbs() -> None:
    """Growing it makes every port harder to write, so it takes an edit here."""
    verbs = "open buffer write pipeline submit read timed destroy close"
    told = public_methods(GPU / "port.py", "Port")
    assert set(told) == {*verbs.split(), "facts", "compiler", "live"}
