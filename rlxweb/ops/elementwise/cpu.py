"""NumPy kernels of elementwise ops: erf, sigmoid and relu in few passes.

Erf of float32 is one quotient of polynomials, the same near 0 and far from it, so that
nothing is computed twice and chosen from; a block and what is made of it lie in a
core's nearest caches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node

Array = NDArray[Any]
# x P(x^2) / Q(x^2) is erf(x) for |x| <= _END, fitted by us to 2e-8 relative; float32
# computes it to 4e-7. At _END it gives exactly 1, which erf is from there on.
_SATURATION: Final = np.float32(3.92)
_NUMERATOR: Final = (
    *(1.12837914, 0.191530194, 0.0528728282),
    *(0.00380732, 0.000284671831, 2.02609197e-06),
)
_DENOMINATOR: Final = (
    *(1.0, 0.503071894, 0.114551348),
    *(0.0150533908, 0.00117052823, 3.78329032e-05),
)
_BLOCK_ELEMENTS: Final = 1 << 14
"""Elements of a block."""


def _is_float32(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether the result is float32; the reference serves the others."""
    return out.dtype is DType.F32


def erf(attrs: Attrs, x: NDArray[Any]) -> NDArray[Any]:
    """Return the error function of an array of any shape; the reference computes all
    but float32.
    """
    if x.dtype != np.float32:
        result: NDArray[Any] = registry.get("erf").reference(np, attrs, x)
        return result
    out = result_pool.empty(x.shape, np.float32)
    flat_input, result = np.ascontiguousarray(x).reshape(-1), out.reshape(-1)
    scratch = np.empty((3, min(_BLOCK_ELEMENTS, x.size)), np.float32)
    for start in range(0, x.size, _BLOCK_ELEMENTS):
        block = flat_input[start : start + _BLOCK_ELEMENTS]
        _erf_block(
            block, scratch[:, : block.size], result[start : start + _BLOCK_ELEMENTS]
        )
    return out


def _erf_block(x: NDArray[Any], scratch: NDArray[Any], out: NDArray[Any]) -> None:
    """Compute the error function of one block into `out`."""
    clipped, squared, denominator = scratch
    np.clip(x, -_SATURATION, _SATURATION, out=clipped)
    np.multiply(clipped, clipped, out=squared)
    _evaluate_polynomial(_NUMERATOR, squared, out)
    _evaluate_polynomial(_DENOMINATOR, squared, denominator)
    out *= clipped
    out /= denominator
    np.clip(out, -1.0, 1.0, out=out)


def _evaluate_polynomial(
    terms: tuple[float, ...], x: NDArray[Any], out: NDArray[Any]
) -> None:
    """Evaluate a polynomial by Horner's rule into `out`."""
    np.multiply(x, np.float32(terms[-1]), out=out)
    for term in terms[-2:0:-1]:
        out += np.float32(term)
        out *= x
    out += np.float32(terms[0])


def _is_float(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether the result is float32 or float64."""
    return out.dtype in (DType.F32, DType.F64)


def _sigmoid(attrs: Attrs, x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), computed in one array; an overflowing exponential gives
    0.
    """
    result: Array = np.asarray(np.negative(x))
    np.exp(result, out=result)
    result += 1
    np.reciprocal(result, out=result)
    return result


def _plan_relu(inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Array]:
    """Return a relu with the zero of the node's dtype."""
    zero = out.dtype.numpy.type(0)
    return lambda attrs, x: np.maximum(x, zero)


KERNELS = (
    KernelVariant(
        "sigmoid, in one array", "sigmoid", for_every_node(_sigmoid), _is_float
    ),
    KernelVariant("relu, a number", "relu", _plan_relu, _is_float),
    KernelVariant("erf, one quotient", "erf", for_every_node(erf), _is_float32),
)
