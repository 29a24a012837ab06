"""Names that are loaded when they are used, and that every list of them agrees."""

from __future__ import annotations

import ast
import os
import sys
import types
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import rlxweb
from rlxweb import names
from rlxweb.names import found, from_above, hand_down, publish, published
from tests.command_line import ROOT, python

MODULES = [
    import_module(m) for m in ("rlxweb", "rlxweb.devices", "rlxweb.cost", "rlxweb.rlx")
]
LAZY = [
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in sorted(ROOT.glob("rlxweb/**/__init__.py"))
    if "__all__ = published(__name__)" in path.read_text("utf-8")
]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """An empty module, and nothing published beyond this test."""
    for table in ("_published", "_answers"):
        monkeypatch.setattr(names, table, dict(getattr(names, table)))
    made = types.ModuleType("made_for_test")
    monkeypatch.setitem(sys.modules, "made_for_test", made)
    return made


def test_a_published_name_is_loaded_once(module: types.ModuleType) -> None:
    """A published name is an attribute once it is loaded; unknown ones are missing."""
    publish("made_for_test", {"math": "pi", "pathlib": "Path"})
    assert published("made_for_test") == ["Path", "pi"]
    assert not hasattr(module, "Path")
    assert found("made_for_test", "Path") is Path
    assert module.Path is Path
    with pytest.raises(AttributeError, match="'made_for_test' has no attribute 'tau'"):
        found("made_for_test", "tau")
    assert published("nothing") == []


def test_what_is_handed_down_is_found_from_below(module: types.ModuleType) -> None:
    hand_down({"basename": "os.path"})
    assert from_above("basename") is os.path.basename
    with pytest.raises(KeyError):
        from_above("dirname")


def test_missing_names_are_missing_and_known_ones_are_listed() -> None:
    for one in MODULES:
        with pytest.raises(AttributeError, match=f"'{one.__name__}' has no attribute"):
            _ = one.no_such_name
        assert set(published(one.__name__)) == set(one.__all__)
    assert set(rlxweb.__all__) <= set(dir(rlxweb))


@pytest.mark.parametrize("of", MODULES, ids=lambda of: of.__name__)
def test_every_public_name_is_defined_where_it_is_said_to_live(
    of: types.ModuleType,
) -> None:
    """No public name is passed on by a module that only imports it."""
    wrong = []
    for name in of.__all__:
        value, home = getattr(of, name), names._published[of.__name__][name]
        own = getattr(value, "__module__", home)
        # second names are of what is defined elsewhere
        if home not in ("rlxweb.rlx.aliases", own):
            wrong.append(f"{name} is defined in {own}, not in {home}")
    assert wrong == []


@pytest.mark.parametrize("of", LAZY)
def test_no_published_name_is_that_of_a_module_beside_it(of: str) -> None:
    """No published name is a module's beside it, whose import would overwrite it."""
    package = import_module(of)
    beside = {module.name for module in iter_modules(package.__path__)}
    assert set(package.__all__) & beside == set()


@pytest.mark.parametrize("of", ["rlxweb", "rlxweb.cost", "rlxweb.rlx"])
def test_type_checkers_see_the_names_that_are_published(of: str) -> None:
    """Type checkers see the published names at the same homes as the table."""
    path = ROOT.joinpath(*of.split("."), "__init__.py")
    seen = {
        alias.asname or alias.name: (node.module, alias.name)
        for block in ast.parse(path.read_text("utf-8")).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {n: (home, n) for n, home in names._published[of].items()}


def modules_after(code: str) -> set[str]:
    """Our modules that a fresh interpreter has loaded after some code."""
    more = "; import sys; print(*(m for m in sys.modules if m.startswith('rlxweb')))"
    said = python("-c", code + more)
    assert said.code == 0, said.err
    return set(said.out.split())


def test_import_of_the_package_loads_names_alone() -> None:
    assert modules_after("import rlxweb") == {"rlxweb", "rlxweb.names"}


def test_a_name_loads_what_it_needs_and_no_engine() -> None:
    loaded = modules_after("import rlxweb; rlxweb.Device; rlxweb.Graph")
    assert {"rlxweb.device", "rlxweb.ir.graph"} < loaded
    rooms = {name.split(".")[1] for name in loaded if "." in name}
    ground = {"names", "advice", "printable", "errors", "limits", "given", "forked"}
    ground |= {"spelling"}
    assert rooms <= ground | {"bfloat16", "device", "ir", "packed_weights"}
