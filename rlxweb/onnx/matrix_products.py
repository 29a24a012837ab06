"""Converters of matrix products."""

from __future__ import annotations

from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, converts


@converts("MatMul")
def _matmul(ctx: ConversionContext, x: Tensor, y: Tensor) -> Tensor:
    return ctx.graph.matmul(x, y)


@converts("Einsum")
def _einsum(ctx: ConversionContext, *operands: Tensor, equation: str) -> Tensor:
    return ctx.graph.einsum(equation, *operands)


@converts("Gemm")
def _gemm(
    ctx: ConversionContext,
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
    a, b = (
        x.T if is_transposed else x for x, is_transposed in ((a, transA), (b, transB))
    )
    out = a @ b
    if alpha != 1.0:
        out = out * alpha
    if c is None or beta == 0.0:
        return out
    return out + (c * beta if beta != 1.0 else c)
