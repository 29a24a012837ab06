"""Fixtures that reset the package's process-wide state before every test: measurements,
caches, device picks and stored calibrations.

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

from rlxweb.core import cache_folder
from rlxweb.engines.pool import pool
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.op import Op, registry
from rlxweb.select.calibration.calibration_store import calibration_store
from rlxweb.select.calibration.observed_run_corrections import corrections
from rlxweb.select.calibration.profitability import profitability_policy
from rlxweb.select.device_pick_cache import recent_picks
from tests.fake_gpu_port import FakePort

FREEZE_AFTER_MODULES = 200
_cache_folders: Iterator[Path]
_frozen_module_count = -FREEZE_AFTER_MODULES
_jit_mode = "off"
_original_registry: tuple[dict[str, Op], dict[str, str]]


def is_fake(engine: object) -> bool:
    return isinstance(getattr(engine, "port", None), FakePort)


def close_fakes() -> list[tuple[str, str]]:
    """Close the open engines that have a fake port; return the keys they were open
    under.

    So the test that left them fails, and none of those after it.
    """
    keys = [key for key, engine in pool._engines.items() if is_fake(engine)]
    limited_keys = [
        limited_key for limited_key in pool._limited_engines if limited_key[:2] in keys
    ]
    leftovers = [pool._limited_engines.pop(limited_key) for limited_key in limited_keys]
    leftovers += [pool._engines.pop(key) for key in keys]
    for engine in leftovers:
        run_blocking(engine.close())
    return keys


def reset_process_state() -> None:
    """Clear what this process has cached about engines, jobs and failures."""
    for cache_owner in (calibration_store, corrections, recent_picks):
        cache_owner.clear()
    profitability_policy.spent_ns = 0.0
    profitability_policy.attempted.clear()
    pool._failures.clear()
    cache_folder._warned_folders.clear()
    ops, aliases = _original_registry
    if registry._ops != ops or registry._aliases != aliases:
        registry._ops, registry._aliases = dict(ops), dict(aliases)


def pytest_configure() -> None:
    """Isolate tests from the user's calibrations and RLX_* variables.

    But for RLX_FAST: kernels that are ready at some time or other would make tests
    uncertain, so there are none, or `wait` has all of them wait for theirs.
    """
    global _jit_mode, _cache_folders, _original_registry
    _jit_mode = os.environ.get("RLX_FAST", _jit_mode)
    assert len(registry)  # asking loads the vocabulary
    _original_registry = dict(registry._ops), dict(registry._aliases)
    base = tempfile.mkdtemp(prefix="rlxweb-tests-")
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    _cache_folders = (Path(base, str(number)) for number in count())
    _reset_environment()


def pytest_collectstart() -> None:
    """Disable garbage collection during test collection, which it would slow by a
    quarter.
    """
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection.

    A test that collects garbage would else take half a second, in WebAssembly seconds.
    Garbage is looked for a tenth as often as Python would.
    """
    gc.enable()
    freeze_after_imports()
    gc.set_threshold(7000, 10, 10)


def freeze_after_imports() -> None:
    """Exempt from garbage collection what a library of many modules has loaded."""
    global _frozen_module_count
    if len(sys.modules) > _frozen_module_count + FREEZE_AFTER_MODULES:
        gc.collect()
        gc.freeze()
        _frozen_module_count = len(sys.modules)


def _reset_environment() -> Path:
    for name in [name for name in os.environ if name.startswith("RLX_")]:
        del os.environ[name]
    folder = next(_cache_folders)
    os.environ["RLX_CACHE_DIR"] = str(folder)
    os.environ["RLX_CALIBRATION"] = "off"
    os.environ["RLX_FAST"] = _jit_mode
    return folder


@pytest.fixture(autouse=True)
def cache() -> Iterator[Path]:
    """Reset the process state; return the test's own cache folder, which does not exist
    yet.
    """
    folder = _reset_environment()
    reset_process_state()
    yield folder
    try:
        fakes = close_fakes()
        assert not fakes, f"the test left fakes open, for others to find: {fakes}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        freeze_after_imports()
