"""RLX's and pyrlx's names beside ours, and the pages that list them and variables."""

from __future__ import annotations

import copy
import json
import pickle
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb
from rlxweb import DevicePolicy, FlexibleSession, Session, Tensor, names
from rlxweb.device import Device
from rlxweb.errors import AttributeRefused, GraphError, ShapeError, Unsupported
from rlxweb.rlx import Graph
from rlxweb.runtime.device_benchmark import DeviceBenchResult
from tests.command_line import ROOT, python

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
    """RLX's names are ours as the manual's table says."""
    assert loaded(theirs) == loaded(ours)


def test_the_table_of_names_is_complete() -> None:
    """Every alias of the package has its row."""
    aliases = {n for n, home in HOMES.items() if home == "rlxweb.rlx.aliases"}
    listed = {theirs.removeprefix("rlxweb.rlx.") for theirs, _ in SAME}
    assert aliases <= listed
    assert len(SAME) == 12


def test_the_package_is_an_attribute() -> None:
    """The package is loaded when asked for, and a graph of it loads no formula."""
    code = (
        "import sys, rlxweb as rlx; rlx.rlx.Graph('g').mm; "
        "print(*(m for m in sys.modules if m.startswith('rlxweb.rlx')))"
    )
    said = python("-c", code)
    assert said.code == 0, said.err
    assert said.out.split() == ["rlxweb.rlx", "rlxweb.rlx.graph"]


def test_the_core_graph_has_names_of_its_own_alone() -> None:
    both = {"copy", "rope", "lora_matmul"}
    theirs = {name for name in vars(Graph) if name[0] != "_"} - both
    assert {"mm", "where_", "fft_norm", "binary", "topo_order"} <= theirs
    assert {name for name in theirs if hasattr(rlxweb.Graph, name)} == set()


def test_a_graph_whose_sizes_vary_is_saved_by_methods_of_the_core(
    tmp_path: Path,
) -> None:
    """A varying graph loads without RLX's names; its copies and bindings keep them."""
    graph = Graph("varying")
    rows, w = graph.input("rows", ("n", 4)), graph.constant(np.ones((4, 2), np.float32))
    n = rows.shape[0]
    product = graph.matmul_with_shape(rows, w, (n, 2), "f32")
    for shape in (("n", 3), (n, 3), ("m", 2), (5, 2)):
        with pytest.raises(ShapeError, match="was declared"):
            graph.matmul_with_shape(rows, w, shape, "f32")
    assert graph.matmul_with_shape(rows, w, ("n", 2), "f32").shape == (n, 2)
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
    """Variables that the code reads are the ones on the page, and no others."""
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


def heads_and_table(g: rlxweb.Graph) -> tuple[Tensor, Tensor]:
    """Two heads of 4 at 3 positions, and a table of angles."""
    return g.input("h", (1, 3, 8)), g.input("angles", (3, 2))


def test_rope_takes_both_calls() -> None:
    one, other = Graph("same"), rlxweb.Graph("same")
    h, table = heads_and_table(one)
    one.set_outputs([one.rope(h, table, table, 4)])
    h, table = heads_and_table(other)
    other.set_outputs([other.rope(h, table, table, head_dim=4)])
    assert str(one) == str(other)
    h, table = one.tensor(0), one.tensor(1)
    at = one.constant(np.array([2, 0, 1]))
    placed = one.rope(h, table, table, at, num_heads=2)
    assert "gather" in {one.node(i).op for i in range(at.id, placed.id)}
    for wrong in ("4", 4.0, True):
        with pytest.raises(ShapeError, match="head_dim must be an integer"):
            one.rope(h, table, table, wrong)


def test_lora_matmul_checks_a_declared_type() -> None:
    def built(*declared: Any) -> Any:
        def build(g: Graph, x: Tensor, y: Tensor) -> Tensor:
            w, a = g.transpose_(y, (1, 0)), g.narrow_(g.transpose_(y, (1, 0)), 1, 0, 1)
            return g.lora_matmul(x, w, a, g.narrow_(y, 1, 0, 2)[0:1], 0.5, *declared)

        return build

    same(built((2, 2), "f32"), built())
    for declared in (((2, 3), "f32"), ((2, 2), "f16"), (2.5, "f32")):
        with pytest.raises(ShapeError, match="was declared"):
            same(built(*declared), built())


@pytest.mark.parametrize(
    "kind",
    [
        *("foo", "sliding_window", "custom", "bias", "causal:2"),
        *("sliding", "sliding:-1", None, 3),
    ],
)
def test_other_kinds_of_masks_are_refused(kind: Any) -> None:
    graph = Graph()
    x = graph.input("x", (1, 2, 5, 4))
    with pytest.raises(AttributeRefused, match="'none', 'causal' or 'sliding:N'"):
        graph.attention_kind(x, x, x, 2, 4, kind)


def test_a_missing_method_is_refused_with_the_one_that_is_meant() -> None:
    plain, theirs = rlxweb.Graph("plain"), Graph("theirs")
    with pytest.raises(AttributeError, match=r"'mm'; RLX's method names are those of"):
        plain.mm  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="did you mean 'softmax'"):
        plain.sofmax  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="mean 'matmul_with_shape'") as error:
        theirs.matmul_with_shap  # type: ignore[attr-defined]  # noqa: B018
    assert "RLX's method names" not in str(error.value)
    assert not hasattr(plain, "_nothing")
    assert not hasattr(plain, "mm")
    plain.set_outputs([plain.input("x", (2,)) * 2.0])
    for twin in (copy.copy(plain), copy.deepcopy(plain)):
        assert str(twin) == str(plain)
    assert str(pickle.loads(pickle.dumps(plain))) == str(plain)


def test_words_that_name_nothing_are_refused() -> None:
    graph = Graph()
    x = graph.input("x", (2, 2))
    for call, said in (
        (lambda: graph.binary("plus", x, x), "'plus' is none; they are add, sub"),
        (lambda: graph.compare("=>", x, x), "'=>' is none; they are eq, ne"),
        (lambda: graph.reduce(x, "median", [0]), "'median' is none; they are sum"),
        (lambda: graph.attention_kind(x, x, x, 1, 2, "sliding"), "or 'sliding:N'"),
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
    """The spectrum of real rows is NumPy's fft, in two halves."""
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
    assert graph.use_count(x) == 3
    assert graph.users(np.int64(1)) == (2,)
    for wrong in (3, -1, 1.0, "x", Graph().input("x", (2,))):
        for call in (graph.use_count, graph.users):
            with pytest.raises(GraphError, match="it has 3 nodes"):
                call(wrong)


def test_a_device_is_its_label() -> None:
    """A device is its label in comparisons, sets and JSON, but not when printed."""
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
