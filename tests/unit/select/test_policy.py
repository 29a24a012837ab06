"""Device policies and environment variables: order, and warnings that name the
variable.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.core.device import RLX_PRIORITY, Device
from rlxweb.core.environment import (
    cache_dir,
    calibration_mode,
    keeps_outputs,
    traces_picker,
    uses_legacy_picker,
)
from rlxweb.core.errors import EnvironmentWarning, UnknownDevice, UsageError
from rlxweb.select.policy import (
    BenchmarkPick,
    CostModelPick,
    DevicePickStrategy,
    DevicePolicy,
    device_chain_from_env,
    device_from_env,
    forced_device_from_env,
)

FLAGS = {
    "RLX_FFT_LEGACY_PICKER": uses_legacy_picker,
    "RLX_FFT_PICKER_TRACE": traces_picker,
    "RLX_NO_IO_PEAKS_OUTPUT": keeps_outputs,
}

DEVICES = st.lists(st.sampled_from(Device), unique=True)


def test_the_default_allows_all_by_priority() -> None:
    policy = DevicePolicy.all()
    assert policy.probe_set == tuple(Device)
    assert policy.apply(tuple(Device)) == RLX_PRIORITY
    assert policy.pick_strategy() == CostModelPick()


def test_builders_add_up() -> None:
    """Denying and preferring extend; a benchmark runs at least once."""
    policy = (
        DevicePolicy.only(["gpu", "vk", Device.CPU])
        .with_deny("vulkan")
        .with_deny(["metal"])
        .with_prefer(["cpu"])
        .with_prefer(["gpu", "cpu"])
        .with_benchmark_pick(0)
    )
    assert policy.allow == (Device.GPU, Device.VULKAN, Device.CPU)
    assert policy.deny == (Device.VULKAN, Device.METAL)
    assert policy.prefer == (Device.CPU, Device.GPU)
    assert policy.pick_strategy() == BenchmarkPick(1)
    assert policy.apply(tuple(Device)) == (Device.CPU, Device.GPU)
    assert DevicePolicy.only([]).apply(tuple(Device)) == ()
    for bad_count in (None, 2.7, "3"):
        with pytest.raises(UsageError, match="with_benchmark_pick"):
            policy.with_benchmark_pick(bad_count)
    with pytest.raises(UnknownDevice):
        DevicePolicy.only(["gpu", "abacus"])


@given(allow=st.none() | DEVICES, deny=DEVICES, prefer=DEVICES, given_=DEVICES)
def test_apply_keeps_permitted_devices_in_order(
    allow: list[Device] | None,
    deny: list[Device],
    prefer: list[Device],
    given_: list[Device],
) -> None:
    """Devices are allowed and not denied, preferred ones first, then by priority."""
    policy = DevicePolicy(
        None if allow is None else tuple(allow), tuple(deny), tuple(prefer)
    )
    permitted = [d for d in given_ if (allow is None or d in allow) and d not in deny]
    preferred = [d for d in prefer if d in permitted]
    rest = [d for d in RLX_PRIORITY if d in permitted and d not in prefer]
    assert policy.apply(given_) == (*preferred, *rest)


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment without variables of the prefix APP (RLX's are gone already)."""
    for name in [name for name in os.environ if name.startswith("APP_")]:
        monkeypatch.delenv(name)
    return monkeypatch


def test_an_empty_environment_is_the_default() -> None:
    assert DevicePolicy.from_env() == DevicePolicy.all()
    assert device_from_env() is None
    assert device_chain_from_env() == ()


def test_all_variables_are_read(env: pytest.MonkeyPatch) -> None:
    env.setenv("RLX_DEVICES", "cpu, gpu;vk")
    env.setenv("RLX_DENY_DEVICES", "vulkan")
    env.setenv("RLX_PREFER_DEVICES", "cpu")
    env.setenv("RLX_BENCHMARK_PICK", "4")
    env.setenv("RLX_DEVICE", " GL ")
    env.setenv("RLX_DEVICE_CHAIN", "cuda cpu")
    policy = DevicePolicy.from_env()
    assert policy.allow == (Device.CPU, Device.GPU, Device.VULKAN)
    assert policy.deny == (Device.VULKAN,)
    assert policy.prefer == (Device.CPU,)
    assert policy.pick_strategy() == BenchmarkPick(4)
    assert device_from_env() is Device.OPENGL
    assert device_chain_from_env() == (Device.CUDA, Device.CPU)


def test_another_prefix_replaces_the_default(env: pytest.MonkeyPatch) -> None:
    """A prefix APP reads APP_DEVICES, not RLX_APP_DEVICES."""
    env.setenv("APP_DEVICES", "cpu")
    env.setenv("RLX_APP_DEVICES", "gpu")
    assert DevicePolicy.from_env_key("APP").allow == (Device.CPU,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RLX_DEVICES", "cpu,abacus"),
        ("RLX_DENY_DEVICES", "gpuu"),
        ("RLX_PREFER_DEVICES", ";;"),
        ("RLX_BENCHMARK_PICK", "often"),
        ("RLX_BENCHMARK_PICK", "-1"),
        ("RLX_BENCHMARK_PICK", "2.5"),
    ],
)
def test_invalid_values_are_named_and_ignored(
    env: pytest.MonkeyPatch, name: str, value: str
) -> None:
    env.setenv(name, value)
    with pytest.warns(EnvironmentWarning, match=f"{name}='{value}' is ignored"):
        policy = DevicePolicy.from_env()
    assert policy == DevicePolicy.all()


@pytest.mark.parametrize("no", ["0", "off", "False", " no ", "00"])
def test_no_is_no_in_every_spelling(env: pytest.MonkeyPatch, no: str) -> None:
    """Every spelling of no switches the setting off without a warning."""
    env.setenv("RLX_BENCHMARK_PICK", no)
    assert DevicePolicy.from_env() == DevicePolicy.all()
    env.setenv("RLX_CALIBRATION", no.replace("00", "0"))
    assert calibration_mode() == "off"
    for name, read_flag in FLAGS.items():
        env.setenv(name, no.replace("00", ""))
        assert not read_flag()


@pytest.mark.parametrize("yes", ["1", "on", "TRUE", " yes "])
def test_yes_is_yes_in_every_spelling(env: pytest.MonkeyPatch, yes: str) -> None:
    """Any spelling of yes enables a setting, as does any other text in RLX; 1 means one
    run.
    """
    env.setenv("RLX_BENCHMARK_PICK", yes)
    runs = 1 if yes == "1" else 3
    assert DevicePolicy.from_env().pick_strategy() == BenchmarkPick(runs)
    env.setenv("RLX_CALIBRATION", yes)
    assert calibration_mode() == "lazy"
    for name, read_flag in FLAGS.items():
        assert not read_flag()
        for text in (yes, "please"):
            env.setenv(name, text)
            assert read_flag()


def test_invalid_device_variables_are_ignored(env: pytest.MonkeyPatch) -> None:
    env.setenv("RLX_DEVICE", "vulcan")
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICE='vulcan'.*'vulkan'"):
        assert device_from_env() is None
    env.setenv("RLX_FORCE_DEVICE", "vulcan")
    with pytest.warns(EnvironmentWarning, match="RLX_FORCE_DEVICE='vulcan'"):
        assert forced_device_from_env() is None
    env.setenv("RLX_FORCE_DEVICE", "vk")
    assert forced_device_from_env() is Device.VULKAN
    env.setenv("RLX_DEVICE_CHAIN", "cpu,abacus")
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICE_CHAIN"):
        assert device_chain_from_env() == ()


def test_calibration_and_cache_folder(env: pytest.MonkeyPatch) -> None:
    for text, mode in (("off", "off"), ("LAZY", "lazy"), ("no", "off"), ("", "lazy")):
        env.setenv("RLX_CALIBRATION", text)
        assert calibration_mode() == mode
    env.setenv("RLX_CALIBRATION", "maybe")
    with pytest.warns(EnvironmentWarning, match="RLX_CALIBRATION='maybe'"):
        assert calibration_mode() == "lazy"
    env.setenv("RLX_CACHE_DIR", "somewhere")
    assert cache_dir() == "somewhere"
    env.delenv("RLX_CACHE_DIR")
    assert cache_dir() is None


@pytest.mark.parametrize("names", ["vk", ["vk"], ("Vulkan",), {"vulkan"}])
def test_a_policy_accepts_any_device_name(names: Any) -> None:
    """A policy built without its builder methods also accepts any name of a device."""
    assert DevicePolicy(deny=names) == DevicePolicy.all().with_deny("vulkan")
    assert DevicePolicy(allow=names) == DevicePolicy.only("vulkan")
    assert DevicePolicy(prefer=names) == DevicePolicy.all().with_prefer("vulkan")
    assert not DevicePolicy(deny=names).permits("vk")
    assert DevicePolicy(allow=names).apply("cpu, VK") == (Device.VULKAN,)


def test_invalid_policies_are_refused_at_construction() -> None:
    with pytest.raises(UnknownDevice, match="abacus"):
        DevicePolicy(deny=("abacus",))
    for pick in ("benchmark", 3, None):
        with pytest.raises(UsageError, match=r"pick is .* expected a strategy"):
            DevicePolicy(pick=pick)


def test_strategies_have_rlx_names() -> None:
    assert DevicePolicy.all().pick_strategy() == DevicePickStrategy.CostModel
    policy = DevicePolicy(pick=DevicePickStrategy.Benchmark(3))
    assert policy == DevicePolicy.all().with_benchmark_pick(3)
    for strategy in (DevicePickStrategy.CostModel, policy.pick_strategy()):
        assert isinstance(strategy, DevicePickStrategy)
