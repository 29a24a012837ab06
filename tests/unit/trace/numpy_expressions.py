"""NumPy expressions that a traced function may use, by family.

x, y  float32 [3, 4]; v float32 [4]; p positive float32 [3, 4]; m float32 [4, 4]
h     float16 [3, 4]; d float64 [3, 4]; n float32 with NaN and infinities [3, 4]
i, k  int32 [3, 4], k from 1; j int64 [3, 4]; u uint32 [3, 4]; b, c bool [3, 4]
z, w  complex64 [3, 4]; o int64 [4], indices of 4
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

UFUNCS = """
x + y; x - y; x * y; x / p; -x; +x; abs(x); x ** 2; p ** 1.5; p ** 0.5; 2 ** x; p ** y
1 / p; x // p; x % p; 3 - x; x @ m; x < y; x <= y; x > 0; x >= 0; x == y; x != y
np.add(x, 1); np.subtract(x, y); np.multiply(x, 2.5); np.true_divide(x, 4)
np.divide(x, p); np.floor_divide(x, p); np.remainder(x, p); np.mod(x, p)
np.fmod(x, p); np.power(p, x); np.float_power(p, 2); np.negative(x); np.positive(x)
np.absolute(x); np.abs(x); np.fabs(x); np.sign(x); np.square(x); np.cbrt(x)
np.reciprocal(p); np.sqrt(p); np.exp(x); np.exp2(x); np.expm1(x); np.log(p)
np.log2(p); np.log10(p); np.log1p(p); np.sin(x); np.cos(x); np.tan(x)
np.arcsin(np.tanh(x)); np.arccos(np.tanh(x)); np.arctan(x); np.arctan2(x, y)
np.sinh(x); np.cosh(x); np.tanh(x); np.arcsinh(x); np.arccosh(p + 1)
np.arctanh(np.tanh(x) * 0.9); np.hypot(x, y); np.degrees(x); np.radians(x)
np.rad2deg(x); np.deg2rad(x); np.rint(x); np.floor(x); np.ceil(x); np.trunc(x)
np.maximum(x, y); np.minimum(x, y); np.fmax(x, y); np.fmin(x, y)
np.equal(x, y); np.not_equal(x, y); np.less(x, y); np.less_equal(x, y)
np.greater(x, y); np.greater_equal(x, y); np.logical_and(x > 0, y > 0)
np.logical_or(x, y); np.logical_xor(x > 0, y > 0); np.logical_not(x)
np.isnan(n); np.isinf(n); np.isfinite(n); np.signbit(x); np.copysign(x, y)
np.heaviside(x, 0.5); np.logaddexp(x, y); np.logaddexp2(x, y)
np.ldexp(x, 3); np.divmod(x, p); np.modf(x); np.conjugate(x); divmod(x, p)
np.maximum(n, y); np.minimum(n, y); np.fmax(n, y); np.fmin(n, y); np.sign(n)
np.add.reduce(x); np.multiply.reduce(x, axis=1); np.maximum.reduce(x, axis=(0, 1))
np.minimum.reduce(x); np.add.accumulate(x, axis=1); np.multiply.outer(v, v)
np.logical_and.reduce(x > 0); np.logical_or.reduce(x > 0, axis=1)
"""

INTEGERS = """
i + k; i - k; i * k; i / k; i // k; i % k; -i; abs(i); i ** 2; i + 1; i * 2.5; i + x
i == k; i < k; i & k; i | k; i ^ k; ~i; k << 2; i >> 1; b & c; b | c; b ^ c; ~b
b + c; b * c; b == c; b < c; b + 1; b * x; b * 2.0; np.bitwise_and(i, k)
np.bitwise_or(i, k); np.bitwise_xor(i, k); np.invert(i); np.left_shift(k, 1)
np.right_shift(i, 2); np.maximum(i, k); np.minimum(b, c); np.fmax(i, k); np.sign(i)
np.square(i); np.abs(b); np.isnan(i); np.isfinite(i); np.floor(i); np.signbit(i)
np.maximum(b, c); np.fmin(b, c); np.logical_and(i, k); np.copysign(x, y); i != 0
i > x; np.clip(i, 0, 3); np.where(b, i, k); np.where(b, i, 0); np.where(b, x, i)
u + u; u * 3; u == u; np.abs(u); np.max(u); np.sum(u)
np.cumsum(u, 1); u.astype(np.int32); i.astype(np.uint32)
"""

MIXED_DTYPES = """
d + x; d * 2; np.exp(d); np.sqrt(np.abs(d)); d.mean(); d.sum(0); x * d; d @ m
np.sin(i); np.sqrt(k); i / 2; np.mean(i); np.mean(b); np.var(i); np.median(i)
j + 1; j * i; j == i; np.sum(i); np.sum(i, 0); np.cumsum(i); np.prod(k, 1)
np.sum(b); np.sum(b, 0); np.cumsum(b, 0); np.argmax(x, 1) + 1; np.argmax(x) * 2
np.argmax(x, 1) == 2; np.sort(j); np.where(b, j, 0); np.max(j, 1); np.linalg.norm(i)
h + h; h * 2; h + x; np.exp(h); h.sum(0); h.mean(1); h.var(); np.sqrt(b); h @ h.T
np.average(i, 0); np.interp(x, v0, v); np.digitize(x, v0) * 1; np.power(j, 2)
np.float64(0.5) * x; np.hanning(4) * x; x + np.arange(4); np.arange(4) * i
np.linspace(0, 1, 4) + x; x.astype(float); x.astype(int); d.astype(np.float32)
np.cov(x); np.cov(d, bias=True); np.corrcoef(x); np.cov(v, v); np.linalg.inv(i[:, :3])
np.linalg.det(i[:, :3]); np.gradient(i, 2.0); np.polyval(d[0], x); np.cumprod(k, 1)
np.isclose(i, k); np.einsum("ij,kj->ik", i, k); np.dot(i, k.T)
np.add(i, k, dtype=float)
np.round(d, 2); np.full_like(x, 1.5, dtype=np.float64); np.float_power(k, 2)
"""

REDUCTIONS = """
np.sum(x); np.sum(x, axis=0); np.sum(x, axis=(0, 1), keepdims=True); x.sum(-1)
np.prod(p, axis=1); np.mean(x); np.mean(x, axis=0, keepdims=True); x.mean((0, 1))
np.var(x); np.var(x, axis=1, ddof=1); np.std(x, axis=0); x.std(1, keepdims=True)
np.var(x, 0, correction=1); np.max(x); np.max(x, axis=0)
np.min(x, axis=1, keepdims=True)
np.amax(x, 1); np.amin(x); np.ptp(x, axis=1); np.any(x > 1); np.any(x > 1, axis=0)
np.all(x > -1, axis=1, keepdims=True); np.all(b); np.max(b, 0); np.min(b, 0)
np.count_nonzero(b); np.count_nonzero(x > 0, axis=1); np.argmax(x); np.argmax(x, axis=1)
np.argmin(x, axis=0, keepdims=True); np.argmin(n, 1); np.argmax(n, 0); np.argmax(b, 1)
np.cumsum(x); np.cumsum(x, axis=1); x.cumsum(0); np.diff(x); np.diff(x, n=2, axis=0)
np.diff(b, axis=1); np.trapezoid(x); np.trapezoid(x, dx=0.5, axis=0)
np.trapezoid(x, np.array([0.0, 1, 3, 4], "f4")); np.average(x, axis=0)
np.nansum(x, axis=0); np.nansum(n[:, :1], axis=0); np.nanmean(n[:, :1])
np.nanprod(p, axis=1); np.cumprod(p); np.cumprod(x, axis=0); np.nanmax(n[:, :1])
np.nanmin(n, 1); np.nanmax(x, 0); np.nanvar(n[:, 2:3]); np.nanstd(x, axis=1, ddof=1)
np.nanvar(z, axis=0); np.nanstd(n[:, :1] + z, axis=1, ddof=1)
np.multiply.accumulate(x, axis=1); np.gradient(x); np.gradient(v, 0.5)
np.gradient(x, axis=1); np.unwrap(x * 5); np.unwrap(x * 5, axis=0); np.polyval(v, x)
 np.median(x); np.median(x, axis=1, keepdims=True)
np.quantile(x, 0.25, axis=0); np.percentile(x, 90); np.percentile(x, [10, 50], axis=1)
np.nanmedian(x, axis=1); np.nanquantile(x, 0.25, axis=0); np.nanpercentile(x, 90)
np.max(n); np.min(n, 1); np.median(n); np.sum(x, dtype=np.float32); x.max(); x.min(0)
"""

DATA_MOVEMENT = """
np.reshape(x, (4, 3)); x.reshape(2, -1); np.ravel(x); x.flatten(); x.T; x.transpose()
x[None, :].transpose(0, 2, 1); np.transpose(x); np.permute_dims(x, (1, 0))
np.matrix_transpose(x); x.mT; np.moveaxis(x[None], 0, -1); np.rollaxis(x[None], 2)
np.swapaxes(x, 0, 1); np.expand_dims(x, 1); np.expand_dims(x, (0, -1))
np.squeeze(x[None]); np.squeeze(x[:, :1], 1); np.broadcast_to(v, (2, 3, 4))
np.broadcast_arrays(v, x); np.flip(x); np.flip(x, 1); np.fliplr(x); np.flipud(x)
np.rot90(x); np.rot90(x, 2); np.rot90(x, -1); np.roll(x, 2); np.roll(x, 1, axis=0)
np.roll(x, (1, -1), (0, 1)); np.fft.fftshift(x); np.fft.ifftshift(x, axes=1)
np.tile(x, 2); np.tile(v, (2, 3)); np.repeat(x, 2); np.repeat(x, [1, 0, 2], axis=0)
np.pad(x, 1); np.pad(x, ((1, 0), (2, 1)), mode="edge"); np.pad(x, 2, mode="reflect")
np.pad(x, (1, 2), mode="wrap"); np.pad(x, 1, constant_values=3); np.pad(b, 1)
np.pad(x, 1, mode="symmetric"); np.concatenate([x, y]); np.concat([x, y], axis=1)
np.concatenate([x, y], axis=None); np.stack([x, y]); np.stack([x, y], axis=-1)
np.stack([v, np.ones(4, "f4")]); np.atleast_1d(x.sum()); np.atleast_2d(v)
np.atleast_3d(x); np.vstack([x, v]); np.hstack([x, y]); np.hstack([v, v])
np.dstack([x, y]); np.column_stack([v, v]); np.append(x, y); np.append(x, y, axis=0)
np.array_split(v, 3); np.split(x, 2, axis=1); np.split(v, [1, 3]); np.vsplit(x, 3)
np.hsplit(x, 2); np.dsplit(x[None], 2); np.unstack(x); np.unstack(x, axis=1)
np.lib.stride_tricks.sliding_window_view(v, 2)
np.lib.stride_tricks.sliding_window_view(x, 3, axis=1); np.meshgrid(v, v[:2])
np.meshgrid(v, v[:3], indexing="ij"); np.meshgrid(v, v[:3], sparse=True)
x[0]; x[1, 2]; x[:, 1:3]; x[::-1, ::2]; x[..., -1]; x[[0, 2]]; x[:, [1, 1]]
x[np.array([True, False, True])]; x[:, None, :]; x[-1][0]; [row for row in x]
np.zeros_like(x); np.ones_like(x); np.empty_like(x).shape; np.full_like(x, 7)
np.full_like(x, 2, shape=(2,)); np.copy(x); np.astype(x, np.int32); x.astype(bool)
np.shape(x); np.ndim(x); np.size(x); np.size(x, 1); len(x); x.size; x.nbytes
np.result_type(x, np.float16); x.real; x.imag; np.real(x); np.imag(x); x.copy()
"""

SELECTIONS = """
np.where(x > 0, x, 0); np.where(x > 0, 1.0, -1.0); np.where(b, x, y); np.where(b, 1, 0)
np.select([x > 1, x > 0], [x, y], 0); np.clip(x, -0.5, 0.5); np.clip(x, None, v)
x.clip(0); x.clip(min=0, max=1); np.nan_to_num(n); np.nan_to_num(n, nan=1.0, posinf=2)
np.isclose(x, x + 1e-7); np.isclose(x, y); np.isclose(n, n, equal_nan=True)
np.take(x, [0, 2], axis=1); np.take(x, -1, axis=0); np.take(v, np.argmax(x, axis=1))
np.take(x, np.argsort(v), axis=1); v[np.argmax(x, 1)]; x[:, np.argsort(v)]
np.take_along_axis(x, np.argsort(x, axis=1), axis=1)
np.take_along_axis(x, np.argmax(x, 1, keepdims=True), 1); np.sort(x); np.sort(x, axis=0)
np.sort(x, axis=None); np.argsort(x, axis=0); np.argsort(x, axis=None); np.sort(n)
np.searchsorted(np.sort(v), x); np.searchsorted(v0, x, side="right")
np.digitize(x, v0); np.tril(x); np.triu(x, 1); np.tril(m, -1); np.triu(v)
np.diagonal(m); np.diagonal(m, 1); np.diag(v); np.diag(v, 1); np.diag(m); np.trace(m)
np.round(x); np.around(x, 2); x.round(1); np.isposinf(n); np.isneginf(n)
np.sinc(x); np.fix(x); np.real_if_close(x); np.iscomplexobj(x); np.isrealobj(x)
x.argsort(); x.argmax(); x.take([0], axis=1); x.repeat(2, axis=0); x.diagonal()
"""

PRODUCTS = """
np.matmul(x, m); x @ v; v @ m; v @ v; np.dot(x, m); np.dot(v, v); np.dot(2.0, x)
np.dot(x[None], m[None]); np.inner(x, y); np.inner(v, v); np.outer(v, v)
np.vdot(x, y); np.vecdot(x, y); np.linalg.vecdot(x, y); np.linalg.matmul(x, m)
np.tensordot(x, m, 1); np.tensordot(x, y, axes=((0, 1), (0, 1)))
np.tensordot(x, y, axes=(0, 0)); np.einsum("ij,jk->ik", x, m); np.einsum("ij->ji", x)
np.einsum("ij,ij->i", x, y); np.einsum("ij,j", x, v); np.einsum("ii", m)
np.einsum("ii->i", m); np.einsum("...i,i->...", x, v); np.einsum("i,j->ij", v, v)
np.einsum("ij,kj,k->i", x, y, v[:3]); np.einsum("ij->", x); np.einsum("ij,ij", x, y)
np.kron(x, m[:2]); np.kron(v, v); np.cross(x[:, :3], y[:, :3])
np.linalg.norm(x); np.linalg.norm(x, axis=1); np.linalg.norm(x, axis=0, keepdims=True)
np.linalg.norm(x, 1, axis=1); np.linalg.norm(x, np.inf, axis=1); np.linalg.norm(v, 3)
np.linalg.norm(x, "fro"); np.linalg.norm(x, 1); np.linalg.norm(x, np.inf)
np.linalg.norm(v, 0); np.linalg.norm(v, -np.inf); np.linalg.norm(x, axis=(0, 1))
np.convolve(v, v[:2]); np.convolve(v, v[:3], "same"); np.convolve(v, v[:2], "same")
np.convolve(v, v[:3], mode="valid"); np.convolve(v[:2], v); np.correlate(v, v[:3])
np.correlate(v, v[:2], "same"); np.correlate(v, v[:3], "full")
np.correlate(v, v, "same")
b @ c.T; np.linalg.solve(m, v); np.linalg.solve(m, x.T); np.linalg.inv(m)
np.linalg.det(m); np.linalg.slogdet(m)[0] * np.linalg.slogdet(m).logabsdet
np.linalg.cholesky(m @ m.T + np.eye(4))
np.linalg.matrix_power(m, 3); np.linalg.matrix_power(m, -1)
np.linalg.matrix_power(m, 0); np.linalg.multi_dot([x, m, v])
"""

COMPLEX = """
z + w; z - w; z * w; z / w; -z; z + 1; z * 2j; x * z; x + 1j; z ** 2; z ** 3; 1 / z
np.abs(z); np.angle(z); np.angle(z, deg=True); z.real; z.imag; z.conj(); np.conj(z)
np.exp(z); np.log(z); np.sqrt(z); np.square(z); np.reciprocal(z); np.exp(1j * x)
z == z; z != w; np.isnan(z); np.isinf(z); np.isfinite(z); np.rint(z); np.positive(z)
z.sum(); z.mean(0); z.cumsum(1); z.var(); z.std(0); z @ w.T; np.vdot(z, w); z[0, ::-1]
np.where(b, z, 0); np.where(b, z, x); np.concatenate([z, x]); np.stack([z, w]); z.T
np.pad(z, 1); np.tile(z, 2); np.zeros_like(z); z.astype(np.complex64); x.astype(complex)
np.real(z); np.imag(z); np.iscomplexobj(z); np.einsum("ij,kj->ik", z, w)
np.outer(z, w); np.linalg.norm(z); np.linalg.norm(z, axis=1); np.take(z, [1], 1)
np.fft.fft(x); np.fft.fft(z); np.fft.fft(z, axis=0); np.fft.fft(x, 6); np.fft.fft(x, 3)
np.fft.ifft(z); np.fft.ifft(x, norm="ortho"); np.fft.fft(x, norm="forward")
np.fft.ifft(z, norm="forward"); np.fft.rfft(x); np.fft.rfft(x, 5)
np.fft.rfft(x, axis=0)
np.fft.rfft(x, norm="ortho"); np.fft.rfft(x, norm="forward"); np.fft.irfft(z)
np.fft.irfft(z, 5); np.fft.irfft(np.fft.rfft(x), 4); np.fft.irfft(z, norm="forward")
np.fft.fft2(x); np.fft.ifft2(z); np.fft.rfft2(x); np.fft.irfft2(z); np.fft.fftn(x)
np.fft.ifftn(z); np.fft.rfftn(x); np.fft.irfftn(z); np.fft.fftshift(z)
np.abs(np.fft.rfft(x * np.hanning(4).astype("f4"))) ** 2; np.fft.irfft(z, axis=0)
np.broadcast_to(z, (2, 3, 4)); np.flip(z); np.roll(z, 1); np.diag(z[0, :3]); np.trace(z)
"""

FAMILIES = {
    "ufuncs": UFUNCS,
    "integers": INTEGERS,
    "wide": MIXED_DTYPES,
    "reductions": REDUCTIONS,
    "moves": DATA_MOVEMENT,
    "picks": SELECTIONS,
    "products": PRODUCTS,
    "complex": COMPLEX,
}


def list_expressions(family: str) -> list[str]:
    """Return the expressions of a family, without functions that this NumPy lacks."""
    lines = FAMILIES[family].replace("\n", ";").split(";")
    return [
        expression.strip()
        for expression in lines
        if expression.strip() and _is_available(expression.strip())
    ]


def _is_available(expression: str) -> bool:
    match = re.match(r"np\.(\w+)", expression)
    return match is None or hasattr(np, match[1])


def sample_arrays() -> dict[str, Any]:
    rng = np.random.default_rng(14)

    def normal(*shape: int) -> Any:
        return rng.normal(size=shape).astype("f4")

    x, y = normal(3, 4), normal(3, 4)
    n = x.copy()
    n[0, 1], n[1, 0], n[2, 3] = np.nan, np.inf, -np.inf
    z = (normal(3, 4) + 1j * normal(3, 4)).astype("c8")
    return {
        "x": x,
        "y": y,
        "v": normal(4),
        "v0": np.array([-1, 0, 0.5, 1], "f4"),
        "p": np.abs(normal(3, 4)) + np.float32(0.25),
        "m": normal(4, 4),
        "n": n,
        "h": normal(3, 4).astype("f2"),
        "d": rng.normal(size=(3, 4)),
        "i": rng.integers(-9, 9, (3, 4), "i4"),
        "k": rng.integers(1, 6, (3, 4), "i4"),
        "j": rng.integers(-9, 9, (3, 4)),
        "u": rng.integers(0, 9, (3, 4), "u4"),
        "b": rng.random((3, 4)) < 0.5,
        "c": rng.random((3, 4)) < 0.5,
        "z": z,
        "w": (normal(3, 4) + 1j * normal(3, 4)).astype("c8"),
    }
