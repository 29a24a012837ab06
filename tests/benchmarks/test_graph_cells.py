"""`./dev bench sweep graphs`: every family of ops priced, run and compared."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rlxweb.devices.place import CPU
from rlxweb.ir.op import registry
from tests.benchmarks import graph_cells as module
from tests.benchmarks.graph_cells import FAMILIES, GraphCell, graph_cells
from tests.benchmarks.picker_sweep import Sweep
from tests.command_line import Call, check_refused


def test_every_op_of_the_vocabulary_is_in_some_graph() -> None:
    seen = {n.op for family in FAMILIES for n in smallest(family).graph().nodes()}
    kept = {op.name for op in registry if not (op.has("leaf") or op.has("custom"))}
    assert kept <= seen


def smallest(family: str) -> GraphCell:
    return GraphCell(family, FAMILIES[family][1][0])


def test_cells_are_every_family_from_small_to_large() -> None:
    every = graph_cells()
    assert {cell.family for cell in every} == set(FAMILIES)
    assert len(set(every)) == len(every)
    for family in FAMILIES:
        sizes = [cell.gib for cell in every if cell.family == family]
        assert len(sizes) >= 3
        assert sizes[0] == min(sizes)
    quick = graph_cells(quick=True)
    assert set(quick) < set(every)
    assert max(cell.gib for cell in quick) < max(cell.gib for cell in every)
    assert {c.family for c in graph_cells("ATTENTION")} == {
        "attention",
        "causal attention",
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_the_smallest_of_each_family_runs_at_its_price(family: str) -> None:
    """NumPy runs the smallest graph of a family; its price and its time are times."""
    sweep = Sweep([CPU], rounds=1, least=1, budget_s=0.0)
    found = sweep.measure(smallest(family))
    (row,) = found.rows
    assert row.error == ""
    assert row.candidate.predicted_ns > 0
    assert row.measured_ns > 0


def test_the_command(call: Call, tmp_path: Path) -> None:
    record = tmp_path / "graphs.json"
    args = ["graphs", "-k", "layer_norm", "--device", "cpu", "--quick"]
    said = call(*args, "--json", record)
    assert said.code == 0, said.err
    assert re.search("layer_norm +16×64 +graph cpu", said.out)
    assert "regret over 3 cells: median 1.000" in said.out
    found = json.loads(record.read_text())
    assert [c["shape"] for c in found["cells"]] == [[16, 64], [64, 1024], [1024, 256]]
    assert found["schema"] == "rlxweb.bench.graphs/1"
    assert {c["family"] for c in found["cells"]} == {"layer_norm"}
    assert all(c["rows"][0]["measured_ms"] > 0 for c in found["cells"])


def test_a_family_that_is_not_there_is_refused(call: Call) -> None:
    said = call("graphs", "-k", "sofmax")
    assert said.code == 2
    assert "no family has 'sofmax' in its name" in said.err
    assert "softmax" in said.err


def test_the_picker_takes_graphs_too(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`picker --graphs` sweeps graphs, and refuses what only Welch jobs have."""
    some = graph_cells("softmax", quick=True)[:1]
    monkeypatch.setattr(module, "graph_cells", lambda pattern, quick: some)
    args = ["picker", "--graphs", "--device", "cpu", "--quick"]
    said = call(*args, "--json", "-")
    assert said.record["schema"] == "rlxweb.bench.graphs/1"
    (cell,) = said.record["cells"]
    assert "softmax" in str(cell)
    check_refused(call(*args, "--n-fft", "64"), 2, "--n-fft: graphs have none")
    check_refused(call(*args, "--min-segments", "1"), 2, "--min-segments")
