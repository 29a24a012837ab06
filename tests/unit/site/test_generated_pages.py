"""Pages generated from the code: ops, commands, benchmarks and the reference."""

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
from rlxweb import cost, devices
from rlxweb.cli.main import cli
from rlxweb.core import errors
from rlxweb.ir.op import registry
from rlxweb.ir.sample import Drawn, Sample
from tests.cli_runners import run_python
from tests.unit.site.built_manual import (
    ROOT,
    BuiltManual,
    PageLinks,
    import_hook,
    visible_text,
)


@pytest.mark.parametrize("name", sorted(op.name for op in registry))
def test_every_op_has_a_page(name: str, manual: BuiltManual) -> None:
    """An op's page has its description, its example and the example's output."""
    op = registry.get(name)
    page = visible_text(manual.page_html(f"reference/ops/{name}"))
    assert op.doc.replace("`", "").split("[")[0] in page
    for attr in op.attrs:
        assert attr.name in page
    assert "rlx.Session(" in page
    if isinstance(getattr(op.lower, "text", None), str):
        assert op.lower.text in page
    assert f'href="{name}/"' in manual.page_html("reference/ops")


def test_an_op_added_in_one_statement_has_a_page() -> None:
    """A custom op needs only its record to have a page."""
    rlxweb.register_custom(
        "docs_probe",
        arity=1,
        reference=lambda xp, attrs, x: x * x * x,
        wgsl="x * x * x",
        samples=[Sample((Drawn((3,)),)), Sample((Drawn((0, 2)),))],
        doc="The cube of x.",
    )
    page = import_hook("op_pages").page(registry.get("docs_probe"))
    assert "The cube of x." in page
    assert "```wgsl\nx * x * x\n```" in page
    assert 'g.apply("docs_probe", x)' in page
    assert "`[0, 2]`" in page


@pytest.mark.parametrize("name", ["matmul", "softmax", "cumsum", "gather"])
def test_the_page_of_an_op_lists_its_shaders(name: str) -> None:
    """The shaders of an op are on its page as text, beside the variants that run
    them.
    """
    page = import_hook("op_pages").page(registry.get(name))
    (shader_file,) = ROOT.glob(f"shaders/*/{name}.wgsl")
    listed = [line for line in page.splitlines() if f"`{name}.wgsl`" in line]
    assert listed
    assert f'??? abstract "{shader_file.relative_to(ROOT).as_posix()}"' in page
    assert (
        textwrap.indent(shader_file.read_text("utf-8").splitlines()[0], "    ") in page
    )


def test_the_page_of_an_op_lists_its_files() -> None:
    """From an op one finds where its record, kernels and gradient are written."""
    page = import_hook("op_pages").page(registry.get("max_pool"))
    assert page.endswith(
        "| record | `rlxweb/ops/pool/op.py` |\n"
        "| method of `Graph` | `rlxweb/ops/pool/methods.py` |\n"
        "| gradient | `rlxweb/ops/pool/vjp.py` |\n"
        "| GPU | `rlxweb/ops/pool/wgsl.py` |\n"
        "| CPU | `rlxweb/ops/pool/cpu.py` |\n"
    )
    op_facts = import_hook("op_facts")
    paths = {
        path
        for op in registry
        for paths in op_facts.source_files(op).values()
        for path in paths
    }
    assert sorted(path for path in paths if not (ROOT / path).is_file()) == []


def test_the_page_of_an_op_says_how_it_is_called() -> None:
    """By the method of its name, or by the one that adds no other op."""
    methods_by_op = import_hook("op_facts").methods()
    assert methods_by_op["softmax"] == ("softmax",)
    assert methods_by_op["resize"] == ("interpolate",)
    page = import_hook("op_pages").page(registry.get("softmax"))
    assert "| **Called as** | `g.softmax(x, axis=-1)` |" in page


def test_the_example_of_an_op_prints_what_the_op_gives() -> None:
    """The text under a program is the program's own output."""
    op_example = import_hook("op_example")
    program = op_example.example(registry.get("neg"))
    assert op_example.output(program) == op_example.output(program)
    assert op_example.output("print(-0.5)") == "-0.5"
    page = import_hook("op_pages").page(registry.get("neg"))
    assert f"```text\n{op_example.output(program)}\n```" in page


def test_every_command_is_described(manual: BuiltManual) -> None:
    """The reference has each command and each of its options."""
    page = visible_text(manual.page_html("reference/command-line"))
    context = click.Context(cli, info_name="rlxweb")
    pending = [("rlxweb", cli)]
    while pending:
        path, command = pending.pop()
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                subcommand = command.get_command(context, name)
                assert subcommand is not None
                pending.append((f"{path} {name}", subcommand))
            continue
        assert path in page
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[0] in page, (path, parameter.opts)


def test_every_measured_row_is_shown(manual: BuiltManual) -> None:
    """The page shows every results file, every cell and every losing row."""
    page = visible_text(manual.page_html("benchmarks"))
    results = sorted((ROOT / "tests" / "benchmarks" / "results").glob("*.json"))
    assert results
    format_number = import_hook("svg_drawing").format_number
    missed = 0
    for path in results:
        assert path.name in page
        document = json.loads(path.read_text("utf-8"))
        if document["schema"].startswith("rlxweb.bench/"):
            for cell in document["cells"]:
                assert cell["cell"] in page
                for row in cell["rows"]:
                    assert f"{row['name']} {row['engine'].split(' (')[0]}" in page
                    assert format_number(row["ms"]) in page
                for name in cell.get("absent", {}):
                    assert f"No result of {name}: " in page
                missed += sum(not goal["met"] for goal in cell["goals"])
    assert page.count("missed") >= missed


def test_results_of_an_unknown_kind_stop_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown results schema stops the build, so that no page omits results."""
    benchmark_page = import_hook("benchmark_page")
    (tmp_path / "new.json").write_text('{"schema": "rlxweb.bench.new/1"}', "utf-8")
    monkeypatch.setattr(benchmark_page, "RESULTS", tmp_path)
    with pytest.raises(
        ValueError, match=r"new\.json has the unknown schema 'rlxweb\.bench\.new/1'"
    ):
        benchmark_page.benchmarks()


def test_the_browser_benchmark_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start times, ratios to rlxweb's time for like work, and failed peers of a tab are
    shown.
    """

    def peer_row(name: str, ms: float) -> dict[str, object]:
        return {"name": name, "ms": ms, "first_ms": ms, "samples": 9, "spread": 0.1}

    marks = ("python", "imported", "adapter", "first")
    demos = ("live", "check", "playground", "exported")
    start = {name: 1000.0 * index for index, name in enumerate(marks + demos, 1)}
    peers = [peer_row("rlxweb in+out", 20.0), peer_row("rlxweb resident", 10.0)]
    peers += [
        peer_row("jax-js resident", 9.0),
        {"name": "jax-js in+out", "error": "lost"},
    ]
    document = {
        "schema": "rlxweb.bench.tab/2",
        "machine": {"system": "Linux", "processor": "made up", "cores": 2},
        "peer": "jax-js",
        "browser": "Chromium 1",
        "adapter": "made adapter",
        "starts": [{"cold": start, "warm": start}],
        "cells": [{"kind": "matmul", "n": 256, "rows": peers}],
    }
    benchmark_page = import_hook("benchmark_page")
    (tmp_path / "tab.json").write_text(json.dumps(document), "utf-8")
    monkeypatch.setattr(benchmark_page, "RESULTS", tmp_path)
    markdown = benchmark_page.benchmarks()
    assert "Chromium 1 on made adapter" in markdown
    times = "1,000 | 2,000 | 3,000 | 4,000 | 3,000 | 5,000 | 6,000 | 7,000 | 8,000"
    assert f"| cold | {times} |" in markdown
    assert "| matmul 256 | jax-js resident | 9 | 10% | 9 | 0.90 |" in markdown
    assert "| matmul 256 | jax-js in+out | failed: lost | | | |" in markdown


@pytest.fixture(scope="module")
def kernel_benchmark() -> dict[str, Any]:
    """Results of `./dev bench kernels` on lavapipe with tiny sizes."""
    options = "--mib 0.06 --rows 8 --rounds 3 --device vulkan:llvmpipe --json -"
    result = run_python(
        "-m",
        "tests.benchmarks.kernel_benchmark",
        *options.split(),
        "--only",
        "softmax 8",
    )
    assert result.code == 0, result.err
    document: dict[str, Any] = result.document
    return document


@pytest.mark.requires_wgpu
def test_kernel_benchmarks_are_shown(
    kernel_benchmark: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels are shown by adapter and driver, with alternatives and latencies, without
    goals.
    """
    (tmp_path / "gpu.json").write_text(json.dumps(kernel_benchmark), "utf-8")
    benchmark_page = import_hook("benchmark_page")
    monkeypatch.setattr(benchmark_page, "RESULTS", tmp_path)
    markdown = benchmark_page.benchmarks()
    (engine,) = kernel_benchmark["engines"]
    prose = import_hook("docstring_to_markdown").escape_markdown
    assert f"## Single kernels: {prose(engine['adapter'])}" in markdown
    assert prose(engine["driver"]) in markdown
    assert '??? abstract "softmax 8 × 128"' in markdown
    for row in kernel_benchmark["rows"]:
        assert prose(row["variant"] or row["chosen"]) in markdown
    assert "| encode and submit | vulkan:llvmpipe |" in markdown
    assert "| Welch from the host, 0 MB, whole | vulkan:llvmpipe |" in markdown
    assert "cuda not measured: no NVIDIA driver" in markdown
    assert "goal" not in markdown


@pytest.mark.requires_wgpu
def test_gpu_kernels_meet_or_miss_their_goals(
    kernel_benchmark: dict[str, Any],
) -> None:
    """GPU kernels are shown with shares, ratios, losing choices and wrong rows."""
    first, second = kernel_benchmark["rows"][:2]
    third = second | {"variant": "softmax, one more"}
    document = kernel_benchmark | {
        "engines": [dict(kernel_benchmark["engines"][0], software=False)],
        "nvidia": ["NVIDIA H100 80GB HBM3, 570.1"],
        "rows": [
            first | {"ns": 5e5, "of_memory": 0.3, "of_peers": {"CuPy": 0.5}},
            second | {"ns": 2e5, "of_memory": 0.75, "of_peers": {"CuPy": 1.25}},
            third | {"ns": None, "why": "wrong, first rows: 3 of 512", "of_peers": {}},
        ],
    }
    markdown = import_hook("benchmark_kernel_section").section(document, "h100.json")
    assert "GPU: NVIDIA H100 80GB HBM3, 570.1." in markdown
    goal = "| 30% | 30% | 30% | ≥ 60% of memory bandwidth, **missed** |"
    assert f"| softmax | vulkan:llvmpipe {goal}" in markdown
    assert re.search(r" takes 500 µs, .* takes 200 µs\n", markdown)
    assert "wrong, first rows: 3 of 512" in markdown
    assert markdown.count("<svg") == 2
    assert "rlx-bad" in markdown, "half as fast as by hand"
    empty = document | {"rows": [], "engines": [], "trips": {}, "from_host": {}}
    assert "no engine could be opened" in import_hook(
        "benchmark_kernel_section"
    ).section(empty, "none.json")


def test_links_to_the_playground_carry_the_program(manual: BuiltManual) -> None:
    """The program that the playground unpacks from a link is the one above the link."""
    page = manual.page_html("reference/ops/softmax")
    (link_parts,) = re.findall(
        r'href="(\.\./[./]*demo/playground/)#code=1([\w-]+)"', page
    )
    assert link_parts[0] == "../../../demo/playground/"
    packed = base64.urlsafe_b64decode(link_parts[1] + "=" * (-len(link_parts[1]) % 4))
    program = zlib.decompress(packed, -zlib.MAX_WBITS).decode()
    assert program.rstrip() == import_hook("op_example").example(
        registry.get("softmax")
    )


def test_sections_of_numpydoc_are_lists_of_their_entries() -> None:
    """Sections become lists, with types, long texts, prose and examples."""
    markdown = import_hook("docstring_to_markdown").as_markdown(
        "Scale.\n\nParameters\n----------\nx : array_like, shape (C, T)\n"
        "    Real numbers,\n    of any type.\nfs\n    In Hz.\n\n"
        "Notes\n-----\nIt is a_b.\n\nExamples\n--------\n>>> scale(x)\n1.0"
    )
    assert markdown == (
        "Scale.\n\n**Parameters**\n\n`x : array_like, shape (C, T)`\n"
        ":   Real numbers, of any type.\n\n`fs`\n:   In Hz.\n\n"
        "**Notes**\n\nIt is a\\_b.\n\n**Examples**\n\n```pycon\n>>> scale(x)\n1.0\n```"
    )


def test_docstrings_keep_their_rows_and_letters() -> None:
    """The house template is converted to Markdown: rows, continued rows, prose and
    prompts.
    """
    as_markdown = import_hook("docstring_to_markdown").as_markdown
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
    module: ModuleType, manual: BuiltManual
) -> None:
    """Public names have anchors of their own to link to."""
    documented = {
        anchor.rsplit(".", 1)[-1]
        for page in (manual.folder / "reference").glob("*/index.html")
        for anchor in PageLinks.from_file(page).anchors
    }
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and name[0] != "_"
    ]
    assert len(names) >= 7
    assert sorted(set(names) - documented) == []


def test_arithmetic_edge_cases_have_a_table(manual: BuiltManual) -> None:
    """The table has a line for every edge case and a column for every engine."""
    page = visible_text(manual.page_html("concepts/numerics"))
    table = import_hook("edge_case_answers_table")
    engines = json.loads(table.ANSWERS.read_text("utf-8"))["engines"]
    assert len(engines) >= 6
    for engine in engines:
        assert engine["engine"] in page
    for _, case in table.questions_with_cases():
        assert case.note in page
