"""`istft`: the signal of a short-time Fourier transform, on any device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import bound, helpful, switch, whole
from rlxweb.choose.chooser import Asked
from rlxweb.errors import DTypeError, NotFinite, ShapeError, UsageError
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.host.overlap_add import overlap_added
from rlxweb.host.spec import WelchSpec
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.fft_compose import zeros
from rlxweb.signal.precision import taken
from rlxweb.signal.row_calls import Array, Shapes, computed
from rlxweb.signal.rows_given import rate
from rlxweb.signal.samples import as_array, checked_axis, physical
from rlxweb.signal.short_time import Scaling, Slices, plan_of, shift_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.device import DeviceLike
    from rlxweb.signal.precision import Precision
    from rlxweb.signal.windows import WindowLike

MOST_OVERLAPS: Final = 32
"""Segments that share a sample up to which a device adds them up."""


class Restored(NamedTuple):
    """t (T,) in s and the signal x (…, T)."""

    t: NDArray[np.float64]
    x: NDArray[Any]


@dataclass(frozen=True, slots=True)
class InverseCall:
    """Spectra [B, S, F] back into rows [B, n]. See `RowCall`.

    spec      of the forward transform, its window the dual one
    skip      samples before the signal begins
    n         samples of the signal
    """

    spec: WelchSpec
    shift: int
    skip: int
    n: int

    inputs = ("spectra",)

    @property
    def overlaps(self) -> int:
        """Segments that share a sample."""
        return -(-self.spec.nperseg // self.spec.hop)

    @property
    def only_on_host(self) -> str:
        if self.overlaps > MOST_OVERLAPS:
            return f"{self.overlaps} segments overlap, and devices add {MOST_OVERLAPS}"
        return self.spec.only_on_host

    @property
    def nbytes(self) -> int:
        return len(self.spec.window)

    @property
    def key(self) -> InverseCall:
        return self

    def on_host(self, *rows: Array) -> Array:
        (z,) = rows
        spec = self.spec
        if z.dtype.kind != "c":
            z = z.view(np.result_type(z.dtype, np.complex64))
        out = overlap_added(
            z,
            spec.window_array,
            spec.hop,
            spec.nfft,
            shift=self.shift,
            one_sided=spec.one_sided,
        )
        return out[:, self.skip : self.skip + self.n]

    def graph(self, shapes: Shapes) -> Graph:
        """Of values in pairs, re and im beside each other: [B, S, 2F]."""
        spec = self.spec
        rows, count, width = shapes[0]
        g = Graph("istft")
        pairs = g.reshape(g.input("spectra", shapes[0], "f32"), (rows, count, -1, 2))
        re, im = (
            g.reshape(g.narrow(pairs, 3, at, 1), (rows, count, width // 2))
            for at in (0, 1)
        )
        frames = g.irfft(re, im, spec.nfft)
        if self.shift:
            rest = spec.nfft - self.shift
            late, early = (
                g.narrow(frames, 2, rest, self.shift),
                g.narrow(frames, 2, 0, rest),
            )
            frames = g.concat([late, early], axis=2)
        frames = g.narrow(frames, 2, 0, spec.nperseg)
        frames = frames * g.constant(spec.window_array, "f32")
        whole = _added(g, frames, spec.hop, self.overlaps)
        g.set_outputs([g.narrow(whole, 1, self.skip, self.n)])
        return g

    def of_device(self, out: Array) -> Array:
        return out

    def width(self, shapes: Shapes) -> int:
        return max(shapes[0][1] * shapes[0][2], self.n)


def _added(g: Graph, frames: Tensor, hop: int, overlaps: int) -> Tensor:
    """Frames [B, S, n] every hop, added up: [B, (S + overlaps - 1) · hop]."""
    rows, count, n = frames.shape
    fill = overlaps * hop - n
    if fill:
        frames = g.concat([frames, zeros(g, (rows, count, fill), DType.F32)], axis=2)
    total: Tensor | None = None
    for k in range(overlaps):
        part = [g.narrow(frames, 2, k * hop, hop)]
        if k:
            part.insert(0, zeros(g, (rows, k, hop), DType.F32))
        if k < overlaps - 1:
            part.append(zeros(g, (rows, overlaps - 1 - k, hop), DType.F32))
        own = g.concat(part, axis=1) if len(part) > 1 else part[0]
        total = own if total is None else total + own
    assert total is not None
    return g.reshape(total, (rows, (count + overlaps - 1) * hop))


@helpful
def istft(
    values: ArrayLike,
    fs: float = 1.0,
    window: WindowLike | ArrayLike = "hann",
    nperseg: int | None = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    *,
    n: int | None = None,
    return_onesided: bool = True,
    scaling: Scaling | None = None,
    phase_shift: int | None = 0,
    axis: int = -2,
    time_axis: int = -1,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: Precision | None = None,
    strict: bool = False,
) -> Restored:
    """The signal of a short-time Fourier transform: what `stft` was given.

    Shapes   values (…, F, S), frequencies on `axis` and segments on `time_axis`, from
             the first that `stft` gives → t (T,), x (…, T)
    n        samples of the signal; None: as far as the last segment reaches
    Numerics complex64 in → float32 out, on any engine; complex128 → float64 on the CPU
    Errors   UsageError where the window leaves samples that no segment tells of, where
             the segments do not reach n samples, or are not as many bins as nfft gives;
             NotFinite for NaN or infinity; DTypeError, Unsupported as `stft`
    Source   canonical dual window, scipy.signal.ShortTimeFFT.istft; every argument has
             the meaning and the default that it has in `stft`
    """
    return drive(_istft(**locals()))


async def istft_async(
    values: ArrayLike, fs: float = 1.0, *arguments: Any, **options: Any
) -> Restored:
    """`istft` beside an event loop, which goes on meanwhile."""
    given = bound(istft, "istft_async", values, fs, *arguments, **options)
    return await awaited_here(lambda: _istft(**given))


async def _istft(
    values: ArrayLike,
    n: int | None,
    axis: int,
    time_axis: int,
    scaling: Scaling | None,
    phase_shift: int | None,
    device: DeviceLike | None,
    adapter: str,
    precision: Precision | None,
    strict: bool,
    return_onesided: bool,
    **estimate: Any,
) -> Restored:
    doing = "istft"
    strict = switch("strict", strict, doing)
    fs = estimate["fs"] = rate(estimate["fs"], doing)
    spectra, how = _as_spectra(values, axis, time_axis, precision, doing)
    one_sided = switch("return_onesided", return_onesided, doing)
    kind = how.kind if one_sided else how.given
    estimate |= {"return_onesided": one_sided, "detrend": None}
    plan = plan_of(doing, kind, scaling, estimate)
    batch, (count, bins) = spectra.shape[:-2], spectra.shape[-2:]
    if bins != plan.n_freqs:
        raise ShapeError(
            doing,
            f"{bins} bins on axis {axis}",
            f"nfft {plan.nfft} gives {plan.n_freqs}",
            "give the window, nperseg and nfft of the forward transform",
        )
    if not count:
        said = f"there are no segments on axis {time_axis}"
        raise UsageError(doing, said, "at least 1 is wanted", "give what stft returned")
    slices = Slices.of(plan)
    reach = (count - 1) * plan.hop + plan.nperseg - slices.ahead
    length = reach if n is None else whole("n", n, doing)
    if not 1 <= length <= reach:
        raise UsageError(
            doing,
            f"n is {length}",
            f"{count} segments, {plan.hop} apart, reach {reach} samples",
            "leave n out to take all of them",
        )
    dual = _dual(plan, doing)
    spec = replace(plan, window=dual.tobytes(), n_segments=count)
    call = InverseCall(spec, shift_of(phase_shift, spec, doing), slices.ahead, length)
    rows = spectra.reshape(-1, count, bins)
    if how.kind == "float32" and one_sided:
        rows = np.ascontiguousarray(rows).view(np.float32)
    out, _ = await computed(call, [rows], how, Asked(device, adapter), doing, strict)
    return Restored(np.arange(length) / fs, out.reshape(*batch, length))


def _as_spectra(
    values: ArrayLike,
    axis: int,
    time_axis: int,
    precision: Precision | None,
    doing: str,
) -> tuple[Array, Any]:
    """Spectra (…, S, F), finite, and how they are taken: as their real signal is."""
    array = physical(as_array(values, doing), doing, "it is read on the host")
    if array.dtype.kind != "c":
        array = array + 0j
    if array.ndim < 2:
        raise ShapeError(doing, f"the spectra have shape {array.shape}", "rank >= 2")
    of, along = (checked_axis(one, array.ndim, doing) for one in (axis, time_axis))
    if of == along:
        raise ShapeError(doing, f"axis and time_axis are both {of}", "they are two")
    if not np.isfinite(array).all():
        bad = np.unravel_index(int((~np.isfinite(array)).argmax()), array.shape)
        raise NotFinite(
            doing,
            f"the spectra are {array[bad]} at {[int(i) for i in bad]}",
            f"{int((~np.isfinite(array)).sum())} of {array.size} are not finite",
        )
    if array.dtype.itemsize > 16:
        raise DTypeError(doing, f"spectra of {array.dtype}", "complex64 or complex128")
    how = taken(array.dtype, precision, doing)
    single = how.kind == "complex64"
    array = array.astype(np.complex64 if single else np.complex128, copy=False)
    real = replace(how, kind="float32" if single else "float64")
    return np.moveaxis(array, (along, of), (-2, -1)), real


def _dual(plan: WelchSpec, doing: str) -> NDArray[np.float64]:
    """The canonical dual window. Errors  UsageError where there is none."""
    window = plan.window_array * np.sqrt(plan.scale)
    squares = window * window
    total = squares.copy()
    for k in range(plan.hop, plan.nperseg, plan.hop):
        total[k:] += squares[:-k]
        total[:-k] += squares[k:]
    least = np.finfo(np.float64).resolution * total.max()
    if not (total >= least).all() or not total.max():
        at = int((total < least).argmax())
        raise UsageError(
            doing,
            f"no segment tells of sample {at} of every {plan.hop}",
            f"the window is zero there, and segments overlap by "
            f"{plan.nperseg - plan.hop} samples",
            Advice("use a larger {} or another window", noverlap=Blank("N")),
        )
    dual: NDArray[np.float64] = window / total
    return dual
