"""The WGSL that ops are declared in is understood whole, and nothing is guessed."""

from __future__ import annotations

import re

import pytest

from rlxweb.backends.cpu_region_text import library_for
from rlxweb.errors import Unsupported
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import registry
from rlxweb.machine.wgsl import Apply, Member, Name, Number, library_of, tree_of

EXPRESSIONS = {
    op.name: op.lower
    for op in registry
    if isinstance(op.lower, Expr) and isinstance(op.lower.text, str)
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_declared_expression_is_read(name: str) -> None:
    """Every declared expression is parsed, and each function that it uses is found."""
    own = EXPRESSIONS[name]
    tree_of(re.sub(r"\{\w+\}", "0.5", str(own.text)))
    assert library_for(own.uses).functions or not own.uses


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a + b * c", Apply("+", (Name("a"), Apply("*", (Name("b"), Name("c")))))),
        ("(a + b).r", Member(Apply("+", (Name("a"), Name("b"))), "r")),
        ("-x", Apply("-x", (Name("x"),))),
        ("bitcast<U>(x)", Apply("bitcast U", (Name("x"),))),
        ("f(1.5e-3, 0xffu)", Apply("f", (Number("1.5e-3"), Number("0xffu")))),
        ("a < b & c", Apply("&", (Apply("<", (Name("a"), Name("b"))), Name("c")))),
        ("a - b - c", Apply("-", (Apply("-", (Name("a"), Name("b"))), Name("c")))),
    ],
)
def test_signs_bind_as_they_should(text: str, tree: object) -> None:
    assert tree_of(text) == tree


def test_functions_have_lines_records_and_an_early_end() -> None:
    found = library_of(
        "// a comment\nstruct Two { a: F, b: I }\n"
        "fn f(x: F) -> Two { let y = x; var z = I(1); z = z + I(1);\n"
        "  if (any(y > x)) { return Two(x, z); }\n  return Two(y, z); }"
    )
    assert found.records == {"Two": ("a", "b")}
    assert found.functions["f"].parameters == (("x", "F"),)
    assert len(found.functions["f"].lines) == 5


@pytest.mark.parametrize(
    "text", ["a +", "a b", "f(a", "a ? b : c", "a[0]", "", "@x", "1 2"]
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    """Text that is not WGSL of ours is refused by its words, never guessed at."""
    with pytest.raises(Unsupported, match="read WGSL"):
        tree_of(text)


@pytest.mark.parametrize(
    "text", ["fn f(x: F) -> F { loop { } }", "var<private> a: f32;", "fn f() {"]
)
def test_other_shaders_are_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        library_of(text)
