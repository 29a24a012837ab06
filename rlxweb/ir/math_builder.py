"""Builder methods for functions, logic and activations, by NumPy's and PyTorch's names.

Each adds the op of its name, or is put together of a few: bounds, roots of sums, the
complements of functions. Numbers and arrays stand beside tensors as in arithmetic.
"""

from __future__ import annotations

from rlxweb.ir.adding import adding
from rlxweb.ir.dtype import DType
from rlxweb.ir.op_builder import OpBuilder
from rlxweb.ir.tensor import Operand, Tensor, working

Given = Tensor | Operand


def _unary(self: MathBuilder, op: str, x: Tensor) -> Tensor:
    return self.apply(op, x)


def _binary(self: MathBuilder, op: str, x: Given, y: Given) -> Tensor:
    return self.apply(op, *self._pair(x, y))


def _logical(self: MathBuilder, op: str, x: Given, y: Given) -> Tensor:
    """Numbers are compared with 0 first."""
    return self.apply(op, *(self._truth(one) for one in self._pair(x, y)))


def _sloped(self: MathBuilder, op: str, x: Tensor, alpha: float = 1.0) -> Tensor:
    return self.apply(op, x, alpha=alpha)


class MathBuilder(OpBuilder):
    """Functions, logic and activations over `apply`; mixed into Graph."""

    def _truth(self, x: Tensor) -> Tensor:
        """Whether each element is not 0."""
        return x if x.dtype is DType.BOOL else self.apply("cast", x, to=DType.BOOL)

    erf = adding("erf", _unary)
    floor = adding("floor", _unary)
    ceil = adding("ceil", _unary)
    trunc = adding("trunc", _unary)
    sign = adding("sign", _unary)
    reciprocal = adding("reciprocal", _unary)
    exp2 = adding("exp2", _unary)
    expm1 = adding("expm1", _unary)
    log2 = adding("log2", _unary)
    log1p = adding("log1p", _unary)
    sinh = adding("sinh", _unary)
    cosh = adding("cosh", _unary)
    asin = adding("asin", _unary)
    acos = adding("acos", _unary)
    asinh = adding("asinh", _unary)
    acosh = adding("acosh", _unary)
    atanh = adding("atanh", _unary)
    isnan = adding("isnan", _unary)
    isfinite = adding("isfinite", _unary)

    atan2 = adding("atan2", _binary, "The angle of the point (y, x): atan2(x=y, y=x).")
    mod = adding("mod", _binary, "The rest of the sign of y, as Python's %.")
    fmod = adding("fmod", _binary, "The rest of the sign of x, as C's fmod.")
    floor_divide = adding("floor_divide", _binary)
    round_divide = adding("round_divide", _binary)
    logical_and = adding("logical_and", _logical)
    logical_or = adding("logical_or", _logical)
    logical_xor = adding("logical_xor", _logical)
    bitwise_and = adding("bitwise_and", _binary)
    bitwise_or = adding("bitwise_or", _binary)
    bitwise_xor = adding("bitwise_xor", _binary)
    bitwise_not = adding("bitwise_not", _unary)
    shift_left = adding("shift_left", _binary)
    shift_right = adding("shift_right", _binary)

    softplus = adding("softplus", _unary)
    softsign = adding("softsign", _unary)
    mish = adding("mish", _unary)
    hard_swish = adding("hard_swish", _unary)
    elu = adding("elu", _sloped, "x above 0, alpha (exp(x) - 1) below.")
    celu = adding("celu", _sloped, "x above 0, alpha (exp(x / alpha) - 1) below.")
    swish = adding("swish", _sloped, "x times sigmoid(alpha x).")
    thresholded_relu = adding("thresholded_relu", _sloped, "x above alpha, else 0.")
    prelu = adding("prelu", _binary, "x above 0, y times x below.")

    def logical_not(self, x: Tensor) -> Tensor:
        """Whether x does not hold; of numbers, whether it is 0."""
        with working("logical_not", x):
            return self.apply("logical_not", self._truth(x))

    def isinf(self, x: Tensor, positive: bool = True, negative: bool = True) -> Tensor:
        """Whether x is infinite, of one sign or of either."""
        return self.apply("isinf", x, positive=positive, negative=negative)

    def log10(self, x: Tensor) -> Tensor:
        """The logarithm to base 10."""
        return self.apply(
            "mul", self.log2(x), self.operand(0.30102999566398120, x.dtype)
        )

    def square(self, x: Tensor) -> Tensor:
        """The product of x with itself."""
        return self.apply("mul", x, x)

    def clip(
        self, x: Tensor, min: Given | None = None, max: Given | None = None
    ) -> Tensor:
        """Values not below `min` and not above `max`; None: no such bound.

        Bounds broadcast. Where they cross it is `max`, as in NumPy; NaN stays NaN.
        Errors   GraphError where x is no tensor, DTypeError for a bound of another
        type.
        """
        with working("clip", x):
            if min is not None:
                x = _binary(self, "maximum", x, min)
            return x if max is None else _binary(self, "minimum", x, max)

    clamp = clip

    def leaky_relu(self, x: Tensor, alpha: float = 0.01) -> Tensor:
        """Positive values as they are, others times alpha."""
        return self.apply("leaky_relu", x, alpha=alpha)

    def hard_sigmoid(self, x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
        """The line alpha x + beta between 0 and 1; PyTorch's has alpha = 1/6."""
        return self.apply("hard_sigmoid", x, alpha=alpha, beta=beta)

    def selu(
        self,
        x: Tensor,
        alpha: float = 1.67326319217681884765625,
        gamma: float = 1.05070102214813232421875,
    ) -> Tensor:
        """Gamma times elu(x, alpha)."""
        return self.apply("selu", x, alpha=alpha, gamma=gamma)

    def shrink(self, x: Tensor, lambd: float = 0.5, bias: float = 0.0) -> Tensor:
        """X - bias above lambd, x + bias below -lambd, else 0."""
        return self.apply("shrink", x, lambd=lambd, bias=bias)

    def relu6(self, x: Tensor) -> Tensor:
        """Return values clipped to 0 and 6, with slope 0 at both ends."""
        with working("relu6", x):
            _, most = self._pair(x, 6)
            above = self.apply("ge", x, most)
            return self.apply("where", above, most, self.apply("relu", x))

    def log_sigmoid(self, x: Tensor) -> Tensor:
        """The logarithm of sigmoid(x)."""
        return self.apply("neg", self.softplus(self.apply("neg", x)))
