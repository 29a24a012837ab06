"""Every test finds a process that has measured, learned, picked and stored nothing.

What the package keeps for its process stands here once. Open devices stay open, since
opening them for each test would take longer than the tests.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from rlxweb.backends.pool import pool
from rlxweb.calibration import cache_folder
from rlxweb.calibration.corrections import corrections
from rlxweb.calibration.store import store
from rlxweb.calibration.worth import worth
from rlxweb.choose.recent_picks import recent
from rlxweb.gpu.drive import drive
from rlxweb.ir.op import Op, registry
from tests.fake_port import FakePort

MANY_MODULES = 200
_folders: Iterator[Path]
_loaded = -MANY_MODULES
_fast = "off"
_vocabulary: tuple[dict[str, Op], dict[str, str]]


def is_fake(engine: object) -> bool:
    return isinstance(getattr(engine, "port", None), FakePort)


def close_fakes() -> list[tuple[str, str]]:
    """Close the open engines that have a fake port; return under what they were open.

    So the test that left them fails, and none of those after it.
    """
    keys = [key for key, one in pool._open.items() if is_fake(one)]
    limited = [of for of in pool._limited if of[:2] in keys]
    left = [pool._limited.pop(of) for of in limited]
    left += [pool._open.pop(key) for key in keys]
    for one in left:
        drive(one.close())
    return keys


def forget() -> None:
    """Drop what this process remembers of engines, jobs and failures."""
    for one in (store, corrections, recent):
        one.forget()
    worth.spent_ns = 0.0
    worth.tried.clear()
    pool._failed.clear()
    cache_folder._said.clear()
    ops, aliases = _vocabulary
    if registry._ops != ops or registry._aliases != aliases:
        registry._ops, registry._aliases = dict(ops), dict(aliases)


def pytest_configure() -> None:
    """No test reads or writes the user's calibrations, nor obeys the user's RLX_*.

    But for RLX_FAST: kernels that are ready at some time or other would make tests
    uncertain, so there are none, or `wait` has all of them wait for theirs.
    """
    global _fast, _folders, _vocabulary
    _fast = os.environ.get("RLX_FAST", _fast)
    assert len(registry)  # asking loads the vocabulary
    _vocabulary = dict(registry._ops), dict(registry._aliases)
    base = tempfile.mkdtemp(prefix="rlxweb-tests-")
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    _folders = (Path(base, str(number)) for number in count())
    _reset_environment()


def pytest_collectstart() -> None:
    """Collect tests without collecting garbage, which would take a quarter longer."""
    gc.disable()


def pytest_collection_finish() -> None:
    """The thousands of tests that were found are no garbage: none looks there again.

    A test that collects garbage would else take half a second, in WebAssembly seconds.
    Garbage is looked for a tenth as often as Python would.
    """
    gc.enable()
    freeze_after_imports()
    gc.set_threshold(7000, 10, 10)


def freeze_after_imports() -> None:
    """Exempt from garbage collection what a library of many modules has loaded."""
    global _loaded
    if len(sys.modules) > _loaded + MANY_MODULES:
        gc.collect()
        gc.freeze()
        _loaded = len(sys.modules)


def _reset_environment() -> Path:
    for name in [name for name in os.environ if name.startswith("RLX_")]:
        del os.environ[name]
    folder = next(_folders)
    os.environ["RLX_CACHE_DIR"] = str(folder)
    os.environ["RLX_CALIBRATION"] = "off"
    os.environ["RLX_FAST"] = _fast
    return folder


@pytest.fixture(autouse=True)
def cache() -> Iterator[Path]:
    """A clean slate; the test's own cache folder, which is not there yet."""
    folder = _reset_environment()
    forget()
    yield folder
    try:
        fakes = close_fakes()
        assert not fakes, f"the test left fakes open, for others to find: {fakes}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        freeze_after_imports()
