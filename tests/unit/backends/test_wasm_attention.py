"""Attention by WebAssembly; where there is none the row stays shut.

The tests run in Pyodide under node as well (`./dev test wasm`).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.backends.wasm_attention import ATTENTION, Attention
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry
from tests.unit.backends.attention_shapes import shapes_of

IN_WASM = sys.platform == "emscripten"
(ROW,) = ATTENTION
Shape = tuple[int, ...]


@pytest.fixture(autouse=True)
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests compile nothing."""
    monkeypatch.setenv("RLX_FAST", "background")


def is_open(q: Shape, dtype: DType = DType.F32, **more: Any) -> bool:
    kind = TensorType(q, dtype)
    op = registry.get("attention")
    attrs = op.check_attrs({"num_heads": q[1], "head_dim": q[3], **more})
    return ROW.takes((kind,) * 3, kind, attrs)


def check(shapes: tuple[Shape, Shape, Shape], mask: Any, **attrs: Any) -> None:
    """Against the reference in float64, within the tolerance of the op."""
    rng = np.random.default_rng(sum(shapes[0]))
    given = [rng.standard_normal(shape, np.float32) for shape in shapes]
    if mask is not None:
        given.append(mask)
        attrs["mask_kind"] = "bias"
    op = registry.get("attention")
    full = op.check_attrs(attrs)
    wide = [one.astype(np.float64) for one in given]
    with np.errstate(all="ignore"):
        right = op.reference(np, full, *wide)
        kinds = tuple(TensorType(one.shape, DType.F32) for one in given)
        out = TensorType(right.shape, DType.F32)
        if IN_WASM and ROW.takes(kinds, out, full):
            found = ROW.of(kinds, out, full)(full, *given)
        else:
            found = op.reference(np, full, *given)
    assert found.shape == right.shape
    np.testing.assert_allclose(found, right, 5e-5, 1e-5)


def test_it_is_open_where_it_belongs() -> None:
    assert is_open((1, 4, 32, 16)) == IN_WASM
    assert not is_open((1, 4, 32, 16), DType.F64)
    assert not is_open((1, 1, 4, 4))
    assert not is_open((1, 4, 32, 16), softcap=2.0)
    assert not is_open((1, 4, 32, 16), mask_kind="causal")


@given(
    layout=st.sampled_from(["heads", "rows", "flat"]),
    batch=st.integers(1, 3),
    group=st.sampled_from([1, 2]),
    keys_of=st.integers(1, 4),
    queries=st.integers(1, 150),
    keys=st.integers(4, 140),
    size=st.integers(1, 40),
    value=st.integers(1, 40),
)
@settings(max_examples=60)
def test_it_is_numpys(
    layout: str,
    batch: int,
    group: int,
    keys_of: int,
    queries: int,
    keys: int,
    size: int,
    value: int,
) -> None:
    """Attention is NumPy's for shared keys, odd lengths and values of another size."""
    heads = keys_of * group
    sizes = batch, heads, keys_of, queries, keys, size, value
    shapes = shapes_of(layout, *sizes)
    if shapes is not None:
        check(shapes, None, num_heads=heads, head_dim=size)


@pytest.mark.parametrize(
    "shape",
    [(), (1,), (37,), (70, 37), (1, 37), (2, 1, 1, 37), (2, 5, 70, 37), (70, 1)],
)
def test_what_is_added_broadcasts(shape: Shape) -> None:
    rng = np.random.default_rng(1)
    mask = np.asarray(rng.standard_normal(shape), np.float32)
    q, k = (2, 5, 70, 24), (2, 5, 37, 24)
    check((q, k, k), mask, num_heads=5, head_dim=24, score_scale=0.3)


@pytest.mark.parametrize("worst", [np.inf, -np.inf, np.nan, 3e38, -3e38])
def test_numbers_that_are_none_do_what_they_do_elsewhere(worst: float) -> None:
    """Hidden keys, NaN and infinity do what they do elsewhere."""
    mask = np.zeros((70, 37), np.float32)
    mask[3, 5], mask[4], mask[6, 30:] = worst, worst, -np.inf
    q, k = (1, 2, 70, 24), (1, 2, 37, 24)
    check((q, k, k), mask, num_heads=2, head_dim=24)


def test_what_spells_it_out_becomes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products around a softmax, as networks have them, become attention."""
    called, call = [], Attention.__call__

    def counted(self: Attention, *given: Any) -> Any:
        called.append(self)
        return call(self, *given)

    monkeypatch.setattr(Attention, "__call__", counted)
    g, shape = rlx.Graph("spelled"), (2, 4, 32, 16)
    q, k, v = (g.input(name, shape) for name in "qkv")
    b = g.input("b", (2, 1, 1, 32))
    scores = q @ k.transpose(0, 1, 3, 2) * 0.25 + b
    g.set_outputs([g.softmax(scores) @ v])
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal(shape, np.float32) for name in "qkv"}
    given["b"] = rng.standard_normal((2, 1, 1, 32), np.float32)
    (found,) = rlx.Session("cpu").compile(g).run(given)
    assert len(called) == IN_WASM
    wide = {name: one.astype(np.float64) for name, one in given.items()}
    right = wide["q"] @ wide["k"].transpose(0, 1, 3, 2) * 0.25 + wide["b"]
    right = np.exp(right - right.max(-1, keepdims=True))
    right = right / right.sum(-1, keepdims=True) @ wide["v"]
    np.testing.assert_allclose(found, right, 5e-5, 1e-5)
