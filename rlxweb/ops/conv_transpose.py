"""Transposed convolution, as a convolution that makes every phase of the result.

Results `strides` apart are sums over the same taps of the kernel. So each such phase
becomes channels of its own of one convolution with stride 1 and a kernel that much
shorter, and the phases are laid between each other: nothing is multiplied by zeros but
at the ends of the kernel, where what is no number reaches up to a stride further. Owns
no shader.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from rlxweb.ir.batching import folded
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_attribute, bad_shape, numel, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.conv import GROUPS, by_groups, products
from rlxweb.ops.elementwise import NUMBERS, need, same_dtype
from rlxweb.ops.linalg import SUMMED, widened
from rlxweb.recipes.windows import (
    DILATIONS,
    PADS,
    STRIDES,
    Windows,
    of_each,
    pads_of,
)


class Spread(NamedTuple):
    """One spatial axis: how its elements are spread over the result.

    size, kernel, stride, dilation   of the array, the weights and their steps
    before, out                      results left out in front, and how many are kept
    """

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    out: int

    @property
    def extent(self) -> int:
        """Results that one element adds to, those between them included."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def taps(self) -> int:
        """Of the kernel of a phase."""
        return -(-self.extent // self.stride)

    @property
    def first(self) -> int:
        """The first result of a phase that is kept."""
        return self.before // self.stride

    @property
    def pads(self) -> tuple[int, int]:
        """Around the array, so that a phase has at least what is kept of it."""
        front = max(0, self.taps - 1 - self.first)
        return front, max(0, self.first + self.kept - self.size)

    @property
    def start(self) -> int:
        """The first kept one among the results of that convolution."""
        return max(0, self.first - self.taps + 1)

    @property
    def begin(self) -> int:
        """The first result among those of the phases that are kept."""
        return self.before - self.first * self.stride

    @property
    def kept(self) -> int:
        """How many results of a phase are kept."""
        return -(-(self.before + self.out) // self.stride) - self.first

    def table(self) -> list[int]:
        """Which element of the kernel each tap of each phase is, last tap first;
        `kernel`: none, a zero.
        """
        made = []
        for phase in range(self.stride):
            for tap in reversed(range(self.taps)):
                at, rest = divmod(phase + self.stride * tap, self.dilation)
                made.append(self.kernel if rest or at >= self.kernel else at)
        return made


def spreads(x: Shape, w: Shape, attrs: Attrs) -> list[Spread]:
    """The spatial axes of a transposed convolution. Errors  AttributeRefused,
    ShapeError.
    """
    rank = len(x) - 2
    if not 1 <= rank <= 3 or len(w) != len(x):
        raise bad_shape(
            f"an array of rank {len(x)} beside weights of rank {len(w)}",
            "[N, C, 1 to 3 spatial axes] and [C, M / groups, kernel…]",
            "reshape one image to [1, C, …]",
        )
    if any(n < 1 for n in (*x[2:], *w[2:])):
        raise bad_shape(
            f"spatial axes of {show(x[2:])} and a kernel of {show(w[2:])}",
            "each is at least 1",
        )
    strides = of_each("strides", attrs["strides"], rank, 1)
    dilations = of_each("dilations", attrs["dilations"], rank, 1)
    more = of_each("output_padding", attrs["output_padding"], rank, 0)
    before, after = pads_of(attrs["pads"], rank)
    made = []
    for at in range(rank):
        size, kernel, step = x[2 + at], w[2 + at], strides[at]
        whole = (size - 1) * step + (kernel - 1) * dilations[at] + 1
        out = whole + more[at] - before[at] - after[at]
        if out < 1:
            raise bad_attribute(
                f"pads={attrs['pads']} leave {out} results on spatial axis {at}",
                f"without them there are {whole + more[at]}",
            )
        made.append(Spread(size, kernel, step, dilations[at], before[at], out))
    return made


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, w = types
    dtype = same_dtype(types)
    need(types, NUMBERS)
    out = tuple(one.out for one in spreads(x.shape, w.shape, attrs))
    groups = attrs["groups"]
    if w.shape[0] != x.shape[1]:
        raise bad_shape(
            f"the array has {x.shape[1]} channels",
            f"weights {show(w.shape)} want {w.shape[0]}",
            "the first dimension of the weights is the channels",
        )
    if groups < 1 or x.shape[1] % groups:
        raise bad_attribute(
            f"groups={groups} of {x.shape[1]} channels",
            "groups is at least 1 and divides the channels",
        )
    return TensorType((x.shape[0], w.shape[1] * groups, *out), dtype)


def _reference(xp: Any, attrs: Attrs, x: Any, w: Any) -> Any:
    axes = spreads(tuple(x.shape), tuple(w.shape), attrs)
    groups, kind, rank = attrs["groups"], x.dtype, len(axes)
    x, w = widened(xp, x), widened(xp, w)
    n, c, m = x.shape[0], w.shape[0], w.shape[1] * groups
    for at, one in enumerate(axes):
        w = _phased(xp, w, 2 + 2 * at, one)
    w = xp.reshape(w, (groups, c // groups, *w.shape[1:]))
    phases, taps = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    w = xp.permute_dims(w, (0, 2, *phases, 1, *taps))
    rows = m * math.prod(one.stride for one in axes)
    w = xp.reshape(w, (rows, c // groups, *(one.taps for one in axes)))
    windows = Windows(
        size=tuple(x.shape[2:]),
        kernel=tuple(one.taps for one in axes),
        strides=(1,) * rank,
        dilations=(1,) * rank,
        before=tuple(one.pads[0] for one in axes),
        out=tuple(one.start + one.kept for one in axes),
    )
    made = products(xp, groups, windows, x, w)
    kept = (slice(one.start, one.start + one.kept) for one in axes)
    made = made[(slice(None), slice(None), *kept)]
    strides = tuple(one.stride for one in axes)
    made = xp.reshape(made, (n, m, *strides, *(one.kept for one in axes)))
    pairs = (at for i in range(rank) for at in (2 + rank + i, 2 + i))
    made = xp.permute_dims(made, (0, 1, *pairs))
    made = xp.reshape(made, (n, m, *(one.kept * one.stride for one in axes)))
    asked = (slice(one.begin, one.begin + one.out) for one in axes)
    return xp.asarray(made[(slice(None), slice(None), *asked)], dtype=kind)


def _phased(xp: Any, w: Any, axis: int, one: Spread) -> Any:
    """An axis of the kernel as two: phases, and the taps of each, last tap first."""
    shape = (*w.shape[:axis], 1, *w.shape[axis + 1 :])
    w = xp.concat([w, xp.zeros(shape, dtype=w.dtype)], axis=axis)
    table = xp.asarray(np.array(one.table(), np.int32))
    made = (*w.shape[:axis], one.stride, one.taps, *w.shape[axis + 1 :])
    return xp.reshape(xp.take(w, table, axis=axis), made)


def _build(g: Graph, attrs: Attrs, x: Tensor, w: Tensor) -> Tensor:
    axes = spreads(x.shape, w.shape, attrs)
    groups = attrs["groups"]
    phased = _phases(g, w, axes, groups)
    before, after = zip(*(one.pads for one in axes), strict=True)
    made = g.apply("conv", x, phased, pads=(*before, *after), groups=groups)
    for at, one in enumerate(axes, 2):
        made = _kept(g, made, at, one.start, one.kept)
    return _interleaved(g, made, axes, w.shape[1] * groups)


def _phases(g: Graph, w: Tensor, axes: list[Spread], groups: int) -> Tensor:
    """[C, M / g, kernel…] as the weights [g · M / g · phases, C / g, taps…]."""
    channels = w.shape[0]
    for one in axes:
        # The axis in hand is always the third: those that are done stand last.
        table = one.table()
        if one.kernel in table:
            shape = (*w.shape[:2], 1, *w.shape[3:])
            nothing = g.expand(g.constant(np.zeros((), w.dtype.numpy)), shape)
            w = g.concat([w, nothing], axis=2)
        if table != list(range(one.kernel)):
            w = g.gather(w, g.constant(np.array(table, np.int32)), axis=2)
        rest = w.shape[3:]
        w = g.reshape(w, (*w.shape[:2], one.stride, one.taps, *rest))
        behind = range(4, 4 + len(rest))
        w = g.transpose(w, (0, 1, 2, *behind, 3))
        w = g.reshape(w, (channels, w.shape[1] * one.stride, *rest, one.taps))
    m, taps = w.shape[1], w.shape[2:]
    w = g.reshape(w, (groups, channels // groups, m, *taps))
    w = g.transpose(w, (0, 2, 1, *range(3, w.rank)))
    return g.reshape(w, (groups * m, channels // groups, *taps))


def _kept(g: Graph, x: Tensor, axis: int, start: int, length: int) -> Tensor:
    if start == 0 and length == x.shape[axis]:
        return x
    return g.narrow(x, axis, start, length)


def _interleaved(g: Graph, x: Tensor, axes: list[Spread], m: int) -> Tensor:
    """[N, M · phases, places…] as [N, M, results…]."""
    strides = [one.stride for one in axes]
    if math.prod(strides) > 1:
        n, rank = x.shape[0], len(axes)
        x = g.reshape(x, (n, m, *strides, *x.shape[2:]))
        pairs = (at for i in range(rank) for at in (2 + rank + i, 2 + i))
        x = g.transpose(x, (0, 1, *pairs))
        x = g.reshape(x, (n, m, *(one.kept * one.stride for one in axes)))
    for at, one in enumerate(axes, 2):
        x = _kept(g, x, at, one.begin, one.out)
    return x


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 2.0 * inputs[0].numel * numel(inputs[1].shape[1:])


def _case(x: Shape, w: Shape, dtype: DType = DType.F32, **attrs: Any) -> Sample:
    whole = dtype in (DType.F16, DType.I32)
    return Sample(tuple(Drawn(s, dtype, -2, 2, whole=whole) for s in (x, w)), attrs)


_SAMPLES = (
    _case((2, 3, 7), (3, 2, 4), strides=3, pads=1),
    _case((1, 4, 5, 6), (4, 2, 3, 2), strides=(2, 1), groups=2, output_padding=(1, 0)),
    _case((1, 2, 4, 5), (2, 3, 3, 3), dilations=2, strides=(3, 2), pads=(2, 0, 1, 3)),
    _case((1, 4, 3, 2, 4), (4, 2, 2, 3, 2), strides=2, pads=1, groups=2),
    _case((1, 2, 6), (2, 3, 2), strides=4, output_padding=3),
    _case((0, 2, 6), (2, 3, 2), strides=2),
    _case((2, 0, 3), (0, 3, 2), strides=2),
    _case((1, 1, 1), (1, 1, 1)),
    _case((32_769, 1, 1), (1, 1, 2), strides=2),
    _case((1, 2, 5), (2, 3, 3), DType.F16, strides=2),
    _case((1, 2, 5), (2, 3, 3), DType.I32, strides=2),
    _case((1, 2, 5), (2, 3, 3), DType.F64, pads=1),
)

registry.register_all(
    Op(
        name="conv_transpose",
        batch=lambda at: by_groups(at) if at.varies[1] else folded(at),
        arity=2,
        infer=_infer,
        reference=_reference,
        lower=Compose(_build),
        attrs=(
            STRIDES,
            DILATIONS,
            PADS,
            Attr("output_padding", "ints", ()),
            GROUPS,
        ),
        traits=frozenset({"blas"}),
        flops=_flops,
        tolerance=SUMMED,
        samples=_SAMPLES,
        doc="Transposed convolution of [N, C, …] by weights [C, M / groups, …]: "
        "(size - 1) · stride + dilation · (kernel - 1) + 1 + output_padding results "
        "along an axis, without `pads` at its ends.",
    )
)
