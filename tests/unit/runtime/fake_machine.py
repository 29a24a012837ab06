"""A machine of fake engines, registered under the names of devices.

Each computes right by NumPy, fails as it is told, and takes as long as it is told by
the machine's own clock. Test files that use it import its fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import pytest

from rlxweb import DevicePolicy, Graph, GraphDevices
from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Array, Backend, Program
from rlxweb.backends.registry import ROWS, Row
from rlxweb.choose.again import LOST
from rlxweb.compile.plan import Plan
from rlxweb.device import Device
from tests.made_engine import MadeEngine, Prepared

X = {"x": np.array([1, 2], np.float32)}
THREE = (Device.CPU, Device.VULKAN, Device.OPENGL)


@dataclass(eq=False)
class FakeProgram(Prepared):
    """What an engine prepared; `runs` counts those that were begun."""

    runs: int = 0
    closed: bool = False


class FakeEngine(MadeEngine):
    """The engine of one device of a machine."""

    def __init__(self, device: Device, machine: FakeMachine) -> None:
        super().__init__()
        self.device, self.machine = device, machine
        self._lost = ""

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"Fake {self.device.label}"

    @property
    def lost(self) -> str:
        return self._lost

    def fail(self, error: BaseException | None) -> None:
        if isinstance(error, LOST):
            self._lost = str(error)
        if error is not None:
            raise error

    async def prepare(self, plan: Plan) -> Program:
        self.fail(self.machine.refuses.get(self.device))
        program = FakeProgram(plan, self)
        self.machine.prepared.append((self.device, program))
        return program

    async def run(self, program: Any, feeds: Mapping[str, Array]) -> list[Array]:
        program.runs += 1
        self.machine.now += next(self.machine.takes.get(self.device, repeat(0.0)))
        self.fail(self.machine.once.pop(self.device, None))
        self.fail(self.machine.broken.get(self.device))
        return await super().run(program, feeds)

    async def release(self, program: Any) -> None:
        program.closed = True


@dataclass
class FakeMachine:
    """Opens engines, and remembers what they prepared.

    broken   what every run on a device raises
    once     what the next run on a device raises
    refuses  what preparing a graph on a device raises
    takes    how long each run on a device is, by the machine's clock
    """

    monkeypatch: pytest.MonkeyPatch
    broken: dict[Device, BaseException] = field(default_factory=dict)
    once: dict[Device, BaseException] = field(default_factory=dict)
    refuses: dict[Device, BaseException] = field(default_factory=dict)
    takes: dict[Device, Iterator[float]] = field(default_factory=dict)
    prepared: list[tuple[Device, FakeProgram]] = field(default_factory=list)
    now: float = 0.0

    def only(self, *devices: Device) -> None:
        """These devices are there from now on, and no others."""
        for label in list(ROWS):
            self.monkeypatch.delitem(ROWS, label)
        for device in devices:
            self.monkeypatch.setitem(ROWS, device.label, self.row(device))
        for name in ("_open", "_failed", "_limited"):  # the real ones stay as they are
            self.monkeypatch.setattr(pool, name, {})

    def row(self, device: Device) -> Row:
        async def opened(adapter: str) -> Backend:
            return FakeEngine(device, self)

        return Row(opened)

    def clock(self) -> Any:
        return self.now

    def of(self, device: Device) -> list[FakeProgram]:
        return [program for where, program in self.prepared if where is device]


@pytest.fixture
def three_devices(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """A machine of three devices."""
    machine = FakeMachine(monkeypatch)
    machine.only(*THREE)
    return machine


@pytest.fixture
def machine(three_devices: FakeMachine) -> FakeMachine:
    """The same by the name that most tests use."""
    return three_devices


def adding() -> Graph:
    """X [2] + w [2]."""
    graph = Graph("adding")
    graph.set_outputs([graph.input("x", (2,)) + graph.param("w", (2,))])
    return graph


def runner(policy: DevicePolicy | None = None) -> GraphDevices:
    """X + w on every device of the machine, with w = [3, 4]."""
    made = GraphDevices(adding(), policy)
    made.set_param("w", np.array([3, 4], np.float32))
    return made
