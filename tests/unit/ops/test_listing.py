"""`rlxweb.ops()`: the vocabulary, listed from the registered ops."""

from __future__ import annotations

import pytest

import rlxweb as rlx
from rlxweb.core.errors import UnknownOp
from rlxweb.ir.op import registry
from rlxweb.ops import FAMILIES
from rlxweb.ops.listing import COMPOSED_FAMILY, CUSTOM_FAMILY, Vocabulary
from tests.cli_runners import run_python


def test_every_op_is_listed_by_the_family_that_declares_it() -> None:
    """An op is listed by its family, even if another module's function built it."""
    vocabulary = rlx.ops()
    named = {entry.name for entry in vocabulary if entry.family != COMPOSED_FAMILY}
    assert named == {op.name for op in registry if not op.has_trait("leaf")}
    assert set(vocabulary.families) <= {*FAMILIES, COMPOSED_FAMILY, CUSTOM_FAMILY}
    assert vocabulary["softmax"].family == "norm"
    assert vocabulary["elu"].family == vocabulary["erf"].family == "elementwise"
    assert vocabulary["stft"].family == vocabulary["fft"].family == "fft"
    assert all(entry.summary for entry in vocabulary if entry.family != CUSTOM_FAMILY)


def test_a_fresh_process_lists_composed_methods_too() -> None:
    """The listing does not wait for a graph to load the methods of ops."""
    program = "import rlxweb as rlx; print(rlx.ops()['einsum'].family)"
    assert run_python("-c", program).out.strip() == COMPOSED_FAMILY


def test_an_entry_lists_dtypes_and_attributes() -> None:
    vocabulary = rlx.ops()
    assert vocabulary["logical_not"].dtypes == ("bool",)
    assert {"bool", "i32", "f16", "f32"} <= set(vocabulary["argmax"].dtypes)
    assert set(vocabulary["exp"].dtypes) == {"f16", "f32", "f64", "bf16"}
    assert vocabulary["softmax"].attributes == ("axis",)
    assert vocabulary["einsum"].attributes == ("subscripts", "operands")
    assert vocabulary["einsum"].family == COMPOSED_FAMILY
    assert vocabulary["einsum"].dtypes == ()


def test_it_is_a_sequence_that_prints() -> None:
    """Methods that are aliases, or add an arbitrary op, are not listed."""
    vocabulary = rlx.ops()
    names = [entry.name for entry in vocabulary if entry.family == COMPOSED_FAMILY]
    assert len(set(names)) == len(names)
    assert not {"apply", "custom_op", "concat", "input", "clamp"} & set(names)
    matches = rlx.ops("SOFTMAX")
    assert {"softmax", "log_softmax"} <= {entry.name for entry in matches}
    assert str(matches).splitlines()[0] in vocabulary.families
    assert "f16 f32 f64 bf16  exp(x - max) / sum(exp(x - max)) along" in str(matches)
    assert isinstance(vocabulary[:3], Vocabulary)
    assert (len(vocabulary[:3]), vocabulary[0].name) == (3, vocabulary[:3][0].name)
    assert repr(vocabulary[:2]) == "Vocabulary(2 ops in 1 families)"
    with pytest.raises(UnknownOp, match="did you mean 'argmax'"):
        vocabulary["argmx"]
