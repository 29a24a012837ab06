"""Builder methods for elementwise functions that are put together of several ops.

Those of one op come from its record (`op_methods.py`). Numbers and arrays stand beside
tensors as in arithmetic.
"""

from __future__ import annotations

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph_mixin_base import OpBuilder
from rlxweb.ir.tensor import Operand, Tensor, op_context

TensorLike = Tensor | Operand


def _add_binary(self: MathBuilder, op: str, x: TensorLike, y: TensorLike) -> Tensor:
    return self.apply(op, *self._pair(x, y))


class MathBuilder(OpBuilder):
    """Builder methods for functions, logic and activations; mixed into Graph."""

    def _as_bool(self, x: Tensor) -> Tensor:
        """Return a bool tensor that is true where x is not 0."""
        return x if x.dtype is DType.BOOL else self.apply("cast", x, to=DType.BOOL)

    def log10(self, x: Tensor) -> Tensor:
        """Return the logarithm to base 10."""
        return self.apply(
            "mul", self.log2(x), self.operand(0.30102999566398120, x.dtype)
        )

    def square(self, x: Tensor) -> Tensor:
        """Return the product of x with itself."""
        return self.apply("mul", x, x)

    def clip(
        self, x: Tensor, min: TensorLike | None = None, max: TensorLike | None = None
    ) -> Tensor:
        """Limit values to at least `min` and at most `max`; None stands for no such
        bound.

        Bounds broadcast. Where they cross it is `max`, as in NumPy; NaN stays NaN.
        Errors   GraphError where x is no tensor, DTypeError for a bound of another
        type.
        """
        with op_context("clip", x):
            if min is not None:
                x = _add_binary(self, "maximum", x, min)
            return x if max is None else _add_binary(self, "minimum", x, max)

    clamp = clip

    def relu6(self, x: Tensor) -> Tensor:
        """Return values clipped to 0 and 6, with slope 0 at both ends."""
        with op_context("relu6", x):
            _, six = self._pair(x, 6)
            is_above = self.apply("ge", x, six)
            return self.apply("where", is_above, six, self.apply("relu", x))

    def log_sigmoid(self, x: Tensor) -> Tensor:
        """Return the logarithm of sigmoid(x)."""
        return self.apply("neg", self.softplus(self.apply("neg", x)))
