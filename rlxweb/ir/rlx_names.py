"""Methods of RLX's and pyrlx's graphs that are spelled otherwise here.

Second names for what `Builder` has, and the calls that name an op by a word: an
elementwise one, a comparison, a reduction, a kind of mask. Nothing here is computed
that a method of ours does not compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlxweb.errors import AttributeRefused, ShapeError, did_you_mean
from rlxweb.ir.builder import Builder
from rlxweb.ir.dtype import DTypeLike, as_dtype
from rlxweb.ir.reduce_builder import Axes
from rlxweb.ir.shape import show
from rlxweb.ir.tensor import Number, Tensor

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


def _named(what: str, name: str, known: Mapping[str, str]) -> str:
    if name not in known:
        raise AttributeRefused(
            what,
            f"{name!r} is none",
            "they are " + ", ".join(known),
            did_you_mean(str(name), known),
        )
    return known[name]


class RlxNames(Builder):
    """RLX's other spellings; mixed into Graph."""

    mm = Builder.matmul
    sm = Builder.softmax
    reshape_ = Builder.reshape
    transpose_ = Builder.transpose
    narrow_ = Builder.narrow
    concat_ = Builder.concat
    gather_ = Builder.gather
    attention_ = Builder.attention
    where_ = Builder.where
    eq_ = Builder.eq
    ne_ = Builder.ne
    lt_ = Builder.lt
    le_ = Builder.le
    gt_ = Builder.gt
    ge_ = Builder.ge

    def ln(self, x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
        """`layer_norm` over the last axis (the logarithm is `log`)."""
        return self.layer_norm(x, gamma, beta, -1, eps)

    def layer_norm2d(
        self, x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5
    ) -> Tensor:
        """`layer_norm` over the channels at each place of [N, C, H, W]."""
        return self.layer_norm(x, gamma, beta, 1, eps)

    def binary(self, op: str, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """`add`, `sub`, `mul`, `div`, `max`, `min`, `pow` or `+ - * /`, by its name."""
        return self._binary(_named("binary op", op, _BINARY), x, y)

    def compare(self, op: str, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """`eq`, `ne`, `lt`, `le`, `gt`, `ge` or `== != < <= > >=`, by its name."""
        return self._binary(_named("comparison", op, _COMPARE), x, y)

    def reduce(
        self, x: Tensor, op: str, axes: Axes = None, keep_dim: bool = False
    ) -> Tensor:
        """`sum`, `mean`, `max`, `min` or `prod`, by its name."""
        name = _named("reduction", op, _REDUCE)
        every = tuple(range(x.rank)) if axes is None else axes
        return self.apply(name, x, axes=every, keep_dim=keep_dim)

    def attention_kind(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        num_heads: int,
        head_dim: int,
        mask_kind: str = "none",
    ) -> Tensor:
        """`attention` without a mask tensor: "none", "causal" or "sliding:N"."""
        kind, _, width = mask_kind.partition(":")
        window = 0
        if kind == "sliding":
            if not width.isdecimal():
                raise AttributeRefused(
                    "attention_kind", f"mask_kind={mask_kind!r}", "it is 'sliding:N'"
                )
            kind, window = "sliding_window", int(width)
        return self.attention(
            q,
            k,
            v,
            num_heads=num_heads,
            head_dim=head_dim,
            mask_kind=kind,
            window=window,
        )

    def matmul_with_shape(
        self, x: Tensor, y: Tensor, out_shape: Sequence[int], dtype: DTypeLike
    ) -> Tensor:
        """`matmul`, whose type is said beforehand. Errors  ShapeError if it is not."""
        made = self.matmul(x, y)
        want = tuple(out_shape), as_dtype(dtype)
        if (made.shape, made.dtype) != want:
            raise ShapeError(
                "matmul_with_shape",
                f"the product is {show(made.shape)} {made.dtype}",
                f"{show(want[0])} {want[1]} was said",
            )
        return made

    def fft_real(self, x: Tensor, norm: str = "Backward") -> tuple[Tensor, Tensor]:
        """(re, im), each [..., n]: the whole spectrum of real rows [..., n].

        norm   RLX's names, as `fft_norm` has them
        """
        zeros = self.expand(self.constant(0.0, x.dtype), x.shape)
        block = self.concat([x, zeros], axis=x.rank - 1)
        return self.split_block(self.fft_norm(block, False, norm))

    def topo_order(self) -> tuple[int, ...]:
        """The nodes, each after its operands: the order they were added in."""
        return tuple(range(len(self)))

    def reverse_topo(self) -> tuple[int, ...]:
        """The nodes, each before its operands."""
        return self.topo_order()[::-1]

    def use_count(self, at: int) -> int:
        """How many operands read node `at`."""
        return len(self.users(at))
