"""Files and code of installed packages with trained models, for comparison.

Modules that the code imports and that are not installed are replaced by stubs; the
package's own `__init__` is not run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any


def package_folder(package: str) -> Path:
    """Return the folder of an installed package."""
    spec = find_spec(package)
    assert spec is not None, "pip install -r tests/locks/models.txt --no-deps"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


def import_with_stubs(
    package: str,
    modules: tuple[str, ...],
    stubs: Mapping[str, Mapping[str, Any]],
    **facts: Any,
) -> tuple[Any, ...]:
    """Import modules of a package, then remove all of them from `sys.modules`.

    stubs   dotted names of modules with their attributes
    facts   attributes of the package itself
    """
    before = dict(sys.modules)
    package_module = ModuleType(package)
    package_module.__path__ = [str(package_folder(package))]
    package_module.__dict__.update(facts)
    try:
        for name, attributes in stubs.items():
            stub = ModuleType(name)
            stub.__dict__.update(attributes)
            sys.modules[name] = stub
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, stub)
        sys.modules[package] = package_module
        return tuple(import_module(f"{package}.{name}") for name in modules)
    finally:
        names = [n for n in sys.modules if n.partition(".")[0] == package or n in stubs]
        for name in names:
            del sys.modules[name]
            if name in before:
                sys.modules[name] = before[name]
