"""Every port has exactly the methods of the protocol, with the same signatures.

Read from the source, so that a port which only a browser can import is checked too.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.cli_runners import ROOT

GPU = ROOT / "rlxweb" / "gpu"
PORT_FILES = {
    "WgpuPort": GPU / "wgpu_port.py",
    "BrowserPort": GPU / "browser_port.py",
    "FakePort": ROOT / "tests" / "fake_gpu_port.py",
}


def public_methods(path: Path, name: str) -> dict[str, str]:
    """Return each public method of a class as text: kind, parameters and result."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    (class_node,) = (n for n in body if isinstance(n, ast.ClassDef) and n.name == name)
    return {
        node.name: " ".join(
            [
                *(f"@{ast.unparse(d)}" for d in node.decorator_list),
                type(node).__name__,
                f"({ast.unparse(node.args)})",
                ast.unparse(node.returns) if node.returns else "?",
            ]
        )
        for node in class_node.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
    }


@pytest.mark.parametrize("name", PORT_FILES)
def test_a_port_defines_exactly_the_protocol(name: str) -> None:
    """A port's verbs are its own; what it tells of its state comes from `PortBase`."""
    state_members = public_methods(GPU / "port_base.py", "PortBase")
    methods = public_methods(PORT_FILES[name], name)
    assert state_members | methods == public_methods(
        GPU / "port_protocol.py", "GpuPort"
    )


def test_the_protocol_has_nine_methods() -> None:
    """A new method makes every port harder to write, so it needs an edit here."""
    methods = (
        "open create_buffer write create_pipeline submit read time_command_lists "
        "destroy close"
    )
    members = public_methods(GPU / "port_protocol.py", "GpuPort")
    assert set(members) == {*methods.split(), "facts", "compiler", "live_handles"}
