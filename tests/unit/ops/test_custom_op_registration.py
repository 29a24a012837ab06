"""Custom ops: one statement, then shape checks, CPU and WGSL like any other op."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import rlxweb.ops  # noqa: F401  registers the vocabulary
from rlxweb.compiler.rewrites import decompose
from rlxweb.compiler.target import Target
from rlxweb.core.errors import (
    AttributeRefused,
    DTypeError,
    GraphError,
    ShapeError,
    Unsupported,
)
from rlxweb.core.limits import Limits
from rlxweb.engines.evaluate import evaluate
from rlxweb.engines.webgpu.kernel_selection import Hardware, KernelSelector
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import (
    BufferRef,
    Compose,
    Expr,
    HostOnly,
    IterationAxis,
    Kernel,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
)
from rlxweb.ir.op import Attr, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ops.custom_op_registration import register_custom
from tests.engines_under_test import engine

NAME = "test_custom_leaky"


def leaky(xp: Any, attrs: Any, x: Any) -> Any:
    return xp.where(x > 0, x, x * attrs["slope"])


def register_leaky(**options: Any) -> None:
    register_custom(
        NAME,
        arity=1,
        reference=leaky,
        attrs=[Attr("slope", "float", 0.5)],
        **options,
    )


def custom_op_graph(name: str = NAME, **attrs: Any) -> Graph:
    g = Graph()
    x = g.input("x", (2, 3))
    g.set_outputs([g.custom_op(name, x, **attrs)])
    return g


X = np.array([[-2, -1, 0], [1, 2, 3]], np.float32)


def test_one_statement_makes_an_op() -> None:
    """The graph infers its shape and the CPU computes it."""
    register_leaky()
    g = custom_op_graph(slope=0.25)
    assert g.node(1).type.shape == (2, 3)
    (got,) = evaluate(g, {"x": X})
    np.testing.assert_array_equal(got, np.where(X > 0, X, X * 0.25))


@pytest.mark.requires_wgpu
def test_an_expression_runs_on_an_adapter(adapter: AdapterRequest) -> None:
    """WGSL given as a string is fused like a built-in op."""
    register_leaky(wgsl="select(x * F({slope}), x, x > F(0))")
    assert isinstance(registry.get(NAME).lower, Expr)
    (got,) = engine(adapter).run(custom_op_graph(slope=0.25), {"x": X})
    np.testing.assert_array_equal(got, np.where(X > 0, X, X * 0.25))


@pytest.mark.requires_wgpu
def test_a_decomposition_runs_on_an_adapter(adapter: AdapterRequest) -> None:
    """An op built from others needs no WGSL."""

    def build(g: Graph, attrs: Any, x: Any) -> Any:
        return g.maximum(x, x * attrs["slope"])

    register_leaky(wgsl=Compose(build))
    (got,) = engine(adapter).run(custom_op_graph(), {"x": X})
    np.testing.assert_array_equal(got, np.where(X > 0, X, X * 0.5))


def test_without_wgsl_a_gpu_refuses_with_a_reason() -> None:
    """The compiler names the op and says where it does run."""
    register_leaky()
    assert isinstance(registry.get(NAME).lower, HostOnly)
    selector = KernelSelector(Hardware(Limits()))
    target = Target("a GPU", frozenset({DType.F32}), selector.is_native)
    with pytest.raises(Unsupported, match="device='cpu'") as info:
        decompose(custom_op_graph(), target)
    assert NAME in str(info.value)


def kernel_reading(ref: BufferRef) -> Kernel:
    """Return a kernel of one dispatch that reads a buffer."""
    dispatch = KernelDispatch(
        shader="two_buffers",
        axes=(IterationAxis("n", 6),),
        accesses=(
            OperandAccess(ref, (1,)),
            OperandAccess(BufferRef("out"), (1,), "write"),
        ),
        grid=(("n", 1),),
        source="",
    )
    return Kernel(lambda types, out, attrs: KernelPlan((dispatch,)))


MISSING_BUFFERS = [
    (BufferRef("in", 2), "BufferRef('in', 2); known, from 0: 1 of 'in', 1 of 'out'"),
    (BufferRef("table"), "BufferRef('table', 0); known, .* 0 of 'table'$"),
    (BufferRef("inn"), "BufferRef('inn', 0); .*; did you mean 'in'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("ref", "words"), MISSING_BUFFERS)
def test_a_kernel_that_refers_to_no_buffer_is_refused(
    ref: BufferRef, words: str
) -> None:
    """With a sample it is refused when it is registered, and else when a device selects
    the kernel.
    """
    pattern = f"kernel '{NAME}': shader 'two_buffers' refers to " + words.replace(
        "(", r"\("
    ).replace(")", r"\)")
    wgsl = kernel_reading(ref)
    with pytest.raises(GraphError, match=pattern):
        register_leaky(wgsl=wgsl, samples=[Sample((Drawn((2, 3)),))])
    assert NAME not in registry
    register_leaky(wgsl=wgsl)
    selector = KernelSelector(Hardware(Limits()))
    target = Target("a GPU", frozenset({DType.F32}), selector.is_native)
    with pytest.raises(GraphError, match=pattern):
        decompose(custom_op_graph(), target)


def test_a_custom_shape_rule_is_used() -> None:
    """`infer` may refuse, and its words reach the caller with the op's name."""

    def rows_only(types: Any, attrs: Any) -> Any:
        if types[0].rank != 1:
            raise ShapeError("", f"rank {types[0].rank}", "rank is 1")
        return types[0]

    register_leaky(infer=rows_only)
    with pytest.raises(ShapeError, match=f"{NAME} of .*rank 2; rank is 1"):
        custom_op_graph()


def test_operands_are_checked_as_for_any_op() -> None:
    """Arity, attributes and types of a custom op are checked."""
    register_custom(NAME, arity=2, reference=lambda xp, a, x, y: x + y)
    g = Graph()
    x, n = g.input("x", (2, 3)), g.input("n", (2, 3), "i32")
    with pytest.raises(GraphError, match="expected 2 inputs, got 1"):
        g.custom_op(NAME, x)
    with pytest.raises(AttributeRefused, match="unknown attribute 'slope'"):
        g.custom_op(NAME, x, x, slope=1.0)
    with pytest.raises(DTypeError, match="operands are f32 and i32"):
        g.custom_op(NAME, x, n)


def test_a_name_is_replaced_only_on_request() -> None:
    """A taken name is an error; with replace=True the newer record serves."""
    register_leaky()
    with pytest.raises(GraphError, match="is already registered"):
        register_leaky()
    register_custom(NAME, arity=1, reference=lambda xp, a, x: -x, replace=True)
    (got,) = evaluate(custom_op_graph(), {"x": X})
    np.testing.assert_array_equal(got, -X)


def test_the_name_of_an_alias_is_refused() -> None:
    """A record under another op's second name would never be found."""
    register_leaky()
    record = registry.get(NAME)
    registry.unregister(NAME)
    registry.register(dataclasses.replace(record, aliases=("test_custom_other",)))
    with pytest.raises(GraphError, match=f"an alias of op '{NAME}'"):
        register_custom("test_custom_other", arity=1, reference=leaky, replace=True)


@pytest.mark.parametrize("name", ["", "two words", "1st", "a;b"])
def test_a_name_is_an_identifier(name: str) -> None:
    """Names end up in shader text and files."""
    with pytest.raises(GraphError, match="contain only letters, digits"):
        register_custom(name, arity=1, reference=leaky)


@pytest.mark.parametrize("arity", [4, 0, (1, None), (2, 5)])
def test_an_expression_has_three_operands_at_most(arity: Any) -> None:
    """x, y and z are all an expression can name."""
    with pytest.raises(GraphError, match="x, y and z"):
        register_custom(NAME, arity=arity, reference=leaky, wgsl="x")
    assert NAME not in registry


def test_cost_is_declared_or_one_per_element() -> None:
    register_leaky()
    tensor_type = custom_op_graph().node(1).type
    assert registry.get(NAME).flops((tensor_type,), tensor_type, {}) == 6
    register_leaky(flops=lambda inputs, out, attrs: 100.0, replace=True)
    assert registry.get(NAME).flops((tensor_type,), tensor_type, {}) == 100
