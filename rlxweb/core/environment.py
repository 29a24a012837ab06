"""Settings from the environment: how a variable is read, and those that concern no
device.

The one place below the command line that reads it. Nonsense in a variable is warned
about by name and then ignored: a typing error must not stop a program, nor pass unseen.
`select/policy.py` has the variables about devices.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal, TypeVar

from rlxweb.core.errors import EnvironmentWarning
from rlxweb.core.warning_stacklevel import caller_stacklevel

T = TypeVar("T")
CalibrationMode = Literal["lazy", "off"]
JitMode = Literal["background", "wait", "off"]
NO_WORDS = ("0", "false", "off", "no")
YES_WORDS = ("true", "on", "yes")


def raw_values(names: tuple[str, ...]) -> tuple[object, ...]:
    """Return the present values of variables in a form that is good for comparing.

    os.environ makes text of each value anew; what it holds is compared without that.
    """
    values: Mapping[Any, object] = getattr(os.environ, "_data", os.environ)
    keys = names if values is os.environ else _encoded_names(names)
    return tuple([values.get(key) for key in keys])


@lru_cache(maxsize=64)
def _encoded_names(names: tuple[str, ...]) -> tuple[object, ...]:
    """Return the names of variables as keys of the table in os.environ."""
    encode: Callable[[str], object] = getattr(os.environ, "encodekey", str)
    return tuple(map(encode, names))


@lru_cache(maxsize=16)
def policy_variables(prefix: str) -> tuple[str, ...]:
    """Return the variables of a device policy under a prefix."""
    names = ("DEVICES", "DENY_DEVICES", "PREFER_DEVICES", "BENCHMARK_PICK")
    return tuple(f"{prefix}_{name}" for name in names)


_CHOICE_VARIABLES = (
    *("RLX_DEVICE", "RLX_FORCE_DEVICE", "RLX_FAST"),
    *policy_variables("RLX"),
)


def choice_environment() -> tuple[object, ...]:
    """Return the present text of every variable that the choice of a device depends on.

    Equal texts spell equal choices; to compare them takes less time than to read them.
    """
    return raw_values(_CHOICE_VARIABLES)


def variable_text(name: str) -> str:
    """Return the text of a variable without spaces around it; "" when unset."""
    if raw_values((name,)) == (None,):  # asked often, and by far the usual answer
        return ""
    return os.environ.get(name, "").strip()


def read_variable(name: str, parse: Callable[[str], T]) -> T | None:
    """Parse a variable; None when unset, and with a warning when invalid."""
    text = variable_text(name)
    if not text:
        return None
    try:
        return parse(text)
    except ValueError as error:
        warnings.warn(
            f"{name}={text!r} is ignored: {error}",
            EnvironmentWarning,
            stacklevel=caller_stacklevel(),
        )
        return None


def calibration_mode() -> CalibrationMode:
    """Return RLX_CALIBRATION: "lazy" measures an engine when first needed, "off" never
    does.

    `rlxweb calibrate` measures in either mode.
    """
    return read_variable("RLX_CALIBRATION", _parse_calibration_mode) or "lazy"


def jit_mode() -> JitMode:
    """Return RLX_FAST: how native CPU kernels are compiled if the extra `fast` is
    installed.

    "background": beside NumPy, which computes until they are ready; "wait": before the
    first call that could use one; "off": never.
    """
    return read_variable("RLX_FAST", _parse_jit_mode) or "background"


def cache_dir() -> str | None:
    """Return RLX_CACHE_DIR, the folder for calibrations; None for the platform's
    own.
    """
    return os.environ.get("RLX_CACHE_DIR") or None


def loader_environment() -> tuple[tuple[str, str], ...]:
    """Return the variables that decide which native libraries and drivers are
    loaded.
    """
    return tuple((name, os.environ.get(name, "")) for name in _LOADER_VARIABLES)


_LOADER_VARIABLES = (
    "CUDA_HOME",
    "CUDA_PATH",
    "DYLD_LIBRARY_PATH",
    "JAX_PLATFORMS",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "ROCM_PATH",
    "VK_ADD_DRIVER_FILES",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_INSTANCE_LAYERS",
    "VK_LAYER_PATH",
    "XLA_FLAGS",
)


def uses_legacy_picker() -> bool:
    """Return RLX_FFT_LEGACY_PICKER: pick RLX's strategy by batch alone, without
    costs.
    """
    return _env_flag("RLX_FFT_LEGACY_PICKER")


def traces_picker() -> bool:
    """Return RLX_FFT_PICKER_TRACE: print the inputs of the picker of Welch strategies
    on stderr.
    """
    return _env_flag("RLX_FFT_PICKER_TRACE")


def keeps_outputs() -> bool:
    """Return RLX_NO_IO_PEAKS_OUTPUT: keep outputs as they are where peaks would
    suffice.
    """
    return _env_flag("RLX_NO_IO_PEAKS_OUTPUT")


def _env_flag(name: str) -> bool:
    """Return whether a variable is set to anything but an empty text or a word for
    no.
    """
    return variable_text(name).lower() not in ("", *NO_WORDS)


def _parse_calibration_mode(text: str) -> CalibrationMode:
    """Parse a calibration mode."""
    word = text.lower()
    if word in NO_WORDS:
        return "off"
    if word == "lazy" or word in (*YES_WORDS, "1"):
        return "lazy"
    raise ValueError("it must be 'lazy' or 'off'")


def _parse_jit_mode(text: str) -> JitMode:
    """Parse a JIT mode."""
    word = text.lower()
    if word in NO_WORDS:
        return "off"
    if word == "wait":
        return "wait"
    if word == "background" or word in YES_WORDS:
        return "background"
    raise ValueError("it must be 'background', 'wait' or 'off'")
