"""Matrix products."""

from __future__ import annotations

from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts


@converts("MatMul")
def _matmul(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return call.g.matmul(x, y)


@converts("Einsum")
def _einsum(call: Call, *operands: Tensor, equation: str) -> Tensor:
    return call.g.einsum(equation, *operands)


@converts("Gemm")
def _gemm(
    call: Call,
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # ONNX's names
    transB: int = 0,
    broadcast: int = 0,
) -> Tensor:
    a, b = (x.T if turned else x for x, turned in ((a, transA), (b, transB)))
    out = a @ b
    if alpha != 1.0:
        out = out * alpha
    if c is None or beta == 0.0:
        return out
    return out + (c * beta if beta != 1.0 else c)
