"""RLX's and pyrlx's names beside ours, and the manual's pages that list them and the
environment variables.
"""

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
from rlxweb import DevicePolicy, FlexibleSession, Session, Tensor
from rlxweb.core import lazy_names
from rlxweb.core.device import Device
from rlxweb.core.errors import AttributeRefused, GraphError, ShapeError, Unsupported
from rlxweb.rlx import Graph
from rlxweb.runtime.device_benchmark import DeviceBenchResult
from tests.cli_runners import ROOT, run_python

PAGES = ROOT / "site" / "pages" / "reference"
SAME_OBJECTS = re.findall(
    r"^\| `(rlxweb\.[\w.]+)` \| `(rlxweb\.[\w.]+)` \|$",
    (PAGES / "rlx-names.md").read_text("utf-8"),
    re.MULTILINE,
)


PUBLISHED_MODULES = lazy_names._published_names["rlxweb.rlx"]


def resolve_path(path: str) -> Any:
    """Return the object of a dotted path, through packages, modules and classes."""
    parts, target = path.split("."), None
    for length in range(len(parts), 0, -1):
        try:
            target = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            target = getattr(target, name)
        return target
    raise AssertionError(path)


@pytest.mark.parametrize(("theirs", "ours"), SAME_OBJECTS)
def test_rlx_names_are_our_objects(theirs: str, ours: str) -> None:
    """RLX's names are ours as the manual's table says."""
    assert resolve_path(theirs) == resolve_path(ours)


def test_the_table_of_names_is_complete() -> None:
    """Every alias of the package has its row."""
    aliases = {
        n for n, home in PUBLISHED_MODULES.items() if home == "rlxweb.rlx.aliases"
    }
    listed = {theirs.removeprefix("rlxweb.rlx.") for theirs, _ in SAME_OBJECTS}
    assert aliases <= listed
    assert len(SAME_OBJECTS) == 12


def test_rlx_is_a_lazy_attribute() -> None:
    """The package is loaded on first use, and a graph of it loads no formula."""
    code = (
        "import sys, rlxweb as rlx; rlx.rlx.Graph('g').mm; "
        "print(*(m for m in sys.modules if m.startswith('rlxweb.rlx')))"
    )
    result = run_python("-c", code)
    assert result.code == 0, result.err
    assert result.out.split() == ["rlxweb.rlx", "rlxweb.rlx.graph"]


def test_the_core_graph_has_no_rlx_names() -> None:
    shared = {"copy", "rope", "lora_matmul"}
    theirs = {name for name in vars(Graph) if name[0] != "_"} - shared
    assert {"mm", "where_", "fft_norm", "binary", "topo_order"} <= theirs
    assert {name for name in theirs if hasattr(rlxweb.Graph, name)} == set()


def test_a_dynamic_graph_is_saved_without_rlx_names(
    tmp_path: Path,
) -> None:
    """A dynamic graph loads without RLX's names; its copies and bindings keep them."""
    graph = Graph("varying")
    rows, w = graph.input("rows", ("n", 4)), graph.constant(np.ones((4, 2), np.float32))
    n = rows.shape[0]
    product = graph.matmul_with_shape(rows, w, (n, 2), "f32")
    for shape in (("n", 3), (n, 3), ("m", 2), (5, 2)):
        with pytest.raises(ShapeError, match="declared type is"):
            graph.matmul_with_shape(rows, w, shape, "f32")
    assert graph.matmul_with_shape(rows, w, ("n", 2), "f32").shape == (n, 2)
    spectrum = graph.fft_real(graph.binary("max", graph.mm(rows, w), 0.0))
    graph.set_outputs([graph.reduce(product, "sum", [1]), *spectrum])
    assert {type(derived) for derived in (graph.copy(), graph.bind(n=3))} == {Graph}
    graph.save(tmp_path / "varying.rlxg")
    loaded = rlxweb.load(tmp_path / "varying.rlxg")
    assert type(loaded.graph) is rlxweb.Graph
    direct = Session("cpu").compile(graph).run({"rows": X})
    for total, re_, im in (direct, loaded.run({"rows": X}).values()):
        np.testing.assert_allclose(total, 2 * X.sum(1))
        want = np.fft.fft(np.maximum(X @ np.ones((4, 2)), 0))
        np.testing.assert_allclose(re_ + 1j * im, want, atol=1e-5)


def test_every_environment_variable_is_documented() -> None:
    """The environment variables that the code reads are those on the page, and no
    others.
    """
    code = [p.read_text("utf-8") for p in (ROOT / "rlxweb").rglob("*.py")]
    read = set(re.findall(r'"(RLX_[A-Z_]+)"', "\n".join(code)))
    suffixes = re.findall(r'f"\{prefix\}_([A-Z_]+)"', "\n".join(code))
    read |= {f"RLX_{suffix}" for suffix in suffixes}
    page = (PAGES / "environment.md").read_text("utf-8")
    listed = re.findall(r"^\| (.*?) \|", page, re.MULTILINE)
    documented = set(re.findall(r"RLX_[A-Z_]+", " ".join(listed)))
    assert documented == read
    assert {
        "RLX_FORCE_DEVICE",
        "RLX_FFT_LEGACY_PICKER",
        "RLX_BENCHMARK_PICK",
    } <= documented


X = np.array([[1.0, 2.0, 3.0, 4.0], [4.0, 1.0, 0.0, -2.0]], np.float32)


def check_same_nodes(build_theirs: Any, build_ours: Any) -> None:
    """Check that two ways of building give the very same nodes."""
    graphs = []
    for build in (build_theirs, build_ours):
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
    def builder(text: str) -> Any:
        def build(g: Graph, x: Tensor, y: Tensor) -> Any:
            functions = {"t": lambda v: g.transpose_(v, (1, 0))}
            return eval(f"g.{text}", {"g": g, "x": x, "y": y} | functions)

        return build

    check_same_nodes(builder(theirs), builder(ours))


def heads_and_table(g: rlxweb.Graph) -> tuple[Tensor, Tensor]:
    """Add two heads of size 4 at 3 positions, and a table of angles, to a graph."""
    return g.input("h", (1, 3, 8)), g.input("angles", (3, 2))


def test_rope_takes_both_signatures() -> None:
    theirs, ours = Graph("same"), rlxweb.Graph("same")
    h, table = heads_and_table(theirs)
    theirs.set_outputs([theirs.rope(h, table, table, 4)])
    h, table = heads_and_table(ours)
    ours.set_outputs([ours.rope(h, table, table, head_dim=4)])
    assert str(theirs) == str(ours)
    h, table = theirs.tensor(0), theirs.tensor(1)
    positions = theirs.constant(np.array([2, 0, 1]))
    rotated = theirs.rope(h, table, table, positions, num_heads=2)
    assert "gather" in {theirs.node(i).op for i in range(positions.id, rotated.id)}
    for wrong in ("4", 4.0, True):
        with pytest.raises(AttributeRefused, match=r"head_dim=.*; expected an integer"):
            theirs.rope(h, table, table, wrong)


def test_lora_matmul_checks_a_declared_type() -> None:
    def builder(*declared: Any) -> Any:
        def build(g: Graph, x: Tensor, y: Tensor) -> Tensor:
            w, a = g.transpose_(y, (1, 0)), g.narrow_(g.transpose_(y, (1, 0)), 1, 0, 1)
            return g.lora_matmul(x, w, a, g.narrow_(y, 1, 0, 2)[0:1], 0.5, *declared)

        return build

    check_same_nodes(builder((2, 2), "f32"), builder())
    for declared in (((2, 3), "f32"), ((2, 2), "f16"), (2.5, "f32")):
        with pytest.raises(ShapeError, match="declared type is"):
            check_same_nodes(builder(*declared), builder())


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


def test_a_missing_method_suggests_the_intended_one() -> None:
    plain, theirs = rlxweb.Graph("plain"), Graph("theirs")
    with pytest.raises(
        AttributeError, match=r"'mm'; for RLX's method names, use rlxweb\.rlx\.Graph"
    ):
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


def test_unknown_op_names_are_refused() -> None:
    graph = Graph()
    x = graph.input("x", (2, 2))
    for call, message in (
        (
            lambda: graph.binary("plus", x, x),
            "'plus' is not supported; expected one of add, sub",
        ),
        (
            lambda: graph.compare("=>", x, x),
            "'=>' is not supported; expected one of eq, ne",
        ),
        (
            lambda: graph.reduce(x, "median", [0]),
            "'median' is not supported; expected one of sum",
        ),
        (lambda: graph.attention_kind(x, x, x, 1, 2, "sliding"), "or 'sliding:N'"),
    ):
        with pytest.raises(AttributeRefused, match=message):
            call()
    with pytest.raises(ShapeError, match=r"\[2, 2\] f32; .* \[2, 3\] f32"):
        graph.matmul_with_shape(x, x, [2, 3], "f32")


@pytest.mark.parametrize(
    ("kind", "ours"),
    [("none", {}), ("causal", {}), ("sliding:2", {"window": 2})],
)
def test_attention_masks_by_kind(kind: str, ours: dict[str, int]) -> None:
    def heads(graph: Graph) -> list[Tensor]:
        return [graph.input(n, (1, 2, 5, 4)) for n in "qkv"]

    theirs_graph, ours_graph = Graph("masks"), Graph("masks")
    theirs = theirs_graph.attention_kind(*heads(theirs_graph), 2, 4, kind)
    mask_kind = kind.replace("sliding:2", "sliding_window")
    mine = ours_graph.attention(
        *heads(ours_graph), num_heads=2, head_dim=4, mask_kind=mask_kind, **ours
    )
    assert str(theirs_graph.node(theirs.id)) == str(ours_graph.node(mine.id))


def test_full_spectrum_of_real_rows() -> None:
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


def test_manifest_lists_backends_that_can_be_tried() -> None:
    backends = json.loads(rlxweb.backends_manifest())["backends"]
    assert {"cpu", "vulkan"} <= set(backends)
    assert "tpu" not in backends


def test_a_flexible_session_resolves_a_device_per_graph() -> None:
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
