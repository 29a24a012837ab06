"""Op records and the registry that holds them."""

from __future__ import annotations

import inspect
import string

import numpy as np
import pytest

from rlxweb.bfloat16 import held
from rlxweb.errors import AttributeRefused, DTypeError, GraphError, UnknownOp
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr, Leaf
from rlxweb.ir.op import Attr, Op, Registry, TensorType, registry
from rlxweb.ir.sample import Drawn, Sample
from tests.command_line import python
from tests.made_op import made_op

OPS = sorted(registry, key=lambda op: op.name)


def test_a_registry_finds_ops_by_name_and_alias() -> None:
    """Name and alias lead to the same record, until it is removed."""
    here = Registry()
    op = here.register(made_op("twice", aliases=("double",)))
    assert here.get("double") is here.get("twice") is op
    assert "double" in here
    assert len(here) == 1
    here.unregister("double")
    assert "twice" not in here
    assert "double" not in here


@pytest.mark.parametrize("name", ["twice", "double"])
def test_a_taken_name_is_refused_unless_replaced(name: str) -> None:
    """A taken name or alias is refused; `replace=True` puts the new record there."""
    here = Registry()
    here.register(made_op("twice", aliases=("double",)))
    with pytest.raises(GraphError, match=f"the name '{name}' is taken"):
        here.register(made_op(name))
    again = here.register(made_op("twice"), replace=True)
    assert here.get("twice") is again


def test_an_unknown_name_gets_near_matches() -> None:
    """Aliases count as names; without a near one there is no guess."""
    here = Registry()
    here.register(made_op("twice", aliases=("double",)))
    with pytest.raises(UnknownOp, match="did you mean 'double'"):
        here.get("doubel")
    with pytest.raises(UnknownOp) as caught:
        here.get("zzzzzz")
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
        (Attr("a", "int", optional=True), None, None),
        (Attr("a", "str", allowed=("x", "y")), "y", "y"),
    ],
)
def test_attributes_become_canonical(
    attr: Attr, value: object, canonical: object
) -> None:
    """One Python type a kind, so that equal nodes compare equal."""
    made = attr.check(value)
    assert made == canonical
    assert type(made) is type(canonical)


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
    """A dtype as attribute has the same names and the same error as elsewhere."""
    assert Attr("to", "dtype").check("float16") is DType.F16
    with pytest.raises(DTypeError, match=r"attribute to='f8'.* NumPy's 'f8' is 'f64'"):
        Attr("to", "dtype").check("f8")


def test_a_shape_rule_may_name_its_dtype() -> None:
    """A user's shape rule may name its dtype by a label."""
    rule = made_op("named", infer=lambda types, attrs: TensorType((2,), "f16"))
    kind = TensorType((2,), DType.F32)
    assert rule.output_type([kind], {}) == TensorType((2,), DType.F16)
    assert Drawn((2,), "i32").draw(np.random.default_rng(0)).dtype == np.int32


def test_arity_may_be_a_range() -> None:
    """Arity may be a range, without an end where it is None."""
    kind = TensorType((2,), DType.F32)
    some = made_op("some", arity=(2, 3))
    for count in (1, 4):
        with pytest.raises(GraphError, match=f"takes 2 to 3 inputs, got {count}"):
            some.output_type([kind] * count, {})
    many = made_op("many", arity=(1, None))
    assert many.output_type([kind] * 9, {}) == kind
    with pytest.raises(GraphError, match="takes 1 to any inputs, got 0"):
        many.output_type([], {})


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_record_is_complete(op: Op) -> None:
    """A name fit for a generated label, a sentence of text, distinct attributes."""
    assert set(op.name) <= set(string.ascii_lowercase + string.digits + "_")
    assert op.doc.rstrip().endswith(".")
    names = [attr.name for attr in op.attrs]
    assert len(set(names)) == len(names)
    assert list(inspect.signature(op.reference).parameters)[:1] == ["xp"]


@pytest.mark.parametrize(
    "op", [o for o in OPS if not o.has("leaf")], ids=lambda op: op.name
)
def test_shape_rule_and_reference_agree(op: Op) -> None:
    """The reference gives the inferred shape and dtype on every sample."""
    for at, sample in enumerate(op.samples):
        arrays = sample.draw(at)
        types = [TensorType(d.shape, d.dtype) for d in sample.inputs]
        attrs = op.check_attrs(sample.attrs)
        kind = op.output_type(types, attrs)
        with np.errstate(all="ignore"):
            made = np.asarray(op.reference(np, attrs, *map(held, arrays)))
        assert (made.shape, made.dtype) == (kind.shape, kind.dtype.held), sample
        assert op.flops(tuple(types), kind, attrs) >= 0


def test_expressions_are_for_elementwise_ops() -> None:
    """Fusion trusts the lowering, readers trust the trait: they must agree."""
    for op in OPS:
        assert isinstance(op.lower, Expr) == op.has("elementwise"), op.name
        assert isinstance(op.lower, Leaf) == op.has("leaf"), op.name


def test_samples_are_drawn_the_same_for_the_same_seed() -> None:
    """A failure can be seen again; another seed is another draw."""
    sample = Sample(
        (Drawn((5,)), Drawn((5,), DType.I32, -9, 9), Drawn((5,), DType.BOOL))
    )
    for one, same in zip(sample.draw(3), sample.draw(3), strict=True):
        np.testing.assert_array_equal(one, same)
    assert not np.array_equal(sample.draw(3)[0], sample.draw(4)[0])


def test_drawn_values_keep_their_range() -> None:
    """Bounds included; u32 never below zero; whole numbers where asked."""
    rng = np.random.default_rng(0)
    ints = Drawn((999,), DType.I32, -2, 2).draw(rng)
    assert set(ints.tolist()) == {-2, -1, 0, 1, 2}
    assert Drawn((9,), DType.U32, -5, 1).draw(rng).max() <= 1
    whole = Drawn((99,), DType.F32, -3, 3, whole=True).draw(rng)
    np.testing.assert_array_equal(whole, np.round(whole))


FROM_THREADS = """
import sys, threading
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, registry

assert "rlxweb.ops" not in sys.modules
start, seen, errors = threading.Barrier(8), [], []

def ask(at):
    start.wait()
    try:
        if at == 0:
            import rlxweb.ops.welch
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
    """The first thread that asks loads the vocabulary; others wait for all of it."""
    said = python("-c", FROM_THREADS)
    assert said.code == 0, said.err
    assert said.out.split() == ["8", "1", str(len(OPS))]


def test_a_vocabulary_is_asked_for_once_and_again_if_it_failed() -> None:
    """Registering counts as asking: a name that comes with it is taken."""
    asked: list[int] = []
    here = Registry()

    def vocabulary() -> None:
        asked.append(len(here._ops))
        if len(asked) == 1:
            raise ImportError("not today")
        assert "twice" not in here  # asking while it loads sees what is there so far
        here.register_all(made_op("twice"))

    here.vocabulary = vocabulary
    with pytest.raises(ImportError, match="not today"):
        here.get("twice")
    with pytest.raises(GraphError, match="the name 'twice' is taken"):
        here.register(made_op("twice"))
    assert (len(here), asked) == (1, [0, 0])
