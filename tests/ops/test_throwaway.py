"""An op added in one statement has shape checking, NumPy, WGSL and agreement.

The three ways of saying it: an expression, a composition, a kernel with its source. The
tests below are the ones every op of the vocabulary gets; nothing else was edited.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rlxweb import Graph, Session
from rlxweb.errors import AttributeRefused, DTypeError, GraphError, ShapeError
from rlxweb.gpu.port import Want
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import row_major
from rlxweb.ir.lowering import Access, Axis, Call, Compose, Expr, Kernel, Recipe, Ref
from rlxweb.ir.op import Attr, Op, TensorType, Tolerance, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.limits import shrunk
from tests.agreement import engine
from tests.made_op import made_op
from tests.ops import ways
from tests.ops.test_agreement import wrong

SAMPLES = tuple(
    Sample((Drawn(shape),), {"slope": 0.5})
    for shape in [(), (0, 3), (1,), (7,), (13, 11), (4, 8), (65_537, 2)]
)


def squash(xp: object, attrs: dict[str, float], x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    return x / (1 + attrs["slope"] * abs(x))


TRAITS = frozenset({"elementwise", "floats_only"})


def said_as(lower: Expr | Compose | Kernel) -> Op:
    return registry.register(
        Op(
            name="squash",
            arity=1,
            infer=lambda types, attrs: types[0],
            reference=squash,
            lower=lower,
            attrs=(Attr("slope", "float", 1.0),),
            traits=TRAITS if isinstance(lower, Expr) else TRAITS - {"elementwise"},
            tolerance=Tolerance(rtol=1e-6),
            samples=SAMPLES,
        )
    )


SOURCE = """
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let x = ld0(item);
  st1(item, x / (1.0 + u.slope * abs(x)));
}
"""


def call_of(
    types: tuple[TensorType, ...], out: TensorType, attrs: dict[str, float]
) -> Recipe:
    walk = row_major((out.numel,))
    return Recipe(
        (
            Call(
                shader="squash",
                axes=(Axis("n", out.numel),),
                accesses=(Access(Ref("in"), walk), Access(Ref("out"), walk, "write")),
                grid=(("n", 1),),
                values={"slope": attrs["slope"]},
                source=SOURCE,
            ),
        )
    )


WAYS = {
    "expression": Expr("x / (F(1) + F({slope}) * abs(x))"),
    "composition": Compose(lambda g, attrs, x: x / (abs(x) * attrs["slope"] + 1.0)),
    "kernel": Kernel(call_of),  # type: ignore[arg-type]
}


@pytest.fixture(params=WAYS)
def op(request: pytest.FixtureRequest) -> Iterator[Op]:
    """The same function, said in one of three ways."""
    made = said_as(WAYS[request.param])
    ways.plain.cache_clear()
    ways.through_views.cache_clear()
    yield made
    ways.plain.cache_clear()
    ways.through_views.cache_clear()


def test_shapes_dtypes_and_attributes_are_checked(op: Op) -> None:
    """A new op's shapes, dtypes and attributes are refused in every op's words."""
    graph = Graph()
    x = graph.input("x", (3, 4))
    assert graph.apply("squash", x).shape == (3, 4)
    with pytest.raises(DTypeError, match=r"squash of \[3\] i32: takes floats only"):
        graph.apply("squash", graph.input("i", (3,), "i32"))
    with pytest.raises(GraphError, match="takes 1 inputs, got 2"):
        graph.apply("squash", x, x)
    with pytest.raises(AttributeRefused, match="unknown attribute 'slop'"):
        graph.apply("squash", x, slop=2.0)
    with pytest.raises(AttributeRefused, match="slope='x' is not of kind float"):
        graph.apply("squash", x, slope="x")


def test_numpy_runs_it(op: Op) -> None:
    """NumPy runs every sample of a new op, plain and through views."""
    assert wrong(engine(None), ways.plain("squash")) == []
    assert wrong(engine(None), ways.through_views("squash")) == []


@pytest.mark.requires_wgpu
def test_every_adapter_runs_it(op: Op, adapter: Want) -> None:
    """Optimised, not optimised and under tiny limits."""
    for one in (
        engine(adapter),
        engine(adapter, optimise=False),
        engine(adapter, limits=shrunk()),
    ):
        assert wrong(one, ways.plain("squash")) == []
        assert wrong(one, ways.through_views("squash")) == []


def test_it_fuses_and_folds_like_any_other(op: Op) -> None:
    """An expression joins its neighbours; over constants it is computed once."""
    graph = Graph()
    x = graph.input("x", (8,))
    graph.set_outputs([graph.apply("squash", graph.neg(x), slope=2.0) * 3.0])
    made = Session("cpu").compile(graph)
    (out,) = made.run({"x": np.arange(8, dtype=np.float32)})
    np.testing.assert_allclose(out, -3 * np.arange(8) / (1 + 2 * np.arange(8)), 1e-6)
    if isinstance(op.lower, Expr):
        assert made.plan.decisions[0].numbers["regions"] == 1
    still = Graph()
    still.set_outputs([still.apply("squash", still.constant([1.0, -1.0]))])
    assert len(Session("cpu").compile(still).plan.steps) == 0


def test_a_shape_rule_of_its_own_is_kept() -> None:
    """An op that turns rows into pairs: inferred, checked, refused where it must."""

    def pairs(types: tuple[TensorType, ...], attrs: object) -> TensorType:
        if types[0].rank != 1 or types[0].shape[0] % 2:
            raise ShapeError("", "it takes a vector of even length")
        return TensorType((types[0].shape[0] // 2, 2), DType.F32)

    lower = Compose(lambda g, attrs, x: g.reshape(x, (x.shape[0] // 2, 2)))
    made = registry.register(made_op("paired_for_test", infer=pairs, lower=lower))
    graph = Graph()
    assert graph.apply(made.name, graph.input("x", (6,))).shape == (3, 2)
    with pytest.raises(ShapeError, match=r"paired_for_test of \[5\] f32: it takes"):
        graph.apply(made.name, graph.input("y", (5,)))
