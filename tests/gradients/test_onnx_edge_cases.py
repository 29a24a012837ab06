"""Check gradients of ONNX models at zeros, equal rows and fully masked attention rows.

The right values are PyTorch's in float64, or closed forms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from tests.onnx.model_factory import BOOL, make_model, node, value_info

pytestmark = pytest.mark.requires_torch
X = np.array([[0.0, 0.0, 0.0], [3.0, 0.0, -4.0]])
WEIGHTS = np.arange(1.0, 7.0).reshape(2, 3)


def gradients(model_proto: Any, arrays: dict[str, Any]) -> list[np.ndarray]:
    """Compute the gradients of the weighted sum of the first output by every float
    input.
    """
    g = rlx.onnx.load(model_proto.SerializeToString()).graph
    y = g.tensor(g.outputs[0])
    weights = np.arange(1.0, 1.0 + np.prod(y.shape)).reshape(y.shape)
    loss = g.sum(y * g.constant(weights.astype(np.float32)))
    inputs = g.named("input")
    names = [n for n, a in arrays.items() if a.dtype != bool]
    g.set_outputs(g.gradients(loss, [g.tensor(inputs[n].id) for n in names]))
    feeds = {n: a if a.dtype == bool else a.astype("f4") for n, a in arrays.items()}
    return rlx.Session("cpu").compile(g).run(feeds)


def _normalize_rows(x: Any, p: float) -> Any:
    return x / torch.linalg.vector_norm(x, p, -1, keepdim=True).clamp_min(1e-37)


def _standardize_rows(x: Any) -> Any:
    centered = x - x.mean(-1, keepdim=True)
    root = torch.linalg.vector_norm(centered, 2, -1, keepdim=True) / 3**0.5
    return centered / (root + 1e-9)


CASES: dict[str, tuple[Any, Any]] = {
    "ReduceL2": (
        node("ReduceL2", ["a"], ["y"], axes=[1], keepdims=1),
        lambda x: torch.linalg.vector_norm(x, 2, 1, keepdim=True),
    ),
    "ReduceLogSumExp": (
        node("ReduceLogSumExp", ["a"], ["y"], axes=[1], keepdims=1),
        lambda x: torch.logsumexp(x, 1, keepdim=True),
    ),
    "GlobalLpPool": (
        node("GlobalLpPool", ["a"], ["y"], p=3),
        lambda x: torch.linalg.vector_norm(x, 3, 2, keepdim=True),
    ),
    "LpPool": (
        node("LpPool", ["a"], ["y"], p=2, kernel_shape=[2]),
        lambda x: torch.linalg.vector_norm(x.unfold(-1, 2, 1), 2, -1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_norms_of_zeros(name: str) -> None:
    step, theirs = CASES[name]
    x = X[:, None] if "Pool" in name else X
    model_proto = make_model(
        [step], [value_info("a", x.shape)], [value_info("y", None)], opsets={"": 13}
    )
    t = torch.tensor(x, requires_grad=True)
    out = theirs(t)
    weights = torch.arange(1.0, 1.0 + out.numel()).reshape(out.shape)
    (want,) = torch.autograd.grad((out * weights).sum(), t)
    (got,) = gradients(model_proto, {"a": x})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("step", "opsets"),
    [
        (node("Normalizer", ["a"], ["y"], domain="ai.onnx.ml", norm="L2"), 3),
        (node("Normalizer", ["a"], ["y"], domain="ai.onnx.ml", norm="L1"), 3),
    ],
)
def test_rows_of_zeros_are_divided_by_one(step: Any, opsets: int) -> None:
    """The gradient of a row of zeros is the weights: it is divided by one."""
    model_proto = make_model(
        [step],
        [value_info("a", X.shape)],
        [value_info("y", X.shape)],
        opsets={"": 13, "ai.onnx.ml": opsets},
    )
    (got,) = gradients(model_proto, {"a": X})
    np.testing.assert_allclose(got[0], WEIGHTS[0], rtol=1e-6)
    t = torch.tensor(X[1], requires_grad=True)
    p = 2.0 if b"L2" in step.SerializeToString() else 1.0
    loss = (_normalize_rows(t, p) * torch.tensor(WEIGHTS[1])).sum()
    (want,) = torch.autograd.grad(loss, t)
    np.testing.assert_allclose(got[1], want, rtol=1e-5, atol=1e-6)


def test_mean_variance_normalization_of_constants() -> None:
    """A row of equal numbers is divided by 1e-9 alone."""
    x = np.array([[2.0, 2.0, 2.0], [3.0, 0.0, -4.0]])
    step = node("MeanVarianceNormalization", ["a"], ["y"], axes=[1])
    model_proto = make_model(
        [step], [value_info("a", x.shape)], [value_info("y", x.shape)], opsets={"": 13}
    )
    (got,) = gradients(model_proto, {"a": x})
    t = torch.tensor(x, requires_grad=True)
    (want,) = torch.autograd.grad(
        (_standardize_rows(t) * torch.tensor(WEIGHTS)).sum(), t
    )
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stages", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, bool])
def test_attention_with_a_fully_masked_row(dtype: Any, stages: bool) -> None:
    """Attention with a fully masked row has PyTorch's gradients.

    They are had with and without the output of a stage, by an op and by its parts.
    """
    rng = np.random.default_rng(2)
    q, k, v = (rng.normal(size=(1, 2, n, 3)) for n in (3, 4, 4))
    keep = rng.random((3, 4)) > 0.3
    keep[1] = False
    mask = keep if dtype is bool else np.where(keep, 0.5, -np.inf)
    outputs = ["y", "", "", "stage"] if stages else ["y"]
    model_proto = make_model(
        [node("Attention", ["q", "k", "v", "m"], outputs)],
        [
            *(value_info(n, a.shape) for n, a in (("q", q), ("k", k), ("v", v))),
            value_info("m", keep.shape, *((BOOL,) if dtype is bool else ())),
        ],
        [value_info(n, None) for n in outputs if n],
        opsets={"": 23},
    )
    got = gradients(model_proto, {"q": q, "k": k, "v": v, "m": mask})
    wrt = [torch.tensor(a, requires_grad=True) for a in (q, k, v)]
    bias = torch.tensor(mask if dtype is not bool else np.zeros((3, 4)))
    bias = bias.masked_fill(~torch.tensor(keep), -torch.inf)
    scores = wrt[0] @ wrt[1].transpose(-1, -2) / 3**0.5 + bias
    has_open_key = torch.tensor(keep).any(-1, keepdim=True)
    scores = torch.where(has_open_key, scores, 0.0)
    out = torch.where(has_open_key, torch.softmax(scores, -1), 0.0) @ wrt[2]
    weights = torch.arange(1.0, 1.0 + out.numel()).reshape(out.shape)
    wanted = torch.autograd.grad((out * weights).sum(), wrt)
    for ours, want in zip(got, wanted, strict=False):
        np.testing.assert_allclose(ours, want, rtol=1e-4, atol=1e-4)
