"""Policy of allowed, denied and preferred devices, and the environment variables that
set one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from rlxweb.core.argument_validation import coerce_integer
from rlxweb.core.device import (
    Device,
    DeviceLike,
    device_rank,
    extension_devices,
    parse_device,
    parse_device_list,
    parse_devices,
)
from rlxweb.core.environment import (
    NO_WORDS,
    YES_WORDS,
    policy_variables,
    raw_values,
    read_variable,
    variable_text,
)
from rlxweb.core.errors import UsageError, shown
from rlxweb.engines.registry import is_named_only

T = TypeVar("T")
_UNRANKED = 255
DENIED = "denied by DevicePolicy"
NOT_IN_ALLOW_LIST = "not in DevicePolicy allow-list"


class DevicePickStrategy:
    """Strategy to find the fastest device: `CostModel`, or `Benchmark(runs)`.

    RLX's name; `DevicePolicy.pick_strategy()` gives one.
    """

    __slots__ = ()
    CostModel: ClassVar[CostModelPick]
    Benchmark: ClassVar[type[BenchmarkPick]]


@dataclass(frozen=True, slots=True)
class CostModelPick(DevicePickStrategy):
    """Pick the device with the smallest predicted time."""


@dataclass(frozen=True, slots=True)
class BenchmarkPick(DevicePickStrategy):
    """Run on every device, `runs` times each, and pick the fastest."""

    runs: int


DevicePickStrategy.CostModel = CostModelPick()
DevicePickStrategy.Benchmark = BenchmarkPick
PickStrategy = CostModelPick | BenchmarkPick


@dataclass(frozen=True, slots=True)
class DevicePolicy:
    """Allowed, denied and preferred devices, and the strategy to pick the fastest.

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
        """Convert device names to Device. Raise UnknownDevice or UsageError."""
        for name in ("allow", "deny", "prefer"):
            if getattr(self, name):
                object.__setattr__(self, name, _unique_devices(getattr(self, name)))
        _check_strategy(self.pick)

    @classmethod
    def all(cls) -> DevicePolicy:
        """Return a policy that allows every device and picks by prediction."""
        return cls()

    @classmethod
    def only(cls, devices: Iterable[DeviceLike] | str) -> DevicePolicy:
        """Return a policy that allows these devices and no others."""
        return cls(allow=_unique_devices(devices))

    def with_deny(self, devices: Iterable[DeviceLike] | str) -> DevicePolicy:
        """Return the policy with these devices denied too."""
        return replace(
            self, deny=_unique_devices((*self.deny, *_unique_devices(devices)))
        )

    def with_prefer(self, devices: Iterable[DeviceLike] | str) -> DevicePolicy:
        """Return the policy with these devices preferred, after those already
        preferred.
        """
        return replace(
            self, prefer=_unique_devices((*self.prefer, *_unique_devices(devices)))
        )

    def with_benchmark_pick(self, runs: int) -> DevicePolicy:
        """Return the policy with the fastest device found by at least one run on each.

        Errors   UsageError for what is no whole number.
        """
        times = max(1, coerce_integer("runs", runs, "with_benchmark_pick"))
        return replace(self, pick=BenchmarkPick(times))

    def pick_strategy(self) -> PickStrategy:
        """Return the strategy to pick the fastest device."""
        return self.pick

    @property
    def probe_set(self) -> tuple[Device, ...]:
        """Devices worth probing: those allowed, or RLX's twelve."""
        return tuple(Device) if self.allow is None else self.allow

    @property
    def candidates(self) -> tuple[Device, ...]:
        """Devices to pick from when none is named, in order.

        All that are permitted, but of those that are only used when somebody names them
        (MLX on a CPU, say) the ones that `allow` or `prefer` names.
        """
        named_devices = (*(self.allow or ()), *self.prefer)
        devices = (*Device, *extension_devices()) if self.allow is None else self.allow
        return self.apply(
            [d for d in devices if d in named_devices or not is_named_only(d.label)]
        )

    def permits(self, device: DeviceLike) -> bool:
        """Return whether a device is allowed and not denied."""
        parsed = parse_device(device)
        allowed = self.allow is None or parsed in self.allow
        return allowed and parsed not in self.deny

    def apply(self, devices: Iterable[DeviceLike] | str) -> tuple[Device, ...]:
        """Return the permitted devices, preferred ones first, then by priority;
        stable.
        """
        permitted = [d for d in parse_devices(devices) if self.permits(d)]
        return tuple(sorted(permitted, key=self._rank))

    def _rank(self, device: Device) -> tuple[int, float]:
        """Return the sort key of a device."""
        preference = self.prefer.index(device) if device in self.prefer else _UNRANKED
        return preference, device_rank(device)

    @classmethod
    def from_env(cls) -> DevicePolicy:
        """Return the policy set by RLX_DEVICES, RLX_DENY_DEVICES, RLX_PREFER_DEVICES
        and RLX_BENCHMARK_PICK.

        The last is how many runs find the fastest; 0 and the words for no leave that to
        the prediction.
        """
        return cls.from_env_key("RLX")

    @classmethod
    def from_env_key(cls, prefix: str) -> DevicePolicy:
        """Return the policy set by variables with another prefix: P_DEVICES,
        P_DENY_DEVICES and so on.

        RLX reads RLX_P_DEVICES here, which its own documentation does not say.
        Nonsense is warned about (EnvironmentWarning) and ignored.
        """
        if set(raw_values(policy_variables(prefix))) == {None}:
            return _DEFAULT_POLICY if cls is DevicePolicy else cls()
        allow = read_variable(f"{prefix}_DEVICES", parse_device_list)
        deny = read_variable(f"{prefix}_DENY_DEVICES", parse_device_list)
        prefer = read_variable(f"{prefix}_PREFER_DEVICES", parse_device_list)
        runs = read_variable(f"{prefix}_BENCHMARK_PICK", _parse_runs)
        policy = cls(allow=allow, deny=deny or (), prefer=prefer or ())
        return policy.with_benchmark_pick(runs) if runs else policy


def denial_reason(policy: DevicePolicy, device: Device) -> str:
    """Return why a policy forbids a device, naming the setting; "" if it permits it.

    A variable is named where it is set, since `from_env` reads the setting from it.
    """
    if device in policy.deny:
        return _setting_reason(DENIED, "deny", policy.deny, "RLX_DENY_DEVICES")
    if policy.allow is not None and device not in policy.allow:
        return _setting_reason(NOT_IN_ALLOW_LIST, "allow", policy.allow, "RLX_DEVICES")
    return ""


def _setting_reason(
    problem: str, name: str, devices: Iterable[Device], variable: str
) -> str:
    """Return a reason with the setting and the variable it comes from."""
    labels = ", ".join(device.label for device in devices) or "no device"
    text = variable_text(variable)
    return f"{problem}: {name} is {labels}" + (f", {variable}={text!r}" if text else "")


def _check_strategy(strategy: object) -> None:
    """Raise UsageError for what is not a strategy."""
    if not isinstance(strategy, PickStrategy):
        hint = "call the method with_benchmark_pick(runs) of a DevicePolicy"
        problem = f"pick is {shown(strategy)}"
        raise UsageError("DevicePolicy", problem, "expected a strategy", hint)


_DEFAULT_POLICY = DevicePolicy()
_BENCHMARK_RUNS = 3
"""Runs on each device if RLX_BENCHMARK_PICK is a yes without a number."""


def device_from_env(prefix: str = "RLX") -> Device | None:
    """Return the device of P_DEVICE; None when unset or invalid (which is warned
    about).
    """
    return read_variable(f"{prefix}_DEVICE", parse_device)


def forced_device_from_env(prefix: str = "RLX") -> Device | None:
    """Return the device of P_FORCE_DEVICE, which is taken as the predicted fastest;
    None when unset.

    Nonsense is warned about and ignored.
    """
    return read_variable(f"{prefix}_FORCE_DEVICE", parse_device)


def device_chain_from_env(prefix: str = "RLX") -> tuple[Device, ...]:
    """Return the devices of P_DEVICE_CHAIN, to try in order; empty when unset or
    invalid.
    """
    return read_variable(f"{prefix}_DEVICE_CHAIN", parse_device_list) or ()


def _parse_runs(text: str) -> int:
    """Parse a number of runs; 0 and the words for no mean none."""
    word = text.lower()
    if word in NO_WORDS or word in YES_WORDS:
        return 0 if word in NO_WORDS else _BENCHMARK_RUNS
    try:
        runs = int(text)
    except ValueError:
        runs = -1
    if runs < 0:
        raise ValueError("it must be a whole number of runs, or 'off'")
    return runs


def _unique_devices(devices: Iterable[DeviceLike] | str) -> tuple[Device, ...]:
    """Return the devices without duplicates."""
    return tuple(dict.fromkeys(parse_devices(devices)))


def check_policy(policy: DevicePolicy | None) -> DevicePolicy:
    """Return the policy, all devices for None. Raise UsageError for anything else."""
    if policy is None:
        return DevicePolicy.all()
    if isinstance(policy, DevicePolicy):
        return policy
    raise UsageError(
        "policy",
        f"got {shown(policy)}",
        "expected a DevicePolicy",
        "use DevicePolicy.only(devices), or DevicePolicy.all() for every device",
    )
