"""Networks trained as JAX trains them, on the CPU and on WGSL; what ends a training.

JAX's updates are written here from the papers' formulas, apart from ours.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import InputError, NotFinite, RecordingError, ShapeError, UsageError
from tests.gradients.networks import TASKS, Task, mlp
from tests.tiers import thinned

STEPS = 100
DEVICES = [
    pytest.param("cpu", "", id="cpu"),
    pytest.param("vulkan", "llvmpipe", id="lavapipe", marks=pytest.mark.requires_wgpu),
]


def step_of(task: Task, optimizer: Any) -> Any:
    def loss(params: Any, batch: Any) -> Any:
        return task.loss(np, rlx.nn.conv, params, batch)

    def step(state: Any, batch: Any) -> Any:
        params, moments = state
        value, grads = rlx.value_and_grad(loss)(params, batch)
        return optimizer.update(params, grads, moments), value

    return step


def jax_losses(task: Task, rate: float) -> Any:
    """Adam's, step by step."""
    import jax

    def conv(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID")

    @jax.jit
    def step(p: Any, m: Any, v: Any, n: Any, batch: Any) -> Any:
        def loss(p: Any) -> Any:
            return task.loss(jax.numpy, conv, p, batch)

        value, g = jax.value_and_grad(loss)(p)
        over = jax.tree.map
        m = over(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = over(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)

        def moved(p: Any, m: Any, v: Any) -> Any:
            root = jax.numpy.sqrt(v / (1 - 0.999**n)) + 1e-8
            return p - rate * (m / (1 - 0.9**n)) / root

        return over(moved, p, m, v), m, v, value

    p = task.params
    m = jax.tree.map(np.zeros_like, p)
    v, losses = m, []
    for n in range(STEPS):
        p, m, v, value = step(p, m, v, np.float32(n + 1), task.batch(n))
        losses.append(float(value))
    return np.array(losses)


@cache
def wanted(name: str) -> Any:
    """The losses of JAX, the same for every device of ours."""
    return jax_losses(TASKS[name](), 3e-3)


@pytest.mark.slow
@pytest.mark.requires_jax
@pytest.mark.parametrize(("device", "adapter"), DEVICES)
@pytest.mark.parametrize("name", thinned(TASKS, 3))
def test_losses_are_those_of_jax(name: str, device: str, adapter: str) -> None:
    """100 steps from the same numbers: every loss within 1e-3, and it was learned."""
    task, adam = TASKS[name](), rlx.Adam(3e-3)
    state = (task.params, adam.init(task.params))
    done = rlx.train(
        step_of(task, adam),
        task.batch,
        state,
        steps=STEPS,
        device=device,
        adapter=adapter,
    )
    assert done.steps == STEPS
    np.testing.assert_allclose(done.losses, wanted(name), atol=1e-3)
    assert done.losses[-20:].mean() < 0.6 * done.losses[:20].mean()


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
def test_optimisers_go_down(optimizer: Any) -> None:
    task = mlp()
    state = (task.params, optimizer.init(task.params))
    made = rlx.train(
        step_of(task, optimizer), task.batch, state, steps=60, device="cpu"
    )
    assert made.losses[-10:].mean() < 0.8 * made.losses[:10].mean()


def test_updates_are_those_of_pytorch() -> None:
    """Ten steps of each on the same gradients, in float64."""
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
    for ours, theirs, how in pairs:
        p, state = start.copy(), ours.init(start)
        t = torch.tensor(start.copy(), requires_grad=True)
        optimizer = theirs([t], **how)
        for g in grads:
            p, state = ours.update(p, g, state)
            t.grad = torch.tensor(g)
            optimizer.step()
        np.testing.assert_allclose(p, t.detach().numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", thinned(TASKS, 2))
@pytest.mark.parametrize(
    "fast",
    [
        "off",
        pytest.param("background", marks=pytest.mark.requires_fast),
        pytest.param("wait", marks=pytest.mark.requires_fast),
    ],
)
def test_going_on_from_a_file_is_never_having_stopped(
    name: str, fast: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training from a file goes on to the bit, whenever code is made.

    It stops after each of three pieces; the losses are compared, too.
    """
    monkeypatch.setenv("RLX_FAST", fast)
    task, adam = TASKS[name](), rlx.Adam(1e-2)
    state = (task.params, adam.init(task.params))

    def run(steps: int, file: Path | None) -> Any:
        return rlx.train(
            step_of(task, adam),
            task.batch,
            state,
            steps=steps,
            device="cpu",
            save_to=file,
            save_every=7,
        )

    whole = run(30, None)
    for steps in (4, 20, 30):
        parts = run(steps, tmp_path / "state.npz")
        np.testing.assert_array_equal(parts.losses, whole.losses[:steps])
    for name, array in whole.state[0].items():
        np.testing.assert_array_equal(parts.state[0][name], array)


def test_an_interrupted_training_goes_on(tmp_path: Path) -> None:
    """A training ended by Ctrl-C has what was done in its file, and goes on."""
    task, adam = mlp(), rlx.Adam(1e-2)
    state, file = (task.params, adam.init(task.params)), tmp_path / "state.npz"

    def batch(n: int) -> Any:
        if n == 9:
            raise KeyboardInterrupt
        return task.batch(n)

    how: Any = {"steps": 20, "device": "cpu", "save_to": file}
    made = rlx.train(step_of(task, adam), batch, state, **how)
    assert (made.steps, made.why) == (9, "Ctrl-C")
    rest = rlx.train(step_of(task, adam), task.batch, state, **how)
    whole = rlx.train(step_of(task, adam), task.batch, state, steps=20, device="cpu")
    np.testing.assert_array_equal(rest.losses, whole.losses)


def test_a_loss_that_is_no_number_is_told_with_the_op(tmp_path: Path) -> None:
    """A loss that is no number is told with the step, the op and its operands.

    The file has the state before it.
    """
    file = tmp_path / "state.npz"

    def step(w: Any, x: Any) -> Any:
        loss, grad = rlx.value_and_grad(lambda w: np.sum(np.log(w) * x))(w)
        return w - 0.4 * grad, loss

    def batch(n: int) -> Any:
        return np.ones(3)

    with pytest.raises(NotFinite, match=r"step 2.*log.*made nan of 3 of 3") as told:
        rlx.train(step, batch, np.full(3, 0.5), steps=9, device="cpu", save_to=file)
    assert "the file has the state before this step" in str(told.value)
    with np.load(file) as found:
        assert len(found["losses"]) == 1


def test_early_stops() -> None:
    """Training stops early when no mean of the last steps was better."""

    def step(w: Any, x: Any) -> Any:
        loss, grad = rlx.value_and_grad(lambda w: np.sum((w - 1.0) ** 2))(w)
        return w - 0.5 * grad, loss + 0.0 * np.sum(x)

    made = rlx.train(
        step, lambda n: np.ones(1), np.zeros(2), steps=500, device="cpu", patience=30
    )
    assert made.steps < 60
    assert "30" in made.why


@pytest.mark.parametrize("cut", [0, 10, 200])
def test_broken_files(cut: int, tmp_path: Path) -> None:
    """A file that was cut, is none of ours or of another training is refused.

    That of another training stays as it is.
    """
    task, adam = mlp(), rlx.Adam(1e-2)
    state, file = (task.params, adam.init(task.params)), tmp_path / "state.npz"
    how: Any = {"device": "cpu", "save_to": file}
    rlx.train(step_of(task, adam), task.batch, state, steps=3, **how)
    good = file.read_bytes()
    sgd = rlx.SGD(0.1)
    other = (task.params, sgd.init(task.params))
    with pytest.raises(InputError, match="this training"):
        rlx.train(step_of(task, sgd), task.batch, other, steps=5, **how)
    assert file.read_bytes() == good
    file.write_bytes(good[: len(good) - cut] if cut else b"not a file of ours")
    with pytest.raises(RecordingError, match="begin anew"):
        rlx.train(step_of(task, adam), task.batch, state, steps=5, **how)


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
    "made",
    [
        lambda: rlx.Adam(0.0),
        lambda: rlx.Adam(b1=1.0),
        lambda: rlx.SGD(momentum=-0.1),
        lambda: rlx.AdamW(decay=-1.0),
        lambda: rlx.SGD("0.1"),  # type: ignore[arg-type]
    ],
)
def test_settings_out_of_their_range(made: Any) -> None:
    with pytest.raises(UsageError):
        made()


def test_least_of_a_function() -> None:
    """Rosenbrock's valley, from trees of float32 and on WGSL alike."""

    def valley(p: Any) -> Any:
        x = p["x"]
        return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    found = rlx.lbfgs(valley, {"x": np.zeros(6)}, steps=200, device="cpu")
    np.testing.assert_allclose(found.params["x"], 1.0, atol=1e-5)
    assert found.losses[-1] == found.loss
    with pytest.raises(NotFinite, match="log"):
        rlx.lbfgs(lambda x: np.sum(np.log(x)), np.full(2, -1.0), device="cpu")
