"""Devices made up for tests: each compiles and runs as it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import pytest

from rlxweb import DevicePolicy, Graph, GraphDevices
from rlxweb.choose import resolve
from rlxweb.device import Device
from rlxweb.runners import resolver

X = {"x": np.array([1, 2], np.float32)}
THREE = (Device.CPU, Device.VULKAN, Device.OPENGL)


@dataclass
class FakeCompiled:
    """x + w, or whatever error the device is told to raise."""

    device: Device
    fail: BaseException | None = None
    params: dict[str, Any] = field(default_factory=dict)
    runs: int = 0
    closed: bool = False
    on_run: Callable[[], None] = lambda: None

    def set_param(self, name: str, value: Any) -> None:
        self.params[name] = np.array(value)

    def run(self, inputs: Mapping[str, Any] | None = None) -> list[Any]:
        self.runs += 1
        self.on_run()
        if self.fail is not None:
            raise self.fail
        return [np.asarray((inputs or {})["x"]) + self.params.get("w", 0)]

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeMachine:
    """Compiles for any device; remembers what it made.

    takes  how long each run on a device is, by the machine's own clock
    """

    broken: dict[Device, BaseException] = field(default_factory=dict)
    refuses: dict[Device, BaseException] = field(default_factory=dict)
    made: list[FakeCompiled] = field(default_factory=list)
    takes: dict[Device, Iterator[float]] = field(default_factory=dict)
    now: float = 0.0

    def compile(self, device: Device, graph: Graph) -> FakeCompiled:
        if device in self.refuses:
            raise self.refuses[device]
        one = FakeCompiled(device, self.broken.get(device))
        one.on_run = partial(self.let_pass, device)
        self.made.append(one)
        return one

    def let_pass(self, device: Device) -> None:
        self.now += next(self.takes.get(device, repeat(0.0)))

    def clock(self) -> float:
        return self.now

    def of(self, device: Device) -> list[FakeCompiled]:
        return [one for one in self.made if one.device is device]


def adding() -> Graph:
    """X [2] + w [2]."""
    graph = Graph("adding")
    graph.set_outputs([graph.input("x", (2,)) + graph.param("w", (2,))])
    return graph


def only_there(monkeypatch: pytest.MonkeyPatch, *devices: Device) -> None:
    """These can run everything the policy allows."""

    def viable(graph: Graph, policy: Any = None, adapters: object = None) -> tuple:
        return (policy or DevicePolicy.all()).apply(devices)

    for room in (resolver, resolve):
        monkeypatch.setattr(room, "devices_for", viable)


def runner(machine: FakeMachine, policy: DevicePolicy | None = None) -> GraphDevices:
    """X + w on the made-up devices, with w = [3, 4]."""
    made = GraphDevices(adding(), policy, compile_with=machine.compile)
    made.set_param("w", np.array([3, 4], np.float32))
    return made
