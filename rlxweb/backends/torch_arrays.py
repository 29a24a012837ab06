"""PyTorch as an engine: on the CPU, on CUDA and ROCm, on Apple's Metal.

Imported when one of its devices is opened and never before. Names that PyTorch has
under other rules come from array-api-compat; what is left is the class below.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from rlxweb.backends.array import ArrayBackend, array_target, quiet
from rlxweb.backends.array_faults import around_library
from rlxweb.backends.array_forks import LibraryThreads
from rlxweb.backends.array_library import first_named, library, tried
from rlxweb.backends.protocol import Array, Backend
from rlxweb.backends.torch_variants import torch_variants
from rlxweb.errors import AdapterMissing
from rlxweb.ir.dtype import DType

INSTALL = "pip install 'rlxweb[torch]'; a build for your GPU: pytorch.org/get-started"
# Its unsigned integers can be stored, not added, compared or sorted.
DTYPES = frozenset(DType) - {DType.U32, DType.U64}
# Kinds of which there is one, and its name.
ALONE = {"cpu": "PyTorch on the CPU", "mps": "Apple GPU (PyTorch)"}
threads = LibraryThreads("PyTorch")


class TorchArrays:
    """NumPy's names over tensors of one device."""

    def __init__(self, torch: Any, compat: Any, device: Any) -> None:
        self._torch, self._compat, self._device = torch, compat, device
        self.bool_ = torch.bool

    def __getattr__(self, name: str) -> Any:
        if name == "float64" and self._device.type == "mps":
            raise AttributeError(name)
        found = getattr(self._compat, name)
        setattr(self, name, found)
        return found

    def asarray(self, value: Any, dtype: Any = None) -> Any:
        if isinstance(value, self._torch.Tensor):
            return value if dtype is None else value.to(dtype)
        return self._torch.as_tensor(value, dtype=dtype, device=self._device)

    def remainder(self, x: Any, y: Any) -> Any:
        """Of floats on the CPU in float64: PyTorch's own of float32 is NaN or inexact
        where the quotient has more digits than a float32.
        """
        torch = self._torch
        if self._device.type != "cpu" or not x.dtype.is_floating_point:
            return self._compat.remainder(x, y)
        return torch.remainder(x.to(torch.float64), y.to(torch.float64)).to(x.dtype)

    def arange(self, stop: int) -> Any:
        return self._torch.arange(stop, device=self._device)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._torch.zeros(shape, dtype=dtype, device=self._device)


async def open_torch(kind: str = "cpu", adapter: str = "") -> Backend:
    """The engine on "cpu", "cuda", "hip" (ROCm) or "mps" (Metal).

    adapter   part of the name of a GPU, or ""

    Errors   AdapterMissing with the reason, for whatever is missing or broken.
    """
    doing = f"open PyTorch on '{kind}'"
    threads.begin(doing)
    torch = library("torch", doing, INSTALL)
    compat = library("array_api_compat.torch", doing, INSTALL)
    device = tried(
        lambda: _device(torch, kind, adapter, doing),
        doing,
        "PyTorch was asked for its devices and failed",
        INSTALL,
    )
    return _engine(torch, compat, kind, device)


def _device(torch: Any, kind: str, adapter: str, doing: str) -> Any:
    if kind in ALONE:
        if kind == "mps" and not torch.backends.mps.is_available():
            raise AdapterMissing(doing, "PyTorch sees no Metal device", hint=INSTALL)
        first_named(doing, [ALONE[kind]], adapter)
        return torch.device(kind)
    made_for = "ROCm" if torch.version.hip else "CUDA" if torch.version.cuda else ""
    if made_for != {"cuda": "CUDA", "hip": "ROCm"}[kind]:
        raise AdapterMissing(
            doing,
            f"this PyTorch ({torch.__version__}) is built "
            + (f"for {made_for}" if made_for else "without CUDA and ROCm"),
            hint=INSTALL,
        )
    if not torch.cuda.is_available():
        raise AdapterMissing(doing, "PyTorch sees no such GPU", hint=INSTALL)
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return torch.device("cuda", first_named(doing, names, adapter))


def _engine(torch: Any, compat: Any, kind: str, device: Any) -> ArrayBackend:
    adapter, driver = _named(torch, kind, device)
    version = f"PyTorch {torch.__version__}"
    dtypes = DTYPES - {DType.F64} if kind == "mps" else DTYPES
    name = version if kind == "cpu" else f"{adapter} ({version})"

    xp = TorchArrays(torch, compat, device)
    return ArrayBackend(
        xp,
        array_target(version, dtypes),
        name=name,
        adapter=adapter,
        api="torch" if kind == "cpu" else kind,
        driver=driver,
        software=kind == "cpu",
        to_device=lambda array: _tensor(torch, array).to(device),
        to_host=lambda tensor: np.asarray(tensor.cpu().numpy()),
        copied=torch.clone,
        from_dlpack=torch.from_dlpack,
        variants=torch_variants(torch, xp),
        why_lost=lambda: threads.why_not,
        around=partial(around_library, name, threads, quiet, torch.inference_mode),
    )


def _named(torch: Any, kind: str, device: Any) -> tuple[str, str]:
    """The hardware, and what it is driven by."""
    version = f"PyTorch {torch.__version__}"
    if kind in ALONE:
        return ALONE[kind], version
    runtime = torch.version.cuda or torch.version.hip
    word = "CUDA" if kind == "cuda" else "ROCm"
    return torch.cuda.get_device_name(device), f"{version}, {word} {runtime}"


def _tensor(torch: Any, array: Array) -> Any:
    """A tensor over the array's memory where PyTorch can have it, else over a copy."""
    usable = array.flags.writeable and array.dtype.isnative
    if not usable or any(s < 0 or s % array.itemsize for s in array.strides):
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(array)
