"""Tests of `./dev bench sweep graphs`: every family of ops is predicted, run and
compared.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rlxweb.ir.op import registry
from rlxweb.select.device_and_adapter import CPU_PLACE
from tests.benchmarks import graph_cells as module
from tests.benchmarks.graph_cells import FAMILIES, GraphCell, graph_cells
from tests.benchmarks.placement_sweep import PlacementSweep
from tests.cli_runners import CommandRunner, check_rejected


def test_every_builtin_op_is_in_some_graph() -> None:
    ops_in_graphs = {
        n.op for family in FAMILIES for n in smallest_cell(family).build_graph().nodes()
    }
    required_ops = {
        op.name
        for op in registry
        if not (op.has_trait("leaf") or op.has_trait("custom"))
    }
    assert required_ops <= ops_in_graphs


def smallest_cell(family: str) -> GraphCell:
    return GraphCell(family, FAMILIES[family][1][0])


def test_cells_are_every_family_from_small_to_large() -> None:
    all_cells = graph_cells()
    assert {cell.family for cell in all_cells} == set(FAMILIES)
    assert len(set(all_cells)) == len(all_cells)
    for family in FAMILIES:
        sizes = [cell.gib for cell in all_cells if cell.family == family]
        assert len(sizes) >= 3
        assert sizes[0] == min(sizes)
    quick = graph_cells(quick=True)
    assert set(quick) < set(all_cells)
    assert max(cell.gib for cell in quick) < max(cell.gib for cell in all_cells)
    assert {c.family for c in graph_cells("ATTENTION")} == {
        "attention",
        "causal attention",
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_the_smallest_cell_of_each_family_has_predicted_and_measured_times(
    family: str,
) -> None:
    """NumPy runs the smallest graph of a family; its predicted and measured times are
    positive.
    """
    sweep = PlacementSweep([CPU_PLACE], rounds=1, min_rounds=1, budget_s=0.0)
    measurement = sweep.measure(smallest_cell(family))
    (row,) = measurement.rows
    assert row.error == ""
    assert row.candidate.predicted_ns > 0
    assert row.measured_ns > 0


def test_graphs_command_writes_table_and_record(
    call: CommandRunner, tmp_path: Path
) -> None:
    record = tmp_path / "graphs.json"
    args = ["graphs", "-k", "layer_norm", "--device", "cpu", "--quick"]
    result = call(*args, "--json", record)
    assert result.code == 0, result.err
    assert re.search("layer_norm +16×64 +graph cpu", result.out)
    assert "regret over 3 cells: median 1.000" in result.out
    document = json.loads(record.read_text())
    assert [c["shape"] for c in document["cells"]] == [
        [16, 64],
        [64, 1024],
        [1024, 256],
    ]
    assert document["schema"] == "rlxweb.bench.graphs/1"
    assert {c["family"] for c in document["cells"]} == {"layer_norm"}
    assert all(c["rows"][0]["measured_ms"] > 0 for c in document["cells"])


def test_an_unknown_family_is_refused(call: CommandRunner) -> None:
    result = call("graphs", "-k", "sofmax")
    assert result.code == 2
    assert "no family has 'sofmax' in its name" in result.err
    assert "softmax" in result.err


def test_picker_command_sweeps_graphs(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`picker --graphs` sweeps graphs, and refuses what only Welch jobs have."""
    cells = graph_cells("softmax", quick=True)[:1]
    monkeypatch.setattr(module, "graph_cells", lambda pattern, quick: cells)
    args = ["picker", "--graphs", "--device", "cpu", "--quick"]
    result = call(*args, "--json", "-")
    assert result.document["schema"] == "rlxweb.bench.graphs/1"
    (cell,) = result.document["cells"]
    assert "softmax" in str(cell)
    check_rejected(call(*args, "--n-fft", "64"), 2, "--n-fft: graphs have none")
    check_rejected(call(*args, "--min-segments", "1"), 2, "--min-segments")
