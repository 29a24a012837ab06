"""PyTorch engine: on the CPU, on CUDA and ROCm, on Apple's Metal.

Imported when one of its devices is opened and never before. Names that PyTorch has
under other rules come from array-api-compat; what is left is the class below.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from rlxweb.core.errors import AdapterMissing
from rlxweb.engines.array import ArrayEngine, array_target, ignore_float_errors
from rlxweb.engines.array_library import (
    LibraryForkGuard,
    call_library,
    find_device_index,
    import_library,
    library_context,
)
from rlxweb.engines.protocol import Array, Engine, EngineIdentity
from rlxweb.engines.torch_kernel_variants import torch_variants
from rlxweb.ir.dtype import DType

INSTALL = "pip install 'rlxweb[torch]'; for GPU builds see pytorch.org/get-started"
# Its unsigned integers can be stored, not added, compared or sorted.
SUPPORTED_DTYPES = frozenset(DType) - {DType.U32, DType.U64}
# Kinds of which there is one, and its name.
SINGLE_DEVICES = {"cpu": "PyTorch on the CPU", "mps": "Apple GPU (PyTorch)"}
library_threads = LibraryForkGuard("PyTorch")


class TorchNamespace:
    """NumPy's names over tensors of one device."""

    def __init__(self, torch: Any, compat: Any, device: Any) -> None:
        self._torch, self._compat, self._device = torch, compat, device
        self.bool_ = torch.bool

    def __getattr__(self, name: str) -> Any:
        if name == "float64" and self._device.type == "mps":
            raise AttributeError(name)
        attribute = getattr(self._compat, name)
        setattr(self, name, attribute)
        return attribute

    def asarray(self, value: Any, dtype: Any = None) -> Any:
        if isinstance(value, self._torch.Tensor):
            return value if dtype is None else value.to(dtype)
        return self._torch.as_tensor(value, dtype=dtype, device=self._device)

    def remainder(self, x: Any, y: Any) -> Any:
        """Return the remainder; that of floats on the CPU is computed in float64, as
        PyTorch's own of float32 is NaN or inexact where the quotient has more digits
        than a float32.
        """
        torch = self._torch
        if self._device.type != "cpu" or not x.dtype.is_floating_point:
            return self._compat.remainder(x, y)
        return torch.remainder(x.to(torch.float64), y.to(torch.float64)).to(x.dtype)

    def arange(self, stop: int) -> Any:
        return self._torch.arange(stop, device=self._device)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._torch.zeros(shape, dtype=dtype, device=self._device)


async def open_torch(kind: str = "cpu", adapter: str = "") -> Engine:
    """Open the PyTorch engine on "cpu", "cuda", "hip" (ROCm) or "mps" (Metal).

    adapter   part of the name of a GPU, or ""

    Errors   AdapterMissing with the reason, for whatever is missing or broken.
    """
    context = f"open PyTorch on '{kind}'"
    library_threads.claim(context)
    torch = import_library("torch", context, INSTALL)
    compat = import_library("array_api_compat.torch", context, INSTALL)
    device = call_library(
        lambda: _find_device(torch, kind, adapter, context),
        context,
        "PyTorch failed to list its devices",
        INSTALL,
    )
    return _build_engine(torch, compat, kind, device)


def _find_device(torch: Any, kind: str, adapter: str, context: str) -> Any:
    """Return the PyTorch device of that kind whose name contains `adapter`."""
    if kind in SINGLE_DEVICES:
        if kind == "mps" and not torch.backends.mps.is_available():
            raise AdapterMissing(context, "PyTorch finds no Metal device", hint=INSTALL)
        find_device_index(context, [SINGLE_DEVICES[kind]], adapter)
        return torch.device(kind)
    built_for = "ROCm" if torch.version.hip else "CUDA" if torch.version.cuda else ""
    if built_for != {"cuda": "CUDA", "hip": "ROCm"}[kind]:
        raise AdapterMissing(
            context,
            f"this PyTorch ({torch.__version__}) is built "
            + (f"for {built_for}" if built_for else "without CUDA and ROCm"),
            hint=INSTALL,
        )
    if not torch.cuda.is_available():
        raise AdapterMissing(context, f"PyTorch finds no {built_for} GPU", hint=INSTALL)
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return torch.device("cuda", find_device_index(context, names, adapter))


def _build_engine(torch: Any, compat: Any, kind: str, device: Any) -> ArrayEngine:
    """Return the engine for one PyTorch device."""
    adapter, driver = _adapter_and_driver(torch, kind, device)
    version = f"PyTorch {torch.__version__}"
    dtypes = SUPPORTED_DTYPES - {DType.F64} if kind == "mps" else SUPPORTED_DTYPES
    name = version if kind == "cpu" else f"{adapter} ({version})"

    xp = TorchNamespace(torch, compat, device)
    return ArrayEngine(
        xp,
        EngineIdentity(
            name,
            adapter,
            api="torch" if kind == "cpu" else kind,
            driver=driver,
            software=kind == "cpu",
        ),
        array_target(version, dtypes),
        to_device=lambda array: _to_tensor(torch, array).to(device),
        to_host=lambda tensor: np.asarray(tensor.cpu().numpy()),
        copied=torch.clone,
        from_dlpack=torch.from_dlpack,
        variants=torch_variants(torch, xp),
        why_lost=lambda: library_threads.fork_problem,
        around=partial(
            library_context,
            name,
            library_threads,
            ignore_float_errors,
            torch.inference_mode,
        ),
    )


def _adapter_and_driver(torch: Any, kind: str, device: Any) -> tuple[str, str]:
    """Return the names of the hardware and of its driver."""
    version = f"PyTorch {torch.__version__}"
    if kind in SINGLE_DEVICES:
        return SINGLE_DEVICES[kind], version
    runtime = torch.version.cuda or torch.version.hip
    runtime_name = "CUDA" if kind == "cuda" else "ROCm"
    return torch.cuda.get_device_name(device), f"{version}, {runtime_name} {runtime}"


def _to_tensor(torch: Any, array: Array) -> Any:
    """Return a tensor over the array's memory if PyTorch can use it, else over a
    copy.
    """
    is_usable = array.flags.writeable and array.dtype.isnative
    if not is_usable or any(s < 0 or s % array.itemsize for s in array.strides):
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(array)
