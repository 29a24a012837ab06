"""Builder methods for normalisations, over the ops `layer_norm` and `rms_norm`.

Lines of several axes are laid out as one; those of images, groups and channels too, and
what is multiplied and added after is elementwise and joins the step of whatever is next
to it. Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from rlxweb.errors import AttributeRefused, ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.op_builder import OpBuilder
from rlxweb.ir.shape import Shape, broadcast, many, normal_axes, show
from rlxweb.ir.tensor import Tensor

Axis = int | Sequence[int]


class NormBuilder(OpBuilder):
    """Normalisations over `apply`; mixed into Graph."""

    def layer_norm(
        self,
        x: Tensor,
        gamma: Tensor | None = None,
        beta: Tensor | None = None,
        axis: Axis = -1,
        eps: float = 1e-5,
    ) -> Tensor:
        """(x - mean) / sqrt(variance + eps) · gamma + beta along one axis or several.

        gamma, beta   of the shape of those axes, or what broadcasts to it; None: 1, 0
        Errors   ShapeError, AttributeRefused, DTypeError.
        """
        return self._normed("layer_norm", x, (gamma, beta), axis, eps)

    def rms_norm(
        self,
        x: Tensor,
        gamma: Tensor | None = None,
        beta: Tensor | None = None,
        axis: Axis = -1,
        eps: float = 1e-5,
    ) -> Tensor:
        """Layer norm without the mean: x / sqrt(mean of x² + eps) · gamma + beta."""
        return self._normed("rms_norm", x, (gamma, beta), axis, eps)

    def _normed(
        self,
        op: str,
        x: Tensor,
        ends: tuple[Tensor | None, Tensor | None],
        axis: Axis,
        eps: float,
    ) -> Tensor:
        axes = normal_axes(many(axis) or (), x.rank)
        if not axes:
            raise AttributeRefused(f"{op} along axis={axis}", "no axis is named")
        sizes = tuple(x.shape[a] for a in axes)
        n, rank, given = prod(sizes), x.rank, x
        if len(axes) > 1:  # as one, the last
            rest = tuple(a for a in range(rank) if a not in axes)
            x = self._turned(x, (*rest, *axes))
            lead = x.shape[: len(rest)]
            x = self.apply("reshape", x, shape=(*lead, n))
        gamma, beta = (
            self._for_line(op, given, one, value, sizes)
            for one, value in zip(ends, (1.0, 0.0), strict=True)
        )
        along = axes[0] if len(axes) == 1 else -1
        made = self.apply(op, x, gamma, beta, axis=along, eps=eps)
        if len(axes) == 1:
            return made
        made = self.apply("reshape", made, shape=(*lead, *sizes))
        back = [0] * rank
        for at, a in enumerate((*rest, *axes)):
            back[a] = at
        return self._turned(made, tuple(back))

    def _turned(self, x: Tensor, perm: tuple[int, ...]) -> Tensor:
        still = perm == tuple(range(x.rank))
        return x if still else self.apply("transpose", x, perm=perm)

    def _for_line(
        self, op: str, x: Tensor, one: Tensor | None, value: float, sizes: Shape
    ) -> Tensor:
        """One number for each element of a line: those given, or all the same."""
        if one is None:
            one = self.constant(value, x.dtype)
        elif one.shape == sizes:
            return self._reshaped(one, (prod(sizes),))
        elif broadcast(one.shape, sizes) != sizes:
            raise ShapeError(
                f"{op} of {show(x.shape)}",
                f"gamma or beta is {show(one.shape)}",
                f"what broadcasts to its axes, {show(sizes)}",
            )
        return self._reshaped(self.apply("expand", one, shape=sizes), (prod(sizes),))

    def _reshaped(self, x: Tensor, shape: Shape) -> Tensor:
        return x if x.shape == shape else self.apply("reshape", x, shape=shape)

    def inv_std(self, x: Tensor, axis: Axis = -1, eps: float = 1e-5) -> Tensor:
        """1 / sqrt(variance + eps) along axes, which stay with one element each."""
        _, variance = self._moments(self._wide(x), tuple(many(axis) or ()))
        return self._narrow(self.apply("rsqrt", variance + eps), x)

    def _moments(self, x: Tensor, axes: Shape) -> tuple[Tensor, Tensor]:
        """Mean and variance along axes, which stay with one element each."""
        mean = self.apply("mean", x, axes=axes, keep_dim=True)
        far = x - mean
        return mean, self.apply("mean", far * far, axes=axes, keep_dim=True)

    def _wide(self, x: Tensor) -> Tensor:
        """f16 as f32: squares of it may be beyond what it holds."""
        return self.apply("cast", x, to=DType.F32) if x.dtype is DType.F16 else x

    def _narrow(self, made: Tensor, like: Tensor) -> Tensor:
        if made.dtype is like.dtype:
            return made
        return self.apply("cast", made, to=like.dtype)

    def batch_norm(
        self,
        x: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        """(x - mean) / sqrt(var + eps) · weight + bias, with numbers per channel.

        What it is at inference: [N, C, …] and vectors of C elements.
        Errors   ShapeError, DTypeError.
        """
        scale = self.apply("rsqrt", running_var + eps)
        scale = scale if weight is None else scale * weight
        shift = -running_mean * scale
        shift = shift if bias is None else shift + bias
        return self._scaled(x, scale, shift)

    def batch_statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (over all, not one less) of each channel of [N, C, …]:
        what `batch_norm` takes while a model is trained.
        """
        axes = tuple(a for a in range(x.rank) if a != 1)
        mean, variance = (
            self._narrow(self._reshaped(one, x.shape[1:2]), x)
            for one in self._moments(self._wide(x), axes)
        )
        return mean, variance

    def _scaled(self, x: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
        """The array · scale + shift, one number for each channel of [N, C, …]."""
        for op, one in (("mul", scale), ("add", shift)):
            if one is None:
                continue
            if x.rank < 2 or one.shape != x.shape[1:2]:
                raise ShapeError(
                    f"a normalisation of {show(x.shape)}",
                    f"what it is multiplied by or gets added is {show(one.shape)}",
                    f"one number for each channel, {show(x.shape[1:2])}",
                )
            x = self.apply(
                op, x, self._reshaped(one, (*one.shape, *(1,) * (x.rank - 2)))
            )
        return x

    def group_norm(
        self,
        x: Tensor,
        num_groups: int,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        """Layer norm of groups of channels of [N, C, …] with all that is theirs, then
        · weight + bias for each channel.

        Errors   ShapeError, AttributeRefused, DTypeError.
        """
        if x.rank < 2 or num_groups < 1 or x.shape[1] % num_groups:
            raise AttributeRefused(
                f"group_norm of {show(x.shape)}",
                f"num_groups={num_groups}",
                "it is at least 1 and divides the channels",
            )
        each = prod(x.shape[1:]) // num_groups
        rows = self._reshaped(x, (x.shape[0], num_groups, each))
        made = self._reshaped(self.layer_norm(rows, eps=eps), x.shape)
        return self._scaled(made, weight, bias)

    def instance_norm(
        self,
        x: Tensor,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        """`group_norm` of each channel by itself."""
        return self.group_norm(x, max(1, *x.shape[1:2]), weight, bias, eps)

    def local_response_norm(
        self,
        x: Tensor,
        size: int,
        alpha: float = 1e-4,
        beta: float = 0.75,
        k: float = 1.0,
        before: int | None = None,
    ) -> Tensor:
        """The array / (k + alpha · mean of x² over `size` channels around each)^beta.

        before   channels of the window in front of its own; None: size // 2, as
                 PyTorch has it
        """
        front = size // 2 if before is None else before
        if size < 1 or not 0 <= front < size or x.rank < 3:
            raise AttributeRefused(
                f"local_response_norm of {show(x.shape)}",
                f"size={size}, before={front}",
                "size is at least 1, before smaller, and the array [N, C, …]",
            )
        n, c = x.shape[:2]
        wide = self._wide(x)
        square = self._reshaped(wide * wide, (n, 1, c, prod(x.shape[2:])))
        pads = (front, 0, size - 1 - front, 0)
        sums = self.apply("sum_pool", square, kernel=(size, 1), pads=pads)
        made = wide / self.apply(
            "pow",
            self._reshaped(sums, x.shape) * (alpha / size) + k,
            self.constant(beta, wide.dtype),
        )
        return self._narrow(made, x)

    def normalize(
        self, x: Tensor, p: float = 2.0, axis: int = 1, eps: float = 1e-12
    ) -> Tensor:
        """The array / max(p-norm, eps), lines along an axis.

        p   > 0; of infinity the norm is the largest |x|

        A line of zeros stays zeros, and its slope is 1 / eps, as in PyTorch.
        Errors   AttributeRefused, ShapeError, DTypeError.
        """
        if not p > 0:
            doing = f"normalize {show(x.shape)}"
            raise AttributeRefused(doing, f"p={p}", "p is > 0, or infinity")
        wide = self._wide(x)
        norm = self.norm(wide, p, axis, keep_dim=True)
        made = wide / self.apply("maximum", norm, self.constant(eps, wide.dtype))
        return self._narrow(made, x)
