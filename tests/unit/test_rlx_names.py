"""RLX's and pyrlx's names beside ours, and the pages that list them and variables."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb
from rlxweb import DevicePolicy, FlexibleSession, Session, Tensor, names
from rlxweb.device import Device
from rlxweb.errors import AttributeRefused, ShapeError, Unsupported
from rlxweb.rlx import Graph
from rlxweb.runtime.device_benchmark import DeviceBenchResult
from tests.command_line import python

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "site" / "pages" / "reference"
SAME = re.findall(
    r"^\| `(rlxweb\.[\w.]+)` \| `(rlxweb\.[\w.]+)` \|$",
    (PAGES / "rlx-names.md").read_text("utf-8"),
    re.MULTILINE,
)


HOMES = names._published["rlxweb.rlx"]


def loaded(path: str) -> Any:
    """The object of a dotted path, through packages, modules and classes."""
    parts, found = path.split("."), None
    for at in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:at]))
        except ModuleNotFoundError:
            continue
        for name in parts[at:]:
            found = getattr(found, name)
        return found
    raise AssertionError(path)


@pytest.mark.parametrize(("theirs", "ours"), SAME)
def test_a_name_of_theirs_is_the_one_of_ours(theirs: str, ours: str) -> None:
    """As the manual's table says."""
    assert loaded(theirs) == loaded(ours)


def test_the_table_of_names_is_complete() -> None:
    """Every alias of the package has its row."""
    aliases = {n for n, home in HOMES.items() if home == "rlxweb.rlx.aliases"}
    listed = {theirs.removeprefix("rlxweb.rlx.") for theirs, _ in SAME}
    assert aliases <= listed
    assert len(SAME) == 12


def test_the_package_is_an_attribute() -> None:
    """Loaded when it is asked for; a graph of it loads none of its formulas."""
    code = (
        "import sys, rlxweb as rlx; rlx.rlx.Graph('g').mm; "
        "print(*(m for m in sys.modules if m.startswith('rlxweb.rlx')))"
    )
    said = python("-c", code)
    assert said.code == 0, said.err
    assert said.out.split() == ["rlxweb.rlx", "rlxweb.rlx.graph"]


def test_the_core_graph_has_names_of_its_own_alone() -> None:
    theirs = {name for name in vars(Graph) if name[0] != "_"} - {"copy"}
    assert {"mm", "where_", "fft_norm", "binary", "topo_order"} <= theirs
    assert {name for name in theirs if hasattr(rlxweb.Graph, name)} == set()


def test_a_graph_whose_sizes_vary_is_saved_by_methods_of_the_core(
    tmp_path: Path,
) -> None:
    """And so loads without RLX's names; copies and bound graphs keep them."""
    graph = Graph("varying")
    rows, w = graph.input("rows", ("n", 4)), graph.constant(np.ones((4, 2), np.float32))
    n = rows.shape[0]
    product = graph.matmul_with_shape(rows, w, (n, 2), "f32")
    with pytest.raises(ShapeError, match="was declared"):
        graph.matmul_with_shape(rows, w, (n, 3), "f32")
    spectrum = graph.fft_real(graph.binary("max", graph.mm(rows, w), 0.0))
    graph.set_outputs([graph.reduce(product, "sum", [1]), *spectrum])
    assert {type(one) for one in (graph.copy(), graph.bind(n=3))} == {Graph}
    graph.save(tmp_path / "varying.rlxg")
    loaded = rlxweb.load(tmp_path / "varying.rlxg")
    assert type(loaded.graph) is rlxweb.Graph
    here = Session("cpu").compile(graph).run({"rows": X})
    for total, re_, im in (here, loaded.run({"rows": X}).values()):
        np.testing.assert_allclose(total, 2 * X.sum(1))
        want = np.fft.fft(np.maximum(X @ np.ones((4, 2)), 0))
        np.testing.assert_allclose(re_ + 1j * im, want, atol=1e-5)


def test_every_variable_has_its_line() -> None:
    """On the page of variables, and none that nobody reads."""
    code = [p.read_text("utf-8") for p in (ROOT / "rlxweb").rglob("*.py")]
    read = set(re.findall(r'"(RLX_[A-Z_]+)"', "\n".join(code)))
    suffixes = re.findall(r'f"\{prefix\}_([A-Z_]+)"', "\n".join(code))
    read |= {f"RLX_{suffix}" for suffix in suffixes}
    page = (PAGES / "environment.md").read_text("utf-8")
    listed = re.findall(r"^\| (.*?) \|", page, re.MULTILINE)
    shown = set(re.findall(r"RLX_[A-Z_]+", " ".join(listed)))
    assert shown == read
    assert {"RLX_FORCE_DEVICE", "RLX_FFT_LEGACY_PICKER", "RLX_BENCHMARK_PICK"} <= shown


X = np.array([[1.0, 2.0, 3.0, 4.0], [4.0, 1.0, 0.0, -2.0]], np.float32)


def same(make: Any, other: Any) -> None:
    """Two ways of building give the very same nodes."""
    graphs = []
    for build in (make, other):
        graph = Graph("same")
        x, y = graph.input("x", (2, 4)), graph.input("y", (2, 4))
        built = build(graph, x, y)
        graph.set_outputs(list(built) if isinstance(built, tuple) else [built])
        graphs.append(str(graph))
    assert graphs[0] == graphs[1]


@pytest.mark.parametrize(
    "name",
    [
        *("where", "eq", "ne", "lt", "le", "gt", "ge"),
        *("reshape", "transpose", "narrow", "concat", "gather", "attention"),
    ],
)
def test_the_underscore_names(name: str) -> None:
    assert getattr(Graph, f"{name}_") is getattr(Graph, name)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        *((f"binary('{n}', x, y)", f"{n}(x, y)") for n in ("add", "sub", "mul", "div")),
        ("binary('max', x, y)", "maximum(x, y)"),
        ("binary('min', x, 2.0)", "minimum(x, 2.0)"),
        ("binary('pow', x, y)", "pow(x, y)"),
        ("binary('/', x, y)", "div(x, y)"),
        *((f"compare('{n}', x, y)", f"{n}(x, y)") for n in ("eq", "ne", "lt", "ge")),
        ("compare('<=', x, 1.0)", "le(x, 1.0)"),
        ("compare('>', x, y)", "gt(x, y)"),
        ("reduce(x, 'sum', [0])", "sum(x, [0])"),
        ("reduce(x, 'prod', [1], True)", "prod(x, [1], True)"),
        ("reduce(x, 'mean', axes=(0, 1))", "mean(x)"),
        ("mm(x, t(y))", "matmul(x, t(y))"),
        ("matmul_with_shape(x, t(y), [2, 2], 'f32')", "matmul(x, t(y))"),
        ("ln(x, y[0], y[1])", "layer_norm(x, y[0], y[1])"),
        ("ln(x, y[0], y[1], 1e-3)", "layer_norm(x, y[0], y[1], -1, 1e-3)"),
    ],
)
def test_calls_that_name_an_op(theirs: str, ours: str) -> None:
    def built(text: str) -> Any:
        def build(g: Graph, x: Tensor, y: Tensor) -> Any:
            turned = {"t": lambda v: g.transpose_(v, (1, 0))}
            return eval(f"g.{text}", {"g": g, "x": x, "y": y} | turned)

        return build

    same(built(theirs), built(ours))


def test_words_that_name_nothing_are_refused() -> None:
    graph = Graph()
    x = graph.input("x", (2, 2))
    for call, said in (
        (lambda: graph.binary("plus", x, x), "'plus' is none; they are add, sub"),
        (lambda: graph.compare("=>", x, x), "'=>' is none; they are eq, ne"),
        (lambda: graph.reduce(x, "median", [0]), "'median' is none; they are sum"),
        (lambda: graph.attention_kind(x, x, x, 1, 2, "sliding"), "it is 'sliding:N'"),
    ):
        with pytest.raises(AttributeRefused, match=said):
            call()
    with pytest.raises(ShapeError, match=r"\[2, 2\] f32; \[2, 3\] f32 was declared"):
        graph.matmul_with_shape(x, x, [2, 3], "f32")


@pytest.mark.parametrize(
    ("kind", "ours"),
    [("none", {}), ("causal", {}), ("sliding:2", {"window": 2})],
)
def test_masks_by_their_kind(kind: str, ours: dict[str, int]) -> None:
    def heads(graph: Graph) -> list[Tensor]:
        return [graph.input(n, (1, 2, 5, 4)) for n in "qkv"]

    one, other = Graph("masks"), Graph("masks")
    theirs = one.attention_kind(*heads(one), 2, 4, kind)
    named = kind.replace("sliding:2", "sliding_window")
    mine = other.attention(
        *heads(other), num_heads=2, head_dim=4, mask_kind=named, **ours
    )
    assert str(one.node(theirs.id)) == str(other.node(mine.id))


def test_the_whole_spectrum_of_real_rows() -> None:
    """NumPy's fft, in two halves."""
    graph = Graph()
    graph.set_outputs(graph.fft_real(graph.input("x", (2, 4))))
    re_, im = Session("cpu").compile(graph).run({"x": X})
    np.testing.assert_allclose(re_ + 1j * im, np.fft.fft(X), atol=1e-5)


def test_use_counts_and_orders() -> None:
    graph = Graph()
    x = graph.input("x", (2,))
    graph.set_outputs([x * x + x])
    assert [graph.use_count(n.id) for n in graph.nodes()] == [3, 1, 0]
    assert graph.topo_order() == (0, 1, 2)
    assert graph.reverse_topo() == (2, 1, 0)


def test_a_device_is_its_label() -> None:
    """In comparisons, sets and JSON; printed it has the name of messages."""
    assert Device.CPU == "cpu"
    assert "vulkan" in {Device.VULKAN}
    assert json.dumps([Device.ROCM]) == '["rocm"]'
    assert f"{Device.ROCM}|{Device.ROCM:>6}" == "ROCm|  ROCm"
    assert str(Device.GPU) == "GPU (wgpu)"
    assert rlxweb.parse_device("wgpu") == "gpu"


def test_the_manifest_names_what_can_be_tried() -> None:
    found = json.loads(rlxweb.backends_manifest())["backends"]
    assert {"cpu", "vulkan"} <= set(found)
    assert "tpu" not in found


def test_a_flexible_session_settles_each_graph() -> None:
    graph = Graph("pair")
    graph.set_outputs([graph.input("x", (2, 4)) * 2.0])
    session = FlexibleSession(DevicePolicy.only(["cpu"]))
    for compiled in (
        session.compile_resolved(graph),
        session.compile_resolved(graph, device="cpu"),
        FlexibleSession.from_env().compile_resolved(graph, "cpu"),
    ):
        assert compiled.device == "cpu"
        np.testing.assert_array_equal(compiled.run({"x": X})[0], X * 2)
    with pytest.raises(Unsupported, match="viable backends are"):
        session.compile_resolved(graph, "vulkan")


def test_rows_have_their_attributes_under_both_names() -> None:
    rows = {r.label: r for r in rlxweb.device_report()}
    assert rows["cpu"].reason is None
    assert rows["tpu"].reason == rows["tpu"].blocker != ""
    assert DeviceBenchResult(Device.CPU, "cpu", 1, 2.5).median_ns == 2.5
