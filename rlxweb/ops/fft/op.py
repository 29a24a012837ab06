"""Fourier transforms of rows (fft, rfft, irfft), and the power spectra computed from
them.

Complex values are real tensors in block layout, the last axis holding N real and then N
imaginary parts. Norms mean what they mean in numpy.fft; "none" scales nothing. Shader
geometry lives in `rlxweb.ops.fft.wgsl.plan`; no device is known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rlxweb.codegen.fft_arithmetic import bluestein_flops, is_smooth
from rlxweb.ir.derivative import slopes
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Expr, Kernel, KernelPlan
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample, parse_shape_table
from rlxweb.ir.shape_arithmetic import (
    bad_dtype,
    bad_shape,
    format_shape,
    numel,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import batch_all_operands, batch_broadcast
from rlxweb.ops.fft import by_matmul
from rlxweb.ops.fft.vjp import fft_vjp, irfft_vjp, rfft_vjp
from rlxweb.ops.fft.wgsl.plan import plan_fft
from rlxweb.ops.matmul.op import widen_float16

NORM_ATTR = Attr("norm", "str", "backward", ("backward", "ortho", "forward", "none"))
_NORM_DOC = (
    "The attribute `norm` is 'backward', 'ortho' or 'forward' as in NumPy, or "
    "'none'; the default, 'backward', divides only the inverse by N"
)
COMPLEX_FLOPS = 5.0
"""Conventional flops per N log2 N of a complex row; a real row counts half."""
FFT_TOLERANCE = Tolerance(rtol=0.0, atol=2e-6, relative_to_peak=True)


def numpy_norm(inverse: bool, norm: str) -> str:
    """Return NumPy's name of a norm; "none" is the norm that scales the other
    direction.
    """
    unscaled = "forward" if inverse else "backward"
    return unscaled if norm == "none" else norm


def row_length(operand: TensorType, label: str = "the transform") -> int:
    """Return the length of the last axis, at least 1. Errors  ShapeError."""
    if operand.rank < 1 or operand.shape[-1] < 1:
        raise bad_shape(
            f"{label} requires a last axis of at least 1 element, got "
            f"{format_shape(operand.shape)}",
            hint="pass rows along the last axis",
        )
    return operand.shape[-1]


def block_length(operand: TensorType) -> int:
    """Return N of a block tensor [..., 2N]. Errors  ShapeError when the axis is odd."""
    width = row_length(operand, "a block tensor [re | im]")
    if width % 2:
        raise bad_shape(
            f"a block tensor requires a last axis of even length, got {width} elements",
            "expected N real parts, followed by N imaginary parts",
            "concatenate the real and the imaginary part along the last axis",
        )
    return width // 2


def fft_flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    """Return the conventional 5 N log2 N flops per complex row, half of it for a real
    one. Where N has a large prime factor, it is the flops of Bluestein's algorithm.
    """
    n, factor = _length_and_flops(inputs[0], out)
    inner = _complex_length(n, factor)
    rows = numel(out.shape[:-1])
    if not is_smooth(inner):
        return rows * bluestein_flops(inner)
    return factor * rows * n * math.log2(max(2, n))


def _length_and_flops(block: TensorType, out: TensorType) -> tuple[int, float]:
    """Return the length of the transform and its flops per n log2 n, complex or
    real.
    """
    in_length, out_length = block.shape[-1], out.shape[-1]
    n = max(
        1, min(in_length, out_length) if in_length != out_length else out_length // 2
    )
    return n, COMPLEX_FLOPS if in_length == out_length else COMPLEX_FLOPS / 2


def _complex_length(n: int, factor: float) -> int:
    """Return the length of the complex rows that are transformed; an even real row is
    halved.
    """
    return n if factor == COMPLEX_FLOPS or n % 2 else n // 2


def fft_work_item(
    inputs: Types, out: TensorType, attrs: Attrs
) -> tuple[str, dict[str, int]]:
    """Return the work of the transform as complex rows; a real row counts half."""
    n, factor = _length_and_flops(inputs[0], out)
    inner = _complex_length(n, factor)
    rows = numel(out.shape[:-1])
    if not is_smooth(inner):
        return "bluestein", {"n": inner, "rows": rows}
    return "fft", {"n": n, "rows": rows if factor == COMPLEX_FLOPS else -(-rows // 2)}


def _infer_fft(types: Types, attrs: Attrs) -> TensorType:
    block_length(types[0])
    return types[0]


def block_to_complex(xp: Any, x: Any) -> Any:
    """Return the complex array of a block array, in the precision of its parts."""
    n, x = x.shape[-1] // 2, widen_float16(xp, x)
    return x[..., :n] + 1j * x[..., n:]


def complex_to_block(xp: Any, z: Any, dtype: Any) -> Any:
    """Return the block array of a complex array."""
    return xp.asarray(xp.concat([z.real, z.imag], axis=-1), dtype=dtype)


def _fft_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    inverse = attrs["inverse"]
    transform = xp.fft.ifft if inverse else xp.fft.fft
    z = transform(
        block_to_complex(xp, x), axis=-1, norm=numpy_norm(inverse, attrs["norm"])
    )
    return complex_to_block(xp, z, x.dtype)


def _infer_rfft(types: Types, attrs: Attrs) -> TensorType:
    n = row_length(types[0])
    return TensorType((*types[0].shape[:-1], 2 * (n // 2 + 1)), types[0].dtype)


def _rfft_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    z = xp.fft.rfft(
        widen_float16(xp, x), axis=-1, norm=numpy_norm(False, attrs["norm"])
    )
    return complex_to_block(xp, z, x.dtype)


def _infer_irfft(types: Types, attrs: Attrs) -> TensorType:
    bins, n = block_length(types[0]), attrs["n"]
    if bins != n // 2 + 1:
        raise bad_shape(
            f"{bins} bins do not give rows of {n} values",
            f"n = {n} requires n // 2 + 1 = {n // 2 + 1} bins",
            f"{bins} bins give rows of {2 * bins - 2} or {2 * bins - 1} values",
        )
    return TensorType((*types[0].shape[:-1], n), types[0].dtype)


def _irfft_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    if xp is not np:
        x = _zero_imaginary_ends(xp, x, attrs["n"])
    norm = numpy_norm(True, attrs["norm"])
    z = xp.fft.irfft(block_to_complex(xp, x), n=attrs["n"], axis=-1, norm=norm)
    return xp.asarray(z, dtype=x.dtype)


def _zero_imaginary_ends(xp: Any, x: Any, n: int) -> Any:
    """Zero the imaginary parts that a real row's spectrum cannot have; cuFFT would not
    ignore them.

    Seen with CuPy 14.2 on an H200: rows of 8192 were off by 1.5e-4.
    """
    bins = x.shape[-1] // 2
    positions = xp.arange(2 * bins)
    is_end = positions == bins
    if n % 2 == 0:
        is_end = is_end | (positions == 2 * bins - 1)
    return xp.where(is_end, xp.zeros_like(x), x)


def _fft_kernel(op: str, build: Callable[..., Tensor]) -> Kernel:
    """Return the kernel of a transform, with a decomposition as fallback."""

    def plan(types: Types, out: TensorType, attrs: Attrs) -> KernelPlan:
        return plan_fft(op, types[0].shape, attrs)

    return Kernel(plan, Compose(build))


def _infer_psd(types: Types, attrs: Attrs) -> TensorType:
    re, im = types
    if re.shape != im.shape:
        raise bad_shape(
            f"the real part is {format_shape(re.shape)}, the imaginary part "
            f"{format_shape(im.shape)}",
            "both parts must have the same shape",
        )
    if re.dtype is not im.dtype:
        raise bad_dtype(
            f"the real part is {re.dtype}, the imaginary part {im.dtype}",
            hint="cast one part to the dtype of the other",
        )
    row_length(re, "psd")
    return re


def _psd_wgsl(types: Types, out: TensorType, attrs: Attrs) -> str:
    return f"(x * x + y * y) * F({1.0 / out.shape[-1]!r})"


def _infer_psd_real(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    if x.dtype not in (DType.F32, DType.F64):
        raise bad_dtype(
            f"the operand is {x.dtype}",
            "expected f32 or f64",
            "cast the operand, or pass the real and imaginary parts of its spectrum "
            "to psd",
        )
    bins = row_length(x, "psd_real") // 2 + 1
    return TensorType((*x.shape[:-1], bins), x.dtype)


def _psd_real_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    spectrum = xp.fft.rfft(x, axis=-1)
    re, im = spectrum.real, spectrum.imag
    return xp.asarray((re * re + im * im) / re.shape[-1], dtype=x.dtype)


def _build_psd_real(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    return g.psd(*g.rfft(x))


def _psd_work_item(
    inputs: Types, out: TensorType, attrs: Attrs
) -> tuple[str, dict[str, int]]:
    n, rows = inputs[0].shape[-1], numel(inputs[0].shape[:-1])
    return "welch", {"n": n, "segments": 1, "rows": rows, "k": 0, "samples": n}


def float_cases(
    shapes: tuple[tuple[int, ...], ...], attrs: tuple[dict[str, Any], ...]
) -> tuple[Sample, ...]:
    """Return one sample with one float input for every shape and every set of
    attributes.
    """
    return tuple(Sample((Drawn(shape),), a) for shape in shapes for a in attrs)


_NORM_ATTRS = tuple({"norm": norm} for norm in ("ortho", "forward", "none"))
_TEST_LENGTHS = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    12,
    16,
    30,
    61,
    64,
    67,
    97,
    100,
    127,
    210,
    256,
    509,
)
_FFT_SAMPLES = (
    *float_cases(tuple((3, 2 * n) for n in _TEST_LENGTHS), ({},)),
    *float_cases(
        ((2, 24), (134,)), tuple({"inverse": True, **a} for a in ({}, *_NORM_ATTRS))
    ),
    *float_cases(((2, 24), (2, 134)), _NORM_ATTRS),
    *float_cases(((65_537, 2), (0, 8), (2, 0, 6), (2, 3, 2, 10), (1, 8192)), ({},)),
    *float_cases(((2,),), ({}, {"inverse": True})),
    Sample((Drawn((2, 16), DType.F16),)),
    Sample((Drawn((2, 60), DType.F64),), {"inverse": True}),
)
_RFFT_SAMPLES = (
    *float_cases(tuple((3, n) for n in _TEST_LENGTHS), ({},)),
    *float_cases(((2, 24), (67,), (2, 134), (2, 15)), _NORM_ATTRS),
    *float_cases(((65_537, 2), (65_537, 1), (0, 8), (2, 0, 5), (2, 3, 10)), ({},)),
    *float_cases(((2, 4099), (1, 8192), (1,)), ({},)),
    Sample((Drawn((2, 16), DType.F16),)),
    Sample((Drawn((2, 63), DType.F64),)),
)
_IRFFT_SAMPLES = (
    *(Sample((Drawn((3, 2 * (n // 2 + 1))),), {"n": n}) for n in _TEST_LENGTHS),
    *(
        Sample((Drawn((2, 2 * (n // 2 + 1))),), {"n": n, **norm})
        for n in (24, 67, 134, 15)
        for norm in _NORM_ATTRS
    ),
    *(
        Sample((Drawn(shape),), {"n": n})
        for shape, (n,) in parse_shape_table(
            "65537x4@3 65537x4@2 0x10@8 1x8194@8192 2@1"
        )
    ),
    Sample((Drawn((2, 18), DType.F16),), {"n": 16}),
    Sample((Drawn((2, 64), DType.F64),), {"n": 63}),
)
_PSD_REAL_SAMPLES = (
    *float_cases(tuple((9, n) for n in _TEST_LENGTHS), ({},)),
    *float_cases(((65_537, 2), (0, 8), (2, 0, 5), (2, 3, 10), (1, 8192), (1,)), ({},)),
    Sample((Drawn((2, 63), DType.F64),)),
)
_PSD_SAMPLES = (
    *(Sample((Drawn(s), Drawn(s))) for s in ((1,), (5, 129), (65_537, 2), (0, 3))),
    *(Sample((Drawn((3, 4), d), Drawn((3, 4), d))) for d in (DType.F16, DType.F64)),
)


_transform_op = partial(
    Op,
    traits=frozenset({"spectral", "floats_only"}),
    flops=fft_flops,
    work=fft_work_item,
    tolerance=FFT_TOLERANCE,
)

registry.register_all(
    _transform_op(
        name="fft",
        infer=_infer_fft,
        reference=_fft_reference,
        lower=_fft_kernel("fft", by_matmul.build_fft),
        attrs=(Attr("inverse", "bool", False), NORM_ATTR),
        samples=_FFT_SAMPLES,
        vjp=fft_vjp,
        batch=batch_broadcast,
        doc="Complex FFT of the last axis in block layout [..., 2N], any N. "
        f"{_NORM_DOC}, so g.fft(g.fft(x), inverse=True) is x. RLX's `fft` never "
        "divides, like norm='none', so in RLX the same expression gives N · x; the "
        "method `fft_norm` of a `rlxweb.rlx.Graph` accepts RLX's own norm names.",
    ),
    _transform_op(
        name="rfft",
        infer=_infer_rfft,
        reference=_rfft_reference,
        lower=_fft_kernel("rfft", by_matmul.build_rfft),
        attrs=(NORM_ATTR,),
        samples=_RFFT_SAMPLES,
        vjp=rfft_vjp,
        batch=batch_broadcast,
        doc="Half spectrum of real rows: [..., n] to block [..., 2 (n // 2 + 1)]. "
        f"{_NORM_DOC}, so this op does not divide by default, like RLX's `rfft`; "
        "'forward' divides by n.",
    ),
    _transform_op(
        name="irfft",
        infer=_infer_irfft,
        reference=_irfft_reference,
        lower=_fft_kernel("irfft", by_matmul.build_irfft),
        attrs=(Attr("n", "int", at_least=1), NORM_ATTR),
        samples=_IRFFT_SAMPLES,
        vjp=irfft_vjp,
        batch=batch_broadcast,
        doc="Real rows [..., n] from half spectra in block layout [..., 2 (n // 2 + "
        "1)]; the imaginary parts of bin 0 and, for an even n, of bin n / 2 are "
        f"ignored. {_NORM_DOC} (N is n here). RLX's `irfft` never divides "
        "(norm='none').",
    ),
    Op(
        name="psd",
        arity=2,
        infer=_infer_psd,
        reference=lambda xp, attrs, re, im: (re * re + im * im) / re.shape[-1],
        lower=Expr(_psd_wgsl),
        traits=frozenset({"elementwise", "floats_only"}),
        flops=lambda inputs, out, attrs: 4.0 * out.numel,
        tolerance=Tolerance(rtol=1e-6),
        samples=_PSD_SAMPLES,
        vjp=slopes(
            lambda g, re, im, out: re * (2.0 / re.shape[-1]),
            lambda g, re, im, out: im * (2.0 / re.shape[-1]),
        ),
        batch=batch_all_operands,
        doc="(re² + im²) / F, where F is the length of the last axis.",
    ),
    Op(
        name="psd_real",
        infer=_infer_psd_real,
        reference=_psd_real_reference,
        lower=Compose(_build_psd_real),
        traits=frozenset({"spectral", "floats_only"}),
        flops=fft_flops,
        work=_psd_work_item,
        tolerance=FFT_TOLERANCE,
        samples=_PSD_REAL_SAMPLES,
        doc="The psd of the rfft of real rows [..., n]: F = n // 2 + 1 bins [..., F]. "
        "Each bin is |X|² / F; no bin is doubled.",
    ),
)
