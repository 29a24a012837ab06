"""Graph with the method names of RLX and of its Python binding, pyrlx.

Second names for methods of the core graph, and calls that name an op by a word: an
elementwise op, a comparison, a reduction, a kind of mask. Every method adds what a core
method adds, so a saved graph names core methods alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.core.errors import AttributeRefused, ShapeError, did_you_mean
from rlxweb.ir import graph as core
from rlxweb.ir.dtype import DTypeLike, as_dtype
from rlxweb.ir.shape_arithmetic import as_tuple, format_shape, short_repr
from rlxweb.ir.sym_int import SymInt
from rlxweb.ir.symbolic_dim import DeclaredShape
from rlxweb.ir.tensor import Axes, Number, Tensor

_BINARY = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "max": "maximum",
    "min": "minimum",
    "pow": "pow",
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
}
_COMPARE = {
    **{name: name for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"},
}
_REDUCE = {name: name for name in ("sum", "mean", "max", "min", "prod")}
# RLX's norm names are shifted against NumPy's (semantics §A.9, §I.2 item 34).
_NORMS = {
    "backward": "none",
    "none": "none",
    "forward": "backward",
    "ortho": "ortho",
    "orthonormal": "ortho",
}


def _look_up_name(context: str, name: str, names: Mapping[str, str]) -> str:
    """Return the core name of one of RLX's names. Raises AttributeRefused for an
    unknown one.
    """
    if name not in names:
        raise AttributeRefused(
            context,
            f"{name!r} is not supported",
            "expected one of " + ", ".join(names),
            did_you_mean(str(name), names),
        )
    return names[name]


class Graph(core.Graph):
    """Graph that has RLX's method names as well.

    It is an `rlxweb.Graph` and compiles, saves and differentiates like any other.

    >>> g = rlxweb.rlx.Graph("mlp")
    >>> x, w = g.input("x", (4, 8)), g.param("w", (8, 2))
    >>> g.set_outputs([g.activation("relu", g.mm(x, w))])
    """

    mm = core.Graph.matmul
    sm = core.Graph.softmax
    reshape_ = core.Graph.reshape
    transpose_ = core.Graph.transpose
    narrow_ = core.Graph.narrow
    concat_ = core.Graph.concat
    gather_ = core.Graph.gather
    attention_ = core.Graph.attention
    where_ = core.Graph.where
    eq_ = core.Graph.eq
    ne_ = core.Graph.ne
    lt_ = core.Graph.lt
    le_ = core.Graph.le
    gt_ = core.Graph.gt
    ge_ = core.Graph.ge

    def ln(self, x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
        """Add `layer_norm` over the last axis (the logarithm is `log`)."""
        return self.layer_norm(x, gamma, beta, -1, eps)

    def layer_norm2d(
        self, x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5
    ) -> Tensor:
        """Add `layer_norm` over the channels at each position of [N, C, H, W]."""
        return self.layer_norm(x, gamma, beta, 1, eps)

    def binary(self, op: str, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """Add `add`, `sub`, `mul`, `div`, `max`, `min`, `pow` or one of `+ - * /`."""
        return self.apply(_look_up_name("binary op", op, _BINARY), *self._pair(x, y))

    def compare(self, op: str, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """Add `eq`, `ne`, `lt`, `le`, `gt`, `ge` or one of `== != < <= > >=`."""
        return self.apply(_look_up_name("comparison", op, _COMPARE), *self._pair(x, y))

    def reduce(
        self, x: Tensor, op: str, axes: Axes | None = None, keep_dim: bool = False
    ) -> Tensor:
        """Add the reduction `sum`, `mean`, `max`, `min` or `prod`."""
        name = _look_up_name("reduction", op, _REDUCE)
        all_axes = tuple(range(x.rank)) if axes is None else axes
        return self.apply(name, x, axes=all_axes, keep_dim=keep_dim)

    def attention_kind(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        num_heads: int,
        head_dim: int,
        mask_kind: str = "none",
    ) -> Tensor:
        """Add `attention` without a mask tensor: "none", "causal" or "sliding:N".

        N   keys before its own that a query sees, 0 or more
        Errors   AttributeRefused for another kind of mask.
        """
        mask_name, _, width = str(mask_kind).partition(":")
        is_sliding = mask_name == "sliding" and width.isascii() and width.isdecimal()
        if not is_sliding and mask_kind not in ("none", "causal"):
            raise AttributeRefused(
                "attention_kind",
                f"mask_kind={short_repr(mask_kind)}",
                "expected 'none', 'causal' or 'sliding:N' (a query sees its own key "
                "and the N keys before it)",
                "for a tensor mask, use g.attention(q, k, v, mask, …)",
            )
        core_mask_kind, window = (
            ("sliding_window", int(width)) if is_sliding else (mask_kind, 0)
        )
        return self.attention(
            q,
            k,
            v,
            num_heads=num_heads,
            head_dim=head_dim,
            mask_kind=core_mask_kind,
            window=window,
        )

    def matmul_with_shape(
        self, x: Tensor, y: Tensor, out_shape: DeclaredShape, dtype: DTypeLike
    ) -> Tensor:
        """Add `matmul` with a declared type, in which a dim may be its name.

        Errors   ShapeError if it has another.
        """
        product = self.matmul(x, y)
        self._check_declared("matmul_with_shape", product, out_shape, dtype)
        return product

    def _check_declared(
        self, context: str, result: Tensor, shape: DeclaredShape, dtype: DTypeLike
    ) -> None:
        dims = (shape,) if isinstance(shape, SymInt) else as_tuple(shape)
        declared_dtype = as_dtype(dtype)
        sizes = tuple(
            self.dims.get(d, d) if isinstance(d, str) else d for d in dims or ()
        )
        if dims is None or result.shape != sizes or result.dtype is not declared_dtype:
            declared = short_repr(shape) if dims is None else format_shape(dims)
            raise ShapeError(
                context,
                f"the product is {format_shape(result.shape)} {result.dtype}",
                f"the declared type is {declared} {declared_dtype}",
            )

    def rope(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        positions: Tensor | int | None = None,
        **options: Any,
    ) -> Tensor:
        """Add `rope`, also by RLX's call, whose fourth operand is `head_dim`.

        positions, options   as of the core's `rope`; a number is its `head_dim`
        """
        if positions is not None and not isinstance(positions, Tensor):
            options = {"head_dim": positions} | options
            positions = None
        return super().rope(x, cos, sin, positions, **options)

    def lora_matmul(
        self,
        x: Tensor,
        w: Tensor,
        a: Tensor,
        b: Tensor,
        scale: float = 1.0,
        out_shape: DeclaredShape | None = None,
        dtype: DTypeLike | None = None,
    ) -> Tensor:
        """Add `lora_matmul`, as RLX with a declared type.

        Errors   ShapeError if it has another; those of the core's `lora_matmul`.
        """
        result = super().lora_matmul(x, w, a, b, scale)
        if out_shape is not None or dtype is not None:
            shape = result.shape if out_shape is None else out_shape
            declared_dtype = result.dtype if dtype is None else dtype
            self._check_declared("lora_matmul", result, shape, declared_dtype)
        return result

    def fft_norm(
        self, x: Tensor, inverse: bool = False, norm: str = "Backward"
    ) -> Tensor:
        """Add `fft` under one of RLX's norm names, in any case.

        norm   Backward or none: no scaling; Forward: 1/N on the inverse, which is
               NumPy's "backward"; Ortho or orthonormal: 1/√N both ways
        Errors   AttributeRefused for another name.
        """
        norm_name = norm.strip().lower() if isinstance(norm, str) else ""
        if norm_name not in _NORMS:
            raise AttributeRefused(
                "fft_norm",
                f"norm {short_repr(norm)}",
                "expected 'Backward' (or 'none'), 'Forward' or 'Ortho' (or "
                "'orthonormal')",
                "for NumPy's names, use g.fft(x, inverse, norm)",
            )
        return self.fft(x, inverse, _NORMS[norm_name])

    def fft_real(self, x: Tensor, norm: str = "Backward") -> tuple[Tensor, Tensor]:
        """Add the whole spectrum of real rows [..., n] as (re, im), each [..., n].

        norm   RLX's names, see `fft_norm`
        """
        zeros = self.expand(self.constant(0.0, x.dtype), x.shape)
        block = self.concat([x, zeros], axis=x.rank - 1)
        return self.split_block(self.fft_norm(block, False, norm))

    def copy(self) -> Graph:
        """Return a copy with the same nodes and outputs that has RLX's method names."""
        out = Graph(self.name)
        out._state = super().copy()._state
        return out

    def topo_order(self) -> tuple[int, ...]:
        """Return the node ids, each after its operands: the order they were added
        in.
        """
        return tuple(range(len(self)))

    def reverse_topo(self) -> tuple[int, ...]:
        """Return the node ids, each before its operands."""
        return self.topo_order()[::-1]

    def use_count(self, at: int | Tensor) -> int:
        """Return the number of operands that are node `at`; see `users`."""
        return len(self.users(at))
