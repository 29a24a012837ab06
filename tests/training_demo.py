"""The Python of the page that trains, as the Worker of the page has it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from tests.command_line import ROOT

FOLDER = ROOT / "site" / "demo" / "train"
NAMES = ("vowels", "network", "data", "train")


@contextmanager
def training_demo() -> Iterator[Any]:
    """Modules of the demo as attributes, imported by their short names meanwhile."""
    before = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    calibration = os.environ.get("RLX_CALIBRATION")
    sys.path.insert(0, str(FOLDER))
    found = ModuleType("training_demo")
    try:
        for name in NAMES:
            setattr(found, name, import_module(name))
        yield found
    finally:
        sys.path.remove(str(FOLDER))
        os.environ.pop("RLX_CALIBRATION", None)  # the page turns it off for itself
        if calibration is not None:
            os.environ["RLX_CALIBRATION"] = calibration
        for name in NAMES:
            sys.modules.pop(name, None)
        sys.modules.update(before)
