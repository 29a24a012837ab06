"""`compiled.export_web`: exported pages compute the same results as the compiled
graph.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import (
    InputError,
    SessionClosed,
    ShapeError,
    UnknownName,
    Unsupported,
    UsageError,
)
from rlxweb.engines.protocol import Program
from rlxweb.gpu.coroutine_runner import run_blocking
from tests.exported_plan_replay import PlanReplay
from tests.unit.engines.test_protocol import MinimalEngine, prepare_doubling_program

pytestmark = pytest.mark.requires_wgpu
W = np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3)
M = np.array([True, False, True])
X = np.arange(8, dtype="f4").reshape(4, 2)


def _graph() -> rlx.Graph:
    g = rlx.Graph("lin")
    x, w, m = g.input("x", (4, 2)), g.param("w", (2, 3)), g.param("m", (3,), "bool")
    y = x @ w
    g.set_outputs([g.where(m, y, y * 0)])
    return g


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_params_are_exported_from_any_place(device: str, tmp_path: Path) -> None:
    """Params are exported from the host, a GPU and device-only arrays, bools
    included.
    """
    compiled = rlx.Session(device).compile(_graph())
    compiled.set_param("w", rlx.put(W, device=device))
    compiled.set_param("m", M)
    exported = compiled.export_web(tmp_path / "out", outputs=["y"])
    page = PlanReplay(exported.folder)
    page.check()
    want = np.where(M, X @ W, 0)
    np.testing.assert_allclose(page.run({"x": X})["y"], want, atol=1e-6)
    (local_output,) = compiled.run({"x": X})
    np.testing.assert_allclose(local_output, want, atol=1e-6)


def test_export_is_a_snapshot(tmp_path: Path) -> None:
    compiled = rlx.Session("cpu").compile(_graph())
    w = W.copy()
    compiled.set_param("w", w)
    compiled.set_param("m", M)
    w[:] = 0  # the caller's array is the caller's
    exported = compiled.export_web(tmp_path / "out")
    compiled.set_param("w", w)
    np.testing.assert_allclose(
        PlanReplay(exported.folder).run({"x": X})["out0"],
        np.where(M, X @ W, 0),
        atol=1e-6,
    )


def test_caller_test_vectors(tmp_path: Path) -> None:
    """The caller may give one test vector, several, a count or none; invalid ones are
    refused.
    """
    compiled = rlx.Session("cpu").compile(_graph())
    for name, value in (("w", W), ("m", M)):
        compiled.set_param(name, value)
    for index, vectors in enumerate(({"x": X}, [{"x": X}, {"x": -X}], 3, 0)):
        exported = compiled.export_web(tmp_path / str(index), vectors=vectors)
        page = PlanReplay(exported.folder)
        cases = (page.plan["vectors"] or {"cases": []})["cases"]
        assert len(cases) == (1, 2, 3, 0)[index]
        for case in range(len(cases)):
            page.check(case)
        if vectors != 0 and not isinstance(vectors, int):
            np.testing.assert_array_equal(page.load_case(0)[0]["x"], X)
    invalid_vectors: list[tuple[Any, type[Exception]]] = [
        ({"x": X[:2]}, ShapeError),
        ({"z": X}, UnknownName),
        ({}, InputError),
        ("x", UsageError),
        (99, UsageError),
        (-1, UsageError),
        ([{"x": X}] * 17, UsageError),
    ]
    for vectors, error in invalid_vectors:
        with pytest.raises(error):
            compiled.export_web(tmp_path / "wrong", vectors=vectors)
    assert not (tmp_path / "wrong").exists()


def test_invalid_exports_are_rejected(tmp_path: Path) -> None:
    compiled = rlx.Session("cpu").compile(_graph())
    compiled.set_param("m", M)
    with pytest.raises(InputError, match="param 'w' has no value; 1 of 2 params unset"):
        compiled.export_web(tmp_path / "out")
    compiled.set_param("w", W)
    for invalid_options in (
        {"limits": {"maxBufferSize": 1}},
        {"package": 3, "to": "npm"},
        {"features": "subgroups"},
        {"to": "zip"},
    ):
        with pytest.raises(UsageError):
            compiled.export_web(tmp_path / "out", **invalid_options)
    for folder in (None, 3, "a\0b", ""):
        with pytest.raises(UsageError):
            compiled.export_web(folder)
    assert not (tmp_path / "out").exists()
    path_bytes = os.fsencode(tmp_path / "out")
    exported = compiled.export_web(
        path_bytes, package="@me/lin", to="npm", features="shader-f16"
    )
    assert exported.folder == tmp_path / "out"
    compiled.close()
    with pytest.raises(SessionClosed):
        compiled.export_web(tmp_path / "out")
    program = prepare_doubling_program(MinimalEngine())
    with pytest.raises(Unsupported, match="cannot return params"):
        run_blocking(Program.get_param(program, "w"))


def test_rounding_dependent_outputs_are_not_compared(tmp_path: Path) -> None:
    """An output that depends on rounding is not compared, and a note says so."""
    g = rlx.Graph("ties")
    x = g.input("x", (6,))
    g.set_outputs([g.exp(x) > g.exp(x) * 1.0000001, g.exp(x)])
    exported = rlx.Session("cpu").compile(g).export_web(tmp_path / "out")
    plan = json.loads((exported.folder / "plan.json").read_text())
    assert list(plan["vectors"]["cases"][0]["outputs"]) == ["out1"]
    assert exported.notes == (
        "output 'out0' is not compared: its values depend on rounding",
    )


def test_non_finite_outputs_are_noted(tmp_path: Path) -> None:
    g = rlx.Graph("poles")
    x = g.input("x", (6,))
    g.set_outputs([x / (x - x), x])
    exported = rlx.Session("cpu").compile(g).export_web(tmp_path / "out")
    assert exported.notes == ("6 of 6 values of 'out0' are not finite",)


def test_large_arrays_are_compared_partially(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generated inputs repeat the stored part, and outputs are compared up to its
    end.
    """
    monkeypatch.setattr("rlxweb.export.plan_test_vectors.MAX_STORED_NBYTES", 400)
    g = rlx.Graph("large")
    g.set_outputs([g.input("x", (7, 99)) * 3])
    exported = rlx.Session("cpu").compile(g).export_web(tmp_path / "out")
    page = PlanReplay(exported.folder)
    feeds, expected = page.load_case(0)
    assert feeds["x"].shape == (7, 99)
    assert expected["out0"]["want"].size == 100
    page.check()
    assert exported.notes == ("100 of 693 values of 'out0' are compared",)


def test_unused_inputs_of_unsupported_dtype_are_dropped(
    tmp_path: Path,
) -> None:
    g = rlx.Graph("unread")
    x, _ = g.input("x", (4,)), g.input("y", (3,), "f64")
    g.set_outputs([x * 2.0])
    feeds = {"x": np.ones(4, "f4"), "y": np.ones(3)}
    compiled = rlx.Session("cpu").compile(g)
    PlanReplay(compiled.export_web(tmp_path / "out", vectors=[feeds]).folder).check()


def test_dynamic_sizes_must_be_bound_first(tmp_path: Path) -> None:
    g = rlx.Graph("varying")
    g.set_outputs([g.input("x", (rlx.Dim("n"), 2)) * 2.0])
    compiled = rlx.Session("cpu").compile(g)
    with pytest.raises(
        UsageError, match=r"dynamic sizes \(n\); .*compiled.bind\(n=…\).export_web"
    ):
        compiled.export_web(tmp_path / "out")
    PlanReplay(compiled.bind(n=3).export_web(tmp_path / "out").folder).check()
