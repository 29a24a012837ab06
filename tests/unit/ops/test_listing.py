"""`rlxweb.ops()`: what is in the vocabulary, told by what is registered."""

from __future__ import annotations

import pytest

import rlxweb as rlx
from rlxweb.errors import UnknownOp
from rlxweb.ir.op import registry
from rlxweb.ops import FAMILIES
from rlxweb.ops.listing import COMPOSED, OWN, Vocabulary


def test_every_op_is_listed_by_the_family_that_declares_it() -> None:
    """An op is listed by its family, though another module's function made it."""
    every = rlx.ops()
    named = {one.name for one in every if one.family != COMPOSED}
    assert named == {op.name for op in registry if not op.has("leaf")}
    assert set(every.families) <= {*FAMILIES, COMPOSED, OWN}
    assert every["tanh"].family == "activation"
    assert every["erf"].family == "functions"
    assert every["elu"].family == "gates"
    assert every["stft"].family == every["fft"].family == "spectral"
    assert all(one.summary for one in every if one.family != OWN)


def test_an_entry_says_what_the_op_takes() -> None:
    every = rlx.ops()
    assert every["logical_not"].dtypes == ("bool",)
    assert {"bool", "i32", "f16", "f32"} <= set(every["argmax"].dtypes)
    assert set(every["exp"].dtypes) == {"f16", "f32", "f64", "bf16"}
    assert every["softmax"].attributes == ("axis",)
    assert every["einsum"].attributes == ("subscripts", "operands")
    assert every["einsum"].family == COMPOSED
    assert every["einsum"].dtypes == ()


def test_it_is_a_sequence_that_prints() -> None:
    """A method that is a second name or adds any op is not in it."""
    every = rlx.ops()
    names = [one.name for one in every if one.family == COMPOSED]
    assert len(set(names)) == len(names)
    assert not {"apply", "custom_op", "concat", "input", "clamp"} & set(names)
    found = rlx.ops("SOFTMAX")
    assert {"softmax", "log_softmax"} <= {one.name for one in found}
    assert str(found).splitlines()[0] in every.families
    assert "f16 f32 f64 bf16  exp(x - max) / sum of exp(x - max) along" in str(found)
    assert isinstance(every[:3], Vocabulary)
    assert (len(every[:3]), every[0].name) == (3, every[:3][0].name)
    assert repr(every[:2]) == "Vocabulary(2 of 1 families)"
    with pytest.raises(UnknownOp, match="did you mean 'argmax'"):
        every["argmx"]
