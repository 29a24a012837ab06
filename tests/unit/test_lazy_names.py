"""Names that are loaded when first used, and the consistency of all lists of them."""

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
from rlxweb.core import lazy_names
from rlxweb.core.lazy_names import (
    load_provider,
    load_published,
    publish_names,
    published_names,
    register_providers,
)
from tests.cli_runners import ROOT, run_python

MODULES = [
    import_module(m) for m in ("rlxweb", "rlxweb.devices", "rlxweb.cost", "rlxweb.rlx")
]
LAZY_PACKAGES = [
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in sorted(ROOT.glob("rlxweb/**/__init__.py"))
    if "__all__ = published_names(__name__)" in path.read_text("utf-8")
]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Return an empty module; names published in a test are forgotten after it."""
    for table in ("_published_names", "_providers"):
        monkeypatch.setattr(lazy_names, table, dict(getattr(lazy_names, table)))
    module = types.ModuleType("made_for_test")
    monkeypatch.setitem(sys.modules, "made_for_test", module)
    return module


def test_a_published_name_is_loaded_once(module: types.ModuleType) -> None:
    """A published name is an attribute once it is loaded; unknown ones are missing."""
    publish_names("made_for_test", {"math": "pi", "pathlib": "Path"})
    assert published_names("made_for_test") == ["Path", "pi"]
    assert not hasattr(module, "Path")
    assert load_published("made_for_test", "Path") is Path
    assert module.Path is Path
    with pytest.raises(AttributeError, match="'made_for_test' has no attribute 'tau'"):
        load_published("made_for_test", "tau")
    assert published_names("nothing") == []


def test_a_registered_provider_is_loaded_by_name(module: types.ModuleType) -> None:
    register_providers({"basename": "os.path"})
    assert load_provider("basename") is os.path.basename
    with pytest.raises(KeyError):
        load_provider("dirname")


def test_unknown_names_raise_and_known_ones_are_listed() -> None:
    for package in MODULES:
        with pytest.raises(
            AttributeError, match=f"'{package.__name__}' has no attribute"
        ):
            _ = package.no_such_name
        assert set(published_names(package.__name__)) == set(package.__all__)
    assert set(rlxweb.__all__) <= set(dir(rlxweb))


@pytest.mark.parametrize("package", MODULES, ids=lambda of: of.__name__)
def test_public_names_are_defined_in_their_published_modules(
    package: types.ModuleType,
) -> None:
    """No public name comes from a module that only imports it."""
    wrong = []
    for name in package.__all__:
        value = getattr(package, name)
        home = lazy_names._published_names[package.__name__][name]
        module = getattr(value, "__module__", home)
        # second names are of what is defined elsewhere
        if home not in ("rlxweb.rlx.aliases", module):
            wrong.append(f"{name} is defined in {module}, not in {home}")
    assert wrong == []


@pytest.mark.parametrize("package_name", LAZY_PACKAGES)
def test_no_published_name_equals_a_submodule(package_name: str) -> None:
    """No published name is that of a submodule, whose import would overwrite it."""
    package = import_module(package_name)
    submodules = {module.name for module in iter_modules(package.__path__)}
    assert set(package.__all__) & submodules == set()


@pytest.mark.parametrize("package_name", ["rlxweb", "rlxweb.cost", "rlxweb.rlx"])
def test_type_checkers_see_the_published_names(package_name: str) -> None:
    """Type checkers see the published names in the modules that the table lists."""
    path = ROOT.joinpath(*package_name.split("."), "__init__.py")
    imported = {
        alias.asname or alias.name: (node.module, alias.name)
        for block in ast.parse(path.read_text("utf-8")).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {
        n: (home, n) for n, home in lazy_names._published_names[package_name].items()
    }


def modules_loaded_by(code: str) -> set[str]:
    """Return rlxweb's modules that a fresh interpreter has loaded after running some
    code.
    """
    print_modules = (
        "; import sys; print(*(m for m in sys.modules if m.startswith('rlxweb')))"
    )
    result = run_python("-c", code + print_modules)
    assert result.code == 0, result.err
    return set(result.out.split())


def test_import_of_the_package_loads_only_the_lazy_names() -> None:
    loaded = {"rlxweb", "rlxweb.core", "rlxweb.core.lazy_names"}
    assert modules_loaded_by("import rlxweb") == loaded


def test_a_name_loads_its_dependencies_and_no_engine() -> None:
    loaded = modules_loaded_by("import rlxweb; rlxweb.Device; rlxweb.Graph")
    assert {"rlxweb.core.device", "rlxweb.ir.graph"} < loaded
    packages = {name.split(".")[1] for name in loaded if "." in name}
    assert packages <= {"core", "ir"}
