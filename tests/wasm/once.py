"""The fixture of the tests that run Pyodide under node."""

from __future__ import annotations

import os

import pytest

from tests.site_build import locked
from tests.wasm.ready import Ready, make_ready


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Ready:
    """Node, Pyodide and the wheels; fetched once, whoever comes first."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    with locked(base / "wasm.lock"):
        made = make_ready()
    return made
