"""Single ops on lavapipe against hand-written shaders on the same adapter.

Each op is timed twice: resident (the inputs lie on the device, four bytes are awaited),
which is what the published figures are, and as a call (upload, run, read back).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import rlxweb as rlx
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Copy, DeviceFacts, Range
from tests.benchmarks import hand_written
from tests.benchmarks.cells import Entry, Goal, Work, three_more
from tests.benchmarks.machine import lavapipe
from tests.benchmarks.raw_device import Kernel, RawDevice

CHAIN = 4 << 20
ADDS = 100
WORST = 3.0

Arrays = Mapping[str, np.ndarray]


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """Every cell's name and how to make it; none without the adapter."""
    facts = lavapipe()
    if facts is None:
        return
    for name, make in (
        ("by hand matmul 512", _matmul),
        ("by hand softmax [1024, 1024]", _softmax),
        ("by hand chain gelu(2x+1)·y of 4M", _chain),
        ("by hand 100 dependent adds [1024]", _adds),
    ):
        yield name, lambda name=name, make=make: make(name, facts)


class Prepared:
    """One of our graphs on lavapipe, with its inputs on the device."""

    def __init__(
        self,
        build: Callable[[rlx.Graph, Callable[..., Any]], Any],
        arrays: Arrays,
        optimise: bool = True,
    ) -> None:
        self.arrays = dict(arrays)
        session = rlx.Session("vulkan", adapter="llvmpipe", optimise=optimise)
        self.fed = session.compile(_graph(build, arrays, "input"))
        self.kept = session.compile(_graph(build, arrays, "param"))
        for name, array in arrays.items():
            self.kept.set_param(name, array)
        ready = self.kept._placed.ready
        self.program, self.port = ready.program, ready.backend.port
        self.commands = [self._shortened(c) for c in self.program.commands]

    def _shortened(self, command: Any) -> Any:
        """The read-back cut to four bytes: what is left is the work and a wait."""
        if isinstance(command, Copy) and command.target == self.program.readback:
            source = command.source
            return Copy(Range(source.handle, source.offset, 4), command.target, 0)
        return command

    def call(self) -> np.ndarray:
        (out,) = self.fed.run(self.arrays)
        return np.asarray(out)

    def resident(self) -> None:
        self.port.submit(self.commands)
        drive(self.port.read(self.program.readback, 0, 4))

    def steady(self) -> dict[str, Any]:
        """What three more calls compiled and allocated."""
        return three_more(self.port, self.call)

    def close(self) -> None:
        self.fed.close()
        self.kept.close()


def _graph(
    build: Callable[[rlx.Graph, Callable[..., Any]], Any], arrays: Arrays, leaf: str
) -> rlx.Graph:
    graph = rlx.Graph("bench")
    made = {n: getattr(graph, leaf)(n, a.shape, "f32") for n, a in arrays.items()}
    graph.set_outputs([build(graph, **made)])
    return graph


@dataclass(slots=True)
class ByHand:
    """One op in raw wgpu: its buffers, its kernels and how to bring the answer back."""

    device: RawDevice
    arrays: Sequence[np.ndarray]
    shape: tuple[int, ...]
    inputs: list[Any] = field(default_factory=list)
    output: Any = None
    stage: Any = None

    def __post_init__(self) -> None:
        nbytes = 4 * int(np.prod(self.shape))
        self.inputs = [self.device.storage(array) for array in self.arrays]
        self.output = self.device.storage(nbytes)
        self.stage = self.device.staging(nbytes)

    def kernel(self, source: str, grid: tuple[int, ...]) -> Kernel:
        return self.device.kernel(source, (*self.inputs, self.output), grid)

    def call(self, kernels: Sequence[Kernel]) -> np.ndarray:
        for buffer, array in zip(self.inputs, self.arrays, strict=True):
            self.device.queue.write_buffer(buffer, 0, array)
        (out,) = self.device.run(kernels, [(self.output, self.stage)])
        return out.reshape(self.shape)


def _cell(
    name: str,
    facts: DeviceFacts,
    ours: Prepared,
    hand: ByHand,
    variants: Mapping[str, Sequence[Kernel]],
    right: np.ndarray,
    published: Sequence[float],
) -> Work:
    """Our two rows, the hand-written two per variant, and NumPy's answer."""
    entries = [
        Entry("rlxweb, resident", facts.name, ours.resident, True),
        Entry("rlxweb, call", facts.name, ours.call, True),
    ]
    for (variant, kernels), ms in zip(variants.items(), published, strict=True):
        entries += [
            Entry(
                f"hand-written{variant}, resident",
                facts.name,
                lambda kernels=kernels: hand.device.run(kernels),
                published=ms,
            ),
            Entry(
                f"hand-written{variant}, call",
                facts.name,
                lambda kernels=kernels: hand.call(kernels),
            ),
        ]
    goals = [
        Goal(
            f"rlxweb, {kind}",
            tuple(f"hand-written{variant}, {kind}" for variant in variants),
            WORST,
        )
        for kind in ("resident", "call")
    ]

    def check() -> None:
        for entry in entries:
            if entry.name.endswith("call"):
                _close_enough(entry.name, entry.peer(), right)

    def close() -> None:
        ours.close()
        hand.device.close()

    return Work(name, tuple(entries), tuple(goals), check, ours.steady, close)


def _close_enough(name: str, found: Any, right: np.ndarray) -> None:
    worst = float(np.max(np.abs(found - right)) / np.max(np.abs(right)))
    assert worst < 2e-5, f"{name}: relative error {worst:.2g}"


def _random(*shape: int) -> np.ndarray:
    """Noise, the same for each call with that shape."""
    return np.random.default_rng(shape).standard_normal(shape, dtype=np.float32)


def _matmul(name: str, facts: DeviceFacts) -> Work:
    a, b = _random(2, 512, 512)
    ours = Prepared(lambda g, a, b: g.matmul(a, b), {"a": a, "b": b})
    hand = ByHand(RawDevice(facts.name), (a, b), (512, 512))
    kernels = [hand.kernel(*hand_written.matmul(512, 512, 512))]
    right = a.astype(np.float64) @ b.astype(np.float64)
    return _cell(name, facts, ours, hand, {"": kernels}, right, [22.0])


def _softmax(name: str, facts: DeviceFacts) -> Work:
    x = _random(1024, 1024)
    ours = Prepared(lambda g, x: g.softmax(x), {"x": x})
    hand = ByHand(RawDevice(facts.name), (x,), x.shape)
    kernels = [hand.kernel(hand_written.softmax(1024), (1024,))]
    wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    right = wide / wide.sum(axis=1, keepdims=True)
    return _cell(name, facts, ours, hand, {"": kernels}, right, [2.50])


def _chain(name: str, facts: DeviceFacts) -> Work:
    x, y = _random(2, CHAIN)
    ours = Prepared(lambda g, x, y: g.gelu_approx(x * 2.0 + 1.0) * y, {"x": x, "y": y})
    hand = ByHand(RawDevice(facts.name), (x, y), x.shape)
    variants = {
        f" ({form})": [hand.kernel(hand_written.chain(form), (CHAIN // 1024,))]
        for form in hand_written.GELU_FORMS
    }
    t = x.astype(np.float64) * 2 + 1
    right = 0.5 * t * (1 + np.tanh(0.7978845608 * (t + 0.044715 * t**3))) * y
    return _cell(name, facts, ours, hand, variants, right, [7.7, 6.96])


def _adds(name: str, facts: DeviceFacts) -> Work:
    """A chain of 100 additions: fused by us, and as 100 dispatches by both sides."""
    x = _random(1024)

    def build(graph: rlx.Graph, x: Any) -> Any:
        for _ in range(ADDS):
            x = x + 1.0
        return x

    ours = Prepared(build, {"x": x})
    unfused = Prepared(build, {"x": x}, optimise=False)
    hand = ByHand(RawDevice(facts.name), (x,), x.shape)
    there = hand.kernel(hand_written.ADD, (16,))
    back = hand.device.kernel(
        hand_written.ADD, (hand.output, hand.inputs[0]), there.grid
    )
    # 99 dispatches there and back, the last one there: the answer lies in `output`.
    steps = ([there, back] * ADDS)[: ADDS - 1]
    last = hand.device.storage(x.nbytes)
    move = hand.device.kernel(hand_written.ADD, (hand.output, last), there.grid)
    hand.output = last
    fused = hand.kernel(hand_written.adds_fused(ADDS), (16,))
    variants = {", 100 dispatches": [*steps, move], ", fused": [fused]}
    right = x + np.float64(ADDS)
    work = _cell(name, facts, ours, hand, variants, right, [2.58, 0.10])
    return _with_unfused(work, unfused, facts)


def _with_unfused(work: Work, unfused: Prepared, facts: DeviceFacts) -> Work:
    """Add our graph compiled without fusing, which is 100 dispatches as well."""
    name = "rlxweb unfused, resident"

    def close() -> None:
        unfused.close()
        work.close()

    goal = Goal(name, ("hand-written, 100 dispatches, resident",), WORST)
    return replace(
        work,
        entries=(*work.entries, Entry(name, facts.name, unfused.resident, True)),
        goals=(*work.goals, goal),
        close=close,
    )
