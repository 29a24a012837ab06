"""Op records and the registry that holds them."""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlxweb.core.bfloat16 import widen_bfloat16
from rlxweb.core.errors import AttributeRefused, DTypeError, GraphError, UnknownOp
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr, Leaf
from rlxweb.ir.op import Attr, Op, Registry, TensorType, registry
from rlxweb.ir.op_methods import add_node, method_signature
from rlxweb.ir.sample import Drawn, Sample
from tests.cli_runners import run_python
from tests.op_factory import make_op

OPS = sorted(registry, key=lambda op: op.name)


def test_a_registry_looks_up_ops_by_name_and_alias() -> None:
    """Name and alias lead to the same record, until it is removed."""
    own_registry = Registry()
    op = own_registry.register(make_op("twice", aliases=("double",)))
    assert own_registry.get("double") is own_registry.get("twice") is op
    assert "double" in own_registry
    assert len(own_registry) == 1
    own_registry.unregister("double")
    assert "twice" not in own_registry
    assert "double" not in own_registry


@pytest.mark.parametrize("name", ["twice", "double"])
def test_a_taken_name_is_refused_unless_replaced(name: str) -> None:
    """A taken name or alias is refused; `replace=True` registers the new record."""
    own_registry = Registry()
    own_registry.register(make_op("twice", aliases=("double",)))
    with pytest.raises(GraphError, match=f"the name '{name}' is already registered"):
        own_registry.register(make_op(name))
    replacement = own_registry.register(make_op("twice"), replace=True)
    assert own_registry.get("twice") is replacement


def test_an_unknown_trait_is_refused() -> None:
    """A misspelt trait is an error that lists the known ones."""
    own_registry = Registry()
    with pytest.raises(
        GraphError,
        match=r"register op 'twice': unknown trait 'reductoin'; known: blas, custom, "
        r".*, view; did you mean 'reduction'\?",
    ):
        own_registry.register(
            make_op("twice", traits=frozenset({"floats_only", "reductoin"}))
        )
    assert "twice" not in own_registry


def test_an_unknown_name_gets_near_matches() -> None:
    """Aliases count as names; without a similar name there is no hint."""
    own_registry = Registry()
    own_registry.register(make_op("twice", aliases=("double",)))
    with pytest.raises(UnknownOp, match="did you mean 'double'"):
        own_registry.get("doubel")
    with pytest.raises(UnknownOp) as caught:
        own_registry.get("zzzzzz")
    assert not caught.value.hint


@pytest.mark.parametrize(
    ("attr", "value", "canonical"),
    [
        (Attr("a", "int"), np.int64(3), 3),
        (Attr("a", "float"), 2, 2.0),
        (Attr("a", "bool"), np.bool_(True), True),
        (Attr("a", "ints"), 3, (3,)),
        (Attr("a", "ints"), [np.int32(1), 2], (1, 2)),
        (Attr("a", "dtype"), "f32", DType.F32),
        (Attr("a", "int", is_nullable=True), None, None),
        (Attr("a", "str", allowed=("x", "y")), "y", "y"),
    ],
)
def test_attributes_become_canonical(
    attr: Attr, value: object, canonical: object
) -> None:
    """Each kind has one Python type, so that equal nodes compare equal."""
    checked_value = attr.check(value)
    assert checked_value == canonical
    assert type(checked_value) is type(canonical)


@pytest.mark.parametrize(
    ("attr", "value"),
    [
        (Attr("a", "int"), 2.0),
        (Attr("a", "int"), True),
        (Attr("a", "int"), None),
        (Attr("a", "float"), "wide"),
        (Attr("a", "bool"), 1),
        (Attr("a", "bool"), "False"),
        (Attr("a", "str"), 3),
        (Attr("a", "ints"), (1, 2.5)),
        (Attr("a", "ints"), 1.5),
        (Attr("a", "str", allowed=("x", "y")), "z"),
    ],
)
def test_attributes_of_the_wrong_kind_are_refused(attr: Attr, value: object) -> None:
    """A refusal has the attribute's name and value; a closed set lists its values."""
    with pytest.raises(AttributeRefused, match=r"attribute a="):
        attr.check(value)


def test_a_dtype_as_attribute_is_read_like_any_other() -> None:
    """A dtype as attribute has the same spellings and the same error as elsewhere."""
    assert Attr("to", "dtype").check("float16") is DType.F16
    with pytest.raises(DTypeError, match=r"attribute to='f8'.* NumPy's 'f8' is 'f64'"):
        Attr("to", "dtype").check("f8")


def test_a_shape_rule_may_name_its_dtype() -> None:
    """A user's shape rule may name its dtype by a label."""
    rule = make_op("named", infer=lambda types, attrs: TensorType((2,), "f16"))
    kind = TensorType((2,), DType.F32)
    assert rule.output_type([kind], {}) == TensorType((2,), DType.F16)
    assert Drawn((2,), "i32").draw(np.random.default_rng(0)).dtype == np.int32


def test_arity_may_be_a_range() -> None:
    """Arity may be a range; None means that it has no upper end."""
    kind = TensorType((2,), DType.F32)
    bounded_op = make_op("some", arity=(2, 3))
    for count in (1, 4):
        with pytest.raises(GraphError, match=f"expected 2 to 3 inputs, got {count}"):
            bounded_op.output_type([kind] * count, {})
    variadic_op = make_op("many", arity=(1, None))
    assert variadic_op.output_type([kind] * 9, {}) == kind
    with pytest.raises(GraphError, match="expected 1 or more inputs, got 0"):
        variadic_op.output_type([], {})


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_record_is_complete(op: Op) -> None:
    """The name fits a generated label, the doc is a sentence, attributes are
    distinct.
    """
    assert set(op.name) <= set(string.ascii_lowercase + string.digits + "_")
    assert op.doc.rstrip().endswith(".")
    names = [attr.name for attr in op.attrs]
    assert len(set(names)) == len(names)
    assert list(inspect.signature(op.reference).parameters)[:1] == ["xp"]


@pytest.mark.parametrize(
    "op", [o for o in OPS if not o.has_trait("leaf")], ids=lambda op: op.name
)
def test_shape_rule_and_reference_agree(op: Op) -> None:
    """The reference gives the inferred shape and dtype on every sample."""
    for seed, sample in enumerate(op.samples):
        arrays = sample.draw(seed)
        types = [TensorType(d.shape, d.dtype) for d in sample.inputs]
        attrs = op.check_attrs(sample.attrs)
        kind = op.output_type(types, attrs)
        with np.errstate(all="ignore"):
            result = np.asarray(op.reference(np, attrs, *map(widen_bfloat16, arrays)))
        assert (result.shape, result.dtype) == (
            kind.shape,
            kind.dtype.reference_dtype,
        ), sample
        assert op.flops(tuple(types), kind, attrs) >= 0


def test_expressions_are_for_elementwise_ops() -> None:
    """Fusion trusts the lowering, readers trust the trait: they must agree."""
    for op in OPS:
        assert isinstance(op.lower, Expr) == op.has_trait("elementwise"), op.name
        assert isinstance(op.lower, Leaf) == op.has_trait("leaf"), op.name


def test_samples_are_drawn_the_same_for_the_same_seed() -> None:
    """A failure can be reproduced; another seed gives another draw."""
    sample = Sample(
        (Drawn((5,)), Drawn((5,), DType.I32, -9, 9), Drawn((5,), DType.BOOL))
    )
    for array, same in zip(sample.draw(3), sample.draw(3), strict=True):
        np.testing.assert_array_equal(array, same)
    assert not np.array_equal(sample.draw(3)[0], sample.draw(4)[0])


def test_drawn_values_keep_their_range() -> None:
    """Bounds included; u32 never below zero; whole numbers where asked."""
    rng = np.random.default_rng(0)
    ints = Drawn((999,), DType.I32, -2, 2).draw(rng)
    assert set(ints.tolist()) == {-2, -1, 0, 1, 2}
    assert Drawn((9,), DType.U32, -5, 1).draw(rng).max() <= 1
    whole = Drawn((99,), DType.F32, -3, 3, whole=True).draw(rng)
    np.testing.assert_array_equal(whole, np.round(whole))


@pytest.mark.parametrize(
    ("method", "names"),
    [
        (add_node, ["x", "y", "scale"]),
        (lambda graph, op, rows, weights: ..., ["rows", "weights", "scale"]),
        (lambda graph, op, rows, weights, by=1: ..., ["rows", "weights", "by"]),
    ],
)
def test_a_method_has_the_parameters_of_the_function_that_adds_its_node(
    method: Callable[..., Any], names: list[str]
) -> None:
    """Parameters that it leaves open come from the record: x and y, and attributes."""
    attrs = (Attr("scale", "float", 1.0),)
    own = method_signature(make_op(arity=2, attrs=attrs, method=method))
    assert [*own.parameters] == ["self", *names]


CONCURRENT_LOAD_PROGRAM = """
import sys, threading
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, registry

assert "rlxweb.ops" not in sys.modules
start, seen, errors = threading.Barrier(8), [], []

def ask(at):
    start.wait()
    try:
        if at == 0:
            import rlxweb.ops.welch.op
        elif at == 1:
            graph = Graph()
            graph.exp(graph.input("x", (2,)))
        elif at % 2:
            assert "welch_power" in registry
        else:
            registry.get("matmul")
        seen.append(frozenset(op.name for op in registry))
    except BaseException as error:
        errors.append(repr(error))

threads = [threading.Thread(target=ask, args=(at,), daemon=True) for at in range(8)]
for one in threads:
    one.start()
for one in threads:
    one.join(60)
assert not any(one.is_alive() for one in threads), "they wait for each other"
print(len(seen), len(set(seen)), len(registry), *errors)
"""


def test_the_vocabulary_is_loaded_on_demand_by_any_thread() -> None:
    """The first thread that looks up an op loads the vocabulary; others wait for all of
    it.
    """
    result = run_python("-c", CONCURRENT_LOAD_PROGRAM)
    assert result.code == 0, result.err
    assert result.out.split() == ["8", "1", str(len(OPS))]


def test_a_vocabulary_is_loaded_once_and_retried_after_failure() -> None:
    """Registering an op loads the vocabulary too, so that its names are taken."""
    load_sizes: list[int] = []
    own_registry = Registry()

    def vocabulary() -> None:
        load_sizes.append(len(own_registry._ops))
        if len(load_sizes) == 1:
            raise ImportError("not today")
        assert (
            "twice" not in own_registry
        )  # asking while it loads sees what is there so far
        own_registry.register_all(make_op("twice"))

    own_registry.load_builtin_ops = vocabulary
    with pytest.raises(ImportError, match="not today"):
        own_registry.get("twice")
    with pytest.raises(GraphError, match="the name 'twice' is already registered"):
        own_registry.register(make_op("twice"))
    assert (len(own_registry), load_sizes) == (1, [0, 0])
