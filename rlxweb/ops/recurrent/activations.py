"""Activation functions of recurrent cells: ONNX's list, expressed by the ops of the
vocabulary.

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
from rlxweb.ir.shape_arithmetic import bad_attribute, short_repr

DEFAULT_CONSTANTS: dict[str, dict[str, float]] = {
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
"""Constants of each activation function, with their default values."""


@dataclass(frozen=True, slots=True)
class CellActivation:
    """One activation function with its constants."""

    name: str
    constants: tuple[float, ...]

    @property
    def attrs(self) -> dict[str, float]:
        """Attributes of the op that computes the function."""
        return dict(zip(DEFAULT_CONSTANTS[self.name], self.constants, strict=True))

    def evaluate(self, xp: Any, x: Any) -> Any:
        """Return the function's values at x, computed by the op's reference."""
        return self._apply_op(lambda op, y, a: registry.get(op).reference(xp, a, y), x)

    def add_to_graph(self, g: Any, x: Any) -> Any:
        """Add the function to a graph and return its tensor."""
        return self._apply_op(lambda op, y, attrs: g.apply(op, y, **attrs), x)

    def _apply_op(
        self, apply: Callable[[str, Any, dict[str, float]], Any], x: Any
    ) -> Any:
        """Compute the function from its op by `apply(op, x, attrs)`."""
        if self.name == "affine":
            return x * self.constants[0] + self.constants[1]
        if self.name == "scaled_tanh":
            return apply("tanh", x * self.constants[1], {}) * self.constants[0]
        return apply(self.name, x, self.attrs)

    def wgsl_function(self, name: str) -> str:
        """Return the function as WGSL under this name."""
        a, b = ([repr(c) for c in self.constants] + ["", ""])[:2]
        if self.name == "affine":
            body = f"x * {a} + {b}"
        elif self.name == "scaled_tanh":
            body = f"stable_tanh(x * {b}) * {a}"
        else:
            template = self._expr.text
            scalar = TensorType((), DType.F32)
            text = (
                template
                if isinstance(template, str)
                else template((scalar,), scalar, self.attrs)
            )
            body = text.format(alpha=a, beta=b)
        return f"fn {name}(x: F) -> F {{ return keeps_nan(x, {body}); }}"

    @property
    def uses(self) -> tuple[str, ...]:
        """Names of the include files that the WGSL function calls."""
        if self.name == "affine":
            return ("nan",)
        return ("nan", *self._expr.uses)

    @property
    def _expr(self) -> Expr:
        lower = registry.get(_BASE_OPS.get(self.name, self.name)).lower
        assert isinstance(lower, Expr)
        return lower


_BASE_OPS = {"scaled_tanh": "tanh"}
_ACTIVATION_PATTERN = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*")


def parse_activations(
    text: str, per_direction: int, directions: int
) -> tuple[CellActivation, ...]:
    """Parse `per_direction` functions for every direction; if only one set is given,
    all directions use it.

    Errors   AttributeRefused for an unknown name, odd constants, another count.
    """
    activations, position = [], 0
    while position < len(text):
        match = _ACTIVATION_PATTERN.match(text, position)
        if match is None:
            raise bad_attribute(
                f"activations={short_repr(text)}",
                "expected function names with optional constants in parentheses, such "
                "as 'sigmoid elu(0.5) tanh'",
            )
        activations.append(_parse_activation(match.group(1), match.group(2) or ""))
        position = match.end()
    count = len(activations)
    if count not in (per_direction, per_direction * directions):
        raise bad_attribute(
            f"activations={short_repr(text)} names {count} "
            f"function{'s' * (count != 1)}",
            f"expected {per_direction}"
            + (
                f", shared by both directions, or {per_direction} for each direction"
                if directions > 1
                else ""
            ),
        )
    return tuple(activations * (per_direction * directions // len(activations)))


def _parse_activation(name: str, constants: str) -> CellActivation:
    if name not in DEFAULT_CONSTANTS:
        known = "known: " + ", ".join(sorted(DEFAULT_CONSTANTS))
        raise bad_attribute(f"unknown activation {name!r}", known)
    defaults = tuple(DEFAULT_CONSTANTS[name].values())
    try:
        values = tuple(float(value) for value in constants.split(",") if value.strip())
    except ValueError:
        values = (math.nan,)
    if len(values) > len(defaults) or not all(abs(value) < 3.4e38 for value in values):
        raise bad_attribute(
            f"activation {name}({constants})",
            f"the number of constants of {name} must be at most {len(defaults)}, and "
            "each must be finite in float32",
        )
    return CellActivation(name, (*values, *defaults[len(values) :]))
