"""Compiled Welch estimates: which of them have a kernel, and the arguments of one call.

How rows are shared out is in `rows.py`, which kernels there are by now
in `kernel_cache.py`; how they are written is the business of
`rlxweb.codegen`.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_double, c_int64, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.native_calls import array_address
from rlxweb.core.lru_cache import SMALL_TABLE_SAMPLES, lru_cache_if_small
from rlxweb.ops.welch.parameters import centred_ramp
from rlxweb.ops.welch.spec import DIGITAL_DTYPE, WelchSpec

if TYPE_CHECKING:  # what writes kernels is loaded where there is one to be made
    from rlxweb.codegen.llvm_builder import FloatType
    from rlxweb.codegen.llvm_compiler import LoadedCode
    from rlxweb.ops.welch.cpu.llvm_kernel import WelchKernel
    from rlxweb.ops.welch.cpu.llvm_segment_preparation import DetrendMethod, SampleType

MAX_TRANSFORM_LENGTH: Final = 1 << 16
"""Maximum transform length that is compiled."""
_MIN_SEARCH_BINS: Final = 16
_KERNEL_TYPES: Final[dict[str, tuple[SampleType, FloatType]]] = {
    "float32": ("float", "float"),
    "float64": ("double", "double"),
    DIGITAL_DTYPE: ("int", "double"),
}
_ADDRESS_TYPE, _COUNT_TYPE = c_void_p, c_int64
_ROW_ARGUMENT_TYPES = (
    _ADDRESS_TYPE,
    _ADDRESS_TYPE,
    _COUNT_TYPE,
    _COUNT_TYPE,
    _COUNT_TYPE,
    _ADDRESS_TYPE,
    _ADDRESS_TYPE,
)


class WelchKernelKey(NamedTuple):
    """Key of one kernel, which serves estimates of any window, hop, scale and batch.

    search_bins  bins that it can search for, at least
    """

    n: int
    sample_type: SampleType
    detrend: DetrendMethod
    output_type: FloatType
    search_bins: int


@lru_cache_if_small(256, lambda spec, k: spec.nperseg <= SMALL_TABLE_SAMPLES)
def welch_kernel_key(spec: WelchSpec, k: int) -> WelchKernelKey | str:
    """Return the key of the kernel for an estimate and its k strongest bins, or why
    there is none.
    """
    if spec.is_complex:
        return "only NumPy supports complex samples"
    if spec.average != "mean":
        return f"only NumPy supports average='{spec.average}'"
    if not spec.one_sided:
        return "only NumPy supports two-sided spectra"
    if spec.nfft > MAX_TRANSFORM_LENGTH:
        return (
            "only NumPy supports transforms of more than "
            f"{MAX_TRANSFORM_LENGTH:,} samples"
        )
    kernel_types = _KERNEL_TYPES[spec.dtype]
    search_bins = _MIN_SEARCH_BINS
    while search_bins < k:
        search_bins *= 2
    detrend: DetrendMethod = spec.detrend or "none"
    return WelchKernelKey(
        spec.nfft, kernel_types[0], detrend, kernel_types[1], search_bins
    )


@dataclass(frozen=True, slots=True, eq=False)
class CompiledWelchKernel:
    """Compiled Welch estimate; `WelchKernel` and `llvm_power_sums.py`
    document the arguments of its functions.

    find_peaks  None where so many bins are better searched for by other means
    tables  what the functions look up: they hold on to nothing themselves
    power_dtype  dtype of the powers
    """

    generator: WelchKernel
    compute_power: Callable[..., int]
    find_peaks: Callable[..., int] | None
    sum_segments: Callable[..., None]
    fold_sums: Callable[..., None]
    tables: tuple[NDArray[Any], NDArray[np.int32]]
    power_dtype: np.dtype[Any]


class WelchKernelJob(NamedTuple):
    """Arguments of a kernel for one estimate: the packed numbers, and the arrays they
    point into.
    """

    address: int
    scratch_nbytes: int
    arrays: tuple[NDArray[Any], ...]


@lru_cache_if_small(
    64, lambda kernel, spec, segments, k, size: spec.nfft <= SMALL_TABLE_SAMPLES
)
def welch_kernel_job(
    kernel: CompiledWelchKernel,
    spec: WelchSpec,
    segments: int,
    k: int,
    sample_nbytes: int,
) -> WelchKernelJob:
    """Return the job for rows of `segments` segments with samples of `sample_nbytes`
    bytes, searching k bins.
    """
    from rlxweb.ops.welch.cpu.llvm_power_sums import ADDRESS_COUNT, JOB_FIELDS

    generator = kernel.generator
    weights = np.full(generator.bin_count, 0.5 * spec.scale / segments)
    weights[1 : (spec.nfft + 1) // 2] *= 2.0
    ramp = centred_ramp(spec.nperseg)
    window = spec.window_array
    arrays = (window, weights, ramp, *kernel.tables)
    rows_per_call = generator.power_sums.rows_per_call(segments)
    numbers = {
        "nperseg": spec.nperseg,
        "hop": spec.hop,
        "k": k,
        "together": rows_per_call,
        "size": sample_nbytes,
    }
    fields = [array_address(array) for array in arrays]
    fields += [numbers[name] for name in JOB_FIELDS[ADDRESS_COUNT:]]
    job_words = np.array(fields, np.int64)
    return WelchKernelJob(
        array_address(job_words),
        generator.scratch_nbytes(segments),
        (job_words, *arrays),
    )


def load_welch_kernel(generator: WelchKernel, code: LoadedCode) -> CompiledWelchKernel:
    """Wrap the loaded code of an estimate. Errors  RuntimeError where the code is
    another estimate's.
    """
    output_types = (_ADDRESS_TYPE, _ADDRESS_TYPE, _ADDRESS_TYPE)
    find_peaks = None
    if generator.search_registers:
        find_peaks = code.get_function(
            "peaks", c_int64, *_ROW_ARGUMENT_TYPES, *output_types, _ADDRESS_TYPE
        )
    tables = generator.tables.arrays("double")
    return CompiledWelchKernel(
        generator,
        code.get_function("power", c_int64, *_ROW_ARGUMENT_TYPES, *output_types),
        find_peaks,
        code.get_function("sums", None, *_ROW_ARGUMENT_TYPES[:6], *output_types[:2]),
        code.get_function(
            "fold", None, _ADDRESS_TYPE, _ADDRESS_TYPE, c_double, _ADDRESS_TYPE
        ),
        tables,
        np.dtype(np.float32 if generator.output_type == "float" else np.float64),
    )
