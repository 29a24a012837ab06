"""Builder methods for elementwise functions, logic and activations, by NumPy's and
PyTorch's names.

Each adds the op of its name, or is put together of a few: bounds, roots of sums, the
complements of functions. Numbers and arrays stand beside tensors as in arithmetic.
"""

from __future__ import annotations

from rlxweb.ir.builder_method_factory import builder_method
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph_mixin_base import OpBuilder
from rlxweb.ir.tensor import Operand, Tensor, op_context

TensorLike = Tensor | Operand


def _add_unary(self: MathBuilder, op: str, x: Tensor) -> Tensor:
    return self.apply(op, x)


def _add_binary(self: MathBuilder, op: str, x: TensorLike, y: TensorLike) -> Tensor:
    return self.apply(op, *self._pair(x, y))


def _add_logical(self: MathBuilder, op: str, x: TensorLike, y: TensorLike) -> Tensor:
    """Add a logical op; numbers are compared with 0 first."""
    return self.apply(op, *(self._as_bool(operand) for operand in self._pair(x, y)))


def _add_parametric(
    self: MathBuilder, op: str, x: Tensor, alpha: float = 1.0
) -> Tensor:
    return self.apply(op, x, alpha=alpha)


class MathBuilder(OpBuilder):
    """Builder methods for functions, logic and activations; mixed into Graph."""

    def _as_bool(self, x: Tensor) -> Tensor:
        """Return a bool tensor that is true where x is not 0."""
        return x if x.dtype is DType.BOOL else self.apply("cast", x, to=DType.BOOL)

    erf = builder_method("erf", _add_unary)
    floor = builder_method("floor", _add_unary)
    ceil = builder_method("ceil", _add_unary)
    trunc = builder_method("trunc", _add_unary)
    sign = builder_method("sign", _add_unary)
    reciprocal = builder_method("reciprocal", _add_unary)
    exp2 = builder_method("exp2", _add_unary)
    expm1 = builder_method("expm1", _add_unary)
    log2 = builder_method("log2", _add_unary)
    log1p = builder_method("log1p", _add_unary)
    sinh = builder_method("sinh", _add_unary)
    cosh = builder_method("cosh", _add_unary)
    asin = builder_method("asin", _add_unary)
    acos = builder_method("acos", _add_unary)
    asinh = builder_method("asinh", _add_unary)
    acosh = builder_method("acosh", _add_unary)
    atanh = builder_method("atanh", _add_unary)
    isnan = builder_method("isnan", _add_unary)
    isfinite = builder_method("isfinite", _add_unary)

    atan2 = builder_method(
        "atan2",
        _add_binary,
        "The angle of the point with vertical coordinate x and horizontal coordinate "
        "y, like np.arctan2(x, y).",
    )
    mod = builder_method(
        "mod",
        _add_binary,
        "The remainder of x / y with the sign of y, like Python's %.",
    )
    fmod = builder_method(
        "fmod",
        _add_binary,
        "The remainder of x / y with the sign of x, like C's fmod.",
    )
    floor_divide = builder_method("floor_divide", _add_binary)
    round_divide = builder_method("round_divide", _add_binary)
    logical_and = builder_method("logical_and", _add_logical)
    logical_or = builder_method("logical_or", _add_logical)
    logical_xor = builder_method("logical_xor", _add_logical)
    bitwise_and = builder_method("bitwise_and", _add_binary)
    bitwise_or = builder_method("bitwise_or", _add_binary)
    bitwise_xor = builder_method("bitwise_xor", _add_binary)
    bitwise_not = builder_method("bitwise_not", _add_unary)
    shift_left = builder_method("shift_left", _add_binary)
    shift_right = builder_method("shift_right", _add_binary)

    softplus = builder_method("softplus", _add_unary)
    softsign = builder_method("softsign", _add_unary)
    mish = builder_method("mish", _add_unary)
    hard_swish = builder_method("hard_swish", _add_unary)
    elu = builder_method(
        "elu", _add_parametric, "x where x > 0, else alpha (exp(x) - 1)."
    )
    celu = builder_method(
        "celu", _add_parametric, "x where x > 0, else alpha (exp(x / alpha) - 1)."
    )
    swish = builder_method("swish", _add_parametric, "x times sigmoid(alpha x).")
    thresholded_relu = builder_method(
        "thresholded_relu", _add_parametric, "x where x > alpha, else 0."
    )
    prelu = builder_method("prelu", _add_binary, "x where x > 0, else y times x.")

    def logical_not(self, x: Tensor) -> Tensor:
        """Return the negation of x; numbers count as true where they are not 0."""
        with op_context("logical_not", x):
            return self.apply("logical_not", self._as_bool(x))

    def isinf(self, x: Tensor, positive: bool = True, negative: bool = True) -> Tensor:
        """Return true where x is infinite, of one sign or of either."""
        return self.apply("isinf", x, positive=positive, negative=negative)

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

    def leaky_relu(self, x: Tensor, alpha: float = 0.01) -> Tensor:
        """Return positive values unchanged and negative ones times alpha."""
        return self.apply("leaky_relu", x, alpha=alpha)

    def hard_sigmoid(self, x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
        """Return alpha x + beta clipped to 0 and 1; PyTorch's has alpha = 1/6."""
        return self.apply("hard_sigmoid", x, alpha=alpha, beta=beta)

    def selu(
        self,
        x: Tensor,
        alpha: float = 1.67326319217681884765625,
        gamma: float = 1.05070102214813232421875,
    ) -> Tensor:
        """Return gamma times elu(x, alpha)."""
        return self.apply("selu", x, alpha=alpha, gamma=gamma)

    def shrink(self, x: Tensor, lambd: float = 0.5, bias: float = 0.0) -> Tensor:
        """Return x - bias above lambd, x + bias below -lambd, else 0."""
        return self.apply("shrink", x, lambd=lambd, bias=bias)

    def relu6(self, x: Tensor) -> Tensor:
        """Return values clipped to 0 and 6, with slope 0 at both ends."""
        with op_context("relu6", x):
            _, six = self._pair(x, 6)
            is_above = self.apply("ge", x, six)
            return self.apply("where", is_above, six, self.apply("relu", x))

    def log_sigmoid(self, x: Tensor) -> Tensor:
        """Return the logarithm of sigmoid(x)."""
        return self.apply("neg", self.softplus(self.apply("neg", x)))
