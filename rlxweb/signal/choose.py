"""Which engine a Welch call runs on, and the decision that says why.

A device that was asked for is used or refused, never swapped. Left open, NumPy is taken
unless the machine has a GPU of its own hardware and the batch pays for the trip; the
calibrated cost models will take this over.
"""

from __future__ import annotations

from rlxweb.backends.pool import pool
from rlxweb.compile.plan import Decision
from rlxweb.devices.choose import gpu_worth_it
from rlxweb.devices.device import Device, DeviceLike, parse_device
from rlxweb.errors import DTypeError, Unsupported
from rlxweb.signal.engine import NUMPY, Engine, device_engine, refusal
from rlxweb.signal.spec import WelchSpec


def flops(spec: WelchSpec, n_rows: int, n_samples: int) -> float:
    """5 n log2 n per transform, plus window and power."""
    n = spec.nfft
    per_segment = 2.5 * n * max(1, n.bit_length() - 1) + 4 * n
    return float(n_rows * spec.segments_of(n_samples) * per_segment)


def choose_engine(
    spec: WelchSpec,
    n_rows: int,
    n_samples: int,
    device: DeviceLike | None,
    adapter: str = "",
) -> tuple[Engine, Decision]:
    """The engine for rows [n_rows, n_samples] and why.

    Errors   UnknownDevice; AdapterMissing; DTypeError when a device is asked to compute
    what it would have to narrow; Unsupported for an estimate it has no kernel for.
    """
    if device is not None and device != "auto":
        return _asked(spec, parse_device(device), adapter)
    numbers = {"flops": flops(spec, n_rows, n_samples), "rows": n_rows}

    def numpy(why: str) -> tuple[Engine, Decision]:
        return NUMPY, Decision("CPU (NumPy)", why, numbers)

    reason = refusal(spec)
    if reason:
        return numpy(reason)
    gpu, why = gpu_worth_it(numbers["flops"], adapter)
    if gpu is None:
        return numpy(why)
    return device_engine(Device.GPU, adapter), Decision(gpu.name, why, numbers)


def _asked(spec: WelchSpec, device: Device, adapter: str) -> tuple[Engine, Decision]:
    if device is Device.CPU:
        return NUMPY, Decision("CPU (NumPy)", "it was asked for")
    pool.backend(device.label, adapter)
    reason = refusal(spec)
    if reason and spec.dtype == "float64":
        raise DTypeError(
            f"welch on {device.display}",
            reason,
            "nothing is narrowed unasked",
            "pass precision='f32', give float32 samples, or use device='cpu'",
        )
    if reason:
        raise Unsupported(f"welch on {device.display}", reason, hint="use device='cpu'")
    engine = device_engine(device, adapter)
    return engine, Decision(engine.name, "it was asked for")
