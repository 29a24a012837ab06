"""Builder methods for convolutions and pools, under PyTorch's names and arguments.

Whoever needs other paddings at the two ends of an axis, ONNX's say, calls the op
itself: `apply("conv", x, weight, pads=(…))`. Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, ParamSpec

from rlxweb.errors import AttributeRefused, ShapeError
from rlxweb.ir.op_builder import OpBuilder
from rlxweb.ir.shape import many, short, show
from rlxweb.ir.tensor import Tensor

Sizes = int | Sequence[int]
P = ParamSpec("P")


def _numbered(how: Callable[P, Tensor], rank: int) -> Callable[P, Tensor]:
    """The method for one number of spatial axes, as PyTorch has one for each."""
    name = f"{how.__name__}{rank}d"

    def method(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        x = kwargs.get("x", args[1] if len(args) > 1 else None)
        if isinstance(x, Tensor) and x.rank != rank + 2:
            raise ShapeError(
                f"{name} of {show(x.shape)}",
                f"an array of rank {x.rank}",
                f"[N, C] and {rank} spatial axes",
                "reshape one image to [1, C, …]",
            )
        return how(*args, **kwargs)

    method.__name__, method.__qualname__ = name, f"Builder.{name}"
    method.__doc__ = how.__doc__
    method.__dict__["__signature__"] = signature(how)
    return method


class WindowBuilder(OpBuilder):
    """Convolutions and pools over `apply`; mixed into Graph."""

    def _with_bias(self, made: Tensor, bias: Tensor | None) -> Tensor:
        """A number for each channel added, if there are any."""
        if bias is None:
            return made
        if bias.shape != made.shape[1:2]:
            raise ShapeError(
                f"bias {show(bias.shape)} of {made.shape[1]} channels",
                "it does not fit",
                "one number for each channel of the result",
            )
        ones = (1,) * (made.rank - 2)
        return self.apply("add", made, self.reshape(bias, (*bias.shape, *ones)))

    def conv(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> Tensor:
        """Convolution of [N, C, …] by weights [M, C / groups, …]: [N, M, …].

        padding   zeros at both ends of each axis, one number for all or one each;
                  "same": as many results as elements, with stride 1; "valid": none
        Errors   ShapeError, AttributeRefused, DTypeError.
        """
        made = self.apply(
            "conv",
            x,
            weight,
            strides=stride,
            dilations=dilation,
            pads=_pads(x, weight, stride, padding, dilation),
            groups=groups,
        )
        return self._with_bias(made, bias)

    def conv_transpose(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
    ) -> Tensor:
        """Transposed convolution of [N, C, …] by weights [C, M / groups, …].

        padding          results left out at both ends of each axis
        output_padding   results more at the end of each axis
        Errors   ShapeError, AttributeRefused, DTypeError.
        """
        made = self.apply(
            "conv_transpose",
            x,
            weight,
            strides=stride,
            dilations=dilation,
            pads=padding,
            output_padding=output_padding,
            groups=groups,
        )
        return self._with_bias(made, bias)

    def max_pool(
        self,
        x: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> Tensor:
        """The largest element of each window; they lie a kernel apart unless told."""
        attrs = _windows(kernel_size, stride, padding, ceil_mode)
        return self.apply("max_pool", x, dilations=dilation, **attrs)

    def max_pool_indices(
        self,
        x: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> Tensor:
        """Where `max_pool` finds them: i32, flat over the spatial axes of an image."""
        attrs = _windows(kernel_size, stride, padding, ceil_mode)
        return self.apply("max_pool_indices", x, dilations=dilation, **attrs)

    def avg_pool(
        self,
        x: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Tensor:
        """The mean of each window of [N, C, …], its padding zeros that count or not."""
        attrs = _windows(kernel_size, stride, padding, ceil_mode)
        return self.apply("avg_pool", x, count_include_pad=count_include_pad, **attrs)

    def lp_pool(
        self,
        x: Tensor,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        """Return (sum of |x|ᵖ)^(1/p) of each window of [N, C, …]; p is `norm_type`.

        A window of zeros has slope 0, as in PyTorch.
        """
        attrs = _windows(kernel_size, stride, 0, ceil_mode)
        return self.apply("lp_pool", x, p=norm_type, **attrs)

    conv1d = _numbered(conv, 1)
    conv2d = _numbered(conv, 2)
    conv3d = _numbered(conv, 3)
    conv_transpose1d = _numbered(conv_transpose, 1)
    conv_transpose2d = _numbered(conv_transpose, 2)
    conv_transpose3d = _numbered(conv_transpose, 3)
    max_pool1d = _numbered(max_pool, 1)
    max_pool2d = _numbered(max_pool, 2)
    max_pool3d = _numbered(max_pool, 3)
    avg_pool1d = _numbered(avg_pool, 1)
    avg_pool2d = _numbered(avg_pool, 2)
    avg_pool3d = _numbered(avg_pool, 3)
    lp_pool1d = _numbered(lp_pool, 1)
    lp_pool2d = _numbered(lp_pool, 2)
    lp_pool3d = _numbered(lp_pool, 3)


def _windows(
    kernel: Sizes, stride: Sizes | None, padding: Sizes, ceil_mode: bool
) -> dict[str, Any]:
    steps = kernel if stride is None else stride
    return {"kernel": kernel, "strides": steps, "pads": padding, "ceil_mode": ceil_mode}


def _pads(
    x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes | str, dilation: Sizes
) -> Sizes:
    """What `padding` says in numbers; a word of PyTorch's too."""
    if not isinstance(padding, str):
        return padding
    if padding not in ("same", "valid"):
        raise AttributeRefused(
            f"conv with padding={short(padding)}",
            "it is no such word",
            "'same', 'valid', or a number for each axis",
        )
    if padding == "valid":
        return 0
    if any(step != 1 for step in many(stride) or ()):
        raise AttributeRefused(
            f"conv with padding='same' and stride={short(stride)}",
            "there would be fewer results than elements",
            "padding='same' goes with stride 1",
            "give the padding in numbers",
        )
    kernel = weight.shape[2:]
    apart = tuple(many(dilation) or ())
    apart = apart * len(kernel) if len(apart) == 1 else apart
    whole = [(k - 1) * d for k, d in zip(kernel, apart, strict=False)]
    fronts = [n // 2 for n in whole]
    return (*fronts, *(n - front for n, front in zip(whole, fronts, strict=True)))
