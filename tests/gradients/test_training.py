"""Train networks and compare with JAX's training, on the CPU and on WGSL; test how a
training ends.

JAX's updates are written here from the papers' formulas, apart from ours.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import (
    InputError,
    NotFinite,
    RecordingError,
    ShapeError,
    UsageError,
)
from tests.gradients.training_tasks import TASKS, Task, mlp
from tests.suite_tiers import thin_out_cases

STEPS = 100
DEVICES = [
    pytest.param("cpu", "", id="cpu"),
    pytest.param("vulkan", "llvmpipe", id="lavapipe", marks=pytest.mark.requires_wgpu),
]


def training_step(task: Task, optimizer: Any) -> Any:
    def loss(params: Any, batch: Any) -> Any:
        return task.loss(np, rlx.nn.conv, params, batch)

    def step(state: Any, batch: Any) -> Any:
        params, moments = state
        value, grads = rlx.value_and_grad(loss)(params, batch)
        return optimizer.update(params, grads, moments), value

    return step


def jax_losses(task: Task, rate: float) -> Any:
    """Return Adam's losses, computed step by step in JAX."""
    import jax

    def conv(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID")

    @jax.jit
    def step(p: Any, m: Any, v: Any, n: Any, batch: Any) -> Any:
        def loss(p: Any) -> Any:
            return task.loss(jax.numpy, conv, p, batch)

        value, g = jax.value_and_grad(loss)(p)
        tree_map = jax.tree.map
        m = tree_map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = tree_map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)

        def updated_param(p: Any, m: Any, v: Any) -> Any:
            root = jax.numpy.sqrt(v / (1 - 0.999**n)) + 1e-8
            return p - rate * (m / (1 - 0.9**n)) / root

        return tree_map(updated_param, p, m, v), m, v, value

    p = task.params
    m = jax.tree.map(np.zeros_like, p)
    v, losses = m, []
    for n in range(STEPS):
        p, m, v, value = step(p, m, v, np.float32(n + 1), task.batch(n))
        losses.append(float(value))
    return np.array(losses)


@cache
def expected_losses(name: str) -> Any:
    """Return JAX's losses, the same for each of our devices."""
    return jax_losses(TASKS[name](), 3e-3)


@pytest.mark.slow
@pytest.mark.requires_jax
@pytest.mark.parametrize(("device", "adapter"), DEVICES)
@pytest.mark.parametrize("name", thin_out_cases(TASKS, 3))
def test_losses_match_jax(name: str, device: str, adapter: str) -> None:
    """Every loss of 100 steps is within 1e-3 of JAX's, and the loss falls."""
    task, adam = TASKS[name](), rlx.Adam(3e-3)
    state = (task.params, adam.init(task.params))
    training = rlx.train(
        training_step(task, adam),
        task.batch,
        state,
        steps=STEPS,
        device=device,
        adapter=adapter,
    )
    assert training.steps == STEPS
    np.testing.assert_allclose(training.losses, expected_losses(name), atol=1e-3)
    assert training.losses[-20:].mean() < 0.6 * training.losses[:20].mean()


@pytest.mark.parametrize(
    "optimizer",
    [
        rlx.SGD(0.05),
        rlx.SGD(0.05, momentum=0.9),
        rlx.SGD(0.05, momentum=0.9, nesterov=True, decay=1e-3),
        rlx.AdamW(1e-2),
        rlx.Adam(lambda n: 0.02 / np.sqrt(n)),
    ],
    ids=["plain", "momentum", "nesterov", "adamw", "scheduled adam"],
)
def test_optimisers_lower_the_loss(optimizer: Any) -> None:
    task = mlp()
    state = (task.params, optimizer.init(task.params))
    training = rlx.train(
        training_step(task, optimizer), task.batch, state, steps=60, device="cpu"
    )
    assert training.losses[-10:].mean() < 0.8 * training.losses[:10].mean()


def test_updates_match_pytorch() -> None:
    """Ten steps of each optimiser on the same gradients, in float64, match
    PyTorch's.
    """
    import torch

    rng = np.random.default_rng(0)
    start, grads = rng.normal(size=(3, 2)), rng.normal(size=(10, 3, 2))
    pairs = [
        (rlx.SGD(0.1), torch.optim.SGD, {"lr": 0.1}),
        (
            rlx.SGD(0.1, momentum=0.8, nesterov=True, decay=0.01),
            torch.optim.SGD,
            {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.01},
        ),
        (rlx.Adam(0.1), torch.optim.Adam, {"lr": 0.1}),
        (
            rlx.AdamW(0.1, decay=0.05),
            torch.optim.AdamW,
            {"lr": 0.1, "weight_decay": 0.05},
        ),
    ]
    for ours, theirs, options in pairs:
        p, state = start.copy(), ours.init(start)
        t = torch.tensor(start.copy(), requires_grad=True)
        optimizer = theirs([t], **options)
        for g in grads:
            p, state = ours.update(p, g, state)
            t.grad = torch.tensor(g)
            optimizer.step()
        np.testing.assert_allclose(p, t.detach().numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", thin_out_cases(TASKS, 2))
@pytest.mark.parametrize(
    "fast",
    [
        "off",
        pytest.param("background", marks=pytest.mark.requires_fast),
        pytest.param("wait", marks=pytest.mark.requires_fast),
    ],
)
def test_resuming_from_a_file_matches_an_uninterrupted_run(
    name: str, fast: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training resumed from a file is bit-identical, whenever code is compiled.

    It stops after each of three pieces; the losses are compared, too.
    """
    monkeypatch.setenv("RLX_FAST", fast)
    task, adam = TASKS[name](), rlx.Adam(1e-2)
    state = (task.params, adam.init(task.params))

    def run(steps: int, file: Path | None) -> Any:
        return rlx.train(
            training_step(task, adam),
            task.batch,
            state,
            steps=steps,
            device="cpu",
            save_to=file,
            save_every=7,
        )

    uninterrupted = run(30, None)
    for steps in (4, 20, 30):
        resumed = run(steps, tmp_path / "state.npz")
        np.testing.assert_array_equal(resumed.losses, uninterrupted.losses[:steps])
    for name, array in uninterrupted.state[0].items():
        np.testing.assert_array_equal(resumed.state[0][name], array)


def test_an_interrupted_training_resumes(tmp_path: Path) -> None:
    """A training ended by Ctrl-C has its progress in its file, and resumes."""
    task, adam = mlp(), rlx.Adam(1e-2)
    state, file = (task.params, adam.init(task.params)), tmp_path / "state.npz"

    def batch(n: int) -> Any:
        if n == 9:
            raise KeyboardInterrupt
        return task.batch(n)

    options: Any = {"steps": 20, "device": "cpu", "save_to": file}
    interrupted = rlx.train(training_step(task, adam), batch, state, **options)
    assert (interrupted.steps, interrupted.why) == (9, "Ctrl-C")
    resumed = rlx.train(training_step(task, adam), task.batch, state, **options)
    uninterrupted = rlx.train(
        training_step(task, adam), task.batch, state, steps=20, device="cpu"
    )
    np.testing.assert_array_equal(resumed.losses, uninterrupted.losses)


def test_a_nan_loss_is_reported_with_the_op(tmp_path: Path) -> None:
    """A NaN loss is reported with the step, the op and its operands.

    The file has the state before it.
    """
    file = tmp_path / "state.npz"

    def step(w: Any, x: Any) -> Any:
        loss, grad = rlx.value_and_grad(lambda w: np.sum(np.log(w) * x))(w)
        return w - 0.4 * grad, loss

    def batch(n: int) -> Any:
        return np.ones(3)

    with pytest.raises(
        NotFinite, match=r"step 2.*log.*produced nan in 3 of 3"
    ) as caught:
        rlx.train(step, batch, np.full(3, 0.5), steps=9, device="cpu", save_to=file)
    assert "the save_to file contains the state before this step" in str(caught.value)
    with np.load(file) as stored:
        assert len(stored["losses"]) == 1


def test_early_stops() -> None:
    """Training stops early when no mean of the latest steps is an improvement."""

    def step(w: Any, x: Any) -> Any:
        loss, grad = rlx.value_and_grad(lambda w: np.sum((w - 1.0) ** 2))(w)
        return w - 0.5 * grad, loss + 0.0 * np.sum(x)

    training = rlx.train(
        step, lambda n: np.ones(1), np.zeros(2), steps=500, device="cpu", patience=30
    )
    assert training.steps < 60
    assert "30" in training.why


@pytest.mark.parametrize("cut", [0, 10, 200])
def test_broken_files(cut: int, tmp_path: Path) -> None:
    """A truncated file, a foreign file or one of another training is refused.

    That of another training stays as it is.
    """
    task, adam = mlp(), rlx.Adam(1e-2)
    state, file = (task.params, adam.init(task.params)), tmp_path / "state.npz"
    options: Any = {"device": "cpu", "save_to": file}
    rlx.train(training_step(task, adam), task.batch, state, steps=3, **options)
    saved_bytes = file.read_bytes()
    sgd = rlx.SGD(0.1)
    other_state = (task.params, sgd.init(task.params))
    with pytest.raises(InputError, match="this training"):
        rlx.train(training_step(task, sgd), task.batch, other_state, steps=5, **options)
    assert file.read_bytes() == saved_bytes
    file.write_bytes(
        saved_bytes[: len(saved_bytes) - cut] if cut else b"not a file of ours"
    )
    with pytest.raises(RecordingError, match="start over"):
        rlx.train(training_step(task, adam), task.batch, state, steps=5, **options)


def test_batches_of_other_shapes_are_refused() -> None:
    def step(w: Any, x: Any) -> Any:
        return w, np.sum(w * x)

    with pytest.raises(ShapeError, match="first call"):
        rlx.train(step, [np.ones(3), np.ones((2, 3))], np.ones(3), device="cpu")
    with pytest.raises(UsageError, match="state, loss"):
        rlx.train(lambda w, x: np.sum(w), [np.ones(3)], np.ones(3), device="cpu")
    with pytest.raises(UsageError, match="steps=1000"):
        rlx.train(step, lambda n: np.ones(3), np.ones(3), device="cpu")
    with pytest.raises(UsageError, match="iterable"):
        rlx.train(step, 3, np.ones(3), device="cpu")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda: rlx.Adam(0.0),
        lambda: rlx.Adam(b1=1.0),
        lambda: rlx.SGD(momentum=-0.1),
        lambda: rlx.AdamW(decay=-1.0),
        lambda: rlx.SGD("0.1"),  # type: ignore[arg-type]
    ],
)
def test_optimizer_settings_out_of_range_are_refused(make_optimizer: Any) -> None:
    with pytest.raises(UsageError):
        make_optimizer()


def test_lbfgs_finds_a_minimum() -> None:
    """L-BFGS minimises Rosenbrock's function over a tree of arrays, and reports a NaN
    loss.
    """

    def rosenbrock(p: Any) -> Any:
        x = p["x"]
        return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    result = rlx.lbfgs(rosenbrock, {"x": np.zeros(6)}, steps=200, device="cpu")
    np.testing.assert_allclose(result.params["x"], 1.0, atol=1e-5)
    assert result.losses[-1] == result.loss
    with pytest.raises(NotFinite, match="log"):
        rlx.lbfgs(lambda x: np.sum(np.log(x)), np.full(2, -1.0), device="cpu")
