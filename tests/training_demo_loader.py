"""Loader of the Python modules of the site's training page, importable as in its Web
Worker.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from tests.cli_runners import ROOT

FOLDER = ROOT / "site" / "demo" / "train"
MODULE_NAMES = ("vowels", "network", "data", "train")


@contextmanager
def training_demo() -> Iterator[Any]:
    """Yield the demo's modules as attributes, importable by their short names in the
    block.
    """
    previous_modules = {
        name: sys.modules.pop(name) for name in MODULE_NAMES if name in sys.modules
    }
    calibration = os.environ.get("RLX_CALIBRATION")
    sys.path.insert(0, str(FOLDER))
    demo = ModuleType("training_demo")
    try:
        for name in MODULE_NAMES:
            setattr(demo, name, import_module(name))
        yield demo
    finally:
        sys.path.remove(str(FOLDER))
        os.environ.pop("RLX_CALIBRATION", None)  # the page turns it off for itself
        if calibration is not None:
            os.environ["RLX_CALIBRATION"] = calibration
        for name in MODULE_NAMES:
            sys.modules.pop(name, None)
        sys.modules.update(previous_modules)
