"""Test that an op registered in one statement has shape checking, NumPy, WGSL and
agreement.

The three ways of saying it: an expression, a decomposition, a kernel with its source.
The tests below are the ones every op of the vocabulary gets; nothing else was edited.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rlxweb import Graph, Session
from rlxweb.core.errors import AttributeRefused, DTypeError, GraphError, ShapeError
from rlxweb.core.limits import tiny_limits
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import row_major_strides
from rlxweb.ir.lowering import (
    BufferRef,
    Compose,
    Expr,
    IterationAxis,
    Kernel,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
)
from rlxweb.ir.op import Attr, Op, TensorType, Tolerance, registry
from rlxweb.ir.sample import Drawn, Sample
from tests.engines_under_test import engine
from tests.op_factory import make_op
from tests.ops import op_cases
from tests.ops.test_agreement import case_failures

SAMPLES = tuple(
    Sample((Drawn(shape),), {"slope": 0.5})
    for shape in [(), (0, 3), (1,), (7,), (13, 11), (4, 8), (65_537, 2)]
)


def squash(xp: object, attrs: dict[str, float], x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    return x / (1 + attrs["slope"] * abs(x))


TRAITS = frozenset({"elementwise", "floats_only"})


def register_squash(lower: Expr | Compose | Kernel) -> Op:
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


def squash_plan(
    types: tuple[TensorType, ...], out: TensorType, attrs: dict[str, float]
) -> KernelPlan:
    dense_layout = row_major_strides((out.numel,))
    return KernelPlan(
        (
            KernelDispatch(
                shader="squash",
                axes=(IterationAxis("n", out.numel),),
                accesses=(
                    OperandAccess(BufferRef("in"), dense_layout),
                    OperandAccess(BufferRef("out"), dense_layout, "write"),
                ),
                grid=(("n", 1),),
                uniforms={"slope": attrs["slope"]},
                source=SOURCE,
            ),
        )
    )


LOWERINGS = {
    "expression": Expr("x / (F(1) + F({slope}) * abs(x))"),
    "decomposition": Compose(lambda g, attrs, x: x / (abs(x) * attrs["slope"] + 1.0)),
    "kernel": Kernel(squash_plan),  # type: ignore[arg-type]
}


@pytest.fixture(params=LOWERINGS)
def op(request: pytest.FixtureRequest) -> Iterator[Op]:
    """Register the same function with one of three lowerings."""
    registered_op = register_squash(LOWERINGS[request.param])
    op_cases.sample_cases.cache_clear()
    op_cases.view_cases.cache_clear()
    yield registered_op
    op_cases.sample_cases.cache_clear()
    op_cases.view_cases.cache_clear()


def test_shapes_dtypes_and_attributes_are_checked(op: Op) -> None:
    """Invalid shapes, dtypes and attributes of a new op give the messages of every
    op.
    """
    graph = Graph()
    x = graph.input("x", (3, 4))
    assert graph.apply("squash", x).shape == (3, 4)
    with pytest.raises(
        DTypeError, match=r"squash of \[3\] i32: the op accepts only floats"
    ):
        graph.apply("squash", graph.input("i", (3,), "i32"))
    with pytest.raises(GraphError, match="expected 1 input, got 2"):
        graph.apply("squash", x, x)
    with pytest.raises(AttributeRefused, match="unknown attribute 'slop'"):
        graph.apply("squash", x, slop=2.0)
    with pytest.raises(
        AttributeRefused, match="slope='x' is invalid; expected a number"
    ):
        graph.apply("squash", x, slope="x")


def test_numpy_runs_the_new_op(op: Op) -> None:
    """NumPy runs every sample of a new op, plain and through views."""
    assert case_failures(engine(None), op_cases.sample_cases("squash")) == []
    assert case_failures(engine(None), op_cases.view_cases("squash")) == []


@pytest.mark.requires_wgpu
def test_every_adapter_runs_the_new_op(op: Op, adapter: AdapterRequest) -> None:
    """The new op is right optimised, not optimised and under tiny limits."""
    for runner in (
        engine(adapter),
        engine(adapter, optimise=False),
        engine(adapter, limits=tiny_limits()),
    ):
        assert case_failures(runner, op_cases.sample_cases("squash")) == []
        assert case_failures(runner, op_cases.view_cases("squash")) == []


def test_new_op_fuses_and_folds(op: Op) -> None:
    """An expression fuses with its neighbours; over constants it is folded."""
    graph = Graph()
    x = graph.input("x", (8,))
    graph.set_outputs([graph.apply("squash", graph.neg(x), slope=2.0) * 3.0])
    compiled = Session("cpu").compile(graph)
    (out,) = compiled.run({"x": np.arange(8, dtype=np.float32)})
    np.testing.assert_allclose(out, -3 * np.arange(8) / (1 + 2 * np.arange(8)), 1e-6)
    if isinstance(op.lower, Expr):
        assert compiled.plan.decisions[0].numbers["regions"] == 1
    constant_graph = Graph()
    constant_graph.set_outputs(
        [constant_graph.apply("squash", constant_graph.constant([1.0, -1.0]))]
    )
    assert len(Session("cpu").compile(constant_graph).plan.steps) == 0


def test_custom_shape_rule_is_applied() -> None:
    """An op that turns rows into pairs has its shape inferred, checked and rejected."""

    def pairs(types: tuple[TensorType, ...], attrs: object) -> TensorType:
        if types[0].rank != 1 or types[0].shape[0] % 2:
            raise ShapeError("", "it takes a vector of even length")
        return TensorType((types[0].shape[0] // 2, 2), DType.F32)

    lower = Compose(lambda g, attrs, x: g.reshape(x, (x.shape[0] // 2, 2)))
    registered_op = registry.register(
        make_op("paired_for_test", infer=pairs, lower=lower)
    )
    graph = Graph()
    assert graph.apply(registered_op.name, graph.input("x", (6,))).shape == (3, 2)
    with pytest.raises(ShapeError, match=r"paired_for_test of \[5\] f32: it takes"):
        graph.apply(registered_op.name, graph.input("y", (5,)))
