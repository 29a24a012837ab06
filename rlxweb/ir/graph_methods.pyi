"""Methods of Graph that op records declare, for editors and type checkers.

Written from the records by `python -m tests.graph_method_stub`.
"""

from rlxweb.ir.op_methods import LoadsOpMethods
from rlxweb.ir.tensor import Operand, Tensor

class GraphMethods(metaclass=LoadsOpMethods):
    _op_methods: frozenset[str]
    def abs(self, x: Tensor) -> Tensor:
        """The absolute value of x."""
    def acos(self, x: Tensor) -> Tensor:
        """The arc cosine; NaN outside -1 … 1."""
    def acosh(self, x: Tensor) -> Tensor:
        """The inverse hyperbolic cosine; NaN below 1."""
    def add(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x + y; integers wrap."""
    def asin(self, x: Tensor) -> Tensor:
        """The arc sine; NaN outside -1 … 1."""
    def asinh(self, x: Tensor) -> Tensor:
        """The inverse hyperbolic sine."""
    def atan(self, x: Tensor) -> Tensor:
        """The arc tangent."""
    def atan2(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """The angle of the point (x = second operand, y = first operand), from -pi to
        pi.
        """
    def atanh(self, x: Tensor) -> Tensor:
        """The inverse hyperbolic tangent; infinite at 1 and -1, NaN outside."""
    def bitwise_and(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x & y, bit by bit; for integers and bool."""
    def bitwise_not(self, x: Tensor) -> Tensor:
        """~x: every bit inverted; for integers and bool."""
    def bitwise_or(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x | y, bit by bit; for integers and bool."""
    def bitwise_xor(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x ^ y, bit by bit; for integers and bool."""
    def ceil(self, x: Tensor) -> Tensor:
        """The nearest integer not below x."""
    def celu(self, x: Tensor, alpha: float = 1.0) -> Tensor:
        """x where x > 0, else alpha (exp(x / alpha) - 1)."""
    def cos(self, x: Tensor) -> Tensor:
        """The cosine; NaN at infinity."""
    def cosh(self, x: Tensor) -> Tensor:
        """The hyperbolic cosine."""
    def div(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x / y. Integers truncate toward zero; an integer divided by 0 gives 0."""
    def elu(self, x: Tensor, alpha: float = 1.0) -> Tensor:
        """x where x > 0, else alpha (exp(x) - 1)."""
    def eq(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether x == y, as bool; False if either is NaN."""
    def erf(self, x: Tensor) -> Tensor:
        """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
    def exp(self, x: Tensor) -> Tensor:
        """e to the power x. WGSL guarantees an error of at most 3 + 2 |x| ULP."""
    def exp2(self, x: Tensor) -> Tensor:
        """2 to the power x."""
    def expm1(self, x: Tensor) -> Tensor:
        """e to the power x, minus 1; accurate near 0."""
    def floor(self, x: Tensor) -> Tensor:
        """The nearest integer not above x."""
    def floor_divide(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """The largest integer not above x / y. A divisor of 0 gives 0 for integers and
        x / 0 for floats.
        """
    def fmod(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """The remainder of the division truncated toward 0, with the sign of x, like
        C's fmod; a divisor of 0 gives 0 for integers and NaN for floats.
        """
    def ge(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether x >= y, as bool; False if either is NaN."""
    def gelu(self, x: Tensor) -> Tensor:
        """x times the standard normal cumulative distribution function of x (the exact
        form, computed with erf).
        """
    def gelu_approx(self, x: Tensor) -> Tensor:
        """The tanh approximation of gelu: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715
        x^3))).
        """
    def gt(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether x > y, as bool; False if either is NaN."""
    def hard_sigmoid(self, x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
        """alpha x + beta, clamped to 0 … 1."""
    def hard_swish(self, x: Tensor) -> Tensor:
        """x times hard_sigmoid(x, 1/6, 1/2)."""
    def isfinite(self, x: Tensor) -> Tensor:
        """Whether x is neither infinite nor NaN."""
    def isinf(self, x: Tensor, positive: bool = True, negative: bool = True) -> Tensor:
        """Whether x is infinity or -infinity; positive=False excludes infinity,
        negative=False excludes -infinity.
        """
    def isnan(self, x: Tensor) -> Tensor:
        """Whether x is NaN."""
    def le(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether x <= y, as bool; False if either is NaN."""
    def leaky_relu(self, x: Tensor, alpha: float = 0.01) -> Tensor:
        """x where x > 0, else alpha x."""
    def log(self, x: Tensor) -> Tensor:
        """The natural logarithm: -infinity at 0, NaN for a negative x."""
    def log1p(self, x: Tensor) -> Tensor:
        """log(1 + x), accurate near 0; -infinity at -1, NaN below -1."""
    def log2(self, x: Tensor) -> Tensor:
        """The logarithm to base 2: -infinity at 0, NaN for a negative x."""
    def logical_and(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether both operands are true; for bool operands."""
    def logical_not(self, x: Tensor) -> Tensor:
        """Whether x is false; for bool operands."""
    def logical_or(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether at least one operand is true; for bool operands."""
    def logical_xor(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether exactly one operand is true; for bool operands."""
    def lt(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether x < y, as bool; False if either is NaN."""
    def maximum(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """The larger of x and y; NaN if either is NaN."""
    def minimum(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """The smaller of x and y; NaN if either is NaN."""
    def mish(self, x: Tensor) -> Tensor:
        """x times tanh(softplus(x))."""
    def mod(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """The remainder of x // y, with the sign of y, like Python's %; a divisor of 0
        gives 0 for integers and NaN for floats.
        """
    def mul(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x * y; integers wrap."""
    def ne(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether x != y, as bool; True if either is NaN."""
    def neg(self, x: Tensor) -> Tensor:
        """-x."""
    def pow(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x to the power y, for floats only, with the special cases of C's pow: x ** 0
        and 1 ** y are always 1, 0 to a negative power is infinity, and a finite
        negative x to a fractional power is NaN.
        """
    def prelu(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x where x > 0, else the second operand times x."""
    def psd(self, re: Tensor, im: Tensor) -> Tensor:
        """(re² + im²) / F, where F is the length of the last axis."""
    def reciprocal(self, x: Tensor) -> Tensor:
        """1 / x; infinity at 0."""
    def relu(self, x: Tensor) -> Tensor:
        """The larger of x and 0."""
    def round(self, x: Tensor) -> Tensor:
        """x rounded to the nearest integer; halves round to even."""
    def round_divide(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x / y, rounded to the dtype of x and y and then to the nearest integer
        (halves to even); bit-identical to NumPy's round(x / y) on every device.
        """
    def rsqrt(self, x: Tensor) -> Tensor:
        """1 / sqrt(x); infinity at 0, NaN for a negative x."""
    def selu(
        self,
        x: Tensor,
        alpha: float = 1.6732631921768188,
        gamma: float = 1.0507010221481323,
    ) -> Tensor:
        """gamma times elu(x, alpha), which keeps the scale of a network's activations
        near 1.
        """
    def shift_left(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x << y; where y is negative or not below the number of bits, the result is 0."""
    def shift_right(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x >> y, keeping the sign; where y is negative or not below the number of
        bits, the result is 0, or -1 for a negative x.
        """
    def shrink(self, x: Tensor, lambd: float = 0.5, bias: float = 0.0) -> Tensor:
        """x - bias where x > lambd, x + bias where x < -lambd, else 0: hard shrinkage
        with bias = 0, soft shrinkage with bias = lambd.
        """
    def sigmoid(self, x: Tensor) -> Tensor:
        """1 / (1 + exp(-x))."""
    def sign(self, x: Tensor) -> Tensor:
        """-1, 0 or 1 for x below, equal to or above 0; NaN for NaN."""
    def silu(self, x: Tensor) -> Tensor:
        """x times sigmoid(x)."""
    def sin(self, x: Tensor) -> Tensor:
        """The sine; NaN at infinity."""
    def sinh(self, x: Tensor) -> Tensor:
        """The hyperbolic sine."""
    def softplus(self, x: Tensor) -> Tensor:
        """log(1 + exp(x))."""
    def softsign(self, x: Tensor) -> Tensor:
        """x / (1 + |x|)."""
    def sqrt(self, x: Tensor) -> Tensor:
        """The square root; NaN for a negative x."""
    def sub(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x - y; integers wrap."""
    def swish(self, x: Tensor, alpha: float = 1.0) -> Tensor:
        """x times sigmoid(alpha x); silu has alpha = 1."""
    def tan(self, x: Tensor) -> Tensor:
        """The tangent, accurate away from its poles; NaN at infinity."""
    def tanh(self, x: Tensor) -> Tensor:
        """The hyperbolic tangent."""
    def thresholded_relu(self, x: Tensor, alpha: float = 1.0) -> Tensor:
        """x where x > alpha, else 0."""
    def trunc(self, x: Tensor) -> Tensor:
        """The nearest integer not farther from 0 than x."""
