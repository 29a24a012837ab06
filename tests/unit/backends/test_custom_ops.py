"""A custom op is tried before a device runs it, and harms nobody where it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb import GraphDevices, Session
from rlxweb.backends import custom_ops
from rlxweb.errors import Disagrees, DTypeError, GraphError
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Tolerance, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ops.custom import register_custom
from rlxweb.runtime.on_devices import OnDevices

NAME = "test_custom_twice"


LONG = (Drawn((2, 5)),)
WRONG: dict[str, tuple[dict[str, Any], tuple[int, ...], str]] = {
    "everywhere": ({"wgsl": "x * F(3)"}, (4,), r"\[1024\] float32"),
    "in a narrow band": (
        {"wgsl": "select(x * F(2), x, (x > F(1.5)) & (x < F(1.6)))"},
        (4,),
        r"first at \(",
    ),
    "where it is large": ({"wgsl": "min(x * F(2), F(9))"}, (4,), ": 9.0 instead of"),
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
        {"wgsl": "x * F(3)", "samples": [Sample(LONG)]},
        (2, 5),
        r"\[2, 5\] float32",
    ),
    "in a composition": (
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


def twice(**more: Any) -> None:
    doubled = {"reference": lambda xp, a, x: x * 2}
    register_custom(NAME, arity=1, **{**doubled, **more})


def of_shape(*shape: int, **attrs: Any) -> Graph:
    graph = Graph("net")
    graph.set_outputs([graph.custom_op(NAME, graph.input("x", shape), **attrs)])
    return graph


@pytest.mark.parametrize("how", WRONG)
def test_wgsl_that_disagrees_is_refused_where_it_first_runs(
    how: str, adapter: Want
) -> None:
    """A refusal has the worst error, the first wrong element, and both numbers."""
    more, shape, words = WRONG[how]
    twice(**more)
    device = adapter.backends[0]
    for _ in range(2):  # also the second time
        with pytest.raises(Disagrees, match=words) as refused:
            Session(device, adapter=adapter.name).compile(of_shape(*shape))
    assert "elements are wrong, first at (" in refused.value.rule
    assert "the worst error is" in refused.value.rule
    assert Session("cpu").compile(of_shape(*shape)).device.label == "cpu"


def test_integers_that_float32_does_not_hold_are_tried(adapter: Want) -> None:
    """An op that is right for small integers only is found out."""
    twice(wgsl="select(x * X(2), x, x > X(16777216))")
    graph = Graph("net")
    graph.set_outputs([graph.custom_op(NAME, graph.input("x", (4,), "i32"))])
    with pytest.raises(Disagrees, match=r"\[1024\] int32"):
        Session(adapter.backends[0], adapter=adapter.name).compile(graph)
    twice(wgsl="x * X(2)", replace=True)
    Session(adapter.backends[0], adapter=adapter.name).compile(graph)


def test_operands_that_are_equal_are_tried(adapter: Want) -> None:
    """Two arrays drawn at random hardly ever meet."""
    op: dict[str, Any] = {"arity": 2, "wgsl": "select(F(0), F(1), x > y)"}
    at_least = lambda xp, a, x, y: (x >= y).astype(x.dtype)  # noqa: E731
    register_custom(NAME, reference=at_least, **op)
    graph = Graph("net")
    operands = [graph.input(name, (4,)) for name in "xy"]
    graph.set_outputs([graph.custom_op(NAME, *operands)])
    with pytest.raises(Disagrees, match="7 of 1024"):
        Session(adapter.backends[0], adapter=adapter.name).compile(graph)


def test_another_device_takes_over_and_says_why(adapter: Want) -> None:
    """A chain goes on to the CPU, with the attempt on record."""
    twice(wgsl="x * F(3)")
    device = adapter.backends[0]
    runner = GraphDevices(of_shape(4), adapters={device: adapter.name})
    x = np.arange(4, dtype=np.float32)
    found, (out,) = runner.run_try([device, "cpu"], {"x": x})
    assert found.label == "cpu"
    np.testing.assert_array_equal(out, 2 * x)
    assert "gives other numbers than its reference" in runner.attempts[0].error


def test_a_right_op_is_tried_once(
    adapter: Want, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later graphs of the same types pay nothing; other attributes are tried anew."""
    slope = {"attrs": [Attr("slope", "float")], "replace": True}
    leaky = lambda xp, a, x: xp.where(x > 0, x, x * a["slope"])  # noqa: E731
    twice(reference=leaky, wgsl="select(x * F({slope}), x, x > F(0))", **slope)
    tried: list[str] = []
    real = custom_ops.compare

    def counted(*arguments: Any) -> Any:
        tried.append("once")
        return real(*arguments)

    monkeypatch.setattr(custom_ops, "compare", counted)
    session = Session(adapter.backends[0], adapter=adapter.name)
    x = np.array([[-2, -1, 0], [1, 2, 3]], np.float32)
    (got,) = session.compile(of_shape(2, 3, slope=0.25)).run({"x": x})
    np.testing.assert_array_equal(got, np.where(x > 0, x, x * 0.25))
    once = len(tried)
    # One array of each length, and one of the graph's own two axes; one far from zero.
    assert once == (len(custom_ops.LENGTHS) + 1) * len(custom_ops.RANGES) + 1
    session.compile(of_shape(2, 3, slope=0.25))
    assert len(tried) == once
    session.compile(of_shape(2, 3, slope=0.75))
    assert len(tried) == 2 * once
    twice(reference=leaky, wgsl="select(x * F({slope}), x, x > F(0)) * F(2)", **slope)
    with pytest.raises(Disagrees):
        session.compile(of_shape(2, 3, slope=0.25))


def test_what_is_outside_its_domain_is_not_held_against_an_op(adapter: Want) -> None:
    """Drawn arrays may be where the reference is not finite; a tolerance counts."""
    session = Session(adapter.backends[0], adapter=adapter.name)
    log = {"arity": 1, "reference": lambda xp, a, x: xp.log(x), "replace": True}
    register_custom(NAME, wgsl="log(max(x, F(1e-30)))", **log)
    session.compile(of_shape(4))
    twice(wgsl="x * F(2.0001)", tolerance=Tolerance(rtol=1e-3), replace=True)
    session.compile(of_shape(4))


def test_a_record_put_in_its_place_serves_every_device(adapter: Want) -> None:
    """A replaced op serves the devices, too, that a runner had compiled for before."""
    twice(wgsl="x * F(2)")
    device = adapter.backends[0]
    runner = GraphDevices(of_shape(4), adapters={device: adapter.name})
    feeds = {"x": np.arange(4, dtype=np.float32)}
    np.testing.assert_array_equal(runner.run("cpu", feeds)[0], 2 * feeds["x"])
    twice(wgsl="x * F(3)", reference=lambda xp, a, x: x * 3, replace=True)
    for one in ("cpu", device):
        np.testing.assert_array_equal(runner.run(one, feeds)[0], 3 * feeds["x"])


def test_a_graph_compiled_by_device_computes_its_ops_as_they_are_now() -> None:
    """A graph is compiled again for a change of its own ops only."""
    twice(wgsl="x * F(2)")
    places, x = OnDevices(of_shape(4)), np.arange(4, dtype=np.float32)
    old = drive(places.on("cpu", "", (), "run"))
    register_custom(f"{NAME}_other", arity=1, reference=lambda xp, a, x: x)
    assert drive(places.on("cpu", "", (), "run")) is old
    twice(wgsl="x * F(3)", reference=lambda xp, a, x: x * 3, replace=True)
    new = drive(places.on("cpu", "", (), "run"))
    np.testing.assert_array_equal(new.run({"x": x})[0], 3 * x)
    np.testing.assert_array_equal(old.run({"x": x})[0], 2 * x)  # its holder keeps it


RIGHT: dict[str, tuple[Any, Any]] = {
    "past float32": (lambda xp, a, x: xp.exp(x) * xp.exp(x), "exp(x) * exp(x)"),
    "cubic": (lambda xp, a, x: x**3 - 3 * x, "x * x * x - X(3) * x"),
    "sums": (
        lambda xp, a, x: xp.cumsum(x, -1, dtype=x.dtype),
        Compose(lambda g, attrs, x: g.cumsum(x, -1)),
    ),
}


@pytest.mark.parametrize("how", RIGHT)
def test_an_op_that_rounds_as_float32_does_is_taken(how: str, adapter: Want) -> None:
    """An op that rounds as float32 is taken: far from 0, overflowing, cancelling."""
    reference, wgsl = RIGHT[how]
    twice(reference=reference, wgsl=wgsl)
    session = Session(adapter.backends[0], adapter=adapter.name)
    for shape in ((4,), (3, 70_000)):
        session.compile(of_shape(*shape))


NEVER: dict[str, tuple[Any, str]] = {
    "raises": (lambda xp, a, x: 1 / 0, "raised ZeroDivisionError: division by zero"),
    "is nowhere finite": (lambda xp, a, x: xp.sqrt(x - 5000), "is finite nowhere"),
    "writes": (lambda xp, a, x: xp.add(x, 1, out=x), "raised ValueError: .*read-only"),
}


@pytest.mark.parametrize("how", NEVER)
def test_wgsl_that_cannot_be_compared_is_refused(how: str, adapter: Want) -> None:
    """A refusal names the way out: samples in the op's own domain."""
    reference, words = NEVER[how]
    twice(reference=reference, wgsl="sqrt(x - F(5000))")
    session = Session(adapter.backends[0], adapter=adapter.name)
    with pytest.raises(Disagrees, match=f"{words}.*; give register_custom `samples`"):
        session.compile(of_shape(4))
    if how == "is nowhere finite":
        far = Sample((Drawn((9,), low=6000, high=7000),))
        twice(
            reference=reference, wgsl="sqrt(x - F(5000))", samples=[far], replace=True
        )
        session.compile(of_shape(4))


def test_a_reference_that_writes_into_its_operands_changes_nothing() -> None:
    """A reference cannot write into its operands: they are read-only."""
    twice(reference=lambda xp, a, x: xp.multiply(x, 2, out=x))
    x = np.ones(4, np.float32)
    with pytest.raises(ValueError, match="read-only"):
        Session("cpu").compile(of_shape(4)).run({"x": x})
    assert (x == 1).all()


def test_a_masked_result_is_refused() -> None:
    twice(reference=lambda xp, a, x: np.ma.masked_greater(x, 0))
    compiled = Session("cpu").compile(of_shape(4))
    with pytest.raises(DTypeError, match=r"of a custom op: .* 4 of 4 values masked"):
        compiled.run({"x": np.ones(4, np.float32)})


def test_an_array_among_the_attributes_is_kept_as_it_was() -> None:
    """What its owner does to it later changes no answer."""
    table = np.ones(4, np.float32)
    added = lambda xp, a, x: x + a["table"]  # noqa: E731
    twice(reference=added, attrs=[Attr("table", "any")])
    graph = Graph("net")
    graph.set_outputs([graph.custom_op(NAME, graph.input("x", 4), table=table)])
    compiled = Session("cpu").compile(graph)
    table[:] = 9
    (got,) = compiled.run({"x": np.zeros(4, np.float32)})
    assert got.tolist() == [1, 1, 1, 1]


def test_an_attribute_that_float32_does_not_hold_is_named(adapter: Want) -> None:
    capped = lambda xp, a, x: xp.minimum(x, a["most"])  # noqa: E731
    twice(reference=capped, attrs=[Attr("most", "float")], wgsl="min(x, F({most}))")
    graph = Graph("net")
    graph.set_outputs([graph.custom_op(NAME, graph.input("x", 4), most=1e39)])
    with pytest.raises(
        GraphError, match=r"most=1e\+39; only finite numbers of float32"
    ):
        Session(adapter.backends[0], adapter=adapter.name).compile(graph)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (lambda xp, a, x: x.sum(), r"returned \[\] float32; its shape rule says \[2"),
        (lambda xp, a, x: x.astype(xp.float64), "returned .* float64"),
        (lambda xp, a, x: x[:1], r"returned \[1, 5\]"),
    ],
)
def test_a_reference_that_breaks_its_shape_rule_is_refused(
    reference: Any, words: str, adapter: Want
) -> None:
    """A broken shape rule is refused with the samples, else wherever it first runs."""
    op: dict[str, Any] = {"arity": 1, "reference": reference, "wgsl": "x"}
    with pytest.raises(GraphError, match=words):
        register_custom(NAME, **op, samples=[Sample(LONG)])
    assert NAME not in registry
    register_custom(NAME, **op)
    graph = of_shape(2, 5)
    x = np.ones((2, 5), np.float32)
    with pytest.raises(GraphError, match="its reference returned"):
        Session("cpu").compile(graph).run({"x": x})
    with pytest.raises(GraphError, match="its reference returned"):
        Session(adapter.backends[0], adapter=adapter.name).compile(graph)
    constant = Graph("folded")
    constant.set_outputs([constant.custom_op(NAME, constant.constant(x))])
    with pytest.raises(GraphError, match="its reference returned"):
        Session("cpu").compile(constant).run()
