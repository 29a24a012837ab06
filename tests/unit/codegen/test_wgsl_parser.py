"""Parser of the WGSL that ops are declared in: all of it is parsed, nothing is
guessed.
"""

from __future__ import annotations

import re

import pytest

from rlxweb.codegen.elementwise_llvm import wgsl_library_for
from rlxweb.codegen.wgsl_parser import (
    CallExpression,
    MemberAccess,
    NameReference,
    NumberLiteral,
    parse_expression,
    parse_library,
)
from rlxweb.core.errors import Unsupported
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import registry

EXPRESSIONS = {
    op.name: op.lower
    for op in registry
    if isinstance(op.lower, Expr) and isinstance(op.lower.text, str)
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_declared_expression_is_parsed(name: str) -> None:
    """Every declared expression is parsed, and each function that it uses is found."""
    expression = EXPRESSIONS[name]
    parse_expression(re.sub(r"\{\w+\}", "0.5", str(expression.text)))
    assert wgsl_library_for(expression.uses).functions or not expression.uses


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        (
            "a + b * c",
            CallExpression(
                "+",
                (
                    NameReference("a"),
                    CallExpression("*", (NameReference("b"), NameReference("c"))),
                ),
            ),
        ),
        (
            "(a + b).r",
            MemberAccess(
                CallExpression("+", (NameReference("a"), NameReference("b"))), "r"
            ),
        ),
        ("-x", CallExpression("-x", (NameReference("x"),))),
        ("bitcast<U>(x)", CallExpression("bitcast U", (NameReference("x"),))),
        (
            "f(1.5e-3, 0xffu)",
            CallExpression("f", (NumberLiteral("1.5e-3"), NumberLiteral("0xffu"))),
        ),
        (
            "a < b & c",
            CallExpression(
                "&",
                (
                    CallExpression("<", (NameReference("a"), NameReference("b"))),
                    NameReference("c"),
                ),
            ),
        ),
        (
            "a - b - c",
            CallExpression(
                "-",
                (
                    CallExpression("-", (NameReference("a"), NameReference("b"))),
                    NameReference("c"),
                ),
            ),
        ),
    ],
)
def test_operators_have_the_right_precedence(text: str, tree: object) -> None:
    assert parse_expression(text) == tree


def test_functions_have_statements_structs_and_early_returns() -> None:
    library = parse_library(
        "// a comment\nstruct Two { a: F, b: I }\n"
        "fn f(x: F) -> Two { let y = x; var z = I(1); z = z + I(1);\n"
        "  if (any(y > x)) { return Two(x, z); }\n  return Two(y, z); }"
    )
    assert library.structs == {"Two": ("a", "b")}
    assert library.functions["f"].parameters == (("x", "F"),)
    assert len(library.functions["f"].statements) == 5


@pytest.mark.parametrize(
    "text", ["a +", "a b", "f(a", "a ? b : c", "a[0]", "", "@x", "1 2"]
)
def test_unsupported_syntax_is_refused(text: str) -> None:
    """Text outside the supported WGSL is refused and never guessed at."""
    with pytest.raises(Unsupported, match="read WGSL"):
        parse_expression(text)


@pytest.mark.parametrize(
    "text", ["fn f(x: F) -> F { loop { } }", "var<private> a: f32;", "fn f() {"]
)
def test_other_shaders_are_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        parse_library(text)
