"""Which devices may be used, which first, and what the environment says about it.

One of the two places that read the environment. Nonsense in a variable is warned about
by name and then ignored: a typing error must not stop a program, nor pass unseen.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeVar

from rlxweb.arguments import whole
from rlxweb.backends.registry import named_only
from rlxweb.callers import outside
from rlxweb.device import (
    Device,
    DeviceLike,
    devices_named,
    further_devices,
    parse_device,
    parse_device_list,
    rank,
)
from rlxweb.errors import EnvironmentWarning, UsageError, shown

T = TypeVar("T")
CalibrationMode = Literal["lazy", "off"]
FastMode = Literal["background", "wait", "off"]
_LAST = 255
DENIED = "denied by DevicePolicy"
NOT_ALLOWED = "not in DevicePolicy allow-list"


class DevicePickStrategy:
    """Way to find the fastest device: `CostModel`, or `Benchmark(runs)`.

    RLX's name; `DevicePolicy.pick_strategy()` gives one.
    """

    __slots__ = ()
    CostModel: ClassVar[CostModelPick]
    Benchmark: ClassVar[type[BenchmarkPick]]


@dataclass(frozen=True, slots=True)
class CostModelPick(DevicePickStrategy):
    """Take the device with the smallest predicted time."""


@dataclass(frozen=True, slots=True)
class BenchmarkPick(DevicePickStrategy):
    """Run on every device, `runs` times each, and take the fastest."""

    runs: int


DevicePickStrategy.CostModel = CostModelPick()
DevicePickStrategy.Benchmark = BenchmarkPick
PickStrategy = CostModelPick | BenchmarkPick


@dataclass(frozen=True, slots=True)
class DevicePolicy:
    """Allowed, denied and preferred devices, and how the fastest is found.

    allow    None: all of them
    prefer   goes before RLX's priority in lists; where a device is picked by predicted
             time, a preferred one is taken when it is within 10 % of the best (RLX's
             pick ignores the list)
    """

    allow: tuple[Device, ...] | None = None
    deny: tuple[Device, ...] = ()
    prefer: tuple[Device, ...] = ()
    pick: PickStrategy = CostModelPick()

    def __post_init__(self) -> None:
        """By Device, whatever names they had. Errors  UnknownDevice, UsageError."""
        for name in ("allow", "deny", "prefer"):
            if getattr(self, name):
                object.__setattr__(self, name, _devices(getattr(self, name)))
        _must_be_strategy(self.pick)

    @classmethod
    def all(cls) -> DevicePolicy:
        """Every device, the fastest by prediction."""
        return cls()

    @classmethod
    def only(cls, devices: Iterable[DeviceLike] | str) -> DevicePolicy:
        """These devices and no others."""
        return cls(allow=_devices(devices))

    def with_deny(self, devices: Iterable[DeviceLike] | str) -> DevicePolicy:
        """The same without these; denying adds up over calls."""
        return replace(self, deny=_devices((*self.deny, *_devices(devices))))

    def with_prefer(self, devices: Iterable[DeviceLike] | str) -> DevicePolicy:
        """The same with these preferred, after those already preferred."""
        return replace(self, prefer=_devices((*self.prefer, *_devices(devices))))

    def with_benchmark_pick(self, runs: int) -> DevicePolicy:
        """The same, but the fastest is found by running: at least once.

        Errors   UsageError for what is no whole number.
        """
        times = max(1, whole("runs", runs, "with_benchmark_pick"))
        return replace(self, pick=BenchmarkPick(times))

    def pick_strategy(self) -> PickStrategy:
        return self.pick

    @property
    def probe_set(self) -> tuple[Device, ...]:
        """The devices worth asking about: those allowed, or RLX's twelve."""
        return tuple(Device) if self.allow is None else self.allow

    @property
    def candidates(self) -> tuple[Device, ...]:
        """The devices to pick from where nobody names one, in order.

        All that are permitted, but of those that are only used when somebody names them
        (MLX on a CPU, say) the ones that `allow` or `prefer` names.
        """
        named = (*(self.allow or ()), *self.prefer)
        every = (*Device, *further_devices()) if self.allow is None else self.allow
        return self.apply([d for d in every if d in named or not named_only(d.label)])

    def permits(self, device: DeviceLike) -> bool:
        """Allowed and not denied."""
        which = parse_device(device)
        allowed = self.allow is None or which in self.allow
        return allowed and which not in self.deny

    def apply(self, devices: Iterable[DeviceLike] | str) -> tuple[Device, ...]:
        """Those permitted, preferred ones first, then by priority; stable."""
        kept = [d for d in devices_named(devices) if self.permits(d)]
        return tuple(sorted(kept, key=self._rank))

    def _rank(self, device: Device) -> tuple[int, float]:
        wish = self.prefer.index(device) if device in self.prefer else _LAST
        return wish, rank(device)

    @classmethod
    def from_env(cls) -> DevicePolicy:
        """RLX_DEVICES, RLX_DENY_DEVICES, RLX_PREFER_DEVICES, RLX_BENCHMARK_PICK.

        The last is how many runs find the fastest; 0 and the words for no leave that to
        the prediction.
        """
        return cls.from_env_key("RLX")

    @classmethod
    def from_env_key(cls, prefix: str) -> DevicePolicy:
        """The same with another prefix: P_DEVICES, P_DENY_DEVICES and so on.

        RLX reads RLX_P_DEVICES here, which its own documentation does not say.
        Nonsense is warned about (EnvironmentWarning) and ignored.
        """
        if not any(map(os.environ.__contains__, _named_by(prefix))):
            return _DEFAULT if cls is DevicePolicy else cls()
        allow = _read(f"{prefix}_DEVICES", parse_device_list)
        deny = _read(f"{prefix}_DENY_DEVICES", parse_device_list)
        prefer = _read(f"{prefix}_PREFER_DEVICES", parse_device_list)
        runs = _read(f"{prefix}_BENCHMARK_PICK", _runs)
        policy = cls(allow=allow, deny=deny or (), prefer=prefer or ())
        return policy.with_benchmark_pick(runs) if runs else policy


def why_not_permitted(policy: DevicePolicy, device: Device) -> str:
    """Return why a policy does not permit a device, by the setting; "" if it does.

    A variable is named where it is set, since `from_env` reads the setting from it.
    """
    if device in policy.deny:
        return _setting(DENIED, "deny", policy.deny, "RLX_DENY_DEVICES")
    if policy.allow is not None and device not in policy.allow:
        return _setting(NOT_ALLOWED, "allow", policy.allow, "RLX_DEVICES")
    return ""


def _setting(what: str, name: str, devices: Iterable[Device], variable: str) -> str:
    labels = ", ".join(device.label for device in devices) or "no device"
    text = os.environ.get(variable, "").strip()
    return f"{what}: {name} is {labels}" + (f", {variable}={text!r}" if text else "")


def _must_be_strategy(given: object) -> None:
    if not isinstance(given, PickStrategy):
        hint = "with_benchmark_pick(runs) makes one"
        problem = f"pick is {shown(given)}"
        raise UsageError("DevicePolicy", problem, "a strategy is wanted", hint)


@lru_cache(maxsize=16)
def _named_by(prefix: str) -> tuple[str, ...]:
    """The variables of a policy under a prefix."""
    names = ("DEVICES", "DENY_DEVICES", "PREFER_DEVICES", "BENCHMARK_PICK")
    return tuple(f"{prefix}_{name}" for name in names)


_DEFAULT = DevicePolicy()
_NO = ("0", "false", "off", "no")
_YES = ("true", "on", "yes")
_BENCHMARK_RUNS = 3
"""Runs on each device where RLX_BENCHMARK_PICK says no number but yes."""


def device_from_env(prefix: str = "RLX") -> Device | None:
    """P_DEVICE: one device; None when unset or nonsense (which is warned about)."""
    return _read(f"{prefix}_DEVICE", parse_device)


def forced_device_from_env(prefix: str = "RLX") -> Device | None:
    """P_FORCE_DEVICE: the device that is predicted fastest, by order; None when unset.

    Nonsense is warned about and ignored.
    """
    return _read(f"{prefix}_FORCE_DEVICE", parse_device)


def device_chain_from_env(prefix: str = "RLX") -> tuple[Device, ...]:
    """P_DEVICE_CHAIN: devices to try in order; empty when unset or nonsense."""
    return _read(f"{prefix}_DEVICE_CHAIN", parse_device_list) or ()


def spelled_by_env() -> tuple[object, ...]:
    """The text of every variable that the choice of a device depends on, as it stands.

    Equal texts spell equal choices; to compare them takes less time than to read them.
    """
    # os.environ makes text of each value anew; what it holds is compared without that.
    held: Mapping[Any, object] = getattr(os.environ, "_data", os.environ)
    return tuple([held.get(name) for name in _spelling(held is os.environ)])


@lru_cache(maxsize=2)
def _spelling(as_text: bool) -> tuple[object, ...]:
    names = ("RLX_DEVICE", "RLX_FORCE_DEVICE", "RLX_FAST", *_named_by("RLX"))
    encode = None if as_text else getattr(os.environ, "encodekey", None)
    return names if encode is None else tuple(map(encode, names))


def calibration_mode_from_env() -> CalibrationMode:
    """RLX_CALIBRATION: "lazy" measures an engine when first needed, "off" never does.

    `rlxweb calibrate` measures in either mode.
    """
    return _read("RLX_CALIBRATION", _mode) or "lazy"


def fast_mode_from_env() -> FastMode:
    """RLX_FAST: how kernels for the CPU are compiled, where the extra `fast` is there.

    "background": beside NumPy, which computes until they are ready; "wait": before the
    first call that could use one; "off": never.
    """
    return _read("RLX_FAST", _fast_mode) or "background"


def cache_dir_from_env() -> str | None:
    """RLX_CACHE_DIR: the folder for calibrations; None for the platform's own."""
    return os.environ.get("RLX_CACHE_DIR") or None


def loader_environment() -> tuple[tuple[str, str], ...]:
    """The variables that decide which native libraries and drivers are loaded."""
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


def legacy_picker_from_env() -> bool:
    """RLX_FFT_LEGACY_PICKER: RLX's strategy by batch alone, as before it had costs."""
    return _flag("RLX_FFT_LEGACY_PICKER")


def picker_trace_from_env() -> bool:
    """RLX_FFT_PICKER_TRACE: what the picker of Welch strategies saw, on stderr."""
    return _flag("RLX_FFT_PICKER_TRACE")


def keeps_outputs_from_env() -> bool:
    """RLX_NO_IO_PEAKS_OUTPUT: outputs stay as they are, also where peaks would do."""
    return _flag("RLX_NO_IO_PEAKS_OUTPUT")


def _flag(name: str) -> bool:
    """RLX's rule: anything but an empty text and the words for no is a yes."""
    return os.environ.get(name, "").strip().lower() not in ("", *_NO)


def _read(name: str, parse: Callable[[str], T]) -> T | None:
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    try:
        return parse(text)
    except ValueError as error:
        warnings.warn(
            f"{name}={text!r} is ignored: {error}",
            EnvironmentWarning,
            stacklevel=outside(),
        )
        return None


def _runs(text: str) -> int:
    """0 and the words for no: none."""
    word = text.lower()
    if word in _NO or word in _YES:
        return 0 if word in _NO else _BENCHMARK_RUNS
    try:
        runs = int(text)
    except ValueError:
        runs = -1
    if runs < 0:
        raise ValueError("it is how many runs, a whole number, or 'off'")
    return runs


def _mode(text: str) -> CalibrationMode:
    word = text.lower()
    if word in _NO:
        return "off"
    if word == "lazy" or word in (*_YES, "1"):
        return "lazy"
    raise ValueError("it is 'lazy' or 'off'")


def _fast_mode(text: str) -> FastMode:
    word = text.lower()
    if word in _NO:
        return "off"
    if word == "wait":
        return "wait"
    if word == "background" or word in _YES:
        return "background"
    raise ValueError("it is 'background', 'wait' or 'off'")


def _devices(devices: Iterable[DeviceLike] | str) -> tuple[Device, ...]:
    return tuple(dict.fromkeys(devices_named(devices)))


def policy_of(given: DevicePolicy | None) -> DevicePolicy:
    """The policy, or that of all devices. Errors  UsageError for anything else."""
    if given is None:
        return DevicePolicy.all()
    if isinstance(given, DevicePolicy):
        return given
    raise UsageError(
        "policy",
        f"it is {shown(given)}",
        "a DevicePolicy is wanted",
        "DevicePolicy.only(devices) makes one; DevicePolicy.all() allows every device",
    )
