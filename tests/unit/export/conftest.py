"""Fixtures for export tests: a graph is exported and replayed by raw wgpu calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlxweb import Graph
from rlxweb.export.web_export import ExportJob, write_export
from tests.exported_plan_replay import PlanReplay


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., PlanReplay]:
    """Write a graph to a folder and replay it."""

    def export_and_replay(
        graph: Graph, params: Any = None, **options: Any
    ) -> PlanReplay:
        folder = tmp_path / "out"
        write_export(ExportJob(graph, params or {}, folder, force=True, **options))
        return PlanReplay(folder)

    return export_and_replay
