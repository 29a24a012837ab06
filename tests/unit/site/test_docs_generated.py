"""Pages that are made from the code: ops, commands, benchmarks, the reference."""

from __future__ import annotations

import base64
import json
import re
import textwrap
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

import rlxweb
from rlxweb import cost, devices, errors
from rlxweb.cli.main import cli
from rlxweb.ir.op import registry
from rlxweb.ir.sample import Drawn, Sample
from tests.command_line import python
from tests.unit.site.manual import ROOT, Facts, Manual, hook, shown


@pytest.mark.parametrize("name", sorted(op.name for op in registry))
def test_every_op_has_its_page(name: str, manual: Manual) -> None:
    """An op's page has its words, its example and what the example printed."""
    op = registry.get(name)
    page = shown(manual.text(f"reference/ops/{name}"))
    assert op.doc.replace("`", "").split("[")[0] in page
    for attr in op.attrs:
        assert attr.name in page
    assert "rlx.Session(" in page
    if isinstance(getattr(op.lower, "text", None), str):
        assert op.lower.text in page
    assert f'href="{name}/"' in manual.text("reference/ops")


def test_an_op_added_in_one_statement_has_a_page() -> None:
    """Nothing but its record is needed."""
    rlxweb.register_custom(
        "docs_probe",
        arity=1,
        reference=lambda xp, attrs, x: x * x * x,
        wgsl="x * x * x",
        samples=[Sample((Drawn((3,)),)), Sample((Drawn((0, 2)),))],
        doc="The cube of x.",
    )
    page = hook("op_pages").page(registry.get("docs_probe"))
    assert "The cube of x." in page
    assert "```wgsl\nx * x * x\n```" in page
    assert 'g.apply("docs_probe", x)' in page
    assert "`[0, 2]`" in page


@pytest.mark.parametrize("name", ["matmul", "softmax", "cumsum", "gather"])
def test_the_page_of_an_op_lists_its_shaders(name: str) -> None:
    """Shaders of an op are on its page as text, beside the way that starts each."""
    page = hook("op_pages").page(registry.get(name))
    file = ROOT / "shaders" / f"{name}.wgsl"
    listed = [line for line in page.splitlines() if f"`{name}.wgsl`" in line]
    assert listed
    assert f'??? abstract "shaders/{name}.wgsl"' in page
    assert textwrap.indent(file.read_text("utf-8").splitlines()[0], "    ") in page


def test_the_example_of_an_op_prints_what_the_op_gives() -> None:
    """The text under the program is the program's own output."""
    made = hook("op_example")
    program = made.example(registry.get("neg"))
    assert made.output(program) == made.output(program)
    assert made.output("print(-0.5)") == "-0.5"
    page = hook("op_pages").page(registry.get("neg"))
    assert f"```text\n{made.output(program)}\n```" in page


def test_every_command_is_described(manual: Manual) -> None:
    """The reference has each command and each of its options."""
    page = shown(manual.text("reference/command-line"))
    context = click.Context(cli, info_name="rlxweb")
    pending = [("rlxweb", cli)]
    while pending:
        path, command = pending.pop()
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                pending.append((f"{path} {name}", found))
            continue
        assert path in page
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[0] in page, (path, parameter.opts)


def test_every_measured_row_is_shown(manual: Manual) -> None:
    """No results file, no cell and no losing row is left out."""
    page = shown(manual.text("benchmarks"))
    results = sorted((ROOT / "tests" / "benchmarks" / "results").glob("*.json"))
    assert results
    plain = hook("drawing").plain
    missed = 0
    for path in results:
        assert path.name in page
        record = json.loads(path.read_text("utf-8"))
        if record["schema"].startswith("rlxweb.bench/"):
            for cell in record["cells"]:
                assert cell["cell"] in page
                for row in cell["rows"]:
                    assert f"{row['name']} {row['engine'].split(' (')[0]}" in page
                    assert plain(row["ms"]) in page
                for name in cell.get("absent", {}):
                    assert f"No row of {name}: " in page
                missed += sum(not goal["met"] for goal in cell["goals"])
    assert page.count("missed") >= missed


def test_results_of_an_unknown_kind_stop_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Better no page than a page that leaves something out."""
    page = hook("benchmark_page")
    (tmp_path / "new.json").write_text('{"schema": "rlxweb.bench.new/1"}', "utf-8")
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    with pytest.raises(
        ValueError, match=r"new\.json has schema 'rlxweb\.bench\.new/1'"
    ):
        page.benchmarks()


def test_the_benchmark_in_the_tab_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starts, ratios to our time for like work and failed peers of a tab are shown."""

    def row(name: str, ms: float) -> dict[str, object]:
        return {"name": name, "ms": ms, "first_ms": ms, "samples": 9, "spread": 0.1}

    marks = ("python", "imported", "adapter", "first")
    demos = ("live", "check", "playground", "exported")
    start = {name: 1000.0 * at for at, name in enumerate(marks + demos, 1)}
    peers = [row("rlxweb in+out", 20.0), row("rlxweb resident", 10.0)]
    peers += [row("jax-js resident", 9.0), {"name": "jax-js in+out", "error": "lost"}]
    record = {
        "schema": "rlxweb.bench.tab/2",
        "machine": {"system": "Linux", "processor": "made up", "cores": 2},
        "peer": "jax-js",
        "browser": "Chromium 1",
        "adapter": "made adapter",
        "starts": [{"cold": start, "warm": start}],
        "cells": [{"kind": "matmul", "n": 256, "rows": peers}],
    }
    page = hook("benchmark_page")
    (tmp_path / "tab.json").write_text(json.dumps(record), "utf-8")
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    made = page.benchmarks()
    assert "Chromium 1 on made adapter" in made
    times = "1,000 | 2,000 | 3,000 | 4,000 | 3,000 | 5,000 | 6,000 | 7,000 | 8,000"
    assert f"| cold | {times} |" in made
    assert "| matmul 256 | jax-js resident | 9 | 10% | 9 | 0.90 |" in made
    assert "| matmul 256 | jax-js in+out | failed: lost | | | |" in made


@pytest.fixture(scope="module")
def of_kernels() -> dict[str, Any]:
    """The record of `./dev bench kernels` here, on lavapipe and tiny."""
    how = "--mib 0.06 --rows 8 --rounds 3 --device vulkan:llvmpipe --json -"
    done = python("-m", "tests.benchmarks.kernels", *how.split(), "--only", "softmax 8")
    assert done.code == 0, done.err
    found: dict[str, Any] = done.record
    return found


@pytest.mark.requires_wgpu
def test_kernels_alone_are_shown(
    of_kernels: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels are shown by adapter and driver, with contenders and trips, no goals."""
    (tmp_path / "gpu.json").write_text(json.dumps(of_kernels), "utf-8")
    page = hook("benchmark_page")
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    made = page.benchmarks()
    (engine,) = of_kernels["engines"]
    prose = hook("docstrings").prose
    assert f"## Kernels alone: {prose(engine['adapter'])}" in made
    assert prose(engine["driver"]) in made
    assert '??? abstract "softmax 8 × 128"' in made
    for row in of_kernels["rows"]:
        assert prose(row["variant"] or row["chosen"]) in made
    assert "| encode and submit | vulkan:llvmpipe |" in made
    assert "| Welch from the host, 0 MB, whole | vulkan:llvmpipe |" in made
    assert "no cuda: no NVIDIA driver" in made
    assert "goal" not in made


@pytest.mark.requires_wgpu
def test_kernels_of_a_gpu_meet_their_goals_or_miss_them(
    of_kernels: dict[str, Any],
) -> None:
    """Kernels of a GPU are shown with shares, ratios, losing choices and wrong rows."""
    first, second = of_kernels["rows"][:2]
    third = second | {"variant": "softmax, one more"}
    record = of_kernels | {
        "engines": [dict(of_kernels["engines"][0], software=False)],
        "nvidia": ["NVIDIA H100 80GB HBM3, 570.1"],
        "rows": [
            first | {"ns": 5e5, "of_memory": 0.3, "of_peers": {"CuPy": 0.5}},
            second | {"ns": 2e5, "of_memory": 0.75, "of_peers": {"CuPy": 1.25}},
            third | {"ns": None, "why": "wrong, first rows: 3 of 512", "of_peers": {}},
        ],
    }
    made = hook("gpu_section").section(record, "h100.json")
    assert "GPU: NVIDIA H100 80GB HBM3, 570.1." in made
    goal = "| 30% | 30% | 30% | ≥ 60% of memory bandwidth, **missed** |"
    assert f"| softmax | vulkan:llvmpipe {goal}" in made
    assert "takes 500 µs, not 200, as " in made
    assert "wrong, first rows: 3 of 512" in made
    assert made.count("<svg") == 2
    assert "rlx-bad" in made, "half as fast as by hand"
    empty = record | {"rows": [], "engines": [], "trips": {}, "from_host": {}}
    assert "no engine opened" in hook("gpu_section").section(empty, "none.json")


def test_links_to_the_playground_carry_the_program(manual: Manual) -> None:
    """What the playground unpacks from the link is the program above it."""
    page = manual.text("reference/ops/softmax")
    (found,) = re.findall(r'href="(\.\./[./]*demo/playground/)#code=1([\w-]+)"', page)
    assert found[0] == "../../../demo/playground/"
    packed = base64.urlsafe_b64decode(found[1] + "=" * (-len(found[1]) % 4))
    program = zlib.decompress(packed, -zlib.MAX_WBITS).decode()
    assert program.rstrip() == hook("op_example").example(registry.get("softmax"))


def test_sections_of_numpydoc_are_lists_of_their_entries() -> None:
    """Sections become lists, with types, long texts, prose and examples."""
    made = hook("docstrings").as_markdown(
        "Scale.\n\nParameters\n----------\nx : array_like, shape (C, T)\n"
        "    Real numbers,\n    of any type.\nfs\n    In Hz.\n\n"
        "Notes\n-----\nIt is a_b.\n\nExamples\n--------\n>>> scale(x)\n1.0"
    )
    assert made == (
        "Scale.\n\n**Parameters**\n\n`x : array_like, shape (C, T)`\n"
        ":   Real numbers, of any type.\n\n`fs`\n:   In Hz.\n\n"
        "**Notes**\n\nIt is a\\_b.\n\n**Examples**\n\n```pycon\n>>> scale(x)\n1.0\n```"
    )


def test_docstrings_keep_their_rows_and_letters() -> None:
    """The house template as Markdown: rows, continued rows, prose, prompts."""
    as_markdown = hook("docstrings").as_markdown
    text = textwrap.dedent("""\
        Sum of x * y. Errors  ShapeError when they differ.

        Shapes   x (B, T), y (T,)
        strategy "auto", or the way
                 to go
        k        how many, |k| < 9
        → the sum

        >>> total(x, y)
        3.0""")
    assert as_markdown(text) == textwrap.dedent("""\
        Sum of x \\* y.

        **Errors**
        :   ShapeError when they differ.

        **Shapes**
        :   x (B, T), y (T,)

        `strategy`
        :   "auto", or the way to go

        `k`
        :   how many, \\|k\\| &lt; 9

        **Returns**
        :   the sum

        ```pycon
        >>> total(x, y)
        3.0
        ```""")


@pytest.mark.parametrize(
    "module",
    [rlxweb, cost, devices, errors, rlxweb.io, rlxweb.plot, rlxweb.rlx],
)
def test_every_public_name_is_in_the_reference(
    module: ModuleType, manual: Manual
) -> None:
    """Public names have anchors of their own to link to."""
    documented = {
        anchor.rsplit(".", 1)[-1]
        for page in (manual.folder / "reference").glob("*/index.html")
        for anchor in Facts.of(page).anchors
    }
    names = getattr(module, "__all__", None) or [
        name
        for name, found in vars(module).items()
        if getattr(found, "__module__", "") == module.__name__ and name[0] != "_"
    ]
    assert len(names) >= 7
    assert sorted(set(names) - documented) == []


def test_the_edges_of_arithmetic_have_a_table(manual: Manual) -> None:
    """A line for every question of the suite, a column for every engine."""
    page = shown(manual.text("concepts/numerics"))
    table = hook("edges_table")
    engines = json.loads(table.ANSWERS.read_text("utf-8"))["engines"]
    assert len(engines) >= 6
    for one in engines:
        assert one["engine"] in page
    for _, case in table.asked():
        assert case.note in page
