"""Faster ways to run an op on NumPy arrays, some behind a gate.

Rule: deleting any row changes no result, only time. The first row that takes a node is
taken; the op's own reference is the last resort. The GPU's table is
`rlxweb.recipes.variants`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host import error_function, recurrent, short_sums, wasm_products
from rlxweb.host.in_parts import LINES, in_parts, is_large
from rlxweb.host.segment_spectra import cross_power, segment_power, segment_spectra
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import frames, welch_power
from rlxweb.host.strongest import strongest_bins
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape import Shape, normal_axis, numel
from rlxweb.packed_weights import floats_of
from rlxweb.recipes.welch_plan import (
    doubled_bins,
    rlx_weights,
    segment_count,
    welch_plan,
)

Array = NDArray[Any]
_MOST_PLACES: Final = 1 << 16
"""Elements of a padded array, whose places are kept with the node."""
_UNPACKED: Final = 1 << 18
"""Packed weights that are unpacked at a time: a megabyte in float32."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One alternative to an op's reference.

    gate     (input types, output type, attrs) → may it be taken; None: always
    run      (attrs, *arrays) → array, what the reference gives within the op's
             tolerance
    planned  `run` is (input types, output type, attrs) → such a function: types tell
             what is worked out once for a node, not on every run
    """

    name: str
    op: str
    gate: Callable[[Types, TensorType, Attrs], bool] | None
    run: Callable[..., Any]
    planned: bool = False

    def takes(self, inputs: Types, out: TensorType, attrs: Attrs) -> bool:
        """Return whether it may be taken for a node."""
        return self.gate is None or self.gate(inputs, out, attrs)

    def of(self, inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Any]:
        """(attrs, *arrays) → array, of one node."""
        return self.run(inputs, out, attrs) if self.planned else self.run


def _many(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Samples enough to outweigh a dozen more NumPy calls."""
    return inputs[0].numel >= 8192


def _long_floats(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """A sort of few or of very short lines is not beaten by a search."""
    x = inputs[0]
    return x.dtype.is_float and x.numel >= 2048 and x.shape[-1] >= 16


def _spec(attrs: Attrs, x: Array, window: Array) -> WelchSpec:
    """The estimate that an op's attributes ask for, but for the doubling."""
    plan = welch_plan(x.shape, window.shape[0], attrs)
    return WelchSpec(
        nperseg=plan.n,
        hop=plan.hop,
        nfft=plan.nfft,
        n_segments=plan.segments,
        window=window.astype(np.float64).tobytes(),
        detrend=None if plan.detrend == "none" else attrs["detrend"],
        one_sided=True,
        # A spec always doubles: half the scale, and the ends make up for it.
        scale=plan.scale if plan.doubling else 0.5 * plan.scale,
        average="mean",
        dtype=x.dtype.name,
    )


def _ends_mended(attrs: Attrs, spec: WelchSpec, power: Array) -> Array:
    """Power (…, F) with ends as large as the rest where nothing is to be doubled."""
    if not attrs["doubling"]:
        inner = doubled_bins(spec.nfft)
        power[..., : inner.start] *= 2.0
        power[..., inner.stop :] *= 2.0
    return power


def _power(attrs: Attrs, x: Array, window: Array) -> Array:
    spec = _spec(attrs, x, window)
    return _ends_mended(attrs, spec, welch_power(x, spec))


def _segment_power(attrs: Attrs, x: Array, window: Array) -> Array:
    spec = _spec(attrs, x, window)
    return _ends_mended(attrs, spec, segment_power(x, spec))


def _segment_spectra(attrs: Attrs, x: Array, window: Array) -> Array:
    spec = _spec(attrs, x, window)
    doubled = attrs["doubling"]
    if not doubled:
        spec = replace(spec, scale=2.0 * spec.scale)
    z = segment_spectra(x, spec, attrs["shift"], doubled=doubled)
    return np.concatenate([z.real, z.imag], axis=-1)


def _cross_power(attrs: Attrs, x: Array, y: Array, window: Array) -> Array:
    spec = _spec(attrs, x, window)
    return _ends_mended(attrs, spec, cross_power(x, y, spec))


def _peaks(attrs: Attrs, power: Array) -> Array:
    k = attrs["k"]
    pairs = np.empty((power.shape[0], k, 2), power.dtype)
    pairs[..., 0], pairs[..., 1] = strongest_bins(power, k)
    return pairs.reshape(-1, 2 * k)


def _row_peaks(attrs: Attrs, x: Array, window: Array) -> Array:
    return _peaks(attrs, _power(attrs, x, window))


def _welch_peaks(attrs: Attrs, spectrum: Array) -> Array:
    n, segments = spectrum.shape[1] // 2, attrs["n_segments"]
    bins = n // 2 + 1
    re, im = spectrum[:, :bins], spectrum[:, n : n + bins]
    power = (re * re + im * im).reshape(-1, segments, bins).sum(axis=1)
    power *= rlx_weights(bins, segments).astype(power.dtype)
    return _peaks(attrs, power)


def _topk(attrs: Attrs, x: Array) -> Array:
    n, k = x.shape[-1], attrs["k"]
    found, _ = strongest_bins(x.reshape(-1, n), k)
    return found.reshape(*x.shape[:-1], k).astype(np.int32)


def _frame(attrs: Attrs, x: Array) -> Array:
    size, hop = attrs["length"], attrs["hop"]
    count = attrs["count"] or segment_count(x.shape[-1], size, hop)
    return frames(x, size, hop, count)


def _reshape(inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Array]:
    """The shape is the node's own; the reference works it out."""
    return lambda attrs, x: x.reshape(out.shape)


def _floats(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    return out.dtype in (DType.F32, DType.F64)


def _sigmoid(attrs: Attrs, x: Array) -> Array:
    """1 / (1 + exp(-x)) in one array; infinity is the exponential of what gives 0."""
    made: Array = np.asarray(np.negative(x))
    np.exp(made, out=made)
    made += 1
    np.reciprocal(made, out=made)
    return made


def _relu(inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Array]:
    nothing = out.dtype.numpy.type(0)
    return lambda attrs, x: np.maximum(x, nothing)


def _single(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Tell whether there is a single index.

    A network that keeps its state as parts of one array takes them out one by one, and
    the checks that many indices need take longer than that.
    """
    return inputs[1].numel == 1


def _gather(inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Array]:
    """Return how a gather of one row is run; by the reference for many rows."""
    if inputs[1].numel != 1:
        return partial(registry.get("gather").reference, np)
    axis = normal_axis(attrs["axis"], inputs[0].rank)
    return partial(_row, axis, out.shape)


def _row(axis: int, shape: Shape, attrs: Attrs, table: Array, indices: Array) -> Array:
    """Return a view of one row. Errors  IndexRefused for an index outside."""
    at, rows = int(indices.reshape(-1)[0]), table.shape[axis]
    if not -rows <= at < rows:
        made: Array = registry.get("gather").reference(np, attrs, table, indices)
        return made
    return table[(slice(None),) * axis + (at,)].reshape(shape)


def _few_places(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Tell whether few elements are padded, by what is there and no constant."""
    return attrs["mode"] != "constant" and 0 < out.numel <= _MOST_PLACES


def _pad(inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Array]:
    """Return how a padding is run: by places worked out once, else the reference."""
    reference, shape = registry.get("pad").reference, inputs[0].shape
    if not _few_places(inputs, out, attrs):
        return partial(reference, np)
    # The reference says where they come from: it is asked to move their numbers.
    numbers = np.arange(numel(shape), dtype=np.intp).reshape(shape)
    return partial(_taken, reference(np, attrs, numbers))


def _taken(places: Array, attrs: Attrs, x: Array) -> Array:
    made: Array = np.take(x.reshape(-1), places)
    return made


def _quantized_matmul(
    attrs: Attrs, x: Array, words: Array, scales: Array, *biases: Array
) -> Array:
    """Multiply x [..., K] by the transpose of packed weights.

    A part of the weights is unpacked where the cache holds it, and BLAS has it from
    there; no more than a part of them is ever floats.
    """
    wide = np.float32 if x.dtype == np.float16 else x.dtype
    n, k = words.shape[0], x.shape[-1]
    out = np.zeros((*x.shape[:-1], n), wide)
    if not out.size or not k:
        return out.astype(x.dtype, copy=False)
    rows, made = x.reshape(-1, k).astype(wide, copy=False), out.reshape(-1, n)
    step = max(1, _UNPACKED // k)
    for at in range(0, n, step):
        part = slice(at, at + step)
        scale, *bias = (one[part].astype(wide, copy=False) for one in (scales, *biases))
        w = floats_of(words[part], scale, bias[0] if bias else None, attrs["bits"])
        np.matmul(rows, w[:, :k].T, out=made[:, part])
    return out.astype(x.dtype, copy=False)


VARIANTS: tuple[Variant, ...] = (
    *(
        Variant(f"{op}, by WebAssembly", op, wasm_products.is_open, made, planned=True)
        for op, made in wasm_products.ROWS.items()
    ),
    Variant("reshape, its shape known", "reshape", None, _reshape, True),
    Variant("sigmoid, in one array", "sigmoid", _floats, _sigmoid),
    Variant("relu, a number", "relu", _floats, _relu, planned=True),
    Variant("welch_power, blocks in cache", "welch_power", _many, _power),
    Variant("welch_row_peaks, blocks in cache", "welch_row_peaks", _many, _row_peaks),
    Variant("segment_power, blocks in cache", "segment_power", _many, _segment_power),
    Variant(
        "segment_spectra, blocks in cache", "segment_spectra", _many, _segment_spectra
    ),
    Variant("cross_power, blocks in cache", "cross_power", _many, _cross_power),
    Variant("power_peaks, partition", "power_peaks", _long_floats, _peaks),
    Variant("welch_peaks, partition", "welch_peaks", _long_floats, _welch_peaks),
    Variant("topk, partition", "topk", _long_floats, _topk),
    Variant("frame, a view", "frame", None, _frame),
    Variant("erf, one quotient", "erf", error_function.is_open, error_function.erf),
    Variant("gather, one row", "gather", _single, _gather, planned=True),
    Variant("pad, places known", "pad", _few_places, _pad, planned=True),
    Variant("sum, short runs", "sum", short_sums.is_open, short_sums.in_runs("sum")),
    Variant("mean, short runs", "mean", short_sums.is_open, short_sums.in_runs("mean")),
    *(
        Variant(f"{op}, in arrays made once", op, recurrent.is_open, made, planned=True)
        for op, made in recurrent.ROWS
    ),
    Variant(
        "quantized_matmul, unpacked in cache",
        "quantized_matmul",
        None,
        _quantized_matmul,
    ),
    *(Variant(f"{op}, in parts", op, is_large, in_parts(op)) for op in LINES),
)
