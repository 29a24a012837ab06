"""What tests of exports share: a graph written and run again by raw wgpu calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlxweb import Graph
from rlxweb.export.written import Job, write_export
from tests.plan_replay import Replay


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., Replay]:
    """Write a graph to a folder and replay that."""

    def made(graph: Graph, params: Any = None, **options: Any) -> Replay:
        folder = tmp_path / "out"
        write_export(Job(graph, params or {}, folder, force=True, **options))
        return Replay(folder)

    return made
