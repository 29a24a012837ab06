"""Custom ops are checked before a device runs them, and cannot harm other work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb import GraphDevices, Session
from rlxweb.core.errors import Disagrees, DTypeError, GraphError
from rlxweb.engines import custom_op_reference_check
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Tolerance, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ops.custom_op_registration import register_custom
from rlxweb.runtime.device_graph_cache import DeviceGraphCache

OP_NAME = "test_custom_twice"


SAMPLE_INPUTS = (Drawn((2, 5)),)
WRONG_WGSL: dict[str, tuple[dict[str, Any], tuple[int, ...], str]] = {
    "everywhere": ({"wgsl": "x * F(3)"}, (4,), r"\[1024\] float32"),
    "in a narrow band": (
        {"wgsl": "select(x * F(2), x, (x > F(1.5)) & (x < F(1.6)))"},
        (4,),
        r"first at \(",
    ),
    "where it is large": ({"wgsl": "min(x * F(2), F(9))"}, (4,), ": got 9.0, expected"),
    "below zero only": ({"wgsl": "select(x * F(2), x, x < F(0))"}, (4,), "wrong"),
    "a little": ({"wgsl": "x * F(2.0001)"}, (4,), "worst error is 0.000"),
    "at zero only": ({"wgsl": "select(x * F(2), F(1), x == F(0))"}, (4,), "1 of 1024"),
    "at halves only": (
        {"wgsl": "select(x * F(2), F(9), fract(x) == F(0.5))"},
        (4,),
        "2 of 1024",
    ),
    "along an axis": (
        {
            "wgsl": "x * F(2)",
            "reference": lambda xp, a, x: 2 * x[..., ::-1] if x.ndim == 2 else 2 * x,
        },
        (3, 5),
        r"\[3, 5\] float32",
    ),
    "by its samples": (
        {"wgsl": "x * F(3)", "samples": [Sample(SAMPLE_INPUTS)]},
        (2, 5),
        r"\[2, 5\] float32",
    ),
    "in a decomposition": (
        {"wgsl": Compose(lambda g, attrs, x: x * 2.0 + 0.5)},
        (3, 7),
        r"\[3, 7\] float32",
    ),
    "far from zero": (
        {
            "wgsl": "clamp(x, F(0), F(256))",
            "reference": lambda xp, a, x: xp.clip(x, 0, 255),
        },
        (4,),
        r"\[1024\] float32",
    ),
    "in what is long": (
        {"wgsl": Compose(lambda g, attrs, x: x * (2.0 if x.shape[0] < 900 else 3.0))},
        (3000, 3000),
        r"\[3000, 19\] float32",
    ),
    "in what is large": (
        {"wgsl": Compose(lambda g, attrs, x: g.exp(x))},
        (3000, 100),
        r"\[19, 19\] float32",
    ),
}


def register_doubling_op(**options: Any) -> None:
    defaults = {"reference": lambda xp, a, x: x * 2}
    register_custom(OP_NAME, arity=1, **{**defaults, **options})


def custom_op_graph(*shape: int, **attrs: Any) -> Graph:
    graph = Graph("net")
    graph.set_outputs([graph.custom_op(OP_NAME, graph.input("x", shape), **attrs)])
    return graph


@pytest.mark.parametrize("case", WRONG_WGSL)
def test_wrong_wgsl_is_refused_at_first_use(case: str, adapter: AdapterRequest) -> None:
    """The error names the worst error, the first wrong element, and both numbers."""
    options, shape, words = WRONG_WGSL[case]
    register_doubling_op(**options)
    device = adapter.backends[0]
    for _ in range(2):  # also the second time
        with pytest.raises(Disagrees, match=words) as refused:
            Session(device, adapter=adapter.name).compile(custom_op_graph(*shape))
    assert "elements are wrong, first at (" in refused.value.rule
    assert "the worst error is" in refused.value.rule
    assert Session("cpu").compile(custom_op_graph(*shape)).device.label == "cpu"


def test_integers_beyond_float32_are_checked(adapter: AdapterRequest) -> None:
    """An op that is right for small integers only is refused."""
    register_doubling_op(wgsl="select(x * X(2), x, x > X(16777216))")
    graph = Graph("net")
    graph.set_outputs([graph.custom_op(OP_NAME, graph.input("x", (4,), "i32"))])
    with pytest.raises(Disagrees, match=r"\[1024\] int32"):
        Session(adapter.backends[0], adapter=adapter.name).compile(graph)
    register_doubling_op(wgsl="x * X(2)", replace=True)
    Session(adapter.backends[0], adapter=adapter.name).compile(graph)


def test_equal_operands_are_checked(adapter: AdapterRequest) -> None:
    """Operands that are equal are among the checked inputs: random arrays hardly ever
    are.
    """
    op: dict[str, Any] = {"arity": 2, "wgsl": "select(F(0), F(1), x > y)"}
    at_least = lambda xp, a, x, y: (x >= y).astype(x.dtype)  # noqa: E731
    register_custom(OP_NAME, reference=at_least, **op)
    graph = Graph("net")
    operands = [graph.input(name, (4,)) for name in "xy"]
    graph.set_outputs([graph.custom_op(OP_NAME, *operands)])
    with pytest.raises(Disagrees, match="7 of 1024"):
        Session(adapter.backends[0], adapter=adapter.name).compile(graph)


def test_another_device_takes_over_and_says_why(adapter: AdapterRequest) -> None:
    """A chain of devices falls back to the CPU and records the attempt."""
    register_doubling_op(wgsl="x * F(3)")
    device = adapter.backends[0]
    runner = GraphDevices(custom_op_graph(4), adapters={device: adapter.name})
    x = np.arange(4, dtype=np.float32)
    device_used, (out,) = runner.run_try([device, "cpu"], {"x": x})
    assert device_used.label == "cpu"
    np.testing.assert_array_equal(out, 2 * x)
    assert (
        "the WGSL and the reference give different results" in runner.attempts[0].error
    )


def test_correct_op_is_checked_once(
    adapter: AdapterRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later graphs of the same types skip the check; other attributes are checked
    again.
    """
    slope = {"attrs": [Attr("slope", "float")], "replace": True}
    leaky = lambda xp, a, x: xp.where(x > 0, x, x * a["slope"])  # noqa: E731
    register_doubling_op(
        reference=leaky, wgsl="select(x * F({slope}), x, x > F(0))", **slope
    )
    comparisons: list[str] = []
    compare = custom_op_reference_check.compare_to_reference

    def count_comparison(*arguments: Any) -> Any:
        comparisons.append("once")
        return compare(*arguments)

    monkeypatch.setattr(
        custom_op_reference_check, "compare_to_reference", count_comparison
    )
    session = Session(adapter.backends[0], adapter=adapter.name)
    x = np.array([[-2, -1, 0], [1, 2, 3]], np.float32)
    (got,) = session.compile(custom_op_graph(2, 3, slope=0.25)).run({"x": x})
    np.testing.assert_array_equal(got, np.where(x > 0, x, x * 0.25))
    per_check = len(comparisons)
    # One array of each length, and one of the graph's own two axes; one far from zero.
    assert (
        per_check
        == (len(custom_op_reference_check.EXPRESSION_LENGTHS) + 1)
        * len(custom_op_reference_check.DRAW_RANGES)
        + 1
    )
    session.compile(custom_op_graph(2, 3, slope=0.25))
    assert len(comparisons) == per_check
    session.compile(custom_op_graph(2, 3, slope=0.75))
    assert len(comparisons) == 2 * per_check
    register_doubling_op(
        reference=leaky, wgsl="select(x * F({slope}), x, x > F(0)) * F(2)", **slope
    )
    with pytest.raises(Disagrees):
        session.compile(custom_op_graph(2, 3, slope=0.25))


def test_non_finite_reference_and_tolerance_are_respected(
    adapter: AdapterRequest,
) -> None:
    """Values where the reference is not finite are ignored; a tolerance is applied."""
    session = Session(adapter.backends[0], adapter=adapter.name)
    log = {"arity": 1, "reference": lambda xp, a, x: xp.log(x), "replace": True}
    register_custom(OP_NAME, wgsl="log(max(x, F(1e-30)))", **log)
    session.compile(custom_op_graph(4))
    register_doubling_op(
        wgsl="x * F(2.0001)", tolerance=Tolerance(rtol=1e-3), replace=True
    )
    session.compile(custom_op_graph(4))


def test_replaced_op_is_used_on_every_device(adapter: AdapterRequest) -> None:
    """A replaced op is used also on devices that a runner had compiled for before."""
    register_doubling_op(wgsl="x * F(2)")
    device = adapter.backends[0]
    runner = GraphDevices(custom_op_graph(4), adapters={device: adapter.name})
    feeds = {"x": np.arange(4, dtype=np.float32)}
    np.testing.assert_array_equal(runner.run("cpu", feeds)[0], 2 * feeds["x"])
    register_doubling_op(
        wgsl="x * F(3)", reference=lambda xp, a, x: x * 3, replace=True
    )
    for label in ("cpu", device):
        np.testing.assert_array_equal(runner.run(label, feeds)[0], 3 * feeds["x"])


def test_graph_is_recompiled_when_its_op_changes() -> None:
    """A graph is compiled again only when one of its own ops changes."""
    register_doubling_op(wgsl="x * F(2)")
    compiled_graphs = DeviceGraphCache(custom_op_graph(4))
    x = np.arange(4, dtype=np.float32)
    old = run_blocking(compiled_graphs.get_or_compile("cpu", "", (), "run"))
    register_custom(f"{OP_NAME}_other", arity=1, reference=lambda xp, a, x: x)
    assert run_blocking(compiled_graphs.get_or_compile("cpu", "", (), "run")) is old
    register_doubling_op(
        wgsl="x * F(3)", reference=lambda xp, a, x: x * 3, replace=True
    )
    new = run_blocking(compiled_graphs.get_or_compile("cpu", "", (), "run"))
    np.testing.assert_array_equal(new.run({"x": x})[0], 3 * x)
    np.testing.assert_array_equal(old.run({"x": x})[0], 2 * x)  # its holder keeps it


CORRECT_WGSL: dict[str, tuple[Any, Any]] = {
    "past float32": (lambda xp, a, x: xp.exp(x) * xp.exp(x), "exp(x) * exp(x)"),
    "cubic": (lambda xp, a, x: x**3 - 3 * x, "x * x * x - X(3) * x"),
    "sums": (
        lambda xp, a, x: xp.cumsum(x, -1, dtype=x.dtype),
        Compose(lambda g, attrs, x: g.cumsum(x, -1)),
    ),
}


@pytest.mark.parametrize("case", CORRECT_WGSL)
def test_float32_rounding_is_accepted(case: str, adapter: AdapterRequest) -> None:
    """An op with float32's rounding is accepted: far from 0, overflowing,
    cancelling.
    """
    reference, wgsl = CORRECT_WGSL[case]
    register_doubling_op(reference=reference, wgsl=wgsl)
    session = Session(adapter.backends[0], adapter=adapter.name)
    for shape in ((4,), (3, 70_000)):
        session.compile(custom_op_graph(*shape))


INCOMPARABLE: dict[str, tuple[Any, str]] = {
    "raises": (lambda xp, a, x: 1 / 0, "raised ZeroDivisionError: division by zero"),
    "is nowhere finite": (
        lambda xp, a, x: xp.sqrt(x - 5000),
        "returned no finite value",
    ),
    "writes": (lambda xp, a, x: xp.add(x, 1, out=x), "raised ValueError: .*read-only"),
}


@pytest.mark.parametrize("case", INCOMPARABLE)
def test_wgsl_without_comparable_reference_is_refused(
    case: str, adapter: AdapterRequest
) -> None:
    """The error suggests the remedy: samples in the op's own domain."""
    reference, words = INCOMPARABLE[case]
    register_doubling_op(reference=reference, wgsl="sqrt(x - F(5000))")
    session = Session(adapter.backends[0], adapter=adapter.name)
    with pytest.raises(
        Disagrees, match=f"{words}.*; pass `samples`.* to register_custom"
    ):
        session.compile(custom_op_graph(4))
    if case == "is nowhere finite":
        sample = Sample((Drawn((9,), low=6000, high=7000),))
        register_doubling_op(
            reference=reference,
            wgsl="sqrt(x - F(5000))",
            samples=[sample],
            replace=True,
        )
        session.compile(custom_op_graph(4))


def test_reference_cannot_write_its_operands() -> None:
    """Operands of a reference are read-only."""
    register_doubling_op(reference=lambda xp, a, x: xp.multiply(x, 2, out=x))
    x = np.ones(4, np.float32)
    with pytest.raises(ValueError, match="read-only"):
        Session("cpu").compile(custom_op_graph(4)).run({"x": x})
    assert (x == 1).all()


def test_a_masked_result_is_refused() -> None:
    register_doubling_op(reference=lambda xp, a, x: np.ma.masked_greater(x, 0))
    compiled = Session("cpu").compile(custom_op_graph(4))
    with pytest.raises(DTypeError, match=r"of a custom op: .* 4 of 4 values masked"):
        compiled.run({"x": np.ones(4, np.float32)})


def test_array_attribute_is_copied() -> None:
    """Changing an array after it was passed as an attribute changes no result."""
    table = np.ones(4, np.float32)
    add_table = lambda xp, a, x: x + a["table"]  # noqa: E731
    register_doubling_op(reference=add_table, attrs=[Attr("table", "any")])
    graph = Graph("net")
    graph.set_outputs([graph.custom_op(OP_NAME, graph.input("x", 4), table=table)])
    compiled = Session("cpu").compile(graph)
    table[:] = 9
    (got,) = compiled.run({"x": np.zeros(4, np.float32)})
    assert got.tolist() == [1, 1, 1, 1]


def test_attribute_beyond_float32_is_named(adapter: AdapterRequest) -> None:
    cap_reference = lambda xp, a, x: xp.minimum(x, a["most"])  # noqa: E731
    register_doubling_op(
        reference=cap_reference, attrs=[Attr("most", "float")], wgsl="min(x, F({most}))"
    )
    graph = Graph("net")
    graph.set_outputs([graph.custom_op(OP_NAME, graph.input("x", 4), most=1e39)])
    with pytest.raises(
        GraphError,
        match=r"most=1e\+39; a constant in a shader must be .* finite float32",
    ):
        Session(adapter.backends[0], adapter=adapter.name).compile(graph)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (
            lambda xp, a, x: x.sum(),
            r"returned \[\] float32; the shape rule returns \[2",
        ),
        (lambda xp, a, x: x.astype(xp.float64), "returned .* float64"),
        (lambda xp, a, x: x[:1], r"returned \[1, 5\]"),
    ],
)
def test_a_reference_that_breaks_its_shape_rule_is_refused(
    reference: Any, words: str, adapter: AdapterRequest
) -> None:
    """A broken shape rule is refused with the samples, else wherever it first runs."""
    op: dict[str, Any] = {"arity": 1, "reference": reference, "wgsl": "x"}
    with pytest.raises(GraphError, match=words):
        register_custom(OP_NAME, **op, samples=[Sample(SAMPLE_INPUTS)])
    assert OP_NAME not in registry
    register_custom(OP_NAME, **op)
    graph = custom_op_graph(2, 5)
    x = np.ones((2, 5), np.float32)
    with pytest.raises(GraphError, match="the reference function returned"):
        Session("cpu").compile(graph).run({"x": x})
    with pytest.raises(GraphError, match="the reference function returned"):
        Session(adapter.backends[0], adapter=adapter.name).compile(graph)
    constant = Graph("folded")
    constant.set_outputs([constant.custom_op(OP_NAME, constant.constant(x))])
    with pytest.raises(GraphError, match="the reference function returned"):
        Session("cpu").compile(constant).run()
