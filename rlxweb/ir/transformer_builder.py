"""Builder methods for what language models are made of: rotary, gated units, LoRA.

Positions, heads and tables are brought into the form that the ops take. Nothing is
computed here but tables of angles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlxweb.errors import AttributeRefused, ShapeError
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype
from rlxweb.ir.op_builder import OpBuilder
from rlxweb.ir.shape import as_integer, show
from rlxweb.ir.tensor import Tensor


class TransformerBuilder(OpBuilder):
    """Builder methods over `apply`; mixed into Graph."""

    def rope(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        positions: Tensor | None = None,
        *,
        interleaved: bool = False,
        num_heads: int | None = None,
        head_dim: int | None = None,
    ) -> Tensor:
        """Rotary position embedding: pairs of elements turned by their place's angle.

        cos, sin     a table [P, R/2], whose row p is position p's; or [B, S, R/2], a
                     row for each place. R <= D elements are turned, the rest stays
        positions    of the places, [S] or [B, S] of integers: rows of the table. None:
                     its first S
        interleaved  pairs are neighbours (GPT-J), not halves (Llama, GPT-NeoX)
        num_heads    of x [B, S, H·D]
        head_dim     D, in place of num_heads: pyrlx's word
        Shapes   x [..., S, D], [B, H, S, D] or, with num_heads, [B, S, H·D]
        Errors   ShapeError, DTypeError, AttributeRefused; IndexRefused when it runs,
                 for a position outside the table
        Source   Su et al. 2021; ONNX's RotaryEmbedding
        """
        g: Any = self
        doing, given = f"rope of {show(x.shape)}", x
        if num_heads is not None:
            num_heads = as_integer(num_heads, f"{doing}: num_heads")
        if head_dim is not None:
            head_dim = as_integer(head_dim, f"{doing}: head_dim")
            num_heads = _heads_of(doing, x, head_dim, num_heads)
        if num_heads is not None:
            x = _heads_apart(g, doing, x, num_heads)
        if x.rank < 2:
            raise ShapeError(doing, "it has no axis of places", "[..., S, D]")
        length = x.shape[-3 if num_heads else -2]
        cos, sin = (_angles(g, doing, one, positions, length) for one in (cos, sin))
        if num_heads:  # [B, S, H, D]
            cos, sin = (
                g.reshape(c, (*c.shape[:-1], 1, c.shape[-1])) for c in (cos, sin)
            )
        elif cos.rank == 3 and x.rank == 4:
            cos, sin = (g.reshape(c, (c.shape[0], 1, *c.shape[1:])) for c in (cos, sin))
        made = self.apply("rope", x, cos, sin, interleaved=interleaved)
        return self.apply("reshape", made, shape=given.shape) if num_heads else made

    def rope_table(
        self, length: int, size: int, base: float = 10000.0, dtype: DTypeLike = "f32"
    ) -> tuple[Tensor, Tensor]:
        """Cosines and sines [length, size/2] of positions 0 … for heads of `size`.

        Angle i of position p is p · base^(-2i / size), computed in float64.
        Errors   AttributeRefused.
        """
        if length < 1 or size < 2 or size % 2 or not base > 0:
            raise AttributeRefused(
                "rope_table",
                f"length={length}, size={size}, base={base}",
                "length >= 1, size even and >= 2, base > 0",
            )
        turns = float(base) ** (-np.arange(0, size, 2) / size)
        angles = np.arange(length)[:, None] * turns
        kind = as_dtype(dtype)
        return self.constant(np.cos(angles), kind), self.constant(np.sin(angles), kind)

    def add_layer_norm(
        self,
        x: Tensor,
        residual: Tensor,
        gamma: Tensor | None = None,
        beta: Tensor | None = None,
        eps: float = 1e-5,
    ) -> tuple[Tensor, Tensor]:
        """(layer norm of x + residual along the last axis, the sum): one kernel.

        Shapes   x and residual alike, [..., n], gamma and beta [n], or None: 1 and 0
        Errors   ShapeError, DTypeError, AttributeRefused
        """
        return self._add_norm(x, residual, (gamma, beta), eps, True)

    def add_rms_norm(
        self,
        x: Tensor,
        residual: Tensor,
        gamma: Tensor | None = None,
        beta: Tensor | None = None,
        eps: float = 1e-5,
    ) -> tuple[Tensor, Tensor]:
        """`add_layer_norm` with the rms norm, which does not take the mean away."""
        return self._add_norm(x, residual, (gamma, beta), eps, False)

    def _add_norm(
        self,
        x: Tensor,
        residual: Tensor,
        ends: tuple[Tensor | None, Tensor | None],
        eps: float,
        centred: bool,
    ) -> tuple[Tensor, Tensor]:
        gamma, beta = (
            self.constant(np.full(x.shape[-1:], value), x.dtype) if one is None else one
            for one, value in zip(ends, (1.0, 0.0), strict=True)
        )
        made = self.apply(
            "add_norm", x, residual, gamma, beta, centred=centred, eps=eps
        )
        normed, total = (
            self.apply("narrow", made, axis=0, start=at, length=1) for at in (0, 1)
        )
        return (
            self.apply("reshape", normed, shape=x.shape),
            self.apply("reshape", total, shape=x.shape),
        )

    def glu(
        self,
        x: Tensor,
        axis: int = -1,
        activation: str = "sigmoid",
        gate_first: bool = False,
    ) -> Tensor:
        """The first half of an axis times activation(the second half).

        activation   "sigmoid", "silu", "gelu", "gelu_approx", "relu", "tanh" or
                     "identity"
        gate_first   the first half is the one that goes through it
        Errors   ShapeError for an odd axis, DTypeError, AttributeRefused
        Source   torch.nn.functional.glu; Shazeer 2020
        """
        return self.apply(
            "glu", x, axis=axis, activation=activation, gate_first=gate_first
        )

    def swiglu(self, x: Tensor, axis: int = -1, gate_first: bool = False) -> Tensor:
        """`glu` with SiLU: the first half of an axis times silu(the second)."""
        return self.glu(x, axis, "silu", gate_first)

    def lora_matmul(
        self, x: Tensor, w: Tensor, a: Tensor, b: Tensor, scale: float = 1.0
    ) -> Tensor:
        """By weights with a change of low rank: x · w + scale · (x · a) · b.

        Shapes   x [..., K], w [K, N], a [K, R], b [R, N] → [..., N]
        Errors   ShapeError, DTypeError, AttributeRefused
        Source   Hu et al. 2021
        """
        return self.apply("lora_matmul", x, w, a, b, scale=scale)

    def grouped_matmul(
        self,
        x: Tensor,
        w: Tensor,
        groups: Tensor | None = None,
        *,
        offsets: Tensor | None = None,
        sizes: Tensor | None = None,
    ) -> Tensor:
        """Every row times the matrix of its group, as experts have it. Give one of

        groups    a group for each row, [M] of integers, in any order
        offsets   where each group of rows ends, [G], as torch.nn.functional.grouped_mm
        sizes     how many rows each group has, [G], as jax.lax.ragged_dot
        A row of no group (outside 0 … G - 1, or behind the last one's end) is zeros.
        Shapes   x [M, K], w [G, K, N] → [M, N]
        Errors   ShapeError, DTypeError, AttributeRefused
        """
        doing = f"grouped_matmul of {show(x.shape)} and {show(w.shape)}"
        given = [one for one in (groups, offsets, sizes) if one is not None]
        if len(given) != 1:
            raise AttributeRefused(
                doing,
                f"{len(given)} of groups, offsets and sizes are given",
                "one of them says which row belongs where",
            )
        if groups is None:
            if given[0].shape != w.shape[:1] or not given[0].dtype.is_integer:
                raise ShapeError(
                    doing,
                    f"{show(given[0].shape)} {given[0].dtype} of groups",
                    f"an integer for each, {show(w.shape[:1])}",
                )
            ends = self.apply("cast", given[0], to=DType.I32)
            if sizes is not None:
                ends = self.apply("cumsum", ends, axis=0)
            rows = self.constant(np.arange(x.shape[0], dtype=np.int32)[:, None])
            behind = self.apply("cast", self.apply("ge", rows, ends), to=DType.I32)
            groups = self.apply("sum", behind, axes=(1,), keep_dim=False)
        return self.apply("grouped_matmul", x, w, groups)


def _heads_of(doing: str, x: Tensor, head_dim: int, heads: int | None) -> int | None:
    """Return the number of heads of that length; None for one alone.

    Errors   ShapeError.
    """
    size = x.shape[-1] if x.rank else 0
    found = size // head_dim if head_dim > 0 and size % head_dim == 0 else 0
    if not found or heads not in (None, found):
        beside = "" if heads is None else f" and num_heads={heads}"
        raise ShapeError(
            doing,
            f"head_dim={head_dim}{beside} of a last axis of {size}",
            "the last axis is num_heads times head_dim",
        )
    return heads if found == 1 else found


def _heads_apart(g: Any, doing: str, x: Tensor, heads: int) -> Tensor:
    """[B, S, H·D] as [B, S, H, D]."""
    if x.rank != 3 or heads < 1 or x.shape[2] % heads:
        raise ShapeError(
            doing,
            f"num_heads={heads} of {show(x.shape)}",
            "[B, S, H·D], whose last axis is a multiple of the heads",
        )
    shape: Sequence[int] = (*x.shape[:2], heads, x.shape[2] // heads)
    return g.reshape(x, shape)  # type: ignore[no-any-return]


def _angles(
    g: Any, doing: str, table: Tensor, positions: Tensor | None, length: int
) -> Tensor:
    """[S, R/2] or [B, S, R/2]: the rows of a table for so many places."""
    if positions is None:
        if table.rank == 2 and table.shape[0] > length:
            return g.narrow(table, 0, 0, length)  # type: ignore[no-any-return]
        return table
    if table.rank != 2 or positions.rank not in (1, 2):
        raise ShapeError(
            doing,
            f"positions {show(positions.shape)} of angles {show(table.shape)}",
            "positions [S] or [B, S] of a table [P, R/2]",
        )
    if positions.dtype is DType.I64:
        positions = g.cast(positions, DType.I32)
    return g.gather(table, positions)  # type: ignore[no-any-return]
