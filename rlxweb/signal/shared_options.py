"""Options that several signal functions share, described once."""

from __future__ import annotations

from typing import Final

from rlxweb.core.function_options import FROM_SIGNATURE, Option
from rlxweb.signal.precision import PRECISIONS

WINDOW_OPTION: Final = Option(
    "Window, with parameters after commas (kaiser,8.6); default: from the preset."
)
DEVICE_OPTION: Final = Option("auto, or a name from `rlxweb devices`.", default="auto")
ADAPTER_OPTION: Final = Option(
    "Use the GPU adapter whose name contains this text.", default=FROM_SIGNATURE
)
PRECISION_OPTION: Final = Option(
    "auto: the precision of the samples; f32: float32; f64: float64 throughout.",
    choices=PRECISIONS,
    default="auto",
)
NAN_OPTION: Final = Option(
    "How to handle samples that are not finite.",
    choices=("raise", "propagate"),
    default=FROM_SIGNATURE,
)
