"""Loader of the Python modules of the site's examples and demos, as pages load them."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

SITE = Path(__file__).resolve().parents[3] / "site"


@cache
def load_site_module(path: str) -> ModuleType:
    """Return a module by its path in the site, such as `examples/minilm`.

    It finds the modules of its own folder and of the examples.
    """
    file = SITE / f"{path}.py"
    spec = spec_from_file_location(f"site_{path.replace('/', '_')}", file)
    assert spec is not None
    assert spec.loader is not None
    site_module = module_from_spec(spec)
    sys.modules[spec.name] = site_module
    paths = [str(file.parent), str(SITE / "examples")]
    sys.path[:0] = paths
    try:
        spec.loader.exec_module(site_module)
    finally:
        del sys.path[: len(paths)]
    return site_module
