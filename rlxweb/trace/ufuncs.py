"""NumPy's ufuncs on traced arrays: dispatch to graph ops, in the dtypes of NumPy's
loops.

The dtypes are those of NumPy's own loops, which it is asked for; operands are cast to
them and the op of the ufunc does the rest. Ops are named here by the graph's methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from rlxweb.core.errors import DTypeError, RlxError
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.ir.p_norm import norm_root
from rlxweb.ir.sym_int import SymInt
from rlxweb.ir.tensor import Tensor
from rlxweb.trace.numpy_dispatch import (
    COMPLEX_UFUNCS,
    NUMPY_FUNCTIONS,
    REAL_UFUNCS,
    call_numpy_function,
    no_graph_form_error,
)
from rlxweb.trace.trace_errors import add_user_location, trace_error
from rlxweb.trace.traced_array import NumpyDtype, TracedArray, mutation_error

_WEAK_TYPES = (int, float, complex)
_INT64 = np.dtype(np.int64)


def call_ufunc(
    trace: Any, ufunc: np.ufunc, method: str, inputs: Any, options: Any
) -> Any:
    """Apply a ufunc or a method of one, with NumPy's arguments. Errors  TraceError,
    those of NumPy for dtypes it has no loop for, those of the graph.
    """
    name = f"np.{ufunc.__name__}"
    out = options.pop("out", None)
    for key in ("where", "casting", "order", "subok", "axes", "axis", "keepdims"):
        value = options.get(key, True)
        # A traced array is compared with nothing: it has no truth value.
        is_unsupported = value is not True and (
            not isinstance(value, str) or value not in ("same_kind", "K")
        )
        if method == "__call__" and is_unsupported:
            problem = f"{key}= is not supported in a traced function"
            hint = (
                "use np.where on the result" if key == "where" else "omit this argument"
            )
            raise trace_error(name, problem, hint=hint)
    if method != "__call__":
        if out is not None and any(out_array is not None for out_array in out):
            problem = "out= is not supported in a traced function"
            raise trace_error(f"{name}.{method}", problem)
        return _call_ufunc_method(trace, ufunc, method, inputs, options)
    power_ufunc = (
        _POWER_UFUNCS.get(inputs[1])
        if ufunc is np.power and _has_number_exponent(inputs)
        else None
    )
    if ufunc in NUMPY_FUNCTIONS:
        result = call_numpy_function(trace, ufunc, inputs, {})
    elif power_ufunc is not None:
        result = _apply_ufunc(
            trace, power_ufunc, name, inputs[:1], options.get("dtype")
        )
    else:
        result = _apply_ufunc(trace, ufunc, name, inputs, options.get("dtype"))
    return result if out is None else _store_in_place(name, inputs, out, result)


_POWER_UFUNCS = {2: np.square, 1: np.positive}
"""Ufuncs for x ** n with small n: x ** 2 is x · x, as in NumPy."""


def _has_number_exponent(inputs: Any) -> bool:
    return len(inputs) == 2 and type(inputs[1]) in (int, float)


def _call_ufunc_method(
    trace: Any, ufunc: np.ufunc, method: str, inputs: Any, options: Any
) -> Any:
    """Call a ufunc's method (np.add.reduce and the like) as the NumPy function that
    does the same.
    """
    equivalent = _METHOD_FUNCTIONS.get((ufunc, method))
    if equivalent is not None:
        if method == "reduce":
            options.setdefault("axis", 0)
        return call_numpy_function(trace, equivalent, inputs, options)
    if method == "outer" and not options:
        x, y = (trace.as_traced(operand) for operand in inputs)
        return ufunc(x.reshape((*x.shape, *(1,) * y.ndim)), y)
    raise no_graph_form_error(f"np.{ufunc.__name__}.{method}")


_METHOD_FUNCTIONS: dict[tuple[np.ufunc, str], Callable[..., Any]] = {
    (np.add, "reduce"): np.sum,
    (np.multiply, "reduce"): np.prod,
    (np.maximum, "reduce"): np.max,
    (np.minimum, "reduce"): np.min,
    (np.logical_and, "reduce"): np.all,
    (np.logical_or, "reduce"): np.any,
    (np.add, "accumulate"): np.cumsum,
    (np.multiply, "accumulate"): np.cumprod,
}


def _store_in_place(name: str, inputs: Any, out: Any, result: Any) -> Any:
    """Store the result of `x += y` in x, if x is the function's own and no other array
    may share its memory.
    """
    target = out[0]
    if len(out) != 1 or not inputs or target is not inputs[0]:
        problem = "out= is not supported in a traced function"
        raise trace_error(name, problem, hint="use the returned result")
    hint = "write x = x + y, which creates a new array"
    if target.is_view:
        raise mutation_error(f"an operator such as += ({name}) on an array", hint)
    if result.shape != target.shape:
        problem = (
            f"the result has shape {list(result.shape)}, but the array to be changed "
            f"has shape {list(target.shape)}"
        )
        raise trace_error(name, problem, hint=hint)
    if not np.can_cast(result.dtype, target.dtype, "same_kind"):
        problem = f"{result.dtype} values cannot be stored as {target.dtype}"
        raise trace_error(name, problem, hint=hint)
    result = target.trace.cast(result, target.dtype)
    target.re, target.im, target.make_square = result.re, result.im, result.make_square
    return target


def _apply_ufunc(
    trace: Any, ufunc: np.ufunc, name: str, arguments: Any, dtype: Any
) -> Any:
    try:
        return _apply_in_loop_dtypes(trace, ufunc, name, arguments, dtype)
    except RlxError as error:
        raise add_user_location(error, name) from error.__cause__


def _apply_in_loop_dtypes(
    trace: Any, ufunc: np.ufunc, name: str, arguments: Any, dtype: Any
) -> Any:
    """Apply the ufunc in the dtypes of the loop that NumPy would use."""
    inputs = [
        item if type(item) in (*_WEAK_TYPES, SymInt) else trace.as_traced(item)
        for item in arguments
    ]
    loop = loop_dtypes(trace, ufunc, inputs, dtype)
    is_complex = any(
        dtype_of_output.kind == "c" for dtype_of_output in loop[: ufunc.nin]
    )
    implementation = (COMPLEX_UFUNCS if is_complex else REAL_UFUNCS).get(ufunc)
    if implementation is None:
        raise no_graph_form_error(f"{name} of complex numbers" if is_complex else name)
    if is_complex:
        return implementation(trace, *map(trace.as_traced, inputs, loop))
    make_square = _smooth_square(ufunc, inputs, loop)
    if make_square is not None:
        return TracedArray(trace, make_square(), None, loop[-1])
    use_int32 = ufunc in _INT32_UFUNCS and _all_fit_int32(inputs, loop)
    operands = _operand_tensors(trace, inputs, loop, use_int32)
    outputs = implementation(trace.graph, *operands)
    output_dtypes = loop[ufunc.nin :]
    if ufunc.nout > 1:
        pairs = zip(outputs, output_dtypes, strict=True)
        return tuple(
            TracedArray(trace, item, None, dtype_of_output)
            for item, dtype_of_output in pairs
        )
    result = TracedArray(trace, outputs, None, output_dtypes[0])
    if ufunc in _MAGNITUDE_UFUNCS and outputs.dtype.is_float:
        result.make_square = partial(sum_of_squares, trace.graph, *operands)
    return result


_MAGNITUDE_UFUNCS = (np.absolute, np.fabs, np.hypot)


def _smooth_square(
    ufunc: np.ufunc, inputs: Sequence[Any], loop: Sequence[NumpyDtype]
) -> Callable[[], Tensor] | None:
    """Return the function that computes the square of a magnitude without the
    magnitude, or None.

    |x|² is smooth, |x| is not: a product of two slopes at the kink is no derivative.
    """
    x = inputs[0]
    is_square = ufunc is np.square or (ufunc is np.multiply and inputs[1] is x)
    if not is_square or type(x) is not TracedArray or x.dtype != loop[0]:
        return None
    return x.make_square


def sum_of_squares(g: Any, *parts: Tensor) -> Tensor:
    """Return the sum of the squares of one or more tensors."""
    result: Tensor = reduce(g.add, [g.mul(part, part) for part in parts])
    return result


def _operand_dtype(x: Any) -> Any:
    """Return an operand's dtype or Python type for NumPy; a symbolic size counts as an
    int.
    """
    if isinstance(x, SymInt):
        return int
    return type(x) if type(x) in _WEAK_TYPES else x.dtype


def loop_dtypes(
    trace: Any, ufunc: np.ufunc, inputs: Sequence[Any], dtype: Any = None
) -> tuple[NumpyDtype, ...]:
    """Return the dtypes of NumPy's loop for these operands, as the trace computes
    them.
    """
    operand_dtypes = [_operand_dtype(x) for x in inputs]
    outs = (None,) * ufunc.nout
    options: dict[str, Any] = {}
    if dtype is not None:
        out_dtypes = (np.dtype(dtype),) * ufunc.nout
        options["signature"] = ((None,) * ufunc.nin) + out_dtypes
    try:
        loop = ufunc.resolve_dtypes((*operand_dtypes, *outs), **options)
    except TypeError as error:
        message = " ".join(str(error).split())
        raise DTypeError(
            "", message, "NumPy does not support these dtypes either"
        ) from None
    return tuple(trace.effective_dtype(loop_dtype) for loop_dtype in loop)


def _all_fit_int32(inputs: Sequence[Any], loop: Sequence[NumpyDtype]) -> bool:
    """Return whether all int64 operands are stored in 32 bits, so that no wider ones
    are needed.
    """
    if loop[0] != _INT64:
        return False
    int32_limits = np.iinfo(np.int32)
    return all(
        x.re.dtype in (DType.I32, DType.BOOL)
        if isinstance(x, TracedArray)
        else isinstance(x, SymInt)
        or (type(x) is int and int32_limits.min <= x <= int32_limits.max)
        for x in inputs
    )


def _operand_tensors(
    trace: Any, inputs: Sequence[Any], loop: Sequence[NumpyDtype], use_int32: bool
) -> list[Tensor]:
    dtypes = [np.dtype(np.int32)] * len(inputs) if use_int32 else loop
    return [trace.real_tensor(x, k) for x, k in zip(inputs, dtypes, strict=False)]


# --- the table of real ufuncs ---------------------------------------------------------

_INT32_UFUNCS = {
    *(np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
    *(np.maximum, np.minimum, np.fmax, np.fmin, np.sign, np.positive),
    *(np.logical_and, np.logical_or, np.logical_xor, np.logical_not),
    *(np.bitwise_and, np.bitwise_or, np.bitwise_xor),
}
"""Ufuncs whose results fit into 32 bits if their operands do."""


def _graph_method(method: str) -> Callable[..., Any]:
    return lambda g, *xs: getattr(g, method)(*xs)


def _by_operand_type(number_method: str, bool_method: str) -> Callable[..., Any]:
    """Return an implementation with one op for numbers and another for bools."""

    def implementation(g: Any, *xs: Tensor) -> Any:
        method = bool_method if xs[0].dtype is DType.BOOL else number_method
        return getattr(g, method)(*xs)

    return implementation


def _comparison(method: str) -> Callable[..., Any]:
    """Return the implementation of a comparison; bools compare as 0 and 1."""

    def implementation(g: Any, x: Tensor, y: Tensor) -> Any:
        if x.dtype is DType.BOOL:
            x, y = g.cast(x, DType.I32), g.cast(y, DType.I32)
        return getattr(g, method)(x, y)

    return implementation


def _rounding(method: str) -> Callable[..., Any]:
    """Return the implementation of a rounding ufunc, which leaves integers
    unchanged.
    """

    def implementation(g: Any, x: Tensor) -> Any:
        return getattr(g, method)(x) if x.dtype.is_float else x

    return implementation


def _float_predicate(method: str, integer_answer: bool) -> Callable[..., Any]:
    """Return the implementation of a predicate on floats; all integers have the same
    answer.
    """

    def implementation(g: Any, x: Tensor) -> Any:
        if x.dtype.is_float:
            return getattr(g, method)(x)
        return g.expand(g.constant(np.bool_(integer_answer)), x.shape)

    return implementation


def _abs(g: Any, x: Tensor) -> Any:
    if x.dtype in (DType.BOOL, DType.U32):
        return x
    return g.abs(x)


def _nan_ignoring(method: str) -> Callable[..., Any]:
    """Return the implementation of fmax or fmin: of a number and NaN, the number is the
    result.
    """

    def implementation(g: Any, x: Tensor, y: Tensor) -> Any:
        if x.dtype is DType.BOOL:
            bool_method = "logical_or" if method == "maximum" else "logical_and"
            return getattr(g, bool_method)(x, y)
        if not x.dtype.is_float:
            return getattr(g, method)(x, y)
        extreme = getattr(g, method)(x, y)
        return g.where(g.isnan(x), y, g.where(g.isnan(y), x, extreme))

    return implementation


def signbit(g: Any, x: Tensor) -> Any:
    """Return whether x is negative or -0.0."""
    if not x.dtype.is_float:
        return g.lt(x, 0)
    # 1 / -0.0 is -inf, and its product with a number below 1 does not overflow twice.
    is_zero = g.eq(x, 0)
    return g.lt(g.where(is_zero, g.div(1.0, g.where(is_zero, x, 1.0)), x), 0)


def _copysign(g: Any, x: Tensor, y: Tensor) -> Any:
    """Return x or -x, so that the slope is 1 or -1 at 0 too."""
    return g.where(g.ne(signbit(g, x), signbit(g, y)), g.neg(x), x)


def hypot(g: Any, x: Tensor, y: Tensor, root: Callable[..., Any] = norm_root) -> Any:
    """Return √(x² + y²) without overflow of the squares.

    The squares are of x and y, not of their magnitudes, which have a kink at 0. The
    result does not depend on the scale, so derivatives take that for a constant; its
    bounds keep its reciprocal a normal number.

    root  (graph, squares) → their root: that of a norm has slope 0 at the origin
    """
    a, b = g.abs(x), g.abs(y)
    min_scale = float(np.finfo(x.dtype.numpy).tiny)
    scale = g.stop_gradient(g.clip(g.maximum(a, b), min_scale, 1 / min_scale))
    squares = g.add(g.square(g.div(x, scale)), g.square(g.div(y, scale)))
    result = g.mul(scale, root(g, squares))
    is_infinite = g.logical_or(g.isinf(a), g.isinf(b))
    return g.where(is_infinite, np.inf, result)


def _logaddexp(g: Any, x: Tensor, y: Tensor, unit: float = 1.0) -> Any:
    """Return the larger operand + log(1 + exp(-distance)), in units of some logarithm.

    Which operand is selected as the larger does not matter where they are equal: both
    sums are the same smooth function, so every derivative is right there. Two equal
    infinities have no distance, and share the slope.
    """
    is_less = g.lt(x, y)
    large, small = g.where(is_less, y, x), g.where(is_less, x, y)
    is_same_infinity = g.logical_and(g.eq(x, y), g.isinf(x))
    large = g.where(is_same_infinity, g.add(g.mul(x, 0.5), g.mul(y, 0.5)), large)
    difference = g.where(is_same_infinity, 0.0, g.sub(small, large))
    if unit == 1:
        return g.add(large, g.softplus(difference))
    return g.add(large, g.div(g.softplus(g.mul(difference, unit)), unit))


def _cbrt(g: Any, x: Tensor) -> Any:
    """Return the cube root, whose slope is infinite at 0."""
    is_negative = signbit(g, x)
    magnitude = g.where(is_negative, g.neg(x), x)
    is_zero_or_infinite = g.logical_or(g.eq(magnitude, 0), g.isinf(magnitude))
    safe_magnitude = g.where(is_zero_or_infinite, 1.0, magnitude)
    root = g.pow(safe_magnitude, 1 / 3)
    # One step of Newton's method restores what the power lost.
    refined = g.sub(
        root, g.div(g.sub(root, g.div(g.div(safe_magnitude, root), root)), 3.0)
    )
    # At 0 and infinity the square root has the same value and the same slope.
    result = g.where(
        is_zero_or_infinite,
        g.sqrt(g.where(is_zero_or_infinite, magnitude, 1.0)),
        refined,
    )
    return g.where(is_negative, g.neg(result), result)


def _heaviside(g: Any, x: Tensor, at_zero: Tensor) -> Any:
    steps = g.where(g.lt(x, 0), 0.0, g.where(g.eq(x, 0), at_zero, 1.0))
    return g.where(g.isnan(x), x, steps) if x.dtype.is_float else steps


def _divmod(g: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return g.floor_divide(x, y), g.mod(x, y)


def _modf(g: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the fractional part, whose slope is 1, and the integer part, whose slope
    is 0.

    Both differences are the same number; a zero has the sign of x.
    """
    integer_part, is_infinite = g.trunc(x), g.isinf(x)
    finite_x = g.where(is_infinite, g.sign(x), x)
    subtrahend = g.where(is_infinite, finite_x, integer_part)
    fraction = g.where(
        signbit(g, x), g.neg(g.sub(subtrahend, finite_x)), g.sub(finite_x, subtrahend)
    )
    return fraction, integer_part


def _ldexp(g: Any, x: Tensor, exponent: Tensor) -> Any:
    return g.mul(x, g.exp2(g.cast(exponent, x.dtype)))


def _scale_by(factor: float) -> Callable[..., Any]:
    return lambda g, x: g.mul(x, factor)


def _positive(g: Any, x: Tensor) -> Any:
    return x


REAL_UFUNCS.update(
    {getattr(np, name): _graph_method(op.name) for op in registry for name in op.numpy}
)
REAL_UFUNCS.update(
    {
        np.add: _by_operand_type("add", "logical_or"),
        np.multiply: _by_operand_type("mul", "logical_and"),
        np.positive: _positive,
        np.conjugate: _positive,
        np.absolute: _abs,
        np.log10: _graph_method("log10"),
        np.fabs: _graph_method("abs"),
        np.square: _by_operand_type("square", "logical_and"),
        np.cbrt: _cbrt,
        np.hypot: hypot,
        np.degrees: _scale_by(180 / np.pi),
        np.rad2deg: _scale_by(180 / np.pi),
        np.radians: _scale_by(np.pi / 180),
        np.deg2rad: _scale_by(np.pi / 180),
        np.floor: _rounding("floor"),
        np.ceil: _rounding("ceil"),
        np.trunc: _rounding("trunc"),
        np.maximum: _by_operand_type("maximum", "logical_or"),
        np.minimum: _by_operand_type("minimum", "logical_and"),
        np.fmax: _nan_ignoring("maximum"),
        np.fmin: _nan_ignoring("minimum"),
        np.equal: _comparison("eq"),
        np.not_equal: _comparison("ne"),
        np.less: _comparison("lt"),
        np.less_equal: _comparison("le"),
        np.greater: _comparison("gt"),
        np.greater_equal: _comparison("ge"),
        np.bitwise_and: _by_operand_type("bitwise_and", "logical_and"),
        np.bitwise_or: _by_operand_type("bitwise_or", "logical_or"),
        np.bitwise_xor: _by_operand_type("bitwise_xor", "logical_xor"),
        np.invert: _by_operand_type("bitwise_not", "logical_not"),
        np.isnan: _float_predicate("isnan", False),
        np.isinf: _float_predicate("isinf", False),
        np.isfinite: _float_predicate("isfinite", True),
        np.signbit: signbit,
        np.copysign: _copysign,
        np.heaviside: _heaviside,
        np.logaddexp: _logaddexp,
        np.logaddexp2: lambda g, x, y: _logaddexp(g, x, y, math.log(2)),
        np.ldexp: _ldexp,
        np.divmod: _divmod,
        np.modf: _modf,
    }
)
