"""The functions of recurrent cells: ONNX's list, by the ops of the vocabulary.

An attribute names them in order, with their constants in brackets where they are not
the usual ones: "sigmoid tanh tanh", "hard_sigmoid(0.2,0.5) relu". What a function
computes, and its WGSL, is the record's of that op; two are written around one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.shape import bad_attribute, short

USUAL: dict[str, dict[str, float]] = {
    "sigmoid": {},
    "tanh": {},
    "relu": {},
    "affine": {"alpha": 1.0, "beta": 0.0},
    "leaky_relu": {"alpha": 0.01},
    "thresholded_relu": {"alpha": 1.0},
    "scaled_tanh": {"alpha": 1.0, "beta": 1.0},
    "hard_sigmoid": {"alpha": 0.2, "beta": 0.5},
    "elu": {"alpha": 1.0},
    "softsign": {},
    "softplus": {},
}
"""Their constants, with the values they have where none are given."""


@dataclass(frozen=True, slots=True)
class CellFunction:
    """One function with its constants."""

    name: str
    constants: tuple[float, ...]

    @property
    def attrs(self) -> dict[str, float]:
        return dict(zip(USUAL[self.name], self.constants, strict=True))

    def over(self, xp: Any, x: Any) -> Any:
        """Its values, by the reference of the op."""
        return self._of(lambda op, y, a: registry.get(op).reference(xp, a, y), x)

    def into(self, g: Any, x: Any) -> Any:
        """Its tensor in a graph."""
        return self._of(lambda op, y, attrs: g.apply(op, y, **attrs), x)

    def _of(self, apply: Callable[[str, Any, dict[str, float]], Any], x: Any) -> Any:
        if self.name == "affine":
            return x * self.constants[0] + self.constants[1]
        if self.name == "scaled_tanh":
            return apply("tanh", x * self.constants[1], {}) * self.constants[0]
        return apply(self.name, x, self.attrs)

    def text(self, name: str) -> str:
        """The WGSL function of that name."""
        a, b = ([repr(c) for c in self.constants] + ["", ""])[:2]
        if self.name == "affine":
            body = f"x * {a} + {b}"
        elif self.name == "scaled_tanh":
            body = f"stable_tanh(x * {b}) * {a}"
        else:
            made = self._expr.text
            one = TensorType((), DType.F32)
            text = made if isinstance(made, str) else made((one,), one, self.attrs)
            body = text.format(alpha=a, beta=b)
        return f"fn {name}(x: F) -> F {{ return keeps_nan(x, {body}); }}"

    @property
    def uses(self) -> tuple[str, ...]:
        """The includes that its text calls."""
        if self.name == "affine":
            return ("nan",)
        return ("nan", *self._expr.uses)

    @property
    def _expr(self) -> Expr:
        lower = registry.get(_BY.get(self.name, self.name)).lower
        assert isinstance(lower, Expr)
        return lower


_BY = {"scaled_tanh": "tanh"}
_WORD = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*")


def functions_of(text: str, each: int, directions: int) -> tuple[CellFunction, ...]:
    """`each` functions for every direction; given once, they are those of all.

    Errors   AttributeRefused for an unknown name, odd constants, another count.
    """
    found, at = [], 0
    while at < len(text):
        word = _WORD.match(text, at)
        if word is None:
            raise bad_attribute(
                f"activations={short(text)}",
                "names with their constants in brackets: 'sigmoid elu(0.5) tanh'",
            )
        found.append(_function(word.group(1), word.group(2) or ""))
        at = word.end()
    if len(found) not in (each, each * directions):
        raise bad_attribute(
            f"activations={short(text)} names {len(found)} functions",
            f"{each} are wanted, or {each} for each of {directions} directions",
        )
    return tuple(found * (each * directions // len(found)))


def _function(name: str, constants: str) -> CellFunction:
    if name not in USUAL:
        known = "known: " + ", ".join(sorted(USUAL))
        raise bad_attribute(f"activation {name!r}", known)
    usual = tuple(USUAL[name].values())
    try:
        given = tuple(float(one) for one in constants.split(",") if one.strip())
    except ValueError:
        given = (math.nan,)
    if len(given) > len(usual) or not all(abs(one) < 3.4e38 for one in given):
        raise bad_attribute(
            f"activation {name}({constants})",
            f"{name} takes up to {len(usual)} finite constants",
        )
    return CellFunction(name, (*given, *usual[len(given) :]))
