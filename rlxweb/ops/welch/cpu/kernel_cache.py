"""JIT cache of this process's compiled Welch estimates, verified and kept on disk."""

from __future__ import annotations

from typing import cast

import numpy as np

from rlxweb.codegen import llvm_compiler
from rlxweb.codegen.jit_cache import KERNEL_CODE_NBYTES, JitCache, compile_cached
from rlxweb.core.errors import DeviceError
from rlxweb.ops.welch.cpu.kernel import (
    CompiledWelchKernel,
    WelchKernelKey,
    load_welch_kernel,
)
from rlxweb.ops.welch.cpu.rows import (
    KernelSamples,
    compiled_power,
    compiled_strongest_bins,
)
from rlxweb.ops.welch.cpu.spectrum import welch_power
from rlxweb.ops.welch.cpu.strongest_bins import strongest_bins
from rlxweb.ops.welch.spec import WelchSpec


def _compile_kernel(cache_key: object) -> CompiledWelchKernel:
    """Load the kernel from disk or compile it, and verify it on a small case.

    Errors   AdapterMissing; DeviceError for wrong numbers; those of the library.
    """
    from rlxweb.codegen.llvm_builder import TYPE_NBYTES
    from rlxweb.ops.welch.cpu.llvm_kernel import WelchKernel
    from rlxweb.ops.welch.cpu.llvm_top_k_search import register_count

    key = cast("WelchKernelKey", cache_key)
    cpu = llvm_compiler.host_cpu()
    lanes = cpu.vector_nbytes // TYPE_NBYTES[key.output_type]
    registers = register_count(min(key.search_bins, key.n // 2 + 1), lanes)
    generator_arguments = (
        key.n,
        cpu.vector_nbytes,
        key.sample_type,
        key.detrend,
        key.output_type,
    )
    estimate = WelchKernel(*generator_arguments, registers)
    kernel = load_welch_kernel(estimate, compile_cached(estimate.llvm_ir()))
    _verify_kernel(kernel, key)
    return kernel


def _verify_kernel(kernel: CompiledWelchKernel, key: WelchKernelKey) -> None:
    """Require NumPy's results for a few rows of noise, one segment short of even lanes.

    Errors   DeviceError for others.
    """
    spec = WelchSpec(
        nperseg=key.n,
        hop=max(1, key.n // 2),
        nfft=key.n,
        n_segments=3,
        window=np.hanning(key.n + 2)[1:-1].tobytes(),
        detrend=None if key.detrend == "none" else key.detrend,
        one_sided=True,
        scale=1.0,
        average="mean",
        dtype="float32" if key.sample_type == "float" else "float64",
    )
    noise = np.random.default_rng(key.n).standard_normal((3, key.n + 2 * spec.hop))
    dtype = {"float": np.float32, "double": np.float64, "int": np.int16}[
        key.sample_type
    ]
    x = (100.0 * noise).astype(dtype)
    samples = KernelSamples.from_samples(x)
    expected = welch_power(x.astype(np.float64), spec)
    power = compiled_power(kernel, samples, spec)
    tolerance = 1e-5 if key.output_type == "float" else 1e-11
    max_errors = np.abs(power - expected).max(axis=1)
    k = min(key.search_bins, power.shape[1])
    # What a line through two samples leaves is rounding, and no two agree on that.
    rounding_energy = 1e-24 * key.n * np.square(x, dtype=np.float64).sum(axis=1)
    is_right = bool(
        (max_errors <= tolerance * expected.max(axis=1) + rounding_energy).all()
    )
    if kernel.find_peaks is not None and is_right and key.n > 2:
        top_bins = compiled_strongest_bins(kernel, samples, spec, k)
        expected_bins = strongest_bins(power, k)
        is_right = all(map(np.array_equal, top_bins, expected_bins))
    if not is_right:
        raise DeviceError(
            f"compile {key}",
            "the results of the compiled code differ from those of NumPy",
            "NumPy is used instead",
            "update llvmlite",
        )


def _kernel_nbytes(kernel: CompiledWelchKernel) -> int:
    """Return the memory that a kernel and its tables take."""
    return KERNEL_CODE_NBYTES + sum(table.nbytes for table in kernel.tables)


welch_kernels: JitCache[CompiledWelchKernel] = JitCache(_compile_kernel, _kernel_nbytes)
