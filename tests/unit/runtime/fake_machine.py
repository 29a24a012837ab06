"""Fake machine with NumPy-backed engines registered under real device names.

Each computes right by NumPy, fails as it is told, and takes as long as it is told by
the machine's own clock. Test files that use it import its fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import pytest

from rlxweb import DevicePolicy, Graph, GraphDevices
from rlxweb.compiler.plan import Plan
from rlxweb.core.device import Device
from rlxweb.engines.host_engine import HostProgram
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import Engine, EngineIdentity, Feeds
from rlxweb.engines.registry import ROWS, Row
from rlxweb.select.device_loss_retry import DEVICE_LOST
from tests.numpy_test_engine import NumpyTestEngine

X = {"x": np.array([1, 2], np.float32)}
THREE_DEVICES = (Device.CPU, Device.VULKAN, Device.OPENGL)


class FakeProgram(HostProgram):
    """Prepared program; `runs` counts the runs that started."""

    runs = 0
    closed = False

    async def close(self) -> None:
        self.closed = True


class FakeEngine(NumpyTestEngine):
    """Engine of one device of the fake machine."""

    def __init__(self, device: Device, machine: FakeMachine) -> None:
        super().__init__()
        self.device, self.machine = device, machine
        self.identity = EngineIdentity(f"Fake {self.device.label}")
        self._lost = ""

    @property
    def lost(self) -> str:
        return self._lost

    def raise_error(self, error: BaseException | None) -> None:
        if isinstance(error, DEVICE_LOST):
            self._lost = str(error)
        if error is not None:
            raise error

    async def prepare(self, plan: Plan) -> HostProgram:
        self.raise_error(self.machine.prepare_errors.get(self.device))
        program = FakeProgram(plan, self)
        self.machine.prepared_programs.append((self.device, program))
        return program

    async def run(
        self, program: Any, feeds: Feeds, keep: Sequence[bool] = ()
    ) -> list[Any]:
        program.runs += 1
        self.machine.now += next(
            self.machine.run_durations.get(self.device, repeat(0.0))
        )
        self.raise_error(self.machine.next_run_errors.pop(self.device, None))
        self.raise_error(self.machine.run_errors.get(self.device))
        return await super().run(program, feeds, keep)


@dataclass
class FakeMachine:
    """Registry of fake engines that records the programs they prepare.

    run_errors  what every run on a device raises
    next_run_errors  what the next run on a device raises
    prepare_errors  what preparing a graph on a device raises
    run_durations  how long each run on a device is, by the machine's clock
    """

    monkeypatch: pytest.MonkeyPatch
    run_errors: dict[Device, BaseException] = field(default_factory=dict)
    next_run_errors: dict[Device, BaseException] = field(default_factory=dict)
    prepare_errors: dict[Device, BaseException] = field(default_factory=dict)
    run_durations: dict[Device, Iterator[float]] = field(default_factory=dict)
    prepared_programs: list[tuple[Device, FakeProgram]] = field(default_factory=list)
    now: float = 0.0

    def install_only(self, *devices: Device) -> None:
        """Register these devices and remove all others."""
        for label in list(ROWS):
            self.monkeypatch.delitem(ROWS, label)
        for device in devices:
            self.monkeypatch.setitem(ROWS, device.label, self.registry_row(device))
        for name in (
            "_engines",
            "_failures",
            "_limited_engines",
        ):  # the real ones stay as they are
            self.monkeypatch.setattr(pool, name, {})

    def registry_row(self, device: Device) -> Row:
        async def open_engine(adapter: str) -> Engine:
            return FakeEngine(device, self)

        return Row(open_engine)

    def clock(self) -> Any:
        return self.now

    def programs_on(self, device: Device) -> list[FakeProgram]:
        return [
            program
            for program_device, program in self.prepared_programs
            if program_device is device
        ]


@pytest.fixture
def three_devices(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """Fake machine with three devices."""
    machine = FakeMachine(monkeypatch)
    machine.install_only(*THREE_DEVICES)
    return machine


@pytest.fixture
def machine(three_devices: FakeMachine) -> FakeMachine:
    """Fake machine with three devices, under the name that most tests use."""
    return three_devices


def add_graph() -> Graph:
    """Build the graph x [2] + w [2]."""
    graph = Graph("adding")
    graph.set_outputs([graph.input("x", (2,)) + graph.param("w", (2,))])
    return graph


def make_graph_devices(policy: DevicePolicy | None = None) -> GraphDevices:
    """Build x + w on every device of the machine, with w = [3, 4]."""
    graph_devices = GraphDevices(add_graph(), policy)
    graph_devices.set_param("w", np.array([3, 4], np.float32))
    return graph_devices
