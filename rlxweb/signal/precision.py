"""The one rule of precision, whoever asks: Python, the command line, the environment.

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

from rlxweb.advice import Advice
from rlxweb.digital import BITS
from rlxweb.errors import DTypeError, UsageError
from rlxweb.host.spec import DIGITAL, sample_dtype

Precision = Literal["auto", "f32", "f64"]
PRECISIONS: Final = get_args(Precision)
_ON_DEVICES: Final = ("float32", DIGITAL)
_ONLY: Final = "devices compute float32"
_OF_PRECISION: Final = {
    "f32": ("float32", "complex64"),
    "f64": ("float64", "complex128"),
}


@dataclass(frozen=True, slots=True)
class Taken:
    """How samples are taken, and why.

    kind       as `WelchSpec.dtype` has it
    given      their dtype, as they came
    precision  what was asked for
    """

    kind: str
    given: str
    precision: Precision = "auto"

    @property
    def only_on_host(self) -> str:
        """Why samples taken as float64 stay off every device; "" for others."""
        if self.kind != "float64":
            return ""
        if self.precision == "f64":
            return f"float64 was asked for and {_ONLY}"
        if np.dtype(self.given).kind in "iu":
            return f"the samples are {self.given} and float32 holds {BITS} bits"
        return f"the samples are {self.given} and {_ONLY}"

    def refused(self, where: str) -> DTypeError:
        """The refusal of a device that was asked for by name."""
        rule = "nothing is narrowed unasked"
        if self.precision == "f64" and sample_dtype(self.given) in _ON_DEVICES:
            hint = Advice("leave {} out, or use {}", precision="f64", device="cpu")
            return DTypeError(where, self.only_on_host, rule, hint)
        said = "pass {} to narrow them, give float32 samples, or use {}"
        hint = Advice(said, precision="f32", device="cpu")
        return DTypeError(where, self.only_on_host, rule, hint)


@lru_cache(maxsize=128)
def taken(
    dtype: DTypeLike, precision: Precision | None = None, doing: str = "welch"
) -> Taken:
    """How samples of a dtype are taken; "int24" is that of a recording's integers.

    precision  None is "auto"
    Errors     DTypeError for a dtype nobody takes; UsageError for another precision.
    """
    asked = "auto" if precision is None else precision
    if asked not in PRECISIONS:
        raise UsageError(
            doing, Advice("{}", precision=precision), "it is 'auto', 'f32' or 'f64'"
        )
    try:
        kind = sample_dtype(dtype)
    except DTypeError as error:
        error.doing = doing
        raise
    given = kind if kind == DIGITAL else str(np.dtype(dtype))
    if asked != "auto":
        kind = _OF_PRECISION[asked][kind.startswith("complex")]
    return Taken(kind, given, asked)
