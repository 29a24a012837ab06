"""An op of the tests' own: what an op must have, and what a test wants otherwise."""

from __future__ import annotations

from typing import Any

from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Op


def made_op(name: str = "made_for_test", **changes: Any) -> Op:
    """One operand given back as it came; not registered yet."""
    settings: dict[str, Any] = {
        "name": name,
        "arity": 1,
        "infer": lambda types, attrs: types[0],
        "reference": lambda xp, attrs, x: x,
        "lower": Expr("x"),
    }
    return Op(**(settings | changes))
