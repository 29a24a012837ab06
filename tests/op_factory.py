"""Factory of ops that only tests use."""

from __future__ import annotations

from typing import Any

from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Op


def make_op(name: str = "made_for_test", **changes: Any) -> Op:
    """Return an unregistered op that passes its one operand through, with any field
    changed.
    """
    settings: dict[str, Any] = {
        "name": name,
        "arity": 1,
        "infer": lambda types, attrs: types[0],
        "reference": lambda xp, attrs, x: x,
        "lower": Expr("x"),
    }
    return Op(**(settings | changes))
