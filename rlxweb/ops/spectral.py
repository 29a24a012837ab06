"""Transforms of rows: fft, rfft, irfft, and powers, which are read off them.

Complex values are real tensors in block layout, the last axis holding N real and then N
imaginary parts. Norms mean what they mean in numpy.fft; "none" scales nothing. Shader
geometry lives in `rlxweb.recipes.fft_calls`; no device is known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rlxweb.ir.batching import alike, together
from rlxweb.ir.derivative import slopes
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Expr, Kernel, Recipe
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample, spelled
from rlxweb.ir.shape import bad_attribute, bad_dtype, bad_shape, numel, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops import fft_compose as compose
from rlxweb.ops.linalg import widened
from rlxweb.ops.spectral_back import fft_back, irfft_back, rfft_back
from rlxweb.recipes import fft_calls as calls
from rlxweb.recipes.fft_plan import bluestein_flops, is_smooth

NORM = Attr("norm", "str", "backward", ("backward", "ortho", "forward", "none"))
_SAYS = "`norm` has NumPy's names: `backward`, the default, divides the inverse by N"
COMPLEX = 5.0
"""Flops per N log2 N of a complex row, by custom; a real row counts half."""
TRANSFORM = Tolerance(rtol=0.0, atol=2e-6, relative_to_peak=True)


def numpy_norm(inverse: bool, norm: str) -> str:
    """NumPy's word for a norm; "none" is the one that scales the other direction."""
    unscaled = "forward" if inverse else "backward"
    return unscaled if norm == "none" else norm


def row_length(kind: TensorType, what: str = "the transform") -> int:
    """Length of the last axis, at least 1. Errors  ShapeError."""
    if kind.rank < 1 or kind.shape[-1] < 1:
        raise bad_shape(
            f"{what} needs a last axis of at least 1, got {show(kind.shape)}",
            hint="the rows to work on lie along the last axis",
        )
    return kind.shape[-1]


def block_length(kind: TensorType) -> int:
    """N of a block tensor [..., 2N]. Errors  ShapeError when the axis is odd."""
    width = row_length(kind, "a block tensor [re | im]")
    if width % 2:
        raise bad_shape(
            f"a block tensor has an even last axis, got {width}",
            "N real parts, then N imaginary parts",
            "concat the real and the imaginary part along the last axis",
        )
    return width // 2


def fft_flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    """The customary 5 N log2 N a complex row, half of it for a real one; where N has a
    large prime factor, those of the transforms of another length that are made of it.
    """
    n, factor = _length(inputs[0], out)
    inner = _inner(n, factor)
    rows = numel(out.shape[:-1])
    if not is_smooth(inner):
        return rows * bluestein_flops(inner)
    return factor * rows * n * math.log2(max(2, n))


def _length(block: TensorType, out: TensorType) -> tuple[int, float]:
    """Length of the transform and flops per n log2 n: a complex or a real one."""
    had, has = block.shape[-1], out.shape[-1]
    n = max(1, min(had, has) if had != has else has // 2)
    return n, COMPLEX if had == has else COMPLEX / 2


def _inner(n: int, factor: float) -> int:
    """Length of the complex rows that are transformed: an even real row is halved."""
    return n if factor == COMPLEX or n % 2 else n // 2


def fft_work(
    inputs: Types, out: TensorType, attrs: Attrs
) -> tuple[str, dict[str, int]]:
    """Rows of complex transforms; a real row is half of one."""
    n, factor = _length(inputs[0], out)
    inner = _inner(n, factor)
    rows = numel(out.shape[:-1])
    if not is_smooth(inner):
        return "bluestein", {"n": inner, "rows": rows}
    return "fft", {"n": n, "rows": rows if factor == COMPLEX else -(-rows // 2)}


def _infer_fft(types: Types, attrs: Attrs) -> TensorType:
    block_length(types[0])
    return types[0]


def complex_of(xp: Any, x: Any) -> Any:
    """Complex array of a block array, in the precision of its parts."""
    n, x = x.shape[-1] // 2, widened(xp, x)
    return x[..., :n] + 1j * x[..., n:]


def block_of(xp: Any, z: Any, dtype: Any) -> Any:
    """Block array of a complex array."""
    return xp.asarray(xp.concat([z.real, z.imag], axis=-1), dtype=dtype)


def _fft(xp: Any, attrs: Attrs, x: Any) -> Any:
    inverse = attrs["inverse"]
    change = xp.fft.ifft if inverse else xp.fft.fft
    z = change(complex_of(xp, x), axis=-1, norm=numpy_norm(inverse, attrs["norm"]))
    return block_of(xp, z, x.dtype)


def _infer_rfft(types: Types, attrs: Attrs) -> TensorType:
    n = row_length(types[0])
    return TensorType((*types[0].shape[:-1], 2 * (n // 2 + 1)), types[0].dtype)


def _rfft(xp: Any, attrs: Attrs, x: Any) -> Any:
    z = xp.fft.rfft(widened(xp, x), axis=-1, norm=numpy_norm(False, attrs["norm"]))
    return block_of(xp, z, x.dtype)


def _infer_irfft(types: Types, attrs: Attrs) -> TensorType:
    bins, n = block_length(types[0]), attrs["n"]
    if n < 1:
        raise bad_attribute(f"n = {n}", "a row has at least 1 value")
    if bins != n // 2 + 1:
        raise bad_shape(
            f"{bins} bins do not make rows of {n}",
            f"n = {n} needs n // 2 + 1 = {n // 2 + 1} bins",
            f"{bins} bins make rows of {2 * bins - 2} or {2 * bins - 1}",
        )
    return TensorType((*types[0].shape[:-1], n), types[0].dtype)


def _irfft(xp: Any, attrs: Attrs, x: Any) -> Any:
    if xp is not np:
        x = _without_imaginary_ends(xp, x, attrs["n"])
    norm = numpy_norm(True, attrs["norm"])
    z = xp.fft.irfft(complex_of(xp, x), n=attrs["n"], axis=-1, norm=norm)
    return xp.asarray(z, dtype=x.dtype)


def _without_imaginary_ends(xp: Any, x: Any, n: int) -> Any:
    """Set to 0 what a real row's spectrum cannot have, which cuFFT would not ignore.

    Seen with CuPy 14.2 on an H200: rows of 8192 were off by 1.5e-4.
    """
    bins = x.shape[-1] // 2
    at = xp.arange(2 * bins)
    ends = at == bins
    if n % 2 == 0:
        ends = ends | (at == 2 * bins - 1)
    return xp.where(ends, xp.zeros_like(x), x)


def _kernel(op: str, build: Callable[..., Tensor]) -> Kernel:
    def recipe(types: Types, out: TensorType, attrs: Attrs) -> Recipe:
        return calls.recipe_of(op, types[0].shape, attrs)

    return Kernel(recipe, Compose(build))


def _infer_psd(types: Types, attrs: Attrs) -> TensorType:
    re, im = types
    if re.shape != im.shape:
        raise bad_shape(
            f"the parts differ: {show(re.shape)} and {show(im.shape)}",
            "real and imaginary part have one shape",
        )
    if re.dtype is not im.dtype:
        raise bad_dtype(
            f"the parts differ: {re.dtype} and {im.dtype}", hint="cast one of them"
        )
    row_length(re, "psd")
    return re


def _psd_text(types: Types, out: TensorType, attrs: Attrs) -> str:
    return f"(x * x + y * y) * F({1.0 / out.shape[-1]!r})"


def _infer_psd_real(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    if x.dtype not in (DType.F32, DType.F64):
        raise bad_dtype(f"operand is {x.dtype}", "f32 or f64", "cast it, or use psd")
    bins = row_length(x, "psd_real") // 2 + 1
    return TensorType((*x.shape[:-1], bins), x.dtype)


def _psd_real(xp: Any, attrs: Attrs, x: Any) -> Any:
    spectrum = xp.fft.rfft(x, axis=-1)
    re, im = spectrum.real, spectrum.imag
    return xp.asarray((re * re + im * im) / re.shape[-1], dtype=x.dtype)


def _build_psd_real(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    return g.psd(*g.rfft(x))


def _psd_work(
    inputs: Types, out: TensorType, attrs: Attrs
) -> tuple[str, dict[str, int]]:
    n, rows = inputs[0].shape[-1], numel(inputs[0].shape[:-1])
    return "welch", {"n": n, "segments": 1, "rows": rows, "k": 0, "samples": n}


def cases(
    shapes: tuple[tuple[int, ...], ...], attrs: tuple[dict[str, Any], ...]
) -> tuple[Sample, ...]:
    """One sample of one float input for every shape and every set of attributes."""
    return tuple(Sample((Drawn(shape),), a) for shape in shapes for a in attrs)


_NORMS = tuple({"norm": norm} for norm in ("ortho", "forward", "none"))
_LENGTHS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 30, 61, 64, 67, 97, 100, 127, 210, 256, 509)
_FFT_SAMPLES = (
    *cases(tuple((3, 2 * n) for n in _LENGTHS), ({},)),
    *cases(((2, 24), (134,)), tuple({"inverse": True, **a} for a in ({}, *_NORMS))),
    *cases(((2, 24), (2, 134)), _NORMS),
    *cases(((65_537, 2), (0, 8), (2, 0, 6), (2, 3, 2, 10), (1, 8192)), ({},)),
    *cases(((2,),), ({}, {"inverse": True})),
    Sample((Drawn((2, 16), DType.F16),)),
    Sample((Drawn((2, 60), DType.F64),), {"inverse": True}),
)
_RFFT_SAMPLES = (
    *cases(tuple((3, n) for n in _LENGTHS), ({},)),
    *cases(((2, 24), (67,), (2, 134), (2, 15)), _NORMS),
    *cases(((65_537, 2), (65_537, 1), (0, 8), (2, 0, 5), (2, 3, 10)), ({},)),
    *cases(((2, 4099), (1, 8192), (1,)), ({},)),
    Sample((Drawn((2, 16), DType.F16),)),
    Sample((Drawn((2, 63), DType.F64),)),
)
_IRFFT_SAMPLES = (
    *(Sample((Drawn((3, 2 * (n // 2 + 1))),), {"n": n}) for n in _LENGTHS),
    *(
        Sample((Drawn((2, 2 * (n // 2 + 1))),), {"n": n, **norm})
        for n in (24, 67, 134, 15)
        for norm in _NORMS
    ),
    *(
        Sample((Drawn(shape),), {"n": n})
        for shape, (n,) in spelled("65537x4@3 65537x4@2 0x10@8 1x8194@8192 2@1")
    ),
    Sample((Drawn((2, 18), DType.F16),), {"n": 16}),
    Sample((Drawn((2, 64), DType.F64),), {"n": 63}),
)
_PSD_REAL_SAMPLES = (
    *cases(tuple((9, n) for n in _LENGTHS), ({},)),
    *cases(((65_537, 2), (0, 8), (2, 0, 5), (2, 3, 10), (1, 8192), (1,)), ({},)),
    Sample((Drawn((2, 63), DType.F64),)),
)
_PSD_SAMPLES = (
    *(Sample((Drawn(s), Drawn(s))) for s in ((1,), (5, 129), (65_537, 2), (0, 3))),
    *(Sample((Drawn((3, 4), d), Drawn((3, 4), d))) for d in (DType.F16, DType.F64)),
)


_transform = partial(
    Op,
    traits=frozenset({"spectral", "floats_only"}),
    flops=fft_flops,
    work=fft_work,
    tolerance=TRANSFORM,
)

registry.register_all(
    _transform(
        name="fft",
        infer=_infer_fft,
        reference=_fft,
        lower=_kernel("fft", compose.build_fft),
        attrs=(Attr("inverse", "bool", False), NORM),
        samples=_FFT_SAMPLES,
        vjp=fft_back,
        batch=together,
        doc="Complex FFT of the last axis, block layout [..., 2N], any N. "
        f"{_SAYS}, so that g.fft(g.fft(x), inverse=True) is x. RLX's `fft` divides "
        "nowhere and gives N · x: that is norm='none'; RLX's norm names are for "
        "`fft_norm` of a `rlxweb.rlx.Graph`.",
    ),
    _transform(
        name="rfft",
        infer=_infer_rfft,
        reference=_rfft,
        lower=_kernel("rfft", compose.build_rfft),
        attrs=(NORM,),
        samples=_RFFT_SAMPLES,
        vjp=rfft_back,
        batch=together,
        doc="Half spectrum of real rows: [..., n] to block [..., 2 (n // 2 + 1)]. "
        f"{_SAYS} and this by nothing, as RLX's; `forward` divides this by n.",
    ),
    _transform(
        name="irfft",
        infer=_infer_irfft,
        reference=_irfft,
        lower=_kernel("irfft", compose.build_irfft),
        attrs=(Attr("n", "int"), NORM),
        samples=_IRFFT_SAMPLES,
        vjp=irfft_back,
        batch=together,
        doc="Real rows [..., n] of a half spectrum; imaginary ends are ignored. "
        f"{_SAYS}, which here is n; RLX's divides by nothing (norm='none').",
    ),
    Op(
        name="psd",
        arity=2,
        infer=_infer_psd,
        reference=lambda xp, attrs, re, im: (re * re + im * im) / re.shape[-1],
        lower=Expr(_psd_text),
        traits=frozenset({"elementwise", "floats_only"}),
        flops=lambda inputs, out, attrs: 4.0 * out.numel,
        tolerance=Tolerance(rtol=1e-6),
        samples=_PSD_SAMPLES,
        vjp=slopes(
            lambda g, re, im, out: re * (2.0 / re.shape[-1]),
            lambda g, re, im, out: im * (2.0 / re.shape[-1]),
        ),
        batch=alike,
        doc="(re² + im²) / F, F the length of the last axis.",
    ),
    Op(
        name="psd_real",
        infer=_infer_psd_real,
        reference=_psd_real,
        lower=Compose(_build_psd_real),
        traits=frozenset({"spectral", "floats_only"}),
        flops=fft_flops,
        work=_psd_work,
        tolerance=TRANSFORM,
        samples=_PSD_REAL_SAMPLES,
        doc="psd of rfft, of real rows [..., n]: [..., F], F = n // 2 + 1, each bin "
        "|X|² / F, none of them doubled.",
    ),
)
