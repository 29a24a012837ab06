"""Precision rule of all entry points: Python, the command line and the environment.

| samples | `auto` | `f32` | `f64` |
|---|---|---|---|
| float16, float32, complex64 | float32 | float32 | float64 |
| integers of at most 24 bits | exact everywhere, to float64 | float32 | float64 |
| wider integers, float64, complex128 | float64 | float32 | float64 |

What is to be float64 is computed by NumPy; devices compute float32. So a device that is
asked for by name either takes the samples without loss or refuses them: nothing is
narrowed unasked, and `f32` asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import DTypeLike

from rlxweb.core.adc_samples import MAX_BITS
from rlxweb.core.errors import DTypeError, UsageError
from rlxweb.core.message_text import Advice
from rlxweb.ops.welch.spec import DIGITAL_DTYPE, sample_dtype

Precision = Literal["auto", "f32", "f64"]
PRECISIONS: Final = get_args(Precision)
_DEVICE_DTYPES: Final = ("float32", DIGITAL_DTYPE)
_FLOAT32_ONLY_REASON: Final = "every device except the CPU computes in float32"
_DTYPES_BY_PRECISION: Final = {
    "f32": ("float32", "complex64"),
    "f64": ("float64", "complex128"),
}


@dataclass(frozen=True, slots=True)
class ResolvedPrecision:
    """Dtype that samples are computed in, and the reason for it.

    compute_dtype  as `WelchSpec.dtype` has it
    input_dtype  their dtype, as they came
    precision  what was asked for
    """

    compute_dtype: str
    input_dtype: str
    precision: Precision = "auto"

    @property
    def host_only_reason(self) -> str:
        """Reason why samples taken as float64 stay off every device; "" for other
        dtypes.
        """
        if self.compute_dtype != "float64":
            return ""
        if self.precision == "f64":
            return f"float64 was requested, but {_FLOAT32_ONLY_REASON}"
        if np.dtype(self.input_dtype).kind in "iu":
            return (
                f"the samples are {self.input_dtype}; float32 represents only integers "
                f"of up to {MAX_BITS} bits exactly"
            )
        return f"the samples are {self.input_dtype}, but {_FLOAT32_ONLY_REASON}"

    def refusal_error(self, context: str) -> DTypeError:
        """Return the error for a device that was requested by name but cannot compute
        these samples.
        """
        rule = "samples are never converted to float32 automatically"
        if self.precision == "f64" and sample_dtype(self.input_dtype) in _DEVICE_DTYPES:
            hint = Advice("leave {} out, or use {}", precision="f64", device="cpu")
            return DTypeError(context, self.host_only_reason, rule, hint)
        hint_text = "pass {} to convert the samples, pass float32 samples, or use {}"
        hint = Advice(hint_text, precision="f32", device="cpu")
        return DTypeError(context, self.host_only_reason, rule, hint)


@lru_cache(maxsize=128)
def resolve_precision(
    dtype: DTypeLike, precision: Precision | None = None, context: str = "welch"
) -> ResolvedPrecision:
    """Resolve the dtype in which samples are computed; "int24" is the dtype of a
    recording's integers.

    precision  None is "auto"
    Errors     DTypeError for a dtype nobody takes; UsageError for another precision.
    """
    requested = "auto" if precision is None else precision
    if requested not in PRECISIONS:
        raise UsageError(
            context, Advice("{}", precision=precision), "must be 'auto', 'f32' or 'f64'"
        )
    try:
        compute_dtype = sample_dtype(dtype)
    except DTypeError as error:
        error.doing = context
        raise
    input_dtype = (
        compute_dtype if compute_dtype == DIGITAL_DTYPE else str(np.dtype(dtype))
    )
    if requested != "auto":
        compute_dtype = _DTYPES_BY_PRECISION[requested][
            compute_dtype.startswith("complex")
        ]
    return ResolvedPrecision(compute_dtype, input_dtype, requested)
